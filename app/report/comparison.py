"""Several runs side by side: the table of them, and in what they differ."""

from collections.abc import Sequence

from app.records.summary import Spread
from app.report.table import Column, Table, Value, digits, megabytes, percent, plain
from app.summary.run import Run


def compared(runs: Sequence[Run]) -> Table:
    """Runs side by side, the fastest first; those without a measured step come last."""
    columns = [
        Column("run", "run", plain),
        Column("mode", "sync_mode", plain),
        Column("model", "model", plain),
        Column("ranks", "world_size", plain),
        Column("batch", "global_batch_size", plain),
        Column("steps", "steps", plain),
        Column("images/s", "images_per_second", digits),
        Column("slower by", "times_slower", lambda value: f"{float(value or 0):.2f} x"),
        Column("s/step", "seconds_median", digits),
        *(
            Column(phase.replace("_", " "), f"{phase}_seconds_mean", digits)
            for phase in ("forward", "backward", "wait", "sync", "hidden_sync", "optimiser")
        ),
        Column("MB sent", "bytes_sent_per_step", megabytes),
        Column("link used", "utilisation", percent),
        Column("loss", "loss", digits),
        Column("test", "accuracy", percent),
        Column("complete", "complete", plain),
    ]
    ordered = sorted(runs, key=lambda run: -(run.summary.run.images_per_second or 0.0))
    fastest = ordered[0].summary.run.images_per_second if ordered else None
    return Table(
        "compared",
        "Side by side, the fastest first",
        columns,
        [_comparison(run, columns, fastest) for run in ordered],
        "Medians of the step, means of its phases, in seconds; the first step left out. Only runs of one machine, in "
        "one state of it, compare.",
    )


def _comparison(run: Run, columns: Sequence[Column], fastest: float | None) -> list[Value]:
    figures = run.summary.run
    speed = figures.images_per_second
    known: dict[str, Value] = {
        **{
            name: getattr(run.summary, name)
            for name in ("sync_mode", "model", "world_size", "global_batch_size", "steps", "complete")
        },
        **{name: getattr(figures, name) for name in ("images_per_second", "bytes_sent_per_step", "loss", "accuracy")},
        **{
            f"{field}_{which}": getattr(each, which)
            for field, each in vars(figures).items()
            if isinstance(each, Spread)
            for which in ("mean", "median")
        },
        "run": run.name,
        "times_slower": fastest / speed if fastest and speed else None,
        "utilisation": figures.bandwidth.utilisation if figures.bandwidth else None,
    }
    return [known.get(column.name) for column in columns]


def differences(runs: Sequence[Run]) -> list[str]:
    """In what else than the mode the runs differ, so that nobody takes one thing's effect for another's."""
    own = {"run_name", "sync_mode"}
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.manifest.settings if name not in own):
        values = [str(run.manifest.settings.get(name)) for run in runs]
        if len(set(values)) > 1:
            found.append(
                f"{name.upper()}: " + ", ".join(f"{run.name} {value}" for run, value in zip(runs, values, strict=True))
            )
    hosts = {tuple(sorted({rank.host_boot_id for rank in run.manifest.ranks})) for run in runs}
    if len(hosts) > 1:
        found.append("the runs were made on different machines, or with a restart between them")
    return found
