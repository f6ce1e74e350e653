"""The figures of a run, and those that compare several runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from app.analysis import busiest, measures
from app.analysis.figures import Figures, Measure
from app.analysis.run import Run
from app.analysis.statistics import mean
from app.analysis.words import duration
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.cores import cores
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import NO_SAMPLES, SINCE_START, curves, panels, remarks
from app.pages.phases import mean_seconds, phase_bars
from app.pages.rows import Bars, Row, Span, stacked
from app.pages.scale import Axis, written
from app.pages.series import of_usage, over_ranks, series, thinned
from app.pages.timeline import timeline

MOST_RANKS = 9  # whose messages a figure can show one by one
FEW_POINTS = 60  # of a line in a small panel

Drawn = tuple[Chart, str]


def of_run(run: Run) -> list[Drawing]:
    makers: dict[str, tuple[str, Callable[[Run], Drawn]]] = {
        "phases": ("A step of each rank", _phases_by_rank),
        "loss": ("Loss", _loss),
        "bytes": ("Sent per step", _bytes),
        "timeline": ("Three steps as they happened", timeline),
        "steps": ("Time per step", _step_times),
        "accuracy": ("Accuracy", _accuracy),
        "links": ("Bytes over each link", _schedule),
        "bandwidth": ("Bandwidth", lambda run: _bandwidths([run])),
        "network": ("Network", _network),
        "cpu": ("CPU", _cpu),
        "cores": ("CPU of all ranks against the cores", cores),
        "memory": ("Memory", _memory),
    }
    return [draw(name, title, make, run) for name, (title, make) in makers.items()]


def of_runs(runs: Sequence[Run]) -> list[Drawing]:
    return [
        draw(f"compared-{name}", title, make, runs)
        for name, title, make in (
            ("phases", "A step of each run", _phases_by_run),
            ("links", "Bytes over each link", _links),
            ("loss", "Loss", _losses),
            ("bandwidth", "Bandwidth", _bandwidths),
        )
    ]


# One run


def _phases_by_rank(run: Run) -> Drawn:
    rows = [(f"rank {rank[measures.RANK]}", mean_seconds(rank)) for rank in run.summary.ranks]
    caption = "Mean time of each phase, without the first step"
    return phase_bars("Mean time of each phase of a step, by rank", rows, caption)


def _phases_by_run(runs: Sequence[Run]) -> Drawn:
    rows = [(run.name, mean_seconds(run.summary.run)) for run in runs]
    caption = f"Mean time of each phase {definitions.BUT_THE_FIRST}"
    return phase_bars("Mean time of each phase of a step, by run", rows, caption)


def _step_times(run: Run) -> Drawn:
    rows = run.table.all
    line = over_ranks("all ranks", rows.warm_by_rank("step")[0], rows.warm_by_rank("seconds"))
    if line.empty:
        raise Missing("only the first step was recorded, which includes setup.")
    firsts = [first for rank in run.summary.ranks if (first := rank[measures.FIRST_STEP["seconds"]]) is not None]
    band = " The band spans all ranks." if len(run.ranks) > 1 else ""
    return curves("Time per step", "step", Axis("time per step", "s"), [line]), (
        f"Mean over the ranks, without the first step, which includes setup and took {duration(max(firsts))} on the "
        f"slowest rank.{band}{thinned([line])}"
    )


def _loss(run: Run) -> Drawn:
    """Of the global batch. Without synchronisation, a line of each rank's own model."""
    losses = run.summary.losses
    if run.synchronised:
        lines = [series("all ranks", range(len(losses)), losses)]
    else:
        lines = [
            series(f"rank {n}", rank.column("step"), rank.column("loss")) for n, rank in enumerate(run.table.ranks)
        ]
    chart = curves("Loss", "step", Axis("loss"), lines, "no step has a loss from all ranks.")
    whose = "Of each step's global batch." if run.synchronised else "Of each rank's own model, on its own part."
    return chart, f"{whose}{remarks(lines, 'steps', 'ranks')}"


def _accuracy(run: Run) -> Drawn:
    epochs = run.summary.run.epochs
    if len(epochs) < 2:
        raise Missing("a course over time needs two epochs, and the table below has the scores of one.")
    numbers = [(epoch[measures.EPOCH] or 0) + 1 for epoch in epochs]
    scores = {"training": measures.TRAINING_ACCURACY, "test": measures.ACCURACY}
    lines = [series(name, numbers, [epoch[each] for epoch in epochs]) for name, each in scores.items()]
    caption = "Training: each image as classified at its step. Test: after the epoch, the mean over ranks."
    return curves("Accuracy", "epoch", Axis("accuracy", "share", most=1.0), lines), caption


WAYS = (measures.BYTES_RECEIVED, measures.BYTES_SENT)
SENT = {
    "formula": measures.FORMULA_BYTES_SENT,
    "counted by the program": measures.BYTES_SENT,
    "counted by the kernel": measures.INTERFACE_BYTES_SENT,
}


def _bytes(run: Run) -> Drawn:
    ranks = run.summary.ranks
    if not any(rank[measure] for rank in ranks for measure in SENT.values()):
        raise Missing("this mode sends nothing between ranks.")
    groups = list(_alike(ranks, measures.FORMULA_BYTES_SENT, measures.BYTES_SENT))
    rows = [
        _row(f"{name}, {kind}" if len(groups) > 1 else kind, size)
        for name, group in groups
        for kind, measure in SENT.items()
        if (size := mean([rank[measure] for rank in group])) is not None
    ]
    who = f"{groups[0][0].capitalize()} sends the same. " if len(groups) == 1 and len(ranks) > 1 else ""
    seen = any(rank[measures.INTERFACE_BYTES_SENT] is not None for rank in ranks)
    kernel = "includes headers and acknowledgements" if seen else "is not known, because ranks share an interface"
    return Bars("Bytes that a rank sends in a step", Axis("sent per step", "B"), rows), (
        f"{who}The program counts payload. The kernel's count {kernel}."
    )


def _schedule(run: Run) -> Drawn:
    """The messages of a step on each rank's link, those of the busiest rank in the full colour."""
    messages, busy = run.manifest.messages, busiest.of(run.summary, run.manifest)
    if messages is None or busy is None or run.manifest.world_size > MOST_RANKS:
        return _links([run])
    rows = []
    for rank in range(run.manifest.world_size):
        role = "sync" if busy.is_like([rank]) else "hidden"
        arriving = [(each, "from", each.sender) for each in messages if each.receiver == rank]
        leaving = [(each, "to", each.receiver) for each in messages if each.sender == rank]
        for way, own in (("receives", arriving), ("sends", leaving)):
            ends = [0, *accumulate(each.bytes for each, _, _ in own)]
            spans = [
                Span(
                    *edge, role, f"{to} {peer}", f"round {each.round + 1}: {written(each.bytes, 'B')} {to} rank {peer}"
                )
                for edge, (each, to, peer) in zip(pairwise(ends), own, strict=True)
            ]
            rows.append(Row(f"rank {rank} {way}", spans, value=ends[-1]))
    x, words = Axis("received or sent per step", "B"), "The messages of a step, by rank and direction"
    return Bars(words, x, rows, legend=False), (
        "Each part of a bar is a message of the schedule, in the order of its rounds. Messages of the busiest rank are "
        "in the full colour: they set the minimum time of a synchronisation."
    )


def _links(runs: Sequence[Run]) -> Drawn:
    """What each rank receives and sends, the busiest rank of each run in the full colour."""
    rows = []
    for run in runs:
        busy = busiest.of(run.summary, run.manifest)
        for name, group in _alike(run.summary.ranks, *WAYS) if busy else ():
            received, sent = (mean([rank[way] for rank in group]) or 0.0 for way in WAYS)
            red = busy is not None and busy.is_like([rank[measures.RANK] for rank in group])
            role = "sync" if red else "hidden"
            spans = stacked([("received", received, role), ("sent", sent, role)])
            rows.append(Row(f"{run.name}, {name}" if len(runs) > 1 else name, spans, value=received + sent))
    if not rows:
        raise Missing("nothing is sent, or not in each step.")
    return Bars("Bytes that each rank receives and sends in a step", Axis("received and sent per step", "B"), rows), (
        "The links of the busiest rank, in the full colour, set the least time of a synchronisation. Runs that do not "
        "send in every step have no bar."
    )


def _alike(ranks: Sequence[Figures], *ways: Measure[float]) -> Iterator[tuple[str, list[Figures]]]:
    """Ranks with the same figures, by their names."""
    groups: dict[tuple[float, ...], list[Figures]] = {}
    for rank in ranks:
        key = tuple(float(f"{rank[way] or 0.0:.3g}") for way in ways)  # a ring's ranks differ by a few bytes
        groups.setdefault(key, []).append(rank)
    for group in groups.values():
        numbers = [str(rank[measures.RANK]) for rank in group]
        several = "every rank" if len(groups) == 1 else f"ranks {', '.join(numbers)}"
        yield (several if len(numbers) > 1 else f"rank {numbers[0]}"), group


def _bandwidths(runs: Sequence[Run]) -> Drawn:
    kinds: dict[str, Measure[float]] = {
        "algorithm": measures.ALGORITHM_BANDWIDTH,
        "bus": measures.BUS_BANDWIDTH,
        "slowest link": measures.SLOWEST_LINK,
    }
    rows = [
        _row(f"{run.name}, {kind}" if len(runs) > 1 else kind, speed)
        for run in runs
        for kind, measure in kinds.items()
        if (speed := run.summary.run[measure]) is not None
    ]
    if not rows:
        raise Missing("no step has its synchronisation measured on all ranks.")
    return Bars("Bandwidth of the synchronisation", Axis("payload", "B/s"), rows), (
        "Algorithm: gradient bytes divided by the time of their synchronisation. Bus: the same times 2(N-1)/N. Links "
        "were measured before the run. A mode that sends nothing has none."
    )


def _row(name: str, value: float) -> Row:
    return Row(name, stacked([(name, value, "sync")]), value=value)


def _cpu(run: Run) -> Drawn:
    fields = {"program": "cpu_user_percent", "kernel": "cpu_system_percent"}
    return _usage(run, fields, Axis("of one CPU", "%"), "CPU time of each rank's process.")


def _network(run: Run) -> Drawn:
    fields = {"sent": "network_sent_bytes", "received": "network_received_bytes"}
    caption = "By the kernel's counters of the rank's interface, headers and acknowledgements included."
    return _usage(run, fields, Axis("", "B/s"), caption, NO_SAMPLES)


def _memory(run: Run) -> Drawn:
    return _usage(run, {"resident": "memory_bytes"}, Axis("resident memory", "B"), "Of each rank's process.")


def _usage(
    run: Run, fields: Mapping[str, str], up: Axis, caption: str, missing: str = "there are no samples of usage."
) -> Drawn:
    found = {
        f"rank {rank.rank}": {name: [of_usage(rank, name, field, FEW_POINTS)] for name, field in fields.items()}
        for rank in run.ranks
    }
    chart, cut = panels(caption, SINCE_START, up, found, "ranks", "samples", missing)
    return chart, f"{caption}{cut}"


# Several runs


def _losses(runs: Sequence[Run]) -> Drawn:
    lines = [series(run.name, range(len(run.summary.losses)), run.summary.losses) for run in runs]
    chart = curves("Loss of each run", "step", Axis("loss"), lines, "no step has a loss from all ranks.")
    return chart, (
        "Of each step's global batch. Without synchronisation, the mean over the ranks' own models."
        f"{remarks(lines, 'steps', 'runs')}"
    )
