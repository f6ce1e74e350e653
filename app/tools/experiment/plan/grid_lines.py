"""Where in a grid file each key stands, so that an error can name its line."""

import re
from pathlib import Path

from app.errors import SettingError
from app.machine.say import escaped

Place = tuple[str | int, ...]  # of a table: its keys, and its number where it is one of several

HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.-]+)\s*\]")
KEY = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+))\s*=")


class LineNumbers:
    """The line numbers of tables and keys; a key inside a value has the line of the whole value."""

    def __init__(self, file: Path, text: str) -> None:
        """Of a file, as users know it, and what it holds."""
        self._file = file
        self._lines: dict[Place, int] = {}
        table: Place = ()
        numbers: dict[Place, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if header := HEADER.match(line):
                table = ()
                parts = header[2].split(".")
                for depth, part in enumerate(parts, 1):
                    table += (part,)
                    if header[1] == "[[" and depth == len(parts):
                        numbers[table] = numbers.get(table, -1) + 1
                    if table in numbers:
                        table += (numbers[table],)
                self._lines.setdefault(table, number)
            elif key := KEY.match(line):
                name = next(group for group in key.groups() if group is not None)
                self._lines.setdefault((*table, name), number)

    def refusal(self, place: Place, message: str, name: str = "invalid-grid") -> SettingError:
        """An error that names file and line: of a key or a table, or of what it stands in where it has no line."""
        while place and place not in self._lines:
            place = place[:-1]
        return SettingError(f"{self._file}, line {self._lines.get(place, 1)}: {escaped(message)}", name)
