"""The tables of one run."""

from app.records.summary import Figures
from app.report.table import Column, Table, Value, digits, megabytes, percent, plain
from app.summary.run import Run


def of_run(run: Run) -> list[Table]:
    """All tables of one run."""
    return [
        _times(run),
        _wire(run),
        _bandwidth(run),
        _links(run),
        _scores(run),
        _usage(run),
        _ranks(run),
        _settings(run),
    ]


TIMES = (  # heading, field of the summary, which figure of it
    ("s/step", "seconds", "mean"),
    ("median", "seconds", "median"),
    ("p95", "seconds", "p95"),
    ("data", "data_seconds", "mean"),
    ("forward", "forward_seconds", "mean"),
    ("backward", "backward_seconds", "mean"),
    ("wait", "wait_seconds", "mean"),
    ("sync", "sync_seconds", "mean"),
    ("optimiser", "optimiser_seconds", "mean"),
    ("hidden sync", "hidden_sync_seconds", "mean"),
    ("throttled", "throttled_seconds", "mean"),
)


def _times(run: Run) -> Table:
    columns = [
        Column("", "rank", plain),
        Column("steps", "steps", plain),
        Column("first step", "first_step_seconds", digits),
        *(Column(heading, f"{field}_{which}", digits) for heading, field, which in TIMES),
        Column("images/s", "images_per_second", digits),
    ]
    rows: list[list[Value]] = []
    summary = run.summary
    for rank in summary.ranks:
        first = rank.first_step.seconds if rank.first_step else None
        rows.append([f"rank {rank.rank}", rank.steps, first, *_time_values(rank)])
    rows.append(["all", summary.steps, None, *_time_values(summary.run)])
    note = (
        "Seconds per step, the first one left out: mean, median and 95th percentile of the whole step, means of its "
        "phases. Data to optimiser add up to the step; hidden sync runs behind backward."
    )
    return Table("times", "Times", columns, rows, note)


def _time_values(figures: Figures) -> list[Value]:
    spreads = [getattr(figures, field) for _, field, _ in TIMES]
    values = [getattr(spread, which) if spread else None for spread, (*_, which) in zip(spreads, TIMES, strict=True)]
    return [*values, figures.images_per_second]


def _wire(run: Run) -> Table:
    fields = ("formula_bytes_sent", "bytes_sent", "interface_bytes_sent", "bytes_received", "interface_bytes_received")
    headings = ("sent, formula", "sent, counted", "sent, kernel", "received, counted", "received, kernel")
    columns = [
        Column("", "rank", plain),
        *(Column(heading, f"{field}_per_step", megabytes) for heading, field in zip(headings, fields, strict=True)),
        Column("kernel over counted", "sent_kernel_over_counted", percent),
        Column("batch norm", "batch_norm_bytes_sent_per_step", megabytes),
    ]
    rows: list[list[Value]] = []
    for rank in run.summary.ranks:
        counted, seen = rank.bytes_sent_per_step, rank.interface_bytes_sent_per_step
        excess = seen / counted - 1 if counted and seen is not None else None
        rows.append(
            [
                f"rank {rank.rank}",
                *(getattr(rank, f"{field}_per_step") for field in fields),
                excess,
                rank.batch_norm_bytes_sent_per_step,
            ]
        )
    return Table("bytes", "Bytes against the formula", columns, rows, "MB per step of each rank.")


def _bandwidth(run: Run) -> Table:
    figures = run.summary.run.bandwidth
    columns = [
        Column("sync s", "sync_seconds", digits),
        Column("least s on these links", "sync_seconds_at_least", digits),
        Column("algorithm MB/s", "algorithm_bytes_per_second", megabytes),
        Column("bus MB/s", "bus_bytes_per_second", megabytes),
        Column("slowest link MB/s", "link_bytes_per_second", megabytes),
        Column("used", "utilisation", percent),
    ]
    note = (
        "Sync: median over the steps of the slowest rank's synchronisation; of what hides in backward, the time in "
        "which messages were under way that all ranks had ready. Used: bus bandwidth by the slowest link."
    )
    rows: list[list[Value]] = [[getattr(figures, column.name, None) for column in columns]]
    return Table("bandwidth", "Bandwidth", columns, rows if figures else [], note)


def _links(run: Run) -> Table:
    columns = [
        Column("", "rank", plain),
        *(
            Column(f"{way}, {what}", f"{way}_{name}", words)
            for way in ("sent", "received")
            for what, name, words in (
                ("expected MB/s", "expected_bytes_per_second", megabytes),
                ("measured MB/s", "measured_bytes_per_second", megabytes),
                ("error", "error", percent),
                ("used", "utilisation", percent),
            )
        ),
        Column("round trip ms", "round_trip_seconds", lambda value: f"{float(value or 0) * 1e3:.2f}"),
    ]
    rows: list[list[Value]] = []
    for rank, use in zip(run.manifest.ranks, run.summary.ranks, strict=True):
        if link := rank.link:
            rows.append(
                [
                    f"rank {rank.rank}",
                    *(
                        value
                        for way in ("sent", "received")
                        for value in (
                            link.direction(way).expected_bytes_per_second,
                            link.direction(way).measured_bytes_per_second,
                            link.direction(way).error,
                            use.link.direction(way),
                        )
                    ),
                    link.round_trip.measured_seconds,
                ]
            )
    return Table(
        "links", "Links", columns, rows, "Payload; measured before the run, while all ranks sent and received."
    )


def _scores(run: Run) -> Table:
    columns = [
        Column("epoch", "epoch", plain),
        Column("", "rank", plain),
        Column("training loss", "training_loss", digits),
        Column("training accuracy", "training_accuracy", percent),
        Column("test loss", "test_loss", digits),
        Column("test accuracy", "accuracy", percent),
    ]
    rows: list[list[Value]] = []
    parties: list[tuple[str, Figures]] = [("all", run.summary.run)]
    parties += [(f"rank {rank.rank}", rank) for rank in run.summary.ranks]
    for number in range(len(run.summary.run.epochs)):
        for name, party in parties:
            if number < len(party.epochs):
                epoch = party.epochs[number]
                rows.append([epoch.epoch + 1, name, *(getattr(epoch, column.name) for column in columns[2:])])
    return Table("scores", "Scores", columns, rows)


def _usage(run: Run) -> Table:
    fields = (
        ("CPU user %", "cpu_user_percent", digits),
        ("CPU system %", "cpu_system_percent", digits),
        ("throttled s", "throttled_seconds", digits),
        ("most memory MB", "most_memory_bytes", megabytes),
        ("sent MB/s", "network_sent_bytes_per_second", megabytes),
        ("received MB/s", "network_received_bytes_per_second", megabytes),
    )
    columns = [Column("", "rank", plain), *(Column(*field) for field in fields)]
    rows: list[list[Value]] = [
        [f"rank {rank.rank}", *(getattr(rank.usage, name, None) for _, name, _ in fields)] for rank in run.summary.ranks
    ]
    return Table("usage", "Usage", columns, rows, "Means over the run, evaluation included. 100 % is one CPU.")


def _ranks(run: Run) -> Table:
    fields = ("name", "address", "interface", "threads", "cores", "quota_cpus", "fair_share_cpus", "cpu_model")
    columns = [
        Column("", "rank", plain),
        *(Column(field.replace("_cpus", " CPUs").replace("_", " "), field, _exact) for field in fields),
        Column("host memory MB", "memory_bytes", megabytes),
        Column("host", "host_boot_id", lambda value: str(value)[:8]),
    ]
    rows: list[list[Value]] = [
        [f"rank {rank.rank}", *(getattr(rank, column.name) for column in columns[1:])] for rank in run.manifest.ranks
    ]
    return Table("ranks", "Ranks", columns, rows, "Cores are shared by all ranks of a host.")


def _exact(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else plain(value)


def _settings(run: Run) -> Table:
    columns = [Column("", "name", plain), Column("", "value", _exact)]
    about = [
        ("started", run.manifest.started_at),
        ("parameters", run.manifest.parameters),
        ("steps", run.manifest.plan.steps),
        *((f"version of {name}", value) for name, value in vars(run.manifest.versions).items()),
        *((f"image: {name}", value) for name, value in vars(run.manifest.image).items()),
    ]
    rows: list[list[Value]] = [[name.upper(), value] for name, value in run.manifest.settings.items()]
    return Table("settings", "Settings and environment", columns, [*rows, *([name, value] for name, value in about)])
