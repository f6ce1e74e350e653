"""The kinds of text that a setting can take, each with the words that explain it."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class OneOf:
    """A name from a table that lies elsewhere."""

    choices: tuple[str, ...]

    def __call__(self, value: str) -> str:
        """Validate."""
        if value not in self.choices:
            raise ValueError("not registered")
        return value


@dataclass(frozen=True)
class Form:
    """A text that `read` understands; `words` say what it understands."""

    read: Callable[[str], object]
    words: str

    def __call__(self, value: str | None) -> str | None:
        """Validate."""
        if value is not None and not self.read(value):
            raise ValueError("not of this form")
        return value


@dataclass(frozen=True)
class Pattern(Form):
    """A form that a regular expression describes, in the syntax that Python and POSIX shells share."""

    pattern: str

    @classmethod
    def of(cls, pattern: str, words: str) -> "Pattern":
        """A setting that the scripts check too, before the program is built."""
        return cls(re.compile(pattern).fullmatch, words, pattern)
