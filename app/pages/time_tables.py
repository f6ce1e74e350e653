"""The tables of a run that say where its time went."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from app.analysis.run import Run
from app.analysis.wall_clock import PARTS
from app.pages import definitions
from app.pages.table import COUNT, DIGITS, PERCENT, SECONDS, TEXT, Column, Table, Unit, Value
from app.records.lines import PhaseSeconds
from app.records.manifest import Participant
from app.records.summary import PHASES, Figures, Processor, RankFigures


def own(heading: str, name: str, unit: Unit) -> Column[Any]:
    """What the row's subject has under this name."""
    return Column(heading, name, unit, attrgetter(name))


def name_of(rank: Participant | Figures) -> str:
    """A row's subject: one rank, or all together."""
    return f"rank {rank.rank}" if isinstance(rank, Participant | RankFigures) else "all"


RANK: Column[Any] = Column("", "rank", TEXT, name_of)  # of one rank, or of all


def spread_column(heading: str, field: str, which: str) -> Column[Figures]:
    """The mean, the median, the 95th percentile or the most of a time over the steps."""

    def value(figures: Figures) -> Value:
        spread = getattr(figures, field)
        return getattr(spread, which) if spread else None

    return Column(heading, f"{field}_{which}", SECONDS, value)


def times(run: Run) -> Table:
    """Each rank's step and its phases."""

    def steps(rank: Figures) -> int:
        return rank.steps if isinstance(rank, RankFigures) else run.summary.steps

    def first_step(rank: Figures) -> float | None:
        return rank.first_step.seconds if isinstance(rank, RankFigures) and rank.first_step else None

    columns = [
        RANK,
        Column("steps", "steps", COUNT, steps),
        Column("first step", "first_step_seconds", SECONDS, first_step),
        spread_column("step", "seconds", "mean"),
        spread_column("median", "seconds", "median"),
        spread_column("p95", "seconds", "p95"),
        spread_column("most", "seconds", "most"),
        spread_column("data", "data_seconds", "mean"),
        spread_column("forward", "forward_seconds", "mean"),
        spread_column("backward", "backward_seconds", "mean"),
        spread_column("wait", "wait_seconds", "mean"),
        spread_column("sync", "sync_seconds", "mean"),
        spread_column("optimiser", "optimiser_seconds", "mean"),
        spread_column("hidden sync", "hidden_sync_seconds", "mean"),
        spread_column("throttled", "throttled_seconds", "mean"),
        own("images/s", "images_per_second", DIGITS),
    ]
    note = (
        f"Over {_warm_steps(run)}: mean, median, 95th percentile (p95) and most of the whole step, means of its "
        f"phases. {definitions.PHASES} {definitions.IMAGES}"
    )
    return Table.of("times", "Times", columns, [*run.summary.ranks, run.summary.run], note)


@dataclass(frozen=True)
class _PhaseOnCpu:
    phase: str
    account: Processor


def processor(run: Run) -> Table:
    """Which phase had the CPU, and which lacked it."""

    def seconds(heading: str, name: str) -> Column[_PhaseOnCpu]:
        def value(row: _PhaseOnCpu) -> Value:
            account: PhaseSeconds | None = getattr(row.account, name)
            return None if account is None else account.of(*PHASES if row.phase == "all" else [row.phase])

        return Column(heading, name, SECONDS, value)

    columns = [
        Column[_PhaseOnCpu]("phase", "phase", TEXT, lambda row: row.phase),
        seconds("CPU time", "cpu_seconds"),
        seconds("no core", "no_core_seconds"),
        seconds("no quota", "quota_seconds"),
    ]
    note = (
        f"Means over {_warm_steps(run)}. CPU time: of all the rank's threads. No core: the rank was ready to run while "
        "others had the cores; no quota: while its CPU quota had run out. Both are of the thread that trains or, in "
        "wait and sync, of the thread that was delayed most, by the kernel's schedstat. In a mode that hides "
        "communication, forward and backward have wait and sync in them."
    )
    account = run.summary.run.processor
    shown = [phase for phase in PHASES if account and getattr(account.cpu_seconds, phase) is not None]
    rows = [_PhaseOnCpu(phase, account) for phase in (*shown, "all")] if account else []
    return Table.of("processor", "CPU time by phase", columns, rows, note)


def _warm_steps(run: Run) -> str:
    """How many steps the figures are of."""
    counts = [len(rank.warm) for rank in run.ranks]
    each = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"the {counts[0]}"
    together = f", {sum(counts)} together," if len(counts) > 1 else ""
    return f"{each} steps of {'each' if len(counts) > 1 else 'the'} rank{together} without its first"


@dataclass(frozen=True)
class _Part:
    name: str
    seconds: float | None
    whole: float | None

    @property
    def share(self) -> float | None:
        return self.seconds / self.whole if self.whole and self.seconds is not None else None


def wall_clock(run: Run) -> Table:
    """The whole run, cut without remainder."""
    clock = run.summary.wall_clock
    columns = [
        Column[_Part]("", "part", TEXT, lambda part: part.name),
        own("by wall clock", "seconds", SECONDS),
        own("share", "share", PERCENT),
    ]
    note = (
        "All ranks on one clock, from the start of the first process until the last rank has finished; the parts add "
        "up to the whole. Start: until the first step, without the measurement of the links. Training: some rank is "
        "within a step, its first one included. Evaluation: some rank evaluates, and none is within a step. Saving: "
        "some rank saves its state, and none does either. Lost: between two attempts, with the steps that were taken "
        "again. Gaps: none of these, between steps. End: after all of them, without the making of this page."
    )
    fields = PARTS | {"whole run": "seconds"}
    parts = [_Part(name, getattr(clock, field), clock.seconds) for name, field in fields.items()] if clock else []
    return Table.of("wall_clock", "Where the whole run's time went", columns, parts, note)
