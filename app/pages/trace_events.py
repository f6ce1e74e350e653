"""What a rank did, as entries of the Trace Event format, which Perfetto and chrome://tracing open.

Moments are whole ticks of 1/8 microsecond. As a number of microseconds a tick is exact in JSON, in binary and in
nanoseconds: a part ends exactly where its whole ends, whatever a reader computes with.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from app.analysis.run_records import RankRecords
from app.pages.pieces import pieces
from app.records.lines import Checkpoint, Evaluation, Step, Usage

TICKS = 8  # in a microsecond


type Event = dict[str, Any]  # a span of time (X), a moment (i), counters (C), or metadata such as a name (M); in ticks


def line(event: Event, shift: int) -> str:
    """The entry as JSON, shifted by this many ticks."""
    own = event | {"ts": 0 if event["ph"] == "M" else (event["ts"] + shift) / TICKS}
    own |= {"dur": event["dur"] / TICKS} if "dur" in event else {}
    return json.dumps(own, separators=(",", ":"), allow_nan=False)


class RankTrace:
    """A rank as a process of the trace: one thread for its training, and as many as it needs for its messages.

    `threads` numbers the threads of all ranks, because some readers look a thread up by its number alone.
    """

    def __init__(self, rank: RankRecords, threads: Iterator[int], *, moves_parameters: bool = False) -> None:
        self._rank, self._threads, self._moves_parameters = rank, threads, moves_parameters
        self._training = next(threads)

    def names(self, name: str) -> Iterator[Event]:
        """The process with the name of its host, and how well its clock is known."""
        uncertain = [clock.uncertainty_seconds for clock in self._rank.clocks]
        clock = f"clock within {max(uncertain) * 1e6:.0f} us of rank 0's" if uncertain else "clock never compared"
        yield self._metadata("process_name", name=f"rank {self._rank.rank}: {name}")
        yield self._metadata("process_labels", labels=clock)
        yield self._metadata("process_sort_index", sort_index=self._rank.rank)
        yield self._metadata("thread_name", name="steps, evaluations and savings")

    def clocks(self) -> Iterator[Event]:
        for clock in self._rank.clocks:
            args = {"ahead_seconds": clock.ahead_seconds, "uncertainty_seconds": clock.uncertainty_seconds}
            yield self._event("i", "clocks compared", _ticks(self._at(clock.at_seconds)), args=args)

    def training(
        self, steps: Sequence[Step], others: Sequence[Evaluation | Checkpoint], given: Mapping[int, Sequence[float]]
    ) -> Iterator[Event]:
        """Steps, each around its phases, evaluations and savings; `given` has rank 0's moments, see `buffers_given`."""
        spans = [
            (self._at(each.at_seconds), each.seconds, each)
            for each in (*steps, *others)
            if each.at_seconds is not None and each.seconds is not None
        ]
        spans.sort(key=lambda span: span[0])
        for (began, seconds, record), following in zip_longest(spans, spans[1:]):
            # Lengths are by the rank's own clock. Where that drifts, a span may seem to reach into the next one.
            end = min(_ticks(began + seconds), _ticks(following[0])) if following else _ticks(began + seconds)
            if isinstance(record, Step):
                yield from self._step(record, began, end, given.get(record.step, ()))
            elif isinstance(record, Checkpoint):
                saved = {"step": record.step, "bytes": record.bytes}
                yield self._event("X", "saving", _ticks(began), end, category="saving", args=saved)
            else:
                args = {"epoch": record.epoch, "loss": record.loss, "accuracy": record.accuracy}
                yield self._event("X", "evaluation", _ticks(began), end, category="evaluation", args=args)

    def messages(self, steps: Sequence[Step]) -> Iterator[Event]:
        """The messages behind forward and backward. They overlap: each takes the first lane that is free."""
        lanes: list[tuple[int, int]] = []  # each with its thread, and when it is free again
        for begin, end, name, args in sorted(self._passages(steps), key=lambda passage: passage[:2]):
            free = next((number for number, (_, until) in enumerate(lanes) if until <= begin), len(lanes))
            if free == len(lanes):
                lanes.append((next(self._threads), 0))
                lane = f"messages, lane {free + 1}" if free else "messages"
                yield self._metadata("thread_name", lanes[free][0], name=lane)
            lanes[free] = lanes[free][0], end
            yield self._event("X", name, begin, end, thread=lanes[free][0], category="message", args=args)

    def counters(self, usage: Sequence[Usage]) -> Iterator[Event]:
        """What it used: each value holds from the beginning of its interval until the next."""
        for each in usage:
            begin = _ticks(self._at(each.at_seconds - each.seconds))
            cpu = {"user": each.cpu_user_percent, "system": each.cpu_system_percent}
            yield self._counter("CPU (percent of one CPU)", begin, cpu)
            yield self._counter("memory (MB)", begin, {"resident": each.memory_bytes / 1e6})
            passed = {"sent": each.network_sent_bytes, "received": each.network_received_bytes}
            rates = {way: amount / each.seconds for way, amount in passed.items() if amount is not None}
            if rates:
                yield self._counter("network (bytes/s)", begin, rates)

    def _step(self, step: Step, began: float, end: int, given: Sequence[float]) -> Iterator[Event]:
        args = {"step": step.step, "epoch": step.epoch, "samples": step.samples, "bytes_sent": step.bytes_sent}
        yield self._event("X", f"step {step.step}", _ticks(began), end, category="step", args=args)
        ready = [moment - began for moment in given]
        for phase, start, stop in pieces(step, ready, moves_parameters=self._moves_parameters):
            begin, until = (min(_ticks(began + seconds), end) for seconds in (start, stop))
            if begin < until:
                yield self._event("X", phase, begin, until, category="phase")

    def _passages(self, steps: Sequence[Step]) -> Iterator[tuple[int, int, str, Mapping[str, object]]]:
        for step in steps:
            began = self._at(step.at_seconds)
            for kind, messages in (("buffers", step.buffers), ("bucket", step.buckets)):
                for number, message in enumerate(messages or ()):
                    begin, end = (_ticks(began + each) for each in (message.ready_seconds, message.end_seconds))
                    yield begin, max(begin, end), f"{kind} {number}", {"step": step.step, "bytes": message.bytes}

    def _counter(self, name: str, begin: int, values: Mapping[str, float]) -> Event:
        return self._event("C", name, begin, args={each: round(value, 1) for each, value in values.items()})

    def _metadata(self, kind: str, thread: int | None = None, **args: object) -> Event:
        return self._event("M", kind, thread=thread, args=args)

    def _event(
        self, kind: str, name: str, begin: int = 0, end: int | None = None, *, thread: int | None = None,
        category: str | None = None, args: Mapping[str, object] | None = None,
    ) -> Event:  # fmt: skip
        own: Event = {"ph": kind, "name": name, "pid": self._rank.rank, "tid": thread or self._training, "ts": begin}
        own |= {} if end is None else {"dur": end - begin}
        own |= {} if category is None else {"cat": category}
        own |= {"s": "p"} if kind == "i" else {}  # a moment of the whole process
        return own | ({"args": args} if args else {})

    def _at(self, at_seconds: float) -> float:
        return self._rank.on_common_clock(at_seconds)


def _ticks(seconds: float) -> int:
    return round(seconds * 1e6 * TICKS)
