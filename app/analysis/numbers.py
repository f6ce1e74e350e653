"""A run in figures: its summary, made from the manifest and the records alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace

import numpy as np

from app.analysis import averaging, neighbours, networks, processor, scores, throughput, verdict, wall_clock
from app.analysis.averages import mean, median, spread, total
from app.analysis.run_records import RankRecords, RunRecords, together, transfer_seconds
from app.analysis.straggler import find as find_straggler
from app.analysis.straggler import own_work
from app.analysis.words import duration
from app.cluster.wire.bandwidth import all_reduce_share
from app.records.lines import Step
from app.records.manifest import WAYS, Link, Manifest
from app.records.summary import (
    Bandwidth,
    Figures,
    FirstStep,
    GroupFigures,
    LinkUse,
    RankFigures,
    Shares,
    Summary,
    UsageFigures,
    Verdict,
)


def summarise(run: RunRecords) -> Summary:
    """The summary of a run, whether it finished or broke off."""
    manifest, ranks = run.manifest, run.ranks
    hashes = [rank.finished.parameters_sha256 if rank.finished else None for rank in ranks]
    planned = manifest.plan.steps
    sync_seconds = _sync_seconds(ranks)
    summary = Summary(
        run_name=manifest.run,
        sync_mode=str(manifest.settings["sync_mode"]),
        model=str(manifest.settings["model"]),
        dataset=str(manifest.settings["dataset"]),
        world_size=manifest.world_size,
        global_batch_size=manifest.plan.global_batch_size,
        steps_planned=planned,
        steps=len(together([rank.steps for rank in ranks])),
        complete=all(rank.finished and rank.finished.steps == planned and not rank.faults for rank in ranks),
        attempts=max(rank.attempts for rank in ranks),
        repeated_steps=max(rank.repeated_steps for rank in ranks),
        replicas_identical=None if None in hashes else len(set(hashes)) == 1,
        run=_group_figures(run, sync_seconds),
        ranks=[_rank_figures(rank, manifest, sync_seconds) for rank in ranks],
        losses=scores.losses(ranks),
        warnings=manifest.warnings,
        verdict=Verdict(None, [], None),
        wall_clock=wall_clock.of(ranks),
    )
    return replace(
        summary,
        warnings=[
            *manifest.warnings,
            *(f"rank {rank.rank}: {fault}." for rank in ranks for fault in rank.faults),
            *verdict.warnings(summary, manifest),
            *_interruptions(summary),
            *neighbours.warnings(run),
            *networks.warnings(run),
        ],
        verdict=verdict.reach(summary, manifest),
    )


def _interruptions(summary: Summary) -> Iterator[str]:
    """That a run was not made in one go, and what that took."""
    if summary.attempts > 1:
        lost = summary.wall_clock.lost_seconds if summary.wall_clock else 0.0
        yield (
            f"The run took {summary.attempts} attempts: {summary.repeated_steps} step(s) were repeated, and "
            f"{duration(lost)} were lost. The step times include neither."
        )


def _group_figures(run: RunRecords, sync_seconds: float | None) -> GroupFigures:
    ranks = run.ranks
    losses = scores.losses(ranks)
    speed = throughput.of(ranks)
    straggler, undecided = find_straggler(ranks)
    formula = float(np.mean([rank.formula_bytes_sent_per_step for rank in run.manifest.ranks]))
    formula *= averaging.share_of_steps(run.manifest, [step for rank in ranks for step in rank.steps])
    uncertainties = [clock.uncertainty_seconds for rank in ranks[1:] for clock in rank.clocks]
    return GroupFigures(
        **vars(_figures(ranks, losses[-1] if losses else None, speed, formula)),
        straggler=straggler,
        straggler_undecided=undecided,
        clock_uncertainty_seconds=max(uncertainties, default=None),
        bandwidth=_bandwidth(sync_seconds, run.manifest),
        buckets_per_step=mean(len(step.buckets) for rank in run.ranks for step in rank.steps if step.buckets),
        wire_rounding_error=mean(step.wire_rounding_error for rank in run.ranks for step in rank.steps),
    )


def _rank_figures(rank: RankRecords, manifest: Manifest, sync_seconds: float | None) -> RankFigures:
    participant = manifest.ranks[rank.rank]
    loss = rank.steps[-1].loss if rank.steps else None
    formula = participant.formula_bytes_sent_per_step * averaging.share_of_steps(manifest, rank.steps)
    return RankFigures(
        rank=rank.rank,
        steps=len(rank.steps),
        finished=rank.finished is not None,
        parameters_sha256=rank.finished.parameters_sha256 if rank.finished else None,
        first_step=_first_step(rank),
        **vars(_figures([rank], loss, throughput.of([rank]), formula)),
        work_seconds=median(map(own_work, rank.warm)),
        peak_memory_bytes=rank.finished.peak_memory_bytes if rank.finished else None,
        usage=_usage(rank),
        link=_link_use(rank, sync_seconds, participant.link),
    )


def _figures(ranks: Sequence[RankRecords], loss: float | None, speed: float | None, formula: float) -> Figures:
    """The figures that one rank and all ranks together have in common."""
    steps = [step for rank in ranks for step in rank.steps]
    warm = [step for rank in ranks for step in rank.warm]
    return Figures(
        seconds=spread(step.seconds for step in warm),
        data_seconds=spread(step.data_seconds for step in warm),
        forward_seconds=spread(step.forward_seconds for step in warm),
        backward_seconds=spread(step.backward_seconds for step in warm),
        wait_seconds=spread(step.wait_seconds for step in warm),
        sync_seconds=spread(step.sync_seconds for step in warm),
        hidden_sync_seconds=spread(step.hidden_sync_seconds for step in warm),
        exposed_sync_seconds=spread(step.exposed_sync_seconds for step in warm),
        optimiser_seconds=spread(step.optimiser_seconds for step in warm),
        communication_seconds=spread(step.communication_seconds for step in warm),
        batch_norm_seconds=spread(step.batch_norm_seconds for step in warm),
        throttled_seconds=spread(step.throttled_seconds for step in warm),
        processor=processor.of(warm),
        shares=_shares(warm),
        images_per_second=speed,
        bytes_sent_per_step=mean(step.bytes_sent for step in steps),
        bytes_received_per_step=mean(step.bytes_received for step in steps),
        batch_norm_bytes_sent_per_step=mean(step.batch_norm_bytes_sent for step in steps),
        # In the first step, the kernel's count may include traffic that set up the run.
        interface_bytes_sent_per_step=mean(step.interface_bytes_sent for step in warm),
        interface_bytes_received_per_step=mean(step.interface_bytes_received for step in warm),
        formula_bytes_sent_per_step=formula,
        loss=loss,
        **vars(scores.last(ranks)),
        epochs=scores.epochs(ranks),
    )


def _first_step(rank: RankRecords) -> FirstStep | None:
    """The step that is left out of the times, because it sets everything up."""
    if not rank.steps:
        return None
    return FirstStep(**{field.name: getattr(rank.steps[0], field.name) for field in fields(FirstStep)})


def _shares(steps: Sequence[Step]) -> Shares | None:
    """Each phase's share of the steps' time; the shares add up to 1."""
    if any(step.wait_seconds is not None for step in steps):
        # If a run broke off, some ranks may lack its last steps; waiting and synchronisation then cannot be separated.
        steps = [step for step in steps if step.wait_seconds is not None]
    total = sum(step.seconds for step in steps)
    if not total:
        return None
    return Shares(
        data=sum(step.data_seconds for step in steps) / total,
        forward=sum(step.forward_seconds for step in steps) / total,
        backward=sum(step.backward_seconds for step in steps) / total,
        wait=_part((step.wait_seconds for step in steps), total),
        sync=_part((step.sync_seconds for step in steps), total),
        optimiser=sum(step.optimiser_seconds for step in steps) / total,
    )


def _part(seconds: Iterable[float | None], total: float) -> float | None:
    measured = [each for each in seconds if each is not None]
    return sum(measured) / total if measured else None


def _usage(rank: RankRecords) -> UsageFigures | None:
    """Means over the run, and the most memory."""
    samples = rank.usage
    seconds = sum(sample.seconds for sample in samples)
    if not seconds:
        return None
    sent, received = (total([getattr(sample, f"network_{way}_bytes") for sample in samples]) for way in WAYS)
    return UsageFigures(
        seconds=seconds,
        cpu_user_percent=sum(sample.cpu_user_percent * sample.seconds for sample in samples) / seconds,
        cpu_system_percent=sum(sample.cpu_system_percent * sample.seconds for sample in samples) / seconds,
        throttled_seconds=total([sample.throttled_seconds for sample in samples]),
        most_memory_bytes=max(sample.memory_bytes for sample in samples),
        network_sent_bytes_per_second=None if sent is None else sent / seconds,
        network_received_bytes_per_second=None if received is None else received / seconds,
    )


def _sync_seconds(ranks: Sequence[RankRecords]) -> float | None:
    """The median over the steps of the time in which gradients were in flight; None where none were sent."""
    if not any(step.bytes_sent for rank in ranks for step in rank.warm):
        return None
    taken = list(transfer_seconds(ranks))
    return float(np.median(taken)) if taken else None


def _bandwidth(sync_seconds: float | None, manifest: Manifest) -> Bandwidth | None:
    """How fast a step's gradients were averaged; None where nothing was sent."""
    if not sync_seconds:
        return None
    size, least = manifest.gradient_bytes, manifest.sync_seconds_at_least
    bus = all_reduce_share(size, manifest.world_size) / sync_seconds
    links = [rank.link for rank in manifest.ranks if rank.link]
    slowest = min((link.direction(way).measured_bytes_per_second for link in links for way in WAYS), default=None)
    return Bandwidth(
        sync_seconds=sync_seconds,
        sync_seconds_at_least=least,
        algorithm_bytes_per_second=size / sync_seconds,
        bus_bytes_per_second=bus,
        link_bytes_per_second=slowest,
        utilisation=None if least is None else least / sync_seconds,
    )


def _link_use(rank: RankRecords, sync_seconds: float | None, link: Link | None) -> LinkUse:
    """The share of a rank's measured link speed that its gradients used while they were synchronised."""

    def use(way: str) -> float | None:
        payload = mean(getattr(step, f"bytes_{way}") for step in rank.steps if step.bytes_sent or step.bytes_received)
        if link is None or not sync_seconds or payload is None:
            return None
        return payload / sync_seconds / link.direction(way).measured_bytes_per_second

    return LinkUse(use("sent"), use("received"))
