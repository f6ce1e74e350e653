"""The tables of one run."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from app.records.lines import PhaseSeconds
from app.records.manifest import WAYS, Link, Participant
from app.records.summary import PHASES, Bandwidth, Epoch, Figures, LinkUse, Processor, RankFigures
from app.report import definitions
from app.report.table import (
    COUNT,
    DIGITS,
    EXACT,
    MEGABYTES,
    MEGABYTES_PER_SECOND,
    PERCENT,
    SECONDS,
    TEXT,
    Column,
    Table,
    Unit,
    Value,
)
from app.summary.run import Run
from app.summary.wall_clock import PARTS


def of_run(run: Run) -> list[Table]:
    """All tables of one run."""
    return [
        _times(run),
        _wall_clock(run),
        _processor(run),
        _wire(run),
        _bandwidth(run),
        _links(run),
        _scores(run),
        _usage(run),
        _ranks(run),
        _settings(run),
    ]


def _own(heading: str, name: str, unit: Unit) -> Column[Any]:
    """What the row's subject has under this name."""
    return Column(heading, name, unit, attrgetter(name))


def _name(rank: Participant | Figures) -> str:
    return f"rank {rank.rank}" if isinstance(rank, Participant | RankFigures) else "all"


RANK: Column[Any] = Column("", "rank", TEXT, _name)  # of one rank, or of all


def spread_column(heading: str, field: str, which: str) -> Column[Figures]:
    """The mean, the median, the 95th percentile or the most of a time over the steps."""

    def value(figures: Figures) -> Value:
        spread = getattr(figures, field)
        return getattr(spread, which) if spread else None

    return Column(heading, f"{field}_{which}", SECONDS, value)


def _times(run: Run) -> Table:
    def steps(rank: Figures) -> int:
        return rank.steps if isinstance(rank, RankFigures) else run.summary.steps

    def first_step(rank: Figures) -> float | None:
        return rank.first_step.seconds if isinstance(rank, RankFigures) and rank.first_step else None

    columns = [
        RANK,
        Column("steps", "steps", COUNT, steps),
        Column("first step", "first_step_seconds", SECONDS, first_step),
        spread_column("step", "seconds", "mean"),
        spread_column("median", "seconds", "median"),
        spread_column("p95", "seconds", "p95"),
        spread_column("most", "seconds", "most"),
        spread_column("data", "data_seconds", "mean"),
        spread_column("forward", "forward_seconds", "mean"),
        spread_column("backward", "backward_seconds", "mean"),
        spread_column("wait", "wait_seconds", "mean"),
        spread_column("sync", "sync_seconds", "mean"),
        spread_column("optimiser", "optimiser_seconds", "mean"),
        spread_column("hidden sync", "hidden_sync_seconds", "mean"),
        spread_column("throttled", "throttled_seconds", "mean"),
        _own("images/s", "images_per_second", DIGITS),
    ]
    note = (
        f"Over {_warm_steps(run)}: mean, median, 95th percentile (p95) and most of the whole step, means of its "
        f"phases. {definitions.PHASES} {definitions.IMAGES}"
    )
    return Table.of("times", "Times", columns, [*run.summary.ranks, run.summary.run], note)


@dataclass(frozen=True)
class _PhaseOnCpu:
    phase: str
    account: Processor


def _processor(run: Run) -> Table:
    def seconds(heading: str, name: str) -> Column[_PhaseOnCpu]:
        def value(row: _PhaseOnCpu) -> Value:
            account: PhaseSeconds | None = getattr(row.account, name)
            return None if account is None else account.of(*PHASES if row.phase == "all" else [row.phase])

        return Column(heading, name, SECONDS, value)

    columns = [
        Column[_PhaseOnCpu]("phase", "phase", TEXT, lambda row: row.phase),
        seconds("CPU time", "cpu_seconds"),
        seconds("no core", "no_core_seconds"),
        seconds("no quota", "quota_seconds"),
    ]
    note = (
        f"Means over {_warm_steps(run)}. CPU time: of all the rank's threads. No core: the rank was ready to run while "
        "others had the cores; no quota: while its CPU quota had run out. Both are of the thread that trains or, in "
        "wait and sync, of the thread that was delayed most, by the kernel's schedstat. In a mode that hides "
        "communication, forward and backward have wait and sync in them."
    )
    account = run.summary.run.processor
    shown = [phase for phase in PHASES if account and getattr(account.cpu_seconds, phase) is not None]
    rows = [_PhaseOnCpu(phase, account) for phase in (*shown, "all")] if account else []
    return Table.of("processor", "CPU time by phase", columns, rows, note)


def _warm_steps(run: Run) -> str:
    """How many steps the figures are of."""
    counts = [max(0, rank.steps - 1) for rank in run.summary.ranks]
    each = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"the {counts[0]}"
    together = f", {sum(counts)} together," if len(counts) > 1 else ""
    return f"{each} steps of {'each' if len(counts) > 1 else 'the'} rank{together} without its first"


@dataclass(frozen=True)
class _Part:
    name: str
    seconds: float | None
    whole: float | None

    @property
    def share(self) -> float | None:
        return self.seconds / self.whole if self.whole and self.seconds is not None else None


def _wall_clock(run: Run) -> Table:
    clock = run.summary.wall_clock
    columns = [
        Column[_Part]("", "part", TEXT, lambda part: part.name),
        _own("by wall clock", "seconds", SECONDS),
        _own("share", "share", PERCENT),
    ]
    note = (
        "All ranks on one clock, from the start of the first process until the last rank has finished; the parts add "
        "up to the whole. Start: until the first step, without the measurement of the links. Training: some rank is "
        "within a step, its first one included. Evaluation: some rank evaluates, and none is within a step. Gaps: "
        "neither, between steps. End: after the last step and evaluation, without the making of this page."
    )
    fields = PARTS | {"whole run": "seconds"}
    parts = [_Part(name, getattr(clock, field), clock.seconds) for name, field in fields.items()] if clock else []
    return Table.of("wall_clock", "Where the whole run's time went", columns, parts, note)


def _wire(run: Run) -> Table:
    def excess(rank: RankFigures) -> float | None:
        counted, seen = rank.bytes_sent_per_step, rank.interface_bytes_sent_per_step
        return seen / counted - 1 if counted and seen is not None else None

    columns = [
        RANK,
        _own("sent, formula", "formula_bytes_sent_per_step", MEGABYTES),
        _own("sent, counted", "bytes_sent_per_step", MEGABYTES),
        _own("sent, kernel", "interface_bytes_sent_per_step", MEGABYTES),
        _own("received, counted", "bytes_received_per_step", MEGABYTES),
        _own("received, kernel", "interface_bytes_received_per_step", MEGABYTES),
        Column("kernel over counted", "sent_kernel_over_counted", PERCENT, excess),
        _own("batch norm", "batch_norm_bytes_sent_per_step", MEGABYTES),
    ]
    return Table.of("bytes", "Bytes against the formula", columns, run.summary.ranks, "Per step of each rank.")


def _bandwidth(run: Run) -> Table:
    columns: list[Column[Bandwidth]] = [
        _own("sync", "sync_seconds", SECONDS),
        _own("least on these links", "sync_seconds_at_least", SECONDS),
        _own("algorithm", "algorithm_bytes_per_second", MEGABYTES_PER_SECOND),
        _own("bus", "bus_bytes_per_second", MEGABYTES_PER_SECOND),
        _own("slowest link", "link_bytes_per_second", MEGABYTES_PER_SECOND),
        _own("links used", "utilisation", PERCENT),
    ]
    note = (
        "Sync: median over the steps of the slowest rank's synchronisation; of what hides in backward, the time in "
        f"which messages were under way that all ranks had ready. {definitions.LINKS_USED} A "
        "star and a ring that wait for nothing but their links both reach 100 %."
    )
    bandwidth = run.summary.run.bandwidth
    return Table.of("bandwidth", "Bandwidth", columns, [bandwidth] if bandwidth else [], note)


@dataclass(frozen=True)
class _MeasuredLink:
    rank: int
    link: Link
    use: LinkUse


def _links(run: Run) -> Table:
    def measured(way: str, what: str, name: str, unit: Unit) -> Column[_MeasuredLink]:
        return Column(f"{way}, {what}", f"{way}_{name}", unit, lambda row: getattr(row.link.direction(way), name))

    def used(way: str) -> Column[_MeasuredLink]:
        return Column(f"{way}, used", f"{way}_utilisation", PERCENT, lambda row: row.use.direction(way))

    columns = [Column[_MeasuredLink]("", "rank", TEXT, lambda row: f"rank {row.rank}")]
    for way in WAYS:
        columns += [
            measured(way, "expected", "expected_bytes_per_second", MEGABYTES_PER_SECOND),
            measured(way, "measured", "measured_bytes_per_second", MEGABYTES_PER_SECOND),
            measured(way, "error", "error", PERCENT),
            used(way),
        ]
    columns.append(
        Column("round trip", "round_trip_seconds", SECONDS, lambda row: row.link.round_trip.measured_seconds)
    )
    both = zip(run.manifest.ranks, run.summary.ranks, strict=True)
    links = [_MeasuredLink(rank.rank, rank.link, own.link) for rank, own in both if rank.link]
    return Table.of(
        "links", "Links", columns, links, "Payload; measured before the run, while all ranks sent and received."
    )


@dataclass(frozen=True)
class _Score:
    rank: str
    epoch: Epoch


def _scores(run: Run) -> Table:
    def score(heading: str, name: str, unit: Unit) -> Column[_Score]:
        return Column(heading, name, unit, lambda row: getattr(row.epoch, name))

    columns = [
        Column[_Score]("epoch", "epoch", COUNT, lambda row: row.epoch.epoch + 1),
        _own("", "rank", TEXT),
        score("training loss", "training_loss", DIGITS),
        score("training accuracy", "training_accuracy", PERCENT),
        score("test loss", "test_loss", DIGITS),
        score("test accuracy", "accuracy", PERCENT),
    ]
    parties: list[Figures] = [run.summary.run, *run.summary.ranks]
    rows = [
        _Score(_name(party), party.epochs[number])
        for number in range(len(run.summary.run.epochs))
        for party in parties
        if number < len(party.epochs)
    ]
    return Table.of("scores", "Scores", columns, rows)


def _usage(run: Run) -> Table:
    def used(heading: str, name: str, unit: Unit) -> Column[RankFigures]:
        return Column(heading, name, unit, lambda rank: getattr(rank.usage, name, None))

    columns = [
        RANK,
        used("CPU user %", "cpu_user_percent", DIGITS),
        used("CPU system %", "cpu_system_percent", DIGITS),
        used("throttled", "throttled_seconds", SECONDS),
        used("most memory", "most_memory_bytes", MEGABYTES),
        used("sent", "network_sent_bytes_per_second", MEGABYTES_PER_SECOND),
        used("received", "network_received_bytes_per_second", MEGABYTES_PER_SECOND),
    ]
    note = "Means over the run, evaluation included. 100 % is one CPU."
    return Table.of("usage", "Usage", columns, run.summary.ranks, note)


def _ranks(run: Run) -> Table:
    columns: list[Column[Participant]] = [
        RANK,
        _own("name", "name", TEXT),
        _own("address", "address", TEXT),
        _own("interface", "interface", TEXT),
        _own("threads", "threads", COUNT),
        _own("cores", "cores", COUNT),
        _own("quota CPUs", "quota_cpus", EXACT),
        _own("fair share CPUs", "fair_share_cpus", EXACT),
        _own("cpu model", "cpu_model", TEXT),
        _own("host memory", "memory_bytes", MEGABYTES),
        _own("host", "host_boot_id", Unit(lambda boot_id: boot_id[:8], right=False)),
    ]
    return Table.of("ranks", "Ranks", columns, run.manifest.ranks, "Cores are shared by all ranks of a host.")


def _settings(run: Run) -> Table:
    manifest = run.manifest
    rows: dict[str, Value] = {name.upper(): value for name, value in manifest.settings.items()}
    rows |= {"started": manifest.started_at, "parameters": manifest.parameters, "steps": manifest.plan.steps}
    rows |= {f"version of {name}": value for name, value in vars(manifest.versions).items()}
    rows |= {f"image: {name}": value for name, value in vars(manifest.image).items()}
    columns: list[Column[tuple[str, Value]]] = [
        Column("", "name", TEXT, lambda row: row[0]),
        Column("", "value", Unit(EXACT.words, right=False), lambda row: row[1]),
    ]
    return Table.of("settings", "Settings and environment", columns, rows.items())
