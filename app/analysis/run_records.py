"""All ranks' records of a run, and what only all of them together show: who waited for whom."""

import gc
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import islice
from operator import attrgetter, lt
from pathlib import Path

import numpy as np

from app.analysis.statistics import Numbers
from app.machine.say import counted
from app.records import journal
from app.records.lines import Checkpoint, Clock, Evaluation, Finished, OverlappedMessage, Step, Usage
from app.records.manifest import Manifest
from app.records.spans import covered

NAMED_STEPS = 5

type Span = tuple[float, float]


def columns(records: Sequence[object], names: Sequence[str]) -> dict[str, Numbers]:
    """Several fields, NaN where one is null. Each record is fetched from memory once, which is much faster."""
    rows = np.array(list(map(attrgetter(*names), records)), dtype=float).reshape(-1, len(names))
    return dict(zip(names, np.ascontiguousarray(rows.T), strict=True))


@dataclass
class RankRecords:
    """One rank's records, which may break off anywhere."""

    rank: int
    steps: list[Step] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    finished: Finished | None = None
    attempts: int = 1  # how often it has begun
    repeated_steps: int = 0  # what an attempt recorded and a later one took again
    faults: list[str] = field(default_factory=list)  # what is wrong with its file, in words

    @cached_property
    def warm_mask(self) -> list[bool]:
        """Whether each step counts for times: all but the first of each attempt, which includes setup."""
        return [
            step.step > 0 and (number == 0 or self.steps[number - 1].attempt == step.attempt)
            for number, step in enumerate(self.steps)
        ]

    @cached_property
    def warm(self) -> list[Step]:
        return [step for step, counts in zip(self.steps, self.warm_mask, strict=True) if counts]

    @cached_property
    def sampled(self) -> dict[str, Numbers]:
        """Every figure of all samples of usage, and `ends`: when they ended on the common clock."""
        samples = columns(self.usage, [each.name for each in fields(Usage)])
        return samples | {"ends": self.all_on_common_clock(samples["at_seconds"])}

    def all_on_common_clock(self, at_seconds: Numbers) -> Numbers:
        """The same as `on_common_clock` of each moment."""
        if not self.clocks:
            return at_seconds
        moments, ahead = columns(self.clocks, ("at_seconds", "ahead_seconds")).values()
        return at_seconds - np.interp(at_seconds, moments, ahead)

    def on_common_clock(self, at_seconds: float) -> float:
        """Convert a moment of this rank's clock to rank 0's, as if it had drifted evenly between comparisons."""
        if not self.clocks:
            return at_seconds
        # In plain Python, because a page asks for tens of thousands of moments one by one.
        later = bisect_right(self.clocks, at_seconds, key=attrgetter("at_seconds"))
        before, after = self.clocks[max(later - 1, 0)], self.clocks[min(later, len(self.clocks) - 1)]
        if before is after:
            return at_seconds - before.ahead_seconds
        drift = (after.ahead_seconds - before.ahead_seconds) / (after.at_seconds - before.at_seconds)
        return at_seconds - (drift * (at_seconds - before.at_seconds) + before.ahead_seconds)

    def span(self, at_seconds: float, seconds: float) -> Span:
        """From the beginning to the end, on the common clock."""
        began = self.on_common_clock(at_seconds)
        return began, began + seconds

    def evaluation(self, epoch: int) -> Evaluation | None:
        return next((each for each in self.evaluations if each.epoch == epoch), None)


@dataclass(frozen=True)
class RunRecords:
    """What a run left behind."""

    manifest: Manifest
    ranks: list[RankRecords]


def read(run_folder: Path) -> RunRecords:
    """The manifest and every rank's records, with DDP's exposed time split into waiting and synchronisation."""
    manifest = Manifest.read(run_folder)
    with _collecting_nothing():
        ranks = [_read_rank(run_folder, rank, manifest.plan.steps) for rank in range(manifest.world_size)]
        _split_exposed(ranks)
    return RunRecords(manifest, ranks)


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Records have no cycles, yet the collector of cycles would go through all of them again and again, later too."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # what is there by now, no later collection looks at
        if collecting:
            gc.enable()


def _split_exposed(ranks: Sequence[RankRecords]) -> None:
    """Split exposed time into waiting and synchronisation, where all ranks' records are there to compare."""
    split: dict[tuple[int, int], Step] = {}
    for steps in together([rank.steps for rank in ranks]):
        if all(step.wait_seconds is None for step in steps) and _sent_together(steps):
            for rank, step, waited in zip(ranks, steps, _waits(ranks, steps), strict=True):
                synchronised = (step.exposed_sync_seconds or 0.0) - waited
                # As `replace` would, but that looks at the definition of every field.
                split[rank.rank, step.step] = Step(
                    **(vars(step) | {"wait_seconds": waited, "sync_seconds": synchronised})
                )
    for rank in ranks:
        rank.steps = [split.get((rank.rank, step.step), step) for step in rank.steps]


def together(ranks: Sequence[Sequence[Step]]) -> list[tuple[Step, ...]]:
    """The steps that all ranks have recorded, each with all ranks' records of it: paired by number, not by place."""
    numbers = [[step.step for step in steps] for steps in ranks]
    if numbers and all(own == numbers[0] for own in numbers) and all(map(lt, numbers[0], numbers[0][1:])):
        return list(zip(*ranks, strict=True))  # nothing is missing: as nearly always, and much faster
    numbered = [{step.step: step for step in steps} for steps in ranks]
    common = set(numbered[0]).intersection(*numbered[1:]) if numbered else set[int]()
    return [tuple(steps[number] for steps in numbered) for number in sorted(common)]


def transfer_seconds(ranks: Sequence[RankRecords]) -> Iterator[float]:
    """For each step but the first in which any were sent: how long gradients were in flight, on the slowest rank.

    This is the synchronisation phase. In a mode that hides some of it in backward, it is the time in which any bucket
    was in flight that all ranks had ready.
    """
    for steps in together([rank.warm for rank in ranks]):
        if _sent_together(steps):
            yield max(_crossing(ranks, steps))
        elif any(step.bytes_sent for step in steps) and all(step.sync_seconds is not None for step in steps):
            yield max(step.sync_seconds or 0.0 for step in steps)


def _read_rank(run_folder: Path, number: int, planned: int) -> RankRecords:
    """A rank's records; of a repeated step or evaluation, only the last attempt's."""
    rank = RankRecords(number)
    if not journal.path_of(run_folder, number).is_file():
        rank.faults.append("its file of records is missing")
        return rank
    steps: dict[int, Step] = {}
    written: Counter[tuple[int, int]] = Counter()
    foreign: Counter[int] = Counter()
    evaluations: dict[int, Evaluation] = {}
    for record in journal.read(run_folder, number):
        if record.rank != number:
            foreign[record.rank] += 1
            continue
        rank.attempts = max(rank.attempts, record.attempt + 1)
        match record:
            case Step():
                written[record.step, record.attempt] += 1
                steps[record.step] = _later(steps.get(record.step), record)
            case Usage():
                rank.usage.append(record)
            case Clock():
                rank.clocks.append(record)
            case Evaluation():
                evaluations[record.epoch] = _later(evaluations.get(record.epoch), record)
            case Checkpoint():
                rank.checkpoints.append(record)
            case Finished():
                rank.finished = _later(rank.finished, record)
    rank.steps = [steps[step] for step in sorted(steps)]
    rank.repeated_steps = len(written) - len(steps)
    rank.evaluations = [evaluations[epoch] for epoch in sorted(evaluations)]
    rank.faults += _faults(rank, planned, written, foreign)
    return rank


def _faults(rank: RankRecords, planned: int, written: Counter[tuple[int, int]], foreign: Counter[int]) -> Iterator[str]:
    """What is wrong with a rank's records, however it ended: each must be its own, and each step there once."""
    for other, number in sorted(foreign.items()):
        yield f"its file has {counted(number, 'record')} of rank {other}, which do not count"
    recorded = [step.step for step in rank.steps]
    # A rank that broke off has its steps up to some point. One that finished has all.
    until = planned if rank.finished else max(recorded, default=-1) + 1
    known = set(recorded)
    # No more than a sentence names, because a damaged file can have any number for a step.
    if missing := list(islice((step for step in range(until) if step not in known), NAMED_STEPS + 1)):
        yield f"{_numbered(missing)} not recorded"
    if doubled := sorted({step for (step, _), times in written.items() if times > 1}):
        yield f"{_numbered(doubled)} recorded more than once"
    if beyond := [step for step in recorded if step >= planned]:
        yield f"{_numbered(beyond)} recorded, but the run has only {planned}"


def _numbered(steps: Sequence[int]) -> str:
    few = ", ".join(map(str, steps[:NAMED_STEPS]))
    return f"step {few} is" if len(steps) == 1 else f"steps {few}{', ...' if len(steps) > NAMED_STEPS else ''} are"


def _later[Attempted: (Step, Evaluation, Finished)](known: Attempted | None, record: Attempted) -> Attempted:
    return record if known is None or record.attempt >= known.attempt else known


def _sent_together(steps: Sequence[Step]) -> bool:
    """Whether all ranks have recorded the same messages of a step: damaged records may lack some."""
    sent = {(len(step.buckets or []), len(step.buffers or [])) for step in steps}
    return len(sent) == 1 and all(step.buckets for step in steps)


def _waits(ranks: Sequence[RankRecords], steps: Sequence[Step]) -> Iterator[float]:
    """How much of its exposed time each rank spent waiting for others.

    After backward it waits until the last rank has its last bucket ready; before forward, until rank 0 sends its
    buffers.
    """
    buffers = [_spans(rank, step, step.buffers or []) for rank, step in zip(ranks, steps, strict=True)]
    ready_last = [
        ready
        for rank, step in zip(ranks, steps, strict=True)
        for ready, _ in _spans(rank, step, (step.buckets or [])[-1:])
    ]
    latest = max(ready_last)
    for step, own_ready, own_buffers in zip(steps, ready_last, buffers, strict=True):
        behind_backward = (step.exposed_sync_seconds or 0.0) - sum(end - ready for ready, end in own_buffers)
        waited = min(latest - own_ready, behind_backward)
        for (ready, end), (given, _) in zip(own_buffers, buffers[0], strict=True):
            waited += min(max(given - ready, 0.0), end - ready)
        yield waited


def _crossing(ranks: Sequence[RankRecords], steps: Sequence[Step]) -> Iterator[float]:
    spans = [_spans(rank, step, step.buckets or []) for rank, step in zip(ranks, steps, strict=True)]
    ready_everywhere = [max(ready for ready, _ in bucket) for bucket in zip(*spans, strict=True)]
    for own in spans:
        yield covered((min(ready, end), end) for ready, (_, end) in zip(ready_everywhere, own, strict=True))


def _spans(rank: RankRecords, step: Step, messages: Sequence[OverlappedMessage]) -> list[Span]:
    """From ready to end, on the common clock."""
    began = rank.on_common_clock(step.at_seconds)
    return [(began + each.ready_seconds, began + each.end_seconds) for each in messages]
