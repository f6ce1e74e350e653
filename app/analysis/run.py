"""A run as its readers see it: the report, the comparison, the views of an experiment."""

from functools import cached_property
from pathlib import Path

from app.analysis import run_records
from app.analysis.averaging import in_words
from app.analysis.numbers import summarise
from app.analysis.run_records import RankRecords, RunRecords
from app.errors import SettingError
from app.machine import folders
from app.machine.say import shown
from app.records import manifest
from app.records.manifest import Manifest
from app.records.summary import Summary


class Run:
    """Everything known about a run, read on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called: str | None = None  # where its own name would not do

    @cached_property
    def records(self) -> RunRecords:
        """The records that it has left so far."""
        return run_records.read(self.folder)

    @cached_property
    def summary(self) -> Summary:
        """Its figures, made from its records: a run that died may have left no summary, or an old one."""
        return summarise(self.records)

    @cached_property
    def manifest(self) -> Manifest:
        """What the run was set up to do."""
        return Manifest.read(self.folder)

    @property
    def ranks(self) -> list[RankRecords]:
        """Every rank's records."""
        return self.records.ranks

    @property
    def name(self) -> str:
        """The run's own name, unless it is called otherwise here."""
        return self.called or self.manifest.run

    @property
    def mode(self) -> str:
        """Its SYNC_MODE."""
        return str(self.manifest.settings["sync_mode"])

    @property
    def averaging(self) -> str:
        """Its SYNC_MODE, with COMPRESSION and SYNC_EVERY."""
        return in_words(self.manifest)

    @property
    def synchronised(self) -> bool:
        """Whether the ranks train one model together, and not one each."""
        return any(rank.formula_bytes_sent_per_step for rank in self.manifest.ranks) or len(self.ranks) == 1


def find(name: str) -> Run:
    """Find a run by its name in results/, by `latest`, or by a path."""
    for folder in (folders.RESULTS / name, Path(name)):
        if _has_manifest(folder):
            run = Run(folder.resolve())
            try:
                run.manifest  # noqa: B018  # it is read on first use
            except (OSError, ValueError) as error:
                message = (
                    f"cannot read {folder}/{manifest.FILE}: {shown(str(error))}. Make the run again with this version."
                )
                raise SettingError(message, "damaged-file") from None
            return run
    made = (path.parent for path in folders.RESULTS.glob(f"*/{manifest.FILE}") if not path.parent.is_symlink())
    known = sorted(folder.name for folder in made)
    raise SettingError(
        f"unknown run '{shown(name)}': neither results/{shown(name)} nor {shown(name)} has a {manifest.FILE}. "
        f"Runs in results/: {', '.join(known[-10:]) or 'none'}.",
        "unknown-name",
    )


def _has_manifest(folder: Path) -> bool:
    try:
        return (folder / manifest.FILE).is_file()
    except OSError:
        return False  # such as a name that is too long for a file
