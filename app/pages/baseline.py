"""Runs against a baseline: tables of the differences, and sentences that call none what the noise may explain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from app.analysis import baseline
from app.analysis.baseline import SPEED, PartDifference, measured_steps
from app.analysis.measures import BYTES_SENT
from app.analysis.run import Run
from app.analysis.statistics import Interval
from app.analysis.units import DIGITS, MEGABYTES, SECONDS, TEXT, Unit, digits
from app.analysis.words import duration
from app.pages import definitions
from app.pages.findings import times
from app.pages.intervals import NO_DIFFERENCE, with_interval
from app.pages.table import Column, Table

NOISE = (
    "Intervals have 95 % confidence, those of the phases jointly. They cover the noise within these runs, including "
    "the similarity of consecutive steps. For run-to-run variance, repeat the runs with scripts/experiment."
)


@dataclass(frozen=True)
class _ComparedRun(PartDifference):
    run: Run
    baseline: Run

    @property
    def name(self) -> str:
        return self.part.replace("_", " ")

    @property
    def finding(self) -> str:
        if self.difference is None:
            values = ((self.run, self.own), (self.baseline, self.base))
            return f"not measured in {' and '.join(run.name for run, value in values if value is None)}"
        if self.beyond_noise is None:
            return "too few steps"
        more, less = ("more", "fewer") if self.part == SPEED else ("longer", "shorter")
        return (more if self.difference.value > 0 else less) if self.beyond_noise else NO_DIFFERENCE


class Against:
    """Runs and the baseline that each of them is compared with."""

    def __init__(self, runs: Sequence[Run], base: Run) -> None:
        self._base = base
        self._rows = {
            run: [_ComparedRun(**vars(part), run=run, baseline=base) for part in baseline.compare(run, base)]
            for run in runs
        }

    def tables(self) -> list[Table]:
        return [self._times(), self._speeds()]

    def sentences(self) -> list[str]:
        """Of each run what differs, and what no step count of these can tell."""
        return [*(sentence for run in self._rows for sentence in self._about(run)), NOISE]

    def _about(self, run: Run) -> Iterator[str]:
        step, *parts = (row for row in self._rows[run] if row.part != SPEED)
        found, ratio, base = step.difference, step.ratio, self._base
        if found is None:
            yield f"{run.name} and {base.name} cannot be compared: step time {step.finding}."
        elif step.beyond_noise is None:
            counts = " and ".join(f"{measured_steps(each)} of {each.name}" for each in (run, base))
            factor = f"{digits(ratio.value)} times as long as" if ratio else f"{_longer(found)} than"
            yield (
                f"A step of {run.name} takes {factor} a step of {base.name}, but this rests on few steps after the "
                f"first: {counts}.{to_settle(run, base)}"
            )
        else:
            factor = times(ratio) if ratio else ""
            if step.beyond_noise:
                yield f"A step of {run.name} takes {factor} as long as a step of {base.name}: {_longer(found)}."
            else:
                pair = f"{run.name} and {base.name}"
                yield f"Step time of {pair}: {NO_DIFFERENCE}, {factor} as long.{to_settle(run, base)}"
            yield from _about_parts(parts)

    def _times(self) -> Table:
        columns = [RUN, Column("time", "part", TEXT, attrgetter("name")), *_values("baseline", "seconds", SECONDS)]
        every = (row for own in self._rows.values() for row in own if row.part != SPEED)
        rows = [row for row in every if row.own is not None or row.base is not None]
        steps = ", ".join(f"{run.name} {measured_steps(run)}" for run in (*self._rows, self._base))
        note = (
            f"Means {definitions.BUT_THE_FIRST} (steps: {steps}). {definitions.PHASES} Difference: the run less the "
            f"baseline. {NOISE}"
        )
        return Table.of("against", f"Times compared with {self._base.name}", columns, rows, note)

    def _speeds(self) -> Table:
        def sent(run: Run) -> float | None:
            return run.summary.run[BYTES_SENT]

        def more_sent(row: _ComparedRun) -> float | None:
            own, base = sent(row.run), sent(row.baseline)
            return None if own is None or base is None else own - base

        def times_sent(row: _ComparedRun) -> float | None:
            own, base = sent(row.run), sent(row.baseline)
            return own / base if own is not None and base else None

        columns = [
            RUN,
            *_values("baseline images/s", "images_per_second", DIGITS),
            Column("baseline sent", "baseline_bytes_sent_per_step", MEGABYTES, lambda row: sent(row.baseline)),
            Column("this run", "own_bytes_sent_per_step", MEGABYTES, lambda row: sent(row.run)),
            Column("difference", "bytes_sent_difference", MEGABYTES, more_sent),
            Column("ratio", "bytes_sent_ratio", DIGITS, times_sent),
        ]
        rows = [row for own in self._rows.values() for row in own if row.part == SPEED]
        note = f"{definitions.IMAGES} {definitions.SENT} Bytes are counted and have no noise."
        title = f"Images per second and bytes compared with {self._base.name}"
        return Table.of("against-speed", title, columns, rows, note)


RUN: Column[_ComparedRun] = Column("run", "run", TEXT, attrgetter("run.name"))


def _values(heading: str, name: str, unit: Unit) -> list[Column[_ComparedRun]]:
    """A value in both runs, and how it differs."""
    return [
        Column(heading, f"baseline_{name}", unit, attrgetter("base")),
        Column("this run", f"own_{name}", unit, attrgetter("own")),
        Column("difference", "difference", unit, lambda row: row.difference.value if row.difference else None),
        Column("noise ±", "noise", unit, attrgetter("noise")),
        *with_interval("ratio", "ratio", attrgetter("ratio")),
        Column("finding", "finding", TEXT, attrgetter("finding")),
    ]


def to_settle(run: Run, base: Run) -> str:
    """How many steps would tell their step times apart, if that is more than there are."""
    enough = baseline.enough_steps(run, base)
    return f" To settle it, measure about {enough} steps in each run: MAX_STEPS={enough + 1}." if enough else ""


def _about_parts(rows: Sequence[_ComparedRun]) -> Iterator[str]:
    """The parts that differ, the largest difference first, and those that do not."""
    differing = [(row.name, row.difference) for row in rows if row.difference and row.beyond_noise]
    differing.sort(key=lambda each: -abs(each[1].value))
    if differing:
        yield f"By part: {', '.join(f'{name} {_longer(found)}' for name, found in differing)}."
    if alike := [row.name for row in rows if row.beyond_noise is False]:
        yield f"{NO_DIFFERENCE.capitalize()} in {', '.join(alike)}."


def _longer(found: Interval) -> str:
    """A difference of times in words."""
    ends = sorted(abs(end) for end in (found.low, found.high) if end is not None)
    words = f" ({' to '.join(map(duration, ends))})" if ends else ""
    return f"{duration(abs(found.value))}{words} {'longer' if found.value > 0 else 'shorter'}"
