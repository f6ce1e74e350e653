"""All ranks' records of a run, and what only all of them together show: who waited for whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from app.records import lines
from app.records.lines import Clock, Evaluation, Finished, Message, Step, Usage
from app.records.manifest import Manifest
from app.records.spans import covered


@dataclass
class RankRecords:
    """One rank's records, which may break off anywhere."""

    rank: int
    steps: list[Step] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    finished: Finished | None = None

    @property
    def warm(self) -> list[Step]:
        """The steps that count for times: all but the first, which also sets everything up."""
        return self.steps[1:]

    def on_common_clock(self, at_seconds: float) -> float:
        """Convert a moment of this rank's clock to rank 0's, as if it had drifted evenly between comparisons."""
        if not self.clocks:
            return at_seconds
        compared = [clock.at_seconds for clock in self.clocks], [clock.ahead_seconds for clock in self.clocks]
        return at_seconds - float(np.interp(at_seconds, *compared))


@dataclass(frozen=True)
class RunRecords:
    """What a run left behind."""

    manifest: Manifest
    ranks: list[RankRecords]


def read(run_folder: Path) -> RunRecords:
    """The manifest and every rank's records, with DDP's exposed time split into waiting and synchronisation."""
    manifest = Manifest.read(run_folder)
    ranks = [_read_rank(run_folder, rank) for rank in range(manifest.world_size)]
    for number, steps in enumerate(zip(*(rank.steps for rank in ranks), strict=False)):
        if all(step.buckets and step.wait_seconds is None for step in steps):
            for rank, step, waited in zip(ranks, steps, _waits(ranks, steps), strict=True):
                synchronised = (step.exposed_sync_seconds or 0.0) - waited
                rank.steps[number] = replace(step, wait_seconds=waited, sync_seconds=synchronised)
    return RunRecords(manifest, ranks)


def transfer_seconds(ranks: Sequence[RankRecords]) -> Iterator[float]:
    """For each step but the first: how long gradients were in flight, on the rank where that took longest.

    This is the synchronisation phase. In a mode that hides some of it in backward, it is the time in which any bucket
    was in flight that all ranks had ready.
    """
    for steps in zip(*(rank.warm for rank in ranks), strict=False):
        if all(step.buckets for step in steps):
            yield max(_crossing(ranks, steps))
        elif all(step.sync_seconds is not None for step in steps):
            yield max(step.sync_seconds or 0.0 for step in steps)


def _read_rank(run_folder: Path, number: int) -> RankRecords:
    """A rank's records; of a repeated step or evaluation, only the last attempt's."""
    rank = RankRecords(number)
    if not lines.path_of(run_folder, number).is_file():
        return rank
    steps: dict[int, Step] = {}
    evaluations: dict[int, Evaluation] = {}
    for record in lines.read(run_folder, number):
        match record:
            case Step():
                steps[record.step] = _later(steps.get(record.step), record)
            case Usage():
                rank.usage.append(record)
            case Clock():
                rank.clocks.append(record)
            case Evaluation():
                evaluations[record.epoch] = _later(evaluations.get(record.epoch), record)
            case Finished():
                rank.finished = _later(rank.finished, record)
    rank.steps = [steps[step] for step in sorted(steps)]
    rank.evaluations = [evaluations[epoch] for epoch in sorted(evaluations)]
    return rank


def _later[Attempted: (Step, Evaluation, Finished)](known: Attempted | None, record: Attempted) -> Attempted:
    return record if known is None or record.attempt >= known.attempt else known


def _waits(ranks: Sequence[RankRecords], steps: Sequence[Step]) -> Iterator[float]:
    """How much of its exposed time each rank spent waiting for others.

    After backward it waits until the last rank has its last bucket ready; before forward, until rank 0 sends its
    buffers.
    """
    buckets, buffers = (
        [_spans(rank, step, messages) for rank, step, messages in zip(ranks, steps, lists, strict=True)]
        for lists in ([step.buckets or [] for step in steps], [step.buffers or [] for step in steps])
    )
    latest = max(own[-1][0] for own in buckets)
    for step, own_buckets, own_buffers in zip(steps, buckets, buffers, strict=True):
        behind_backward = (step.exposed_sync_seconds or 0.0) - sum(end - ready for ready, end in own_buffers)
        waited = min(latest - own_buckets[-1][0], behind_backward)
        for (ready, end), (given, _) in zip(own_buffers, buffers[0], strict=True):
            waited += min(max(given - ready, 0.0), end - ready)
        yield waited


def _crossing(ranks: Sequence[RankRecords], steps: Sequence[Step]) -> Iterator[float]:
    spans = [_spans(rank, step, step.buckets or []) for rank, step in zip(ranks, steps, strict=True)]
    ready_everywhere = [max(ready for ready, _ in bucket) for bucket in zip(*spans, strict=True)]
    for own in spans:
        yield covered((min(ready, end), end) for ready, (_, end) in zip(ready_everywhere, own, strict=True))


def _spans(rank: RankRecords, step: Step, messages: Sequence[Message]) -> list[tuple[float, float]]:
    """From ready to end, on the common clock."""
    began = rank.on_common_clock(step.at_seconds)
    return [(began + each.ready_seconds, began + each.end_seconds) for each in messages]
