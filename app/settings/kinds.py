"""The kinds of values that a setting can take, each with the words that explain it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from pydantic.fields import FieldInfo

from app.extensions import files

# In the syntax that Python and POSIX shells share. No setting takes a negative number.
WHOLE = re.compile(r"[0-9]+")
DECIMAL = re.compile(r"([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)?")
BYTES_OF = {"k": 2**10, "m": 2**20, "g": 2**30}


def types_of(field: FieldInfo) -> set[object]:
    return {field.annotation, *get_args(field.annotation)}


@dataclass(frozen=True)
class OneOf:
    """A name from a table that is defined elsewhere."""

    choices: tuple[str, ...]

    def __call__[Value](self, value: Value) -> Value:
        if value is not None and value not in self.choices and value not in self.known:
            raise ValueError("not registered")
        return value

    @property
    def known(self) -> tuple[str, ...]:
        return self.choices


@dataclass(frozen=True)
class OneOfOrOwn(OneOf):
    """A name from such a table, or of a file in extensions/, or of one of these folders."""

    folders: Callable[[], tuple[str, ...]] | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the table come first, because they take precedence over files."""
        own = (*files.names(), *(self.folders() if self.folders else ()))
        return (*self.choices, *(name for name in own if name not in self.choices))

    def is_file(self, name: str) -> bool:
        """Whether a known name is that of a file in extensions/."""
        return name not in self.choices and not (self.folders and name in self.folders())


@dataclass(frozen=True)
class Form:
    """Text that `read` accepts; `words` describes it to users."""

    read: Callable[[str], object]
    words: str

    def __call__[Value](self, value: Value) -> Value:
        if value is not None and not self.read(str(value)):
            raise ValueError("not of this form")
        return value


@dataclass(frozen=True)
class Pattern(Form):
    """A form that a regular expression describes, in the syntax that Python and POSIX shells share."""

    pattern: str

    @classmethod
    def of(cls, pattern: str, words: str) -> "Pattern":
        return cls(re.compile(pattern).fullmatch, words, pattern)


@dataclass(frozen=True)
class Memory(Form):
    """A number with one of Docker's units of memory, such as 2g, within bounds in bytes."""

    least: int
    most: int
    pattern: str = "[0-9]+[kKmMgG][bB]?"

    @classmethod
    def between(cls, least: int, most: int, words: str) -> "Memory":
        def read(text: str) -> bool:
            if not re.fullmatch(cls.pattern, text):
                return False
            number, unit = re.split("(?<=[0-9])(?=[a-z])", text.lower())
            return least <= int(number) * BYTES_OF[unit[0]] <= most

        return cls(read, words, least, most)
