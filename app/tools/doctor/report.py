"""The doctor's report as plain text: tables, matrices, findings, and the verdict in the last line."""

import io
import textwrap
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from app.cluster.wire.clock import ClockOffset
from app.tools.doctor.findings import Examination, Finding, verdict
from app.tools.doctor.pairs import PairFigures

UNWRAPPED_COLUMNS = 10_000  # so that no table wraps: wrapped numbers are unreadable
FINDING_COLUMNS = 110
MIB = 2**20


def write(examination: Examination, findings: Sequence[Finding]) -> str:
    parts = [_text("ranks", _ranks(examination))]
    if examination.pairs:
        speeds = _matrix(examination, lambda each: f"{each.bytes_per_second / 1e6:.1f}")
        delays = _matrix(examination, lambda each: f"{each.latency_seconds * 1e6:.0f}")
        parts += [
            _text("latency, one way, in microseconds (rows send, columns receive)", delays),
            _text("bandwidth in MB/s (rows send, columns receive)", speeds),
            _text("programs", _programs(examination)),
        ]
    if findings:
        parts.append("\n".join(_wrapped(finding) for finding in findings))
    parts.append(verdict(findings))
    return "\n" + "\n\n".join(parts)


def _ranks(examination: Examination) -> Table:
    table = _table()
    for heading in ("rank", "name", "address", "interface"):
        table.add_column(heading)
    sizes = ("shm free\nMiB", "memory\nlimit MiB", "free on\nhost MiB")
    for heading in ("MTU", "cores", "quota\nCPUs", "threads", *sizes, "offset from\nrank 0, ms"):
        table.add_column(heading, justify="right")
    for member, facts, clock in zip(examination.members, examination.facts, examination.clocks, strict=True):
        quota, limit = member.machine.quota_cpus, facts.memory_limit_bytes
        unlimited = "-" if "the memory limit" in facts.unread else "none"
        table.add_row(
            str(member.rank),
            member.name,
            member.address,
            member.interface,
            _or_dash(facts.mtu_bytes),
            str(len(member.machine.cores)),
            "none" if quota is None else f"{quota:g}",
            str(member.threads),
            _or_dash(facts.shared_memory_free_bytes, MIB),
            unlimited if limit is None else _or_dash(limit, MIB),
            _or_dash(facts.memory_free_bytes, MIB),
            _clock(clock),
        )
    return table


def _matrix(examination: Examination, figure: Callable[[PairFigures], str]) -> Table:
    world_size = len(examination.members)
    table = _table()
    table.add_column("")
    for receiver in range(world_size):
        table.add_column(f"rank {receiver}", justify="right")
    for sender in range(world_size):
        row = [examination.pairs.get((sender, receiver)) for receiver in range(world_size)]
        table.add_row(f"rank {sender}", *("" if each is None else figure(each) for each in row))
    return table


def _programs(examination: Examination) -> Table:
    table = _table()
    table.add_column("program")
    table.add_column("numbers")
    table.add_column("median ms, slowest rank", justify="right")
    damaged = any(figures.wrong_elements for figures in examination.pairs.values())
    table.add_row(f"send and receive, {len(examination.pairs)} pairs", _word(not damaged), "see above")
    for outcome in examination.outcomes:
        table.add_row(outcome.program, _word(not outcome.wrong), f"{outcome.seconds * 1e3:.2f}")
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _text(title: str, table: Table) -> str:
    paper = io.StringIO()
    Console(file=paper, width=UNWRAPPED_COLUMNS, color_system=None, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in [title, *paper.getvalue().splitlines()])


def _wrapped(finding: Finding) -> str:
    return textwrap.fill(f"{finding.severity}: {finding.text}", FINDING_COLUMNS, subsequent_indent="  ")


def _word(well: bool) -> str:
    return "ok" if well else "WRONG"


def _clock(clock: ClockOffset | None) -> str:
    if clock is None:
        return "reference"
    return f"{clock.ahead_seconds * 1e3:+.2f} ± {clock.uncertainty_seconds * 1e3:.2f}"


def _or_dash(value: int | None, unit: int = 1) -> str:
    return "-" if value is None else str(value // unit)
