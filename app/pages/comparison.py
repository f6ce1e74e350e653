"""Several runs side by side: the table of them, and in what they differ."""

from collections.abc import Sequence
from dataclasses import replace

from app.analysis import baseline, busiest, measures
from app.analysis.figures import Measure
from app.analysis.run import Run
from app.analysis.statistics import Interval
from app.analysis.units import COUNT, TEXT, Unit, Value, digits
from app.analysis.words import duration
from app.pages import definitions
from app.pages.baseline import to_settle
from app.pages.intervals import NO_DIFFERENCE
from app.pages.run_names import differing_settings
from app.pages.table import Column, Table, measured

PHASES = (
    *(measures.FORWARD, measures.BACKWARD, measures.WAIT, measures.SYNC, measures.HIDDEN_SYNC),
    measures.OPTIMISER,
)


def compared(runs: Sequence[Run]) -> Table:
    """Runs side by side, the fastest first; those without a measured step come last."""
    ordered = sorted(runs, key=lambda run: -(run.summary.run[measures.IMAGES_PER_SECOND] or 0.0))
    fastest = ordered[0].summary.run[measures.IMAGES_PER_SECOND] if ordered else None

    def times_slower(run: Run) -> float | None:
        speed = run.summary.run[measures.IMAGES_PER_SECOND]
        return fastest / speed if fastest and speed else None

    columns: list[Column[Run]] = [
        Column("run", "run", TEXT, lambda run: run.name),
        Column("mode", "sync_mode", TEXT, lambda run: run.averaging),
        Column("model", "model", TEXT, lambda run: run.summary.model),
        Column("ranks", "world_size", COUNT, lambda run: run.summary.world_size),
        Column("batch", "global_batch_size", COUNT, lambda run: run.summary.global_batch_size),
        Column("steps", "steps", COUNT, lambda run: run.summary.steps),
        _of_run("images/s", measures.IMAGES_PER_SECOND),
        Column("slowdown", "times_slower", Unit(lambda times: f"{times:.2f} x"), times_slower),
        _of_run("step", measures.STEP.median),
        *(_of_run(timing.label, timing.mean) for timing in PHASES),
        _of_run("sent", measures.BYTES_SENT),
        _of_run("links used", measures.UTILISATION, "utilisation"),
        _of_run("loss", measures.LOSS),
        _of_run("test", measures.ACCURACY),
        Column("complete", "complete", TEXT, lambda run: run.summary.complete),
    ]
    note = (
        f"Median of the step, means of its phases, {definitions.BUT_THE_FIRST}. {definitions.PHASES} "
        f"{definitions.IMAGES} {definitions.SENT} {definitions.LINKS_USED} Only runs of one machine, in one "
        "state of it, compare."
    )
    return Table.of("compared", "Side by side, the fastest first", columns, ordered, note)


LONGEST_NAME = 28


def brief(runs: Sequence[Run]) -> Table:
    """The main columns, which fit a terminal."""
    whole = compared(runs)
    names = ("run", "images_per_second", "times_slower", "seconds_median", "wait_seconds_mean", "sync_seconds_mean")
    kept = [n for n, column in enumerate(whole.columns) if column.name in names]
    rows = [[_shortened(row[n]) for n in kept] for row in whole.rows]
    return replace(whole, columns=[whole.columns[n] for n in kept], rows=rows)


def _shortened(value: Value) -> Value:
    return f"{value[: LONGEST_NAME - 1]}…" if isinstance(value, str) and len(value) > LONGEST_NAME else value


def headline(runs: Sequence[Run]) -> tuple[str | None, str]:
    """How many times as fast the fastest run is as the slowest, if the noise cannot explain it; and a sentence."""
    speeds = {run: speed for run in runs if (speed := run.summary.run[measures.IMAGES_PER_SECOND])}
    if len(speeds) < 2:
        return None, "Nothing to compare: fewer than two runs have a step that counts."
    fastest, *others = sorted(speeds, key=lambda run: -speeds[run])
    found = {run: baseline.speed(fastest, run) for run in others}
    alike = [run.name for run, each in found.items() if each.beyond_noise is False]
    differing = [run for run, each in found.items() if each.beyond_noise]
    unknown = [run for run, each in found.items() if each.beyond_noise is None]
    if not differing:
        slowest = unknown[-1] if unknown else others[-1]
        return None, _undecided(fastest, slowest, found[slowest].ratio)
    slowest = differing[-1]
    ratio = found[slowest].ratio
    besides = f" Compared with {', '.join(alike)}, there is {NO_DIFFERENCE}." if alike else ""
    both = f"{fastest.name} does {digits(speeds[fastest])} images/s, {slowest.name} {digits(speeds[slowest])}"
    if ratio is None or ratio.low is None or ratio.high is None:
        return None, f"{both}.{besides}"
    ends = f"{digits(ratio.low)} to {digits(ratio.high)} times as many, with 95 % confidence"
    return f"{digits(ratio.value)} x faster", f"{both}: {ends}.{besides}"


def _undecided(fastest: Run, slowest: Run, ratio: Interval | None) -> str:
    settle = to_settle(fastest, slowest)
    if ratio is None or (not settle and ratio.low is not None):
        return f"Between the runs there is {NO_DIFFERENCE} in images/s."
    steps = min(map(baseline.measured_steps, (fastest, slowest)))
    return (
        f"{fastest.name} did {digits(ratio.value)} times as many images/s as {slowest.name}, but {steps} steps after "
        f"the first are too few to exclude noise.{settle}"
    )


def causes(runs: Sequence[Run]) -> list[str]:
    """What the busiest rank of each run carries, and what that takes."""
    found = []
    for run in runs:
        carried = busiest.of(run.summary, run.manifest)
        least, taken = (run.summary.run[each] for each in (measures.LEAST_TRANSFER, measures.TRANSFER))
        if carried and taken:
            words = f"{carried.words[0].lower()}{carried.words[1:]}"
            at_least = f", at least {duration(least)}" if least else ""
            found.append(f"{run.name}: {words}{at_least}. Its synchronisation took {duration(taken)} (median).")
    return found


def _of_run(heading: str, measure: Measure[float], name: str | None = None) -> Column[Run]:
    column = measured(heading, measure, name)
    return Column(column.heading, column.name, column.unit, lambda run: column.value(run.summary.run))


def differences(runs: Sequence[Run]) -> list[str]:
    """In what else than the mode the runs differ, so that nobody mistakes one effect for another."""
    names = [run.name for run in runs]
    found = [
        f"{name.upper()}: {', '.join(f'{run} {value}' for run, value in zip(names, values, strict=True))}"
        for name, values in differing_settings(runs).items()
    ]
    hosts = {tuple(sorted({rank.host_boot_id for rank in run.manifest.ranks})) for run in runs}
    if len(hosts) > 1:
        found.append("the runs come from different machines, or from before and after a reboot")
    return found
