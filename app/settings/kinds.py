"""The kinds of text that a setting can take, each with the words that explain it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from pydantic.fields import FieldInfo

from app.extensions import files

WHOLE = re.compile(r"-?[0-9]+").fullmatch
DECIMAL = re.compile(r"-?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)?").fullmatch


def types_of(field: FieldInfo) -> set[object]:
    """The types that a setting can have."""
    return {field.annotation, *get_args(field.annotation)}


@dataclass(frozen=True)
class OneOf:
    """A name from a table that lies elsewhere."""

    choices: tuple[str, ...]

    def __call__[Value](self, value: Value) -> Value:
        if value is not None and value not in self.known:
            raise ValueError("not registered")
        return value

    @property
    def known(self) -> tuple[str, ...]:
        """All of them."""
        return self.choices


@dataclass(frozen=True)
class OneOfOrOwn(OneOf):
    """The same, or the name of a file in extensions/."""

    @property
    def known(self) -> tuple[str, ...]:
        """The table's first: they win."""
        return (*self.choices, *(name for name in files.names() if name not in self.choices))


@dataclass(frozen=True)
class Form:
    """A text that `read` understands; `words` say what it understands."""

    read: Callable[[str], object]
    words: str

    def __call__[Value](self, value: Value) -> Value:
        if value is not None and not self.read(str(value)):
            raise ValueError("not of this form")
        return value


@dataclass(frozen=True)
class Pattern(Form):
    """A form that a regular expression describes, in the syntax that Python and POSIX shells share.

    It also describes numbers, which it reads before they become numbers.
    """

    pattern: str

    @classmethod
    def of(cls, pattern: str, words: str) -> "Pattern":
        """A setting that the scripts check too, before the program is built."""
        return cls(re.compile(pattern).fullmatch, words, pattern)
