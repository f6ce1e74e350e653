"""Several runs side by side: the table of them, and in what they differ."""

from collections.abc import Sequence

from app.analysis import baseline, measures
from app.analysis.figures import Measure
from app.analysis.run import Run
from app.analysis.units import COUNT, TEXT, Unit, digits, plain
from app.pages import definitions
from app.pages.intervals import NO_DIFFERENCE, interval
from app.pages.table import Column, Table, measured
from app.records.manifest import Setting
from app.settings.concern import Mark
from app.settings.settings import marked

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


def headline(runs: Sequence[Run]) -> str:
    """Which run is the fastest, and by how much; none is, where the noise of their steps may explain it."""
    speeds = {run: speed for run in runs if (speed := run.summary.run[measures.IMAGES_PER_SECOND])}
    if len(speeds) < 2:
        return "Nothing to compare: fewer than two runs have a step that counts."
    fastest, *others = sorted(speeds, key=lambda run: -speeds[run])
    found = {run: baseline.speed(fastest, run) for run in others}
    alike = [run.name for run, each in found.items() if each.beyond_noise is False]
    differing = [run for run, each in found.items() if each.beyond_noise]
    unknown = [run.name for run, each in found.items() if each.beyond_noise is None]
    if unknown:
        doubt = f"There are too few steps to say whether {', '.join(unknown)} really did fewer."
        return f"{fastest.name} did the most images/s. {doubt}"
    if not differing:
        return f"Between the runs there is {NO_DIFFERENCE} in images/s."
    ratio = found[differing[-1]].ratio
    times = f"{digits(ratio.value)} times{interval(ratio)}" if ratio else ""
    besides = f", with {NO_DIFFERENCE} to {', '.join(alike)}" if alike else ""
    lead = f"{digits(speeds[fastest])} images/s, {times} as many as {differing[-1].name}"
    return f"{fastest.name} is the fastest{besides}: {lead}."


def _of_run(heading: str, measure: Measure[float], name: str | None = None) -> Column[Run]:
    """A measure of all ranks together."""
    column = measured(heading, measure, name)
    return Column(column.heading, column.name, column.unit, lambda run: column.value(run.summary.run))


def differences(runs: Sequence[Run]) -> list[str]:
    """In what else than the mode the runs differ, so that nobody takes one thing's effect for another's."""
    own = {"sync_mode", *marked(Mark.OF_ONE_START, Mark.CHANGES_NO_FIGURE)} - {"world_size"}
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.manifest.settings if name not in own):
        values = [_setting(run.manifest.settings.get(name)) for run in runs]
        if len(set(values)) > 1:
            found.append(
                f"{name.upper()}: " + ", ".join(f"{run.name} {value}" for run, value in zip(runs, values, strict=True))
            )
    hosts = {tuple(sorted({rank.host_boot_id for rank in run.manifest.ranks})) for run in runs}
    if len(hosts) > 1:
        found.append("the runs come from different machines, or from before and after a reboot")
    return found


def _setting(value: Setting) -> str:
    return "unset" if value is None else plain(value)
