"""Runs against a baseline: tables of the differences, and sentences that call none what the noise may explain."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from app.analysis import baseline
from app.analysis.baseline import SPEED, PartDifference, measured_steps
from app.analysis.measures import BYTES_SENT
from app.analysis.run import Run
from app.analysis.statistics import Interval
from app.analysis.units import DIGITS, MEGABYTES, SECONDS, TEXT, digits
from app.analysis.words import duration
from app.pages import definitions
from app.pages.intervals import NO_DIFFERENCE, interval, with_interval
from app.pages.table import Column, Table

NOISE = (
    "Intervals have 95 % confidence, those of the phases jointly. They cover the noise within these runs, including "
    "the similarity of consecutive steps. For run-to-run variance, repeat the runs with scripts/experiment."
)


@dataclass(frozen=True)
class _ComparedRun:
    run: Run
    base: Run
    part: PartDifference

    @property
    def finding(self) -> str:
        """What can be said of the part."""
        if self.part.difference is None:
            values = ((self.run, self.part.own), (self.base, self.part.base))
            return f"not measured in {' and '.join(run.name for run, value in values if value is None)}"
        if self.part.beyond_noise is None:
            return "too few steps"
        more, less = ("more", "fewer") if self.part.part == SPEED else ("longer", "shorter")
        return (more if self.part.difference.value > 0 else less) if self.part.beyond_noise else NO_DIFFERENCE


class Against:
    """Runs and the baseline that each of them is compared with."""

    def __init__(self, runs: Sequence[Run], base: Run) -> None:
        self._base = base
        self._rows = {run: [_ComparedRun(run, base, part) for part in baseline.compare(run, base)] for run in runs}

    def tables(self) -> list[Table]:
        """The times of a step, and what is got done."""
        return [self._times(), self._speeds()]

    def sentences(self) -> list[str]:
        """Of each run what differs, and what no step count of these can tell."""
        return [*(sentence for run in self._rows for sentence in self._about(run)), NOISE]

    def _about(self, run: Run) -> list[str]:
        step, *parts = (row for row in self._rows[run] if row.part.part != SPEED)
        found, ratio = step.part.difference, step.part.ratio
        pair = f"{run.name} and {self._base.name}"
        if found is None:
            return [f"{pair} cannot be compared: step time {step.finding}."]
        if step.part.beyond_noise is None:
            return [self._few_steps(run, found, ratio)]
        times = f"{digits(ratio.value)} times{interval(ratio)}" if ratio else ""
        lead = (
            f"A step of {run.name} takes {times} as long as a step of {self._base.name}: {_longer(found)}."
            if step.part.beyond_noise
            else f"Step time of {pair}: {NO_DIFFERENCE}, {times} as long.{self._more_steps(run)}"
        )
        return [lead, *_about_parts(parts)]

    def _few_steps(self, run: Run, found: Interval, ratio: Interval | None) -> str:
        """The factor, the number of steps behind it, and how many would settle it."""
        counts = " and ".join(f"{measured_steps(each)} of {each.name}" for each in (run, self._base))
        times = f"{digits(ratio.value)} times as long as" if ratio else f"{_longer(found)} than"
        return (
            f"A step of {run.name} takes {times} a step of {self._base.name}, but this rests on few steps after the "
            f"first: {counts}.{self._more_steps(run)}"
        )

    def _more_steps(self, run: Run) -> str:
        enough = baseline.enough_steps(run, self._base)
        return f" To settle it, measure about {enough} steps in each run: MAX_STEPS={enough + 1}." if enough else ""

    def _columns(self, own: Column[_ComparedRun], base: Column[_ComparedRun]) -> list[Column[_ComparedRun]]:
        """A value in both, and how it differs."""

        def difference(row: _ComparedRun) -> float | None:
            return row.part.difference.value if row.part.difference else None

        return [
            base,
            own,
            Column("difference", "difference", own.unit, difference),
            Column("noise ±", "noise", own.unit, attrgetter("part.noise")),
            *with_interval("ratio", "ratio", attrgetter("part.ratio")),
            Column("finding", "finding", TEXT, attrgetter("finding")),
        ]

    def _times(self) -> Table:
        columns: list[Column[_ComparedRun]] = [
            Column("run", "run", TEXT, attrgetter("run.name")),
            Column("time", "part", TEXT, lambda row: row.part.part.replace("_", " ")),
            *self._columns(
                Column("this run", "own_seconds", SECONDS, attrgetter("part.own")),
                Column("baseline", "baseline_seconds", SECONDS, attrgetter("part.base")),
            ),
        ]
        rows = [row for own in self._rows.values() for row in own if row.part.part != SPEED and row.part.known]
        steps = ", ".join(f"{run.name} {measured_steps(run)}" for run in (*self._rows, self._base))
        note = (
            f"Means {definitions.BUT_THE_FIRST} (steps: {steps}). {definitions.PHASES} Difference: the run less the "
            f"baseline. {NOISE}"
        )
        return Table.of("against", f"Times compared with {self._base.name}", columns, rows, note)

    def _speeds(self) -> Table:
        def sent(row: _ComparedRun) -> float | None:
            return row.run.summary.run[BYTES_SENT]

        def sent_by_base(row: _ComparedRun) -> float | None:
            return row.base.summary.run[BYTES_SENT]

        def more_sent(row: _ComparedRun) -> float | None:
            own, base = sent(row), sent_by_base(row)
            return None if own is None or base is None else own - base

        def times_sent(row: _ComparedRun) -> float | None:
            own, base = sent(row), sent_by_base(row)
            return own / base if own is not None and base else None

        columns: list[Column[_ComparedRun]] = [
            Column("run", "run", TEXT, attrgetter("run.name")),
            *self._columns(
                Column("this run", "own_images_per_second", DIGITS, attrgetter("part.own")),
                Column("baseline images/s", "baseline_images_per_second", DIGITS, attrgetter("part.base")),
            ),
            Column("baseline sent", "baseline_bytes_sent_per_step", MEGABYTES, sent_by_base),
            Column("this run", "own_bytes_sent_per_step", MEGABYTES, sent),
            Column("difference", "bytes_sent_difference", MEGABYTES, more_sent),
            Column("ratio", "bytes_sent_ratio", DIGITS, times_sent),
        ]
        rows = [row for own in self._rows.values() for row in own if row.part.part == SPEED]
        note = f"{definitions.IMAGES} {definitions.SENT} Bytes are counted and have no noise."
        title = f"Images per second and bytes compared with {self._base.name}"
        return Table.of("against-speed", title, columns, rows, note)


def _about_parts(rows: Sequence[_ComparedRun]) -> list[str]:
    """The parts that differ, the largest difference first, and those that do not."""
    differing = [(row, row.part.difference) for row in rows if row.part.difference and row.part.beyond_noise]
    differing.sort(key=lambda each: -abs(each[1].value))
    alike = [_name(row) for row in rows if row.part.beyond_noise is False]
    parts = [f"{_name(row)} {_longer(found)}" for row, found in differing]
    return [
        *([f"By part: {', '.join(parts)}."] if parts else []),
        *([f"{NO_DIFFERENCE.capitalize()} in {', '.join(alike)}."] if alike else []),
    ]


def _name(row: _ComparedRun) -> str:
    return row.part.part.replace("_", " ")


def _longer(found: Interval) -> str:
    """A difference of times in words."""
    ends = sorted(abs(end) for end in (found.low, found.high) if end is not None)
    words = f" ({' to '.join(map(duration, ends))})" if ends else ""
    return f"{duration(abs(found.value))}{words} {'longer' if found.value > 0 else 'shorter'}"
