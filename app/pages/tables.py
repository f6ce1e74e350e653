"""The tables of one run."""

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any

from app.analysis import measures, networks
from app.analysis.figures import Figures, Measure
from app.analysis.networks import Use
from app.analysis.run import Run
from app.analysis.units import COUNT, EXACT, MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, TEXT, Unit, Value
from app.analysis.wall_clock import PARTS
from app.cluster.link.emulation import emulating
from app.pages import definitions
from app.pages.table import Column, Table, measured
from app.records.lines import PHASES
from app.records.manifest import WAYS, Participant
from app.settings.settings import FIELDS


def of_run(run: Run) -> list[Table]:
    return [
        _times(run),
        _wall_clock(run),
        _processor(run),
        _wire(run),
        _bandwidth(run),
        _links(run),
        _networks(run),
        _scores(run),
        _usage(run),
        _ranks(run),
        _given(run),
        _settings(run),
    ]


def own(heading: str, name: str, unit: Unit) -> Column[Any]:
    """What the row's subject has under this name."""
    return Column(heading, name, unit, attrgetter(name))


def name_of(rank: Participant | Figures) -> str:
    """A row's subject: one rank, or all together."""
    number = rank.rank if isinstance(rank, Participant) else rank[measures.RANK]
    return "all" if number is None else f"rank {number}"


RANK: Column[Any] = Column("", "rank", TEXT, name_of)  # of one rank, or of all


def _times(run: Run) -> Table:
    def steps(rank: Figures) -> int | None:
        return run.summary.steps if rank[measures.RANK] is None else rank[measures.STEPS]

    # Phases always, everything else if the mode has it.
    phases, step, figures = measures.PHASE_TIMES.values(), measures.STEP, run.summary.run
    shown = [each for each in measures.TIMES[1:] if each in phases or figures[each.mean] is not None]
    columns = [
        RANK,
        Column("steps", "steps", COUNT, steps),
        measured("first step", measures.FIRST_STEP["seconds"]),
        measured("step", step.mean),
        measured("median", step.median),
        measured("p95", step.p95),
        measured("most", step.most),
        *(measured(each.label, each.mean) for each in shown),
        measured("images/s", measures.IMAGES_PER_SECOND),
    ]
    note = (
        f"Over {_warm_steps(run)}: mean, median, 95th percentile (p95) and most of the whole step, means of its "
        f"phases. {definitions.PHASES} {definitions.IMAGES}"
    )
    return Table.of("times", "Times", columns, [*run.summary.ranks, figures], note)


def _processor(run: Run) -> Table:
    """CPU time and scheduling delay of each phase."""
    figures = run.summary.run

    def seconds(heading: str, name: str, account: Mapping[str, Measure[float]]) -> Column[str]:
        def value(phase: str) -> Value:
            known = [each for each in PHASES if figures[account[each]] is not None]
            chosen = known if phase == "all" else [phase]
            return figures.sum(*(account[each] for each in chosen)) if known else None

        return Column(heading, name, SECONDS, value)

    columns: list[Column[str]] = [
        Column("phase", "phase", TEXT, lambda phase: phase),
        seconds("CPU time", "cpu_seconds", measures.CPU_SECONDS),
        seconds("no core", "no_core_seconds", measures.NO_CORE_SECONDS),
        seconds("no quota", "quota_seconds", measures.QUOTA_SECONDS),
    ]
    note = (
        f"Means over {_warm_steps(run)}. CPU time: of all the rank's threads. No core: the rank was ready to run while "
        "others had the cores; no quota: while its CPU quota had run out. Both are of the thread that trains or, in "
        "wait and sync, of the thread that was delayed most, by the kernel's schedstat. In a mode that hides "
        "communication, forward and backward have wait and sync in them."
    )
    shown = [phase for phase in PHASES if figures[measures.CPU_SECONDS[phase]] is not None]
    rows = [*shown, "all"] if shown else []
    return Table.of("processor", "CPU time by phase", columns, rows, note)


def _warm_steps(run: Run) -> str:
    """How many steps the figures are of."""
    counts = [len(rank.warm) for rank in run.ranks]
    each = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"the {counts[0]}"
    together = f", {sum(counts)} together," if len(counts) > 1 else ""
    return f"{each} steps of {'each' if len(counts) > 1 else 'the'} rank{together} without its first"


def _wall_clock(run: Run) -> Table:
    clock = run.summary.wall_clock or {}
    whole = clock.get("seconds")

    def share(field: str) -> float | None:
        seconds = clock[field]
        return seconds / whole if whole and seconds is not None else None

    columns: list[Column[str]] = [
        Column("", "part", TEXT, lambda field: "whole run" if field == "seconds" else PARTS[field]),
        Column("by wall clock", "seconds", SECONDS, lambda field: clock[field]),
        Column("share", "share", PERCENT, share),
    ]
    note = (
        "All ranks on one clock, from the start of the first process until the last rank has finished; the parts add "
        "up to the whole. Start: until the first step, without the measurement of the links. Training: some rank is "
        "within a step, its first one included. Evaluation: some rank evaluates, and none is within a step. Saving: "
        "some rank saves its state, and none does either. Lost: between two attempts, with the steps that were taken "
        "again. Gaps: none of these, between steps. End: after all of them, without the making of this page."
    )
    fields = sorted(clock, key=lambda field: field == "seconds")  # the whole comes last
    return Table.of("wall_clock", "Where the whole run's time went", columns, fields, note)


def _wire(run: Run) -> Table:
    counted = {
        "sent, formula": measures.FORMULA_BYTES_SENT,
        "sent, counted": measures.BYTES_SENT,
        "sent, kernel": measures.INTERFACE_BYTES_SENT,
        "received, counted": measures.BYTES_RECEIVED,
        "received, kernel": measures.INTERFACE_BYTES_RECEIVED,
        "kernel over counted": measures.SENT_EXCESS,
        "batch norm": measures.BATCH_NORM_BYTES_SENT,
    }
    columns = [RANK, *(measured(*each) for each in counted.items())]
    return Table.of("bytes", "Bytes against the formula", columns, run.summary.ranks, "Per step of each rank.")


def _bandwidth(run: Run) -> Table:
    headings = ("sync", "least on these links", "algorithm", "bus", "slowest link", "links used")
    columns = [
        measured(heading, measure, measure.name.removeprefix("bandwidth."))
        for heading, measure in zip(headings, measures.BANDWIDTH, strict=True)
    ]
    note = (
        "Sync: median over the steps of the slowest rank's synchronisation; of what hides in backward, the time in "
        f"which messages were under way that all ranks had ready. {definitions.LINKS_USED} A "
        "star and a ring that wait for nothing but their links both reach 100 %."
    )
    rows = [run.summary.run] if run.summary.run[measures.TRANSFER] is not None else []
    return Table.of("bandwidth", "Bandwidth", columns, rows, note)


def _links(run: Run) -> Table:
    def measured(way: str, what: str, name: str, unit: Unit) -> Column[Participant]:
        return Column(f"{way}, {what}", f"{way}_{name}", unit, attrgetter(f"link.{way}.{name}"))

    def used(way: str) -> Column[Participant]:
        utilisation = measures.LINK_UTILISATION[way]
        return Column(
            f"{way}, used", f"{way}_utilisation", PERCENT, lambda rank: run.summary.ranks[rank.rank][utilisation]
        )

    columns = [RANK]
    for way in WAYS:
        columns += [
            measured(way, "expected", "expected_bytes_per_second", MEGABYTES_PER_SECOND),
            measured(way, "measured", "measured_bytes_per_second", MEGABYTES_PER_SECOND),
            measured(way, "error", "error", PERCENT),
            used(way),
        ]
    columns.append(Column("round trip", "round_trip_seconds", SECONDS, attrgetter("link.round_trip.measured_seconds")))
    note = "Payload; measured before the run, while all ranks sent and received."
    if settings := emulating(run.manifest):
        note += f" To emulate these links on one host: scripts/up {settings}"
    return Table.of("links", "Links", columns, [rank for rank in run.manifest.ranks if rank.link], note)


def _networks(run: Run) -> Table:
    columns: list[Column[Use]] = [
        Column("", "rank", TEXT, lambda use: f"rank {use.rank}"),
        Column("interface", "interface", TEXT, lambda use: f"{use.name} (the ranks')" if use.own else use.name),
        Column("address", "address", TEXT, lambda use: use.address),
        Column("MTU", "mtu_bytes", COUNT, lambda use: use.mtu_bytes),
        Column("before", "before_bytes", MEGABYTES, lambda use: use.before_bytes),
        Column("after", "after_bytes", MEGABYTES, lambda use: use.after_bytes),
        Column("in the run", "bytes", MEGABYTES, lambda use: use.bytes),
        Column("of the ranks' own", "share", PERCENT, lambda use: use.share),
    ]
    uses = networks.of(run.records)
    if all(use.own for use in uses):  # a container has no other
        uses = []
    note = "What the kernel counted on each interface of each rank's machine, both ways, for all programs."
    return Table.of("networks", "Networks", columns, uses, note)


def _scores(run: Run) -> Table:
    def score(heading: str, measure: Measure[float]) -> Column[tuple[str, Figures]]:
        return Column(heading, measure.name, measure.unit, lambda row: row[1][measure])

    columns = [
        Column[tuple[str, Figures]]("epoch", "epoch", COUNT, lambda row: (row[1][measures.EPOCH] or 0) + 1),
        Column[tuple[str, Figures]]("", "rank", TEXT, lambda row: row[0]),
        score("training loss", measures.TRAINING_LOSS),
        score("training accuracy", measures.TRAINING_ACCURACY),
        score("test loss", measures.TEST_LOSS),
        score("test accuracy", measures.ACCURACY),
    ]
    rows = [
        (name_of(party), party.epochs[number])
        for number in range(len(run.summary.run.epochs))
        for party in (run.summary.run, *run.summary.ranks)
        if number < len(party.epochs)
    ]
    return Table.of("scores", "Scores", columns, rows)


def _usage(run: Run) -> Table:
    def used(heading: str, name: str) -> Column[Figures]:
        return measured(heading, measures.USAGE[name], name)

    columns = [
        RANK,
        used("CPU user %", "cpu_user_percent"),
        used("CPU system %", "cpu_system_percent"),
        used("throttled", "throttled_seconds"),
        used("most memory sampled", "most_memory_bytes"),
        measured("peak memory", measures.PEAK_MEMORY),
        used("sent", "network_sent_bytes_per_second"),
        used("received", "network_received_bytes_per_second"),
    ]
    note = (
        "Means over the run, evaluation included. 100 % is one CPU. The peak is the kernel's own count from the start "
        "of the process on, with all that came and went between two samples."
    )
    return Table.of("usage", "Usage", columns, run.summary.ranks, note)


def _ranks(run: Run) -> Table:
    columns: list[Column[Participant]] = [
        RANK,
        own("name", "name", TEXT),
        own("address", "address", TEXT),
        own("interface", "interface", TEXT),
        own("threads", "threads", COUNT),
        own("cores", "cores", COUNT),
        own("quota CPUs", "quota_cpus", EXACT),
        own("fair share CPUs", "fair_share_cpus", EXACT),
        own("cpu model", "cpu_model", TEXT),
        own("kernel", "kernel", TEXT),
        own("TCP's congestion control", "congestion_control", TEXT),
        own("host memory", "memory_bytes", MEGABYTES),
        own("host", "host_boot_id", Unit(lambda boot_id: boot_id[:8], right=False)),
    ]
    return Table.of("ranks", "Ranks", columns, run.manifest.ranks, "Cores are shared by all ranks of a host.")


def _given(run: Run) -> Table:
    """The settings that rank 0 was given and that differ from their defaults."""
    given = (run.manifest.given or {}).items()
    rows = {name.upper(): value for name, value in given if name in FIELDS and value != FIELDS[name].default}
    return _pairs("given", "Settings that differ from their defaults", rows)


def _settings(run: Run) -> Table:
    manifest = run.manifest
    rows: dict[str, Value] = {name.upper(): value for name, value in manifest.settings.items()}
    rows |= {
        "started": manifest.started_at,
        "data set": manifest.dataset,
        "parameters": manifest.parameters,
        "steps": manifest.plan.steps,
    }
    rows |= {f"version of {name}": value for name, value in vars(manifest.versions).items()}
    rows |= {f"image: {name}": value for name, value in vars(manifest.image).items() if name != "package_versions"}
    rows |= {f"package {name}": value for name, value in (manifest.image.package_versions or {}).items()}
    return _pairs("settings", "Settings and environment", rows)


def _pairs(name: str, title: str, rows: Mapping[str, Value]) -> Table:
    columns: list[Column[tuple[str, Value]]] = [
        Column("", "name", TEXT, itemgetter(0)),
        Column("", "value", Unit(EXACT.words, right=False), itemgetter(1)),
    ]
    return Table.of(name, title, columns, rows.items())
