"""A run as the report sees it: its manifest, its records and its summary."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from app.errors import SettingError
from app.machine import folders
from app.summary import numbers as summary
from app.summary import run_records
from app.summary.run_records import RankRecords, RunRecords


@dataclass(frozen=True)
class Run:
    """Everything that is known of a run."""

    folder: Path
    manifest: dict[str, Any]
    ranks: list[RankRecords]
    summary: dict[str, Any]

    @classmethod
    def of(cls, records: RunRecords, content: dict[str, Any]) -> Self:
        """Out of what has just been read and summed up."""
        return cls(records.folder, records.manifest, records.ranks, content)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From its folder, wherever it has got to; the summary is made anew, because a run that died may have none."""
        records = run_records.read(folder)
        return cls.of(records, summary.summarise(records))

    @property
    def name(self) -> str:
        """The run's own name."""
        return str(self.manifest["run"])

    @property
    def mode(self) -> str:
        """Its SYNC_MODE."""
        return str(self.manifest["settings"]["sync_mode"])

    @property
    def synchronised(self) -> bool:
        """Whether there is one model, and not one for each rank."""
        return any(rank["formula_bytes_sent_per_step"] for rank in self.manifest["ranks"]) or len(self.ranks) == 1


def find(name: str) -> Path:
    """A run's folder, from its name in results/, `latest`, or a path."""
    for folder in (folders.RESULTS / name, Path(name)):
        if _has_manifest(folder):
            try:
                manifest = json.loads((folder / "manifest.json").read_text())
                manifest["ranks"][manifest["world_size"] - 1]
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise SettingError(f"{folder}/manifest.json cannot be read, or is no run's: {error}.") from None
            return folder.resolve()
    made = (path.parent for path in folders.RESULTS.glob("*/manifest.json") if not path.parent.is_symlink())
    known = sorted(folder.name for folder in made)
    raise SettingError(
        f"'{name}' is no run: neither results/{name} nor {name} has a manifest.json. "
        f"Runs in results/: {', '.join(known[-10:]) or 'none'}."
    )


def _has_manifest(folder: Path) -> bool:
    try:
        return (folder / "manifest.json").is_file()
    except OSError:
        return False  # such as a name that is too long for a file
