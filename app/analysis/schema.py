"""schema.json: the files of a run for other programs, from types of records, comments beside fields, and measures."""

import inspect
import json
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from app.analysis import bound, measures, summary, wall_clock
from app.analysis.figures import ALWAYS_AN_OBJECT, Figures, Measure
from app.analysis.units import COUNT, MEGABYTES, MEGABYTES_PER_SECOND
from app.machine import interfaces
from app.records import lines, manifest

Schema = dict[str, Any]

TYPES = {
    each.__name__: each
    for module in (lines, manifest, interfaces, summary)
    for each in vars(module).values()
    if isinstance(each, type) and is_dataclass(each) and each is not lines.Score  # which no file has
}
NAMES = {each.__name__: kind for kind, each in lines.KINDS.items()} | {"Manifest": "manifest", "Summary": "summary"}
COMMENT = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)


def text() -> str:
    whole: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The files of a run",
        "description": "Each line of a rank-<n>.jsonl is a `record`; manifest.json is a `manifest`, summary.json a "
        "`summary`. Units are in the names. A value that was not measured is null, never 0. A time computed as a "
        "difference may be slightly negative due to rounding. Records of earlier versions lack some fields.",
        "$defs": {"record": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in lines.KINDS]}},
    }
    whole["$defs"] |= {NAMES.get(name, name): _object_of(each) for name, each in TYPES.items()}
    return json.dumps(whole, indent=1) + "\n"


def _object_of(own: type) -> Schema:
    """All fields of a dataclass, each described by the comment beside it."""
    hints = get_type_hints(own, include_extras=True)
    comments = dict(COMMENT.findall(inspect.getsource(own)))
    properties: Schema = {"kind": {"const": NAMES[own.__name__]}} if own in lines.KINDS.values() else {}
    for field in fields(own):
        content = OF_MEASURES.get((own, field.name)) or _type(hints[field.name])
        properties[field.name] = content | ({"description": comments[field.name]} if field.name in comments else {})
    return {"description": inspect.getdoc(own)} | _closed(properties)


def _type(hint: Any) -> Schema:
    if isinstance(hint, type) and is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    content = TypeAdapter(hint).json_schema(mode="serialization", ref_template="{model}")
    content.pop("$defs", None)

    def renamed(inside: Any) -> Any:
        """With the names of this file, and without titles."""
        if isinstance(inside, dict):
            kept = {name: renamed(each) for name, each in inside.items() if name != "title"}
            return kept | ({"$ref": f"#/$defs/{NAMES.get(kept['$ref'], kept['$ref'])}"} if "$ref" in kept else {})
        return [renamed(each) for each in inside] if isinstance(inside, list) else inside

    return dict(renamed(content))


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _figures(of: Iterable[Measure[Any]], **others: Schema) -> Schema:
    """Measures as they are nested in summary.json, where a level without any value is null."""
    tree = Figures({measure.name: measure for measure in of}).nested()
    return _closed({name: _level(name, inside) for name, inside in tree.items()} | others)


def _level(name: str, inside: Measure[Any] | Schema) -> Schema:
    if isinstance(inside, Measure):
        least = {"minimum": 0} if inside.unit in (COUNT, MEGABYTES, MEGABYTES_PER_SECOND) else {}
        return {"type": [inside.unit.json, "null"], **least, "description": inside.meaning}
    content = _closed({leaf: _level(leaf, each) for leaf, each in inside.items()})
    return content if name in ALWAYS_AN_OBJECT else content | {"type": ["object", "null"]}


EPOCHS = {"type": "array", "items": _figures((measures.EPOCH, *measures.SCORES[1:]))}
OF_RANK = _figures((*measures.OF_ONE_RANK, *measures.OF_ANY_RANKS), epochs=EPOCHS)
WALL_CLOCK = {name: {"type": ["number", "null"], "description": part} for name, part in wall_clock.PARTS.items()}
OF_MEASURES: dict[tuple[type, str], Schema] = {
    (summary.Summary, "run"): _figures(measures.OF_RUN, epochs=EPOCHS),
    (summary.Summary, "ranks"): {"type": "array", "minItems": 1, "items": OF_RANK},
    (summary.Summary, "wall_clock"): _closed(WALL_CLOCK) | {"type": ["object", "null"]},
    (summary.Verdict, "bound"): {"enum": [*bound.BOUNDS, bound.MIXED, None]},
}
