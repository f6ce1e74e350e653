"""One picture that sums up a run, for a slide or a student's report."""

import textwrap
from collections.abc import Iterator

from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from app.analysis import measures
from app.analysis.run import Run
from app.analysis.units import MEGABYTES
from app.analysis.words import duration, percent
from app.pages import theme
from app.pages.drawing import Missing
from app.pages.drawings import loss_lines
from app.pages.phase_bars import draw_phases, mean_seconds

SIZE = (9.6, 5.4)  # inches, as wide as a slide is
LETTERS = 108  # of the verdict in a line
MOST_BARS = 8  # of ranks; more would be too thin, and one bar shows the mean of all


def overview(run: Run) -> tuple[Figure, str]:
    """The figure and its caption."""
    if run.summary.run[measures.STEP.mean] is None:
        raise Missing("no step but the first is there.")
    figure = Figure(figsize=SIZE, layout="constrained")
    head, drawn = figure.subfigures(2, 1, height_ratios=(1, 1.5))
    _write(run, head)
    bars, loss = drawn.subfigures(1, 2, width_ratios=(1.35, 1))
    _phases(run, bars)
    _loss(run, loss)
    return figure, f"{run.name}: {run.summary.verdict.sentences[0]}"


def _write(run: Run, head: SubFigure) -> None:
    summary = run.summary
    ranks = f"{summary.world_size} rank{'s' if summary.world_size > 1 else ''}"
    title = f"{run.averaging}: {summary.model} on {summary.dataset}, {ranks}, batch {summary.global_batch_size}"
    verdict = textwrap.fill(summary.verdict.sentences[0], LETTERS)
    head.text(0.01, 0.97, title, fontsize=16, fontweight="bold", va="top")
    head.text(0.01, 0.76, verdict, fontsize=11, va="top")
    figures = list(_figures(run))
    for number, (value, what) in enumerate(figures):
        place = 0.01 + 0.98 * number / len(figures)
        head.text(place, 0.19, value, fontsize=14, fontweight="bold")
        head.text(place, 0.06, what, fontsize=9, color=theme.MUTED)


def _figures(run: Run) -> Iterator[tuple[str, str]]:
    """The numbers of the run; one that was not measured is left out."""
    figures, summary = run.summary.run, run.summary
    if (speed := figures[measures.IMAGES_PER_SECOND]) is not None:
        yield f"{speed:.0f}", "images/s, all ranks"
    if (step := figures[measures.STEP.median]) is not None:
        yield duration(step), "per step (median)"
    sent = [size for rank in summary.ranks if (size := rank[measures.BYTES_SENT]) is not None]
    if any(sent):
        ends = dict.fromkeys(MEGABYTES.words(size) for size in (min(sent), max(sent)))
        yield f"{' to '.join(ends)} MB", "sent by a rank in a step"
    if (used := figures[measures.UTILISATION]) is not None:
        yield percent(used), "of what the links allow"
    if (accuracy := figures[measures.ACCURACY]) is not None:
        yield percent(accuracy, 1), "of the test images right"


def _phases(run: Run, bars: SubFigure) -> None:
    ranks = [(f"rank {rank[measures.RANK]}", mean_seconds(rank)) for rank in run.summary.ranks]
    whole = [("all ranks", mean_seconds(run.summary.run))]
    draw_phases(bars.subplots(), ranks if len(ranks) <= MOST_BARS else whole)


def _loss(run: Run, part: SubFigure) -> None:
    axes = part.subplots()
    for number, line in enumerate(loss_lines(run)):
        if not line.empty:
            theme.plot(axes, line, number)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
