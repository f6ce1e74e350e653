"""The tables of a run that say where its time went."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from app.analysis import measures
from app.analysis.figures import Figures, Measure, StepTime
from app.analysis.run import Run
from app.analysis.units import COUNT, PERCENT, SECONDS, TEXT, Unit, Value
from app.analysis.wall_clock import PARTS
from app.pages import definitions
from app.pages.table import Column, Table, measured
from app.records.lines import PHASES
from app.records.manifest import Participant


def own(heading: str, name: str, unit: Unit) -> Column[Any]:
    """What the row's subject has under this name."""
    return Column(heading, name, unit, attrgetter(name))


def name_of(rank: Participant | Figures) -> str:
    """A row's subject: one rank, or all together."""
    number = rank.rank if isinstance(rank, Participant) else rank[measures.RANK]
    return "all" if number is None else f"rank {number}"


RANK: Column[Any] = Column("", "rank", TEXT, name_of)  # of one rank, or of all


def times(run: Run) -> Table:
    def steps(rank: Figures) -> int | None:
        return run.summary.steps if rank[measures.RANK] is None else rank[measures.STEPS]

    step = measures.STEP
    columns = [
        RANK,
        Column("steps", "steps", COUNT, steps),
        measured("first step", measures.FIRST_STEP["seconds"]),
        measured("step", step.mean),
        measured("median", step.median),
        measured("p95", step.p95),
        measured("most", step.most),
        *(measured(each.label, each.mean) for each in measures.TIMES[1:] if _is_shown(each, run)),
        measured("images/s", measures.IMAGES_PER_SECOND),
    ]
    note = (
        f"Over {_warm_steps(run)}: mean, median, 95th percentile (p95) and most of the whole step, means of its "
        f"phases. {definitions.PHASES} {definitions.IMAGES}"
    )
    return Table.of("times", "Times", columns, [*run.summary.ranks, run.summary.run], note)


def processor(run: Run) -> Table:
    """CPU time and scheduling delay of each phase."""
    figures = run.summary.run

    def seconds(heading: str, name: str, account: Mapping[str, Measure[float]]) -> Column[str]:
        def value(phase: str) -> Value:
            known = [each for each in PHASES if figures[account[each]] is not None]
            chosen = known if phase == "all" else [phase]
            return figures.sum(*(account[each] for each in chosen)) if known else None

        return Column(heading, name, SECONDS, value)

    columns: list[Column[str]] = [
        Column("phase", "phase", TEXT, lambda phase: phase),
        seconds("CPU time", "cpu_seconds", measures.CPU_SECONDS),
        seconds("no core", "no_core_seconds", measures.NO_CORE_SECONDS),
        seconds("no quota", "quota_seconds", measures.QUOTA_SECONDS),
    ]
    note = (
        f"Means over {_warm_steps(run)}. CPU time: of all the rank's threads. No core: the rank was ready to run while "
        "others had the cores; no quota: while its CPU quota had run out. Both are of the thread that trains or, in "
        "wait and sync, of the thread that was delayed most, by the kernel's schedstat. In a mode that hides "
        "communication, forward and backward have wait and sync in them."
    )
    shown = [phase for phase in PHASES if figures[measures.CPU_SECONDS[phase]] is not None]
    rows = [*shown, "all"] if shown else []
    return Table.of("processor", "CPU time by phase", columns, rows, note)


def _warm_steps(run: Run) -> str:
    """How many steps the figures are of."""
    counts = [len(rank.warm) for rank in run.ranks]
    each = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"the {counts[0]}"
    together = f", {sum(counts)} together," if len(counts) > 1 else ""
    return f"{each} steps of {'each' if len(counts) > 1 else 'the'} rank{together} without its first"


def _is_shown(timing: StepTime, run: Run) -> bool:
    """Phases always, everything else if the mode has it."""
    return timing in measures.PHASE_TIMES.values() or run.summary.run[timing.mean] is not None


def wall_clock(run: Run) -> Table:
    clock = run.summary.wall_clock or {}
    whole = clock.get("seconds")

    def share(field: str) -> float | None:
        seconds = clock[field]
        return seconds / whole if whole and seconds is not None else None

    columns: list[Column[str]] = [
        Column("", "part", TEXT, lambda field: "whole run" if field == "seconds" else PARTS[field]),
        Column("by wall clock", "seconds", SECONDS, lambda field: clock[field]),
        Column("share", "share", PERCENT, share),
    ]
    note = (
        "All ranks on one clock, from the start of the first process until the last rank has finished; the parts add "
        "up to the whole. Start: until the first step, without the measurement of the links. Training: some rank is "
        "within a step, its first one included. Evaluation: some rank evaluates, and none is within a step. Saving: "
        "some rank saves its state, and none does either. Lost: between two attempts, with the steps that were taken "
        "again. Gaps: none of these, between steps. End: after all of them, without the making of this page."
    )
    fields = sorted(clock, key=lambda field: field == "seconds")  # the whole comes last
    return Table.of("wall_clock", "Where the whole run's time went", columns, fields, note)
