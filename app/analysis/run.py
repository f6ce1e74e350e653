"""A run as its readers see it: the report, the comparison, the views of an experiment."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from app.analysis import measures, neighbours, networks, run_records, scores, verdict, wall_clock
from app.analysis.averaging import in_words
from app.analysis.run_records import RankRecords, RunRecords, together
from app.analysis.summary import Summary, Verdict
from app.analysis.table import RunTable
from app.analysis.words import duration
from app.errors import SettingError
from app.machine import folders
from app.machine.say import shown
from app.records import manifest
from app.records.manifest import Manifest


class Run:
    """Everything known about a run, read on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called: str | None = None  # where its own name would not do

    @cached_property
    def records(self) -> RunRecords:
        return run_records.read(self.folder)

    @cached_property
    def summary(self) -> Summary:
        """Its figures, made from its records: a run that died may have left no summary, or an old one."""
        return summarise(self.records, self.table)

    @cached_property
    def table(self) -> RunTable:
        return RunTable(self.records)

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest.read(self.folder)

    @property
    def ranks(self) -> list[RankRecords]:
        return self.records.ranks

    @property
    def name(self) -> str:
        return self.called or self.manifest.run

    @property
    def mode(self) -> str:
        return str(self.manifest.settings["sync_mode"])

    @property
    def averaging(self) -> str:
        return in_words(self.manifest)

    @property
    def synchronised(self) -> bool:
        """Whether the ranks train one model together, and not one each."""
        return self.sends or len(self.ranks) == 1

    @property
    def sends(self) -> bool:
        """Whether any rank sends gradients or parameters."""
        return any(rank.formula_bytes_sent_per_step for rank in self.manifest.ranks)


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


def _identical(hashes: Sequence[str | None]) -> bool | None:
    return None if None in hashes else len(set(hashes)) == 1


def summarise(run: RunRecords, table: RunTable | None = None) -> Summary:
    manifest, ranks = run.manifest, run.ranks
    parameters = [rank.finished.parameters_sha256 if rank.finished else None for rank in ranks]
    buffers = [rank.finished.buffers_sha256 if rank.finished else None for rank in ranks]
    planned = manifest.plan.steps
    rows = table or RunTable(run)
    every, each = measures.of_run(rows)
    summary = Summary(
        run_name=manifest.run,
        sync_mode=str(manifest.settings["sync_mode"]),
        model=str(manifest.settings["model"]),
        dataset=str(manifest.settings["dataset"]),
        world_size=manifest.world_size,
        global_batch_size=manifest.plan.global_batch_size,
        steps_planned=planned,
        steps=len(together([rank.steps for rank in ranks])),
        complete=all(rank.finished and rank.finished.steps == planned and not rank.faults for rank in ranks),
        attempts=max(rank.attempts for rank in ranks),
        repeated_steps=max(rank.repeated_steps for rank in ranks),
        replicas_identical=_identical(parameters),
        buffers_identical=_identical(buffers),
        run=every,
        ranks=each,
        losses=scores.losses(rows.all),
        warnings=manifest.warnings,
        verdict=Verdict(None, [], None),
        wall_clock=wall_clock.of(ranks),
    )
    return replace(
        summary,
        warnings=[
            *manifest.warnings,
            *(f"rank {rank.rank}: {fault}." for rank in ranks for fault in rank.faults),
            *verdict.warnings(summary, manifest),
            *_interruptions(summary),
            *neighbours.warnings(run),
            *networks.warnings(run),
        ],
        verdict=verdict.reach(summary, manifest),
    )


def _interruptions(summary: Summary) -> Iterator[str]:
    if summary.attempts > 1:
        lost = (summary.wall_clock or {}).get("lost_seconds") or 0.0
        steps = f"{summary.repeated_steps} step{' was' if summary.repeated_steps == 1 else 's were'}"
        yield (
            f"The run took {summary.attempts} attempts: {steps} repeated, and {duration(lost)} were lost. "
            "The step times include neither."
        )
