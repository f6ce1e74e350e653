"""Pages in parts: of experiments, predictions and verifications."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.pages import files
from app.pages.drawing import Drawing
from app.pages.table import Table


@dataclass(frozen=True)
class Section:
    """A part of the page: what was read off, and remarks, in sentences; drawings; tables."""

    title: str
    findings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # what is missing, and what the author says
    drawings: list[Drawing] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        return [*self.findings, *self.remarks]


def write_page(folder: Path, template: str, sections: Sequence[Section], content: Mapping[str, Any]) -> Path:
    """Put the page there, with its tables and figures as files beside it."""
    tables, drawings = [t for s in sections for t in s.tables], [d for s in sections for d in s.drawings]
    return files.write_page(folder, template, tables, drawings, {"sections": sections, **content})
