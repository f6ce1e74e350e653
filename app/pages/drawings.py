"""The drawings of a run, and those that lay several runs side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from app.analysis import measures
from app.analysis.run import Run
from app.analysis.run_records import RankRecords
from app.analysis.words import duration
from app.pages import definitions, theme
from app.pages.cores import cores
from app.pages.drawing import Drawing, Missing, draw
from app.pages.labels import name_lines
from app.pages.phase_bars import mean_seconds, stacked_phases
from app.pages.series import Series, long_enough, of_records, series, thinned
from app.pages.timeline import timeline


def of_run(run: Run) -> list[Drawing]:
    """All drawings of one run."""
    return [
        draw(name, title, make, run)
        for name, title, make in (
            ("phases", "What a step is made of, by rank", _phases_by_rank),
            ("timeline", "Who waits for whom", timeline),
            ("steps", "Time per step", _step_times),
            ("loss", "Loss", _loss),
            ("accuracy", "Accuracy", _accuracy),
            ("bytes", "Bytes per step against the formula", _bytes),
            ("bandwidth", "Bandwidth", _bandwidth),
            ("cpu", "CPU", _cpu),
            ("cores", "CPU of all ranks against the cores", cores),
            ("network", "Network", _network),
            ("memory", "Memory", _memory),
        )
    ]


def of_runs(runs: Sequence[Run]) -> list[Drawing]:
    """Several runs side by side."""
    return [
        draw(f"compared-{name}", title, make, runs)
        for name, title, make in (
            ("phases", "What a step is made of, by run", _phases_by_run),
            ("loss", "Loss", _losses),
            ("bandwidth", "Bandwidth", _bandwidths),
        )
    ]


# One run


def _phases_by_rank(run: Run) -> tuple[Figure, str]:
    rows = [(f"rank {rank[measures.RANK]}", mean_seconds(rank)) for rank in run.summary.ranks]
    return stacked_phases(rows), (
        f"Mean seconds of each phase over all steps but the first. {definitions.WAIT_AND_SYNC}"
        + (definitions.HIDDEN_BAR if run.summary.run[measures.HIDDEN_SYNC.mean] is not None else "")
    )


def _phases_by_run(runs: Sequence[Run]) -> tuple[Figure, str]:
    rows = [(run.name, mean_seconds(run.summary.run)) for run in runs]
    return stacked_phases(rows), (
        f"Mean seconds of each phase {definitions.BUT_THE_FIRST}. {definitions.WAIT_AND_SYNC}"
        + (definitions.HIDDEN_BAR if any(row["hidden_sync"] for _, row in rows) else "")
    )


def _step_times(run: Run) -> tuple[Figure, str]:
    lines = [of_records(f"rank {rank.rank}", rank.warm, "step", "seconds") for rank in run.ranks]
    figure, axes = _lines(lines, "step", "seconds", "no step but the first is there.")
    axes.set_ylim(bottom=0)
    name_lines(figure)
    firsts = [first for rank in run.summary.ranks if (first := rank[measures.FIRST_STEP["seconds"]]) is not None]
    return figure, (
        f"Without the first step, which sets everything up and took {duration(max(firsts))} on the slowest rank."
        f"{thinned(lines)}"
    )


def loss_lines(run: Run) -> list[Series]:
    """One of the global batch, or one for each rank where each has a model of its own."""
    if run.synchronised:
        return [series("all ranks", range(len(run.summary.losses)), run.summary.losses)]
    return [of_records(f"rank {rank.rank}", rank.steps, "step", "loss") for rank in run.ranks]


def _loss(run: Run) -> tuple[Figure, str]:
    lines = loss_lines(run)
    figure, _ = _lines(lines, "step", "loss", "no step has a loss from all ranks.")
    name_lines(figure)
    whose = "Of each step's global batch." if run.synchronised else "Of each rank's own model on its own part."
    return figure, f"{whose}{thinned(lines)}"


def _accuracy(run: Run) -> tuple[Figure, str]:
    epochs = run.summary.run.epochs
    numbers = [(epoch[measures.EPOCH] or 0) + 1 for epoch in epochs]
    lines = [
        series(name, numbers, [_percent(epoch[measure]) for epoch in epochs])
        for name, measure in (("training", measures.TRAINING_ACCURACY), ("test", measures.ACCURACY))
    ]
    figure, axes = _lines(lines, "epoch", "% right", "no epoch has a score.", marker="o")
    axes.set_ylim(0, 100)
    axes.set_xlim(0.5, max(numbers) + 0.5)
    name_lines(figure)
    return figure, "Training: each image as the model took it at its step. Test: after the epoch, the mean over ranks."


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _bytes(run: Run) -> tuple[Figure, str]:
    ranks = run.summary.ranks
    kinds = {
        "formula": measures.FORMULA_BYTES_SENT,
        "counted": measures.BYTES_SENT,
        "seen by the kernel": measures.INTERFACE_BYTES_SENT,
    }
    if not any(rank[measure] for rank in ranks for measure in kinds.values()):
        raise Missing("this mode sends nothing between ranks.")
    figure = theme.new_figure()
    axes = figure.subplots()
    counts = {kind: [(rank[measures.RANK] or 0, rank[measure]) for rank in ranks] for kind, measure in kinds.items()}
    known = {kind: [(rank, size) for rank, size in each if size is not None] for kind, each in counts.items()}
    measured = {kind: each for kind, each in known.items() if each}
    width = 0.8 / len(measured)
    for place, (kind, sizes) in enumerate(measured.items()):
        at = [rank + (place - (len(measured) - 1) / 2) * width for rank, _ in sizes]
        axes.bar(at, [size / 1e6 for _, size in sizes], width * 0.92, label=kind, color=theme.colour(place))
    axes.set_xticks(range(len(ranks)), [f"rank {rank[measures.RANK]}" for rank in ranks])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("MB sent per step")
    theme.legend_above(axes, len(kinds))
    return figure, "The kernel's count has headers and answers in it" + (
        "." if ranks[0][measures.INTERFACE_BYTES_SENT] is not None else "; here ranks share an interface: not measured."
    )


def _bandwidth(run: Run) -> tuple[Figure, str]:
    return _bandwidth_bars([run]), (
        "Gradients by the time of their synchronisation (algorithm), times 2(N-1)/N (bus), beside the slowest link, "
        "as measured before the run."
    )


def _bandwidths(runs: Sequence[Run]) -> tuple[Figure, str]:
    return _bandwidth_bars(runs), "As for a single run. A mode that sends nothing has none."


def _bandwidth_bars(runs: Sequence[Run]) -> Figure:
    kinds = {
        "algorithm": measures.ALGORITHM_BANDWIDTH,
        "bus": measures.BUS_BANDWIDTH,
        "slowest link": measures.SLOWEST_LINK,
    }
    shown = [run for run in runs if run.summary.run[measures.TRANSFER] is not None]
    if not shown:
        raise Missing("no step has its synchronisation measured on all ranks.")
    figure = theme.new_figure(1.4 + 0.6 * len(shown))
    axes = figure.subplots()
    height = 0.8 / len(kinds)
    for place, (kind, measure) in enumerate(kinds.items()):
        speeds = [run.summary.run[measure] for run in shown]
        measured = [(at, speed / 1e6) for at, speed in enumerate(speeds) if speed is not None]
        if measured:
            at = [number + (place - 1) * height for number, _ in measured]
            axes.barh(at, [speed for _, speed in measured], height * 0.9, label=kind, color=theme.colour(place))
    axes.set_yticks(range(len(shown)), theme.shorten([run.name if len(runs) > 1 else run.mode for run in shown]))
    axes.invert_yaxis()
    axes.set_xlabel("MB/s of payload")
    axes.grid(visible=False, axis="y")
    theme.legend_above(axes, len(kinds))
    return figure


def _cpu(run: Run) -> tuple[Figure, str]:
    fields = {"user": ("cpu_user_percent", 1.0), "system": ("cpu_system_percent", 1.0)}
    return _usage(run, fields, "% of one CPU", "Of the rank's process, by sample.")


def _network(run: Run) -> tuple[Figure, str]:
    if all(sample.network_sent_bytes is None for rank in run.ranks for sample in rank.usage):
        raise Missing("the interface is shared with others, or no sample is there.")
    fields = {"sent": ("network_sent_bytes", 1e-6), "received": ("network_received_bytes", 1e-6)}
    caption = "By the kernel's counters of the rank's interface, headers and answers included."
    return _usage(run, fields, "MB/s", caption)


def _memory(run: Run) -> tuple[Figure, str]:
    return _usage(run, {"": ("memory_bytes", 1e-6)}, "MB resident", "Of the rank's process.")


def _usage(run: Run, panels: dict[str, tuple[str, float]], unit: str, caption: str) -> tuple[Figure, str]:
    if not any(rank.usage for rank in run.ranks):
        raise Missing("no sample of usage is there.")
    figure = theme.new_figure(theme.HEIGHT if len(panels) == 1 else theme.HEIGHT * 1.5)
    lines: list[Series] = []
    for axes, (title, (field, scale)) in zip(
        np.atleast_1d(figure.subplots(len(panels), sharex=True)), panels.items(), strict=True
    ):
        for rank in run.ranks:
            lines.append(usage_line(rank, field, scale))
            theme.plot(axes, lines[-1], rank.rank)
        axes.set_ylabel(f"{title} {unit}".strip())
        axes.set_ylim(bottom=0)
    figure.axes[-1].set_xlabel("seconds since the run began")
    name_lines(figure)
    return figure, caption + thinned(lines, "samples")


def usage_line(rank: RankRecords, field: str, scale: float) -> Series:
    """Bytes come as their number in an interval, and are shown by the second."""
    samples = long_enough(rank.usage)
    at = [rank.on_common_clock(sample.at_seconds) for sample in samples]
    values = [getattr(sample, field) for sample in samples]
    if field.startswith("network"):
        values = [
            None if value is None else value / sample.seconds for value, sample in zip(values, samples, strict=True)
        ]
    return series(f"rank {rank.rank}", at, [None if value is None else value * scale for value in values])


# Several runs


def _losses(runs: Sequence[Run]) -> tuple[Figure, str]:
    names = theme.shorten([run.name for run in runs])
    lines = [
        series(name, range(len(run.summary.losses)), run.summary.losses) for name, run in zip(names, runs, strict=True)
    ]
    figure, _ = _lines(lines, "step", "loss", "no step has a loss from all ranks.")
    name_lines(figure)
    return (
        figure,
        "Of each step's global batch; without synchronisation, the mean over the ranks' own models." + thinned(lines),
    )


def _lines(
    lines: Sequence[Series], across: str, up: str, missing: str, marker: str | None = None
) -> tuple[Figure, Axes]:
    if all(line.empty for line in lines):
        raise Missing(missing)
    figure = theme.new_figure()
    axes = figure.subplots()
    for number, line in enumerate(lines):
        if not line.empty:
            theme.plot(axes, line, number, marker)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes
