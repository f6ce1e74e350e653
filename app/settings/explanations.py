"""Explanations of settings in words: defaults, allowed values, refusals, and the nearest name for a misspelt one."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from pydantic import AfterValidator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.extensions.files import FOLDER
from app.machine.folders import DATA
from app.machine.say import LONGEST_SHOWN, shown
from app.settings.kinds import Form, OneOf, OneOfOrOwn, types_of

LEAST_LIKENESS = 0.5  # from which a known word is suggested for an unknown one
SHORTEST_PART = 3  # letters; a shorter word does not count as part of another


def default_text(field: FieldInfo) -> str:
    """A setting's default as a user would write it; empty if it depends on other settings or the machine."""
    return "" if field.default is None else str(field.default)


def allowed_values(field: FieldInfo) -> str:
    """The allowed values in words, derived from the definition of the setting."""
    if words := choices(field):
        own = ""
        if rule := rule_of(field, OneOfOrOwn):
            own = f", or the name of a file in {FOLDER}/"
            own += f" or of a folder in {DATA}/ (a-z, 0-9, _)" if rule.folders else ""
        return ", ".join(words) + own
    if form := rule_of(field, Form):
        return form.words
    types = types_of(field)
    kind = "a whole number" if int in types else "a number" if float in types else "text"
    return " ".join([kind, *_bound_words(field)])


def remedy(field: FieldInfo) -> str:
    """The sentence that ends the refusal of a value."""
    return f"{'Choose from:' if choices(field) else 'Give'} {allowed_values(field)}."


def rule_of[Rule](field: FieldInfo, kind: type[Rule]) -> Rule | None:
    """A setting's validator of this kind, if it has one."""
    functions = [rule.func for rule in field.metadata if isinstance(rule, AfterValidator)]
    return next((function for function in functions if isinstance(function, kind)), None)


def bounds_of(field: FieldInfo) -> dict[str, float]:
    """A number's bounds by their names in pydantic: gt, ge, lt, le."""
    return {
        name: bound
        for rule in field.metadata
        for name in ("gt", "ge", "lt", "le")
        if (bound := getattr(rule, name, None)) is not None
    }


def explain(detail: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    """The refusal of a value: the allowed values, and the nearest one."""
    name, got = str(detail["loc"][0]), str(detail["input"])
    field = fields[name]
    message = f"invalid {name.upper()} '{shown(got)}'. {remedy(field)}"
    near = nearest(got, list(one_of.known) if (one_of := rule_of(field, OneOf)) else choices(field))
    return f"{message} Did you mean {near}?" if near else message


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that is most similar to this one, or None if none is similar."""
    own = _letters(word[:LONGEST_SHOWN])
    likeness = {each: max(_likeness(own, _letters(part)) for part in (each, each.partition("_")[0])) for each in known}
    best = max(known, key=lambda each: likeness[each], default=None)
    return best if best is not None and likeness[best] >= LEAST_LIKENESS else None


def _likeness(one: str, other: str) -> float:
    """The similarity of two words: 0 to 1, or 1 to 2 if one contains the other, as ring_all_reduce contains ring."""
    ratio = difflib.SequenceMatcher(None, one, other).ratio()
    holds = min(len(one), len(other)) >= SHORTEST_PART and (one in other or other in one)
    return ratio + holds


def hint(word: str, known: Sequence[str]) -> str:
    """A sentence that suggests the nearest known word, or lists all."""
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else f"Known: {', '.join(known)}."


def _letters(word: str) -> str:
    """A word in lower case without punctuation, which users often vary."""
    return re.sub(r"[\W_]", "", word.lower())


def choices(field: FieldInfo) -> list[str]:
    """The allowed words; none if a setting is a number or free text."""
    if one_of := rule_of(field, OneOf):
        return list(one_of.choices)
    options = [field.annotation, *get_args(field.annotation)]
    return [word for option in options for word in get_args(option) if isinstance(word, str)]


def _bound_words(field: FieldInfo) -> Iterator[str]:
    bounds = bounds_of(field)
    if {"ge", "le"} <= bounds.keys():
        yield f"from {bounds['ge']} to {bounds['le']}"
        return
    words = {"gt": "above {}", "ge": "of at least {}", "lt": "below {}", "le": "of at most {}"}
    yield " and ".join(words[name].format(bound) for name, bound in bounds.items())
