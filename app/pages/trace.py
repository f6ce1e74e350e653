"""trace.json: a run as Perfetto and chrome://tracing show it, all ranks on one clock.

Its size is bounded. TRACE_STEPS says how many steps of a rank it has, half of them from the beginning of the run and
half from its end; it has as many evaluations, chosen in the same way, and as many samples of usage.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from app.analysis import averaging
from app.analysis.run import Run
from app.machine.folders import replace_file
from app.pages.pieces import buffers_given
from app.pages.trace_events import TICKS, Event, RankTrace, line
from app.records.lines import Usage
from app.settings.measuring import DEFAULT_TRACE_STEPS

FILE = "trace.json"


def write(run: Run) -> None:
    """Put a run's trace into its folder; with TRACE_STEPS=0 take it away."""
    asked = run.manifest.settings.get("trace_steps")
    most = asked if isinstance(asked, int) else DEFAULT_TRACE_STEPS  # runs of older versions have no such setting
    if most:
        replace_file(run.folder / FILE, _text(run, most))
    else:
        (run.folder / FILE).unlink(missing_ok=True)


def ends[Each](several: Sequence[Each], most: int) -> list[Each]:
    """At most so many of them: the first half and the last half."""
    if len(several) <= most:
        return list(several)
    return [*several[: most - most // 2], *several[len(several) - most // 2 :]]


def thinned(usage: Sequence[Usage], most: int) -> Iterator[Usage]:
    """At most so many samples, each of them neighbours put together: mean CPU and network, the most memory."""
    size = -(-len(usage) // most)
    for first in range(0, len(usage), size or 1):
        yield _together(usage[first : first + size])


def _together(neighbours: Sequence[Usage]) -> Usage:
    def mean(values: Iterator[float]) -> float:
        return sum(value * each.seconds for value, each in zip(values, neighbours, strict=True)) / seconds

    def total(values: Iterator[int | None]) -> int | None:
        measured = [value for value in values if value is not None]
        return sum(measured) if len(measured) == len(neighbours) else None

    last = neighbours[-1]
    began = neighbours[0].at_seconds - neighbours[0].seconds
    seconds = sum(each.seconds for each in neighbours)
    return replace(
        last,
        seconds=last.at_seconds - began,
        cpu_user_percent=mean(each.cpu_user_percent for each in neighbours),
        cpu_system_percent=mean(each.cpu_system_percent for each in neighbours),
        memory_bytes=max(each.memory_bytes for each in neighbours),
        network_sent_bytes=total(each.network_sent_bytes for each in neighbours),
        network_received_bytes=total(each.network_received_bytes for each in neighbours),
    )


def _text(run: Run, most: int) -> str:
    """One event per line, after what a reader must know about them all."""
    recorded = sorted({step.step for rank in run.ranks for step in rank.steps})
    shown = ends(recorded, most)
    events = list(_events(run, shown, most))
    shift = max(0, -min((event["ts"] for event in events), default=0))
    uncertain = [clock.uncertainty_seconds for rank in run.ranks for clock in rank.clocks]
    about = {
        "run": run.name,
        "started_at": run.manifest.started_at,
        "lockstep": run.manifest.versions.lockstep,
        "sync_mode": run.mode,
        "world_size": run.manifest.world_size,
        "clock": "rank 0's: microseconds since the run began, and the shift",
        "shift_seconds": shift / TICKS / 1e6,
        "clock_uncertainty_seconds": max(uncertain, default=None),
        "trace_steps": most,
        "steps_recorded": len(recorded),
        "steps_shown": _ranges(shown),
    }
    lines = ",\n".join(line(event, shift) for event in events)
    return f'{{"displayTimeUnit":"ms",\n"otherData":{json.dumps(about)},\n"traceEvents":[\n{lines}\n]}}\n'


def _events(run: Run, shown: Sequence[int], most: int) -> Iterator[Event]:
    threads = count(len(run.ranks))  # after the numbers of the processes
    chosen = set(shown)
    steps = [[step for step in rank.steps if step.step in chosen] for rank in run.ranks]
    given = buffers_given(run.ranks[0], steps[0])
    for rank, participant, own in zip(run.ranks, run.manifest.ranks, steps, strict=True):
        trace = RankTrace(rank, threads, moves_parameters=averaging.moves_parameters(run.manifest))
        yield from chain(
            trace.names(participant.name),
            trace.clocks(),
            trace.training(own, [*ends(rank.evaluations, most), *ends(rank.checkpoints, most)], given),
            trace.messages(own),
            trace.counters(list(thinned(rank.usage, most))),
        )


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The numbers as runs of neighbours, each with its first and last."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
