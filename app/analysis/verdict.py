"""What a run's figures mean, in plain words: each sentence follows from the summary and the manifest alone."""

from collections.abc import Iterator

from app.analysis.advice import advise, faster_mode
from app.analysis.bound import COMPUTING, HARDLY_USED, MUCH, OUTWEIGHS, Parts, bound_of, held_back, utilisation
from app.analysis.words import duration, listed, percent
from app.records.manifest import WAYS, Manifest
from app.records.summary import Shares, Summary, Verdict

WORTH_A_WORD = 0.05  # of the step
UNEVEN_LINKS = 0.5  # of the median link; above that, unshaped links may differ by chance
CLOCK_TOLERANCE_SECONDS = 0.005

EMBEDDED = {
    "shapes": "`shapes` is a synthetic data set: its accuracy does not carry over to CIFAR-10's photos.",
    "digits": "`digits` is scikit-learn's set of 1,797 images: its accuracy does not carry over to MNIST.",
}


def reach(summary: Summary, manifest: Manifest) -> Verdict:
    """The verdict on a run, the main point first."""
    bound = bound_of(summary)
    return Verdict(bound, [*_sentences(bound, summary, manifest)], advise(bound, summary, manifest))


def warnings(summary: Summary, manifest: Manifest) -> Iterator[str]:
    """What readers of the figures must know and only the end of the run shows."""
    if not summary.complete:
        unfinished = [rank.rank for rank in summary.ranks if not rank.finished]
        yield (
            f"the run is incomplete: all ranks recorded {summary.steps} of {summary.steps_planned} steps. "
            f"Unfinished ranks: {', '.join(map(str, unfinished)) or 'none'}."
        )
    if summary.replicas_identical is False:
        yield "the replicas differ: the ranks ended with different parameters."
    if manifest.settings.get("rank_cpus") is None:
        for rank in summary.ranks:
            usage = rank.usage
            if usage and usage.throttled_seconds:
                yield (
                    f"rank {rank.rank} was throttled by a CPU quota that RANK_CPUS did not set: for "
                    f"{duration(usage.throttled_seconds)} in {duration(usage.seconds)}, summed over CPUs."
                )
    uncertain = summary.run.clock_uncertainty_seconds
    if uncertain is not None and uncertain > CLOCK_TOLERANCE_SECONDS:
        yield (
            f"clock offsets between ranks are known only to within {uncertain * 1e3:.1f} ms. So is the "
            "split of exposed time into waiting and synchronisation."
        )
    if (note := EMBEDDED.get(summary.dataset)) and summary.run.accuracy is not None:
        yield note


def _sentences(bound: str | None, summary: Summary, manifest: Manifest) -> Iterator[str]:
    shares, parts = summary.run.shares, Parts.of(summary.run)
    if bound is None or shares is None or parts is None:
        yield "No timings to analyse: the run has no step after the first, which includes the setup."
    else:
        yield _headline(bound, summary, shares, parts)
        yield from _about_ceiling(summary, shares)
        yield from _about_straggler(summary, shares)
        yield from _about_hiding(summary)
        yield from _about_links(summary, shares, manifest)
        yield from _about_other_modes(summary, shares, manifest)
        yield from _about_bytes(summary)
        yield from _about_rounding(summary, manifest)
        yield from _about_quota(summary, manifest)
    yield from _about_learning(summary)


def _headline(bound: str, summary: Summary, shares: Shares, parts: Parts) -> str:
    sync, wait, computes = shares.of("sync"), shares.of("wait"), shares.of(*COMPUTING)
    match bound:
        case "communication":
            used = utilisation(summary)
            links = "" if used is None else f", at {percent(used)} link utilisation"
            return f"Communication-bound: {percent(sync)} of the step is exposed synchronisation{links}."
        case "straggler":
            straggler = summary.run.straggler
            whom = f"rank {straggler.rank}" if straggler else "the slowest rank"
            return f"Straggler-bound: on average, a rank spends {percent(wait)} of the step waiting for {whom}."
        case "mixed":
            return f"Mixed: no part dominates the step. {listed(parts)}."
        case "data":
            return f"Data-bound: {percent(shares.data)} of the step is batch preparation."
        case "cpu":
            return (
                f"CPU-saturated: {percent(parts.no_core)} of the step is waiting for a free CPU core. "
                f"{listed(parts, parts.no_core)}."
            )
        case "compute" if parts.wants_cpu <= OUTWEIGHS:
            return (
                f"Compute-bound: a CPU quota throttles the ranks for up to {max(held_back(summary)):.2g} s per second, "
                f"also during synchronisation ({percent(sync)} of the step) and waiting ({percent(wait)}). "
                f"Computation is {percent(computes)}."
            )
        case _:
            return _computation(summary, shares, parts)


def _computation(summary: Summary, shares: Shares, parts: Parts) -> str:
    phases = ", ".join(f"{phase} {percent(shares.of(phase))}" for phase in COMPUTING)
    rest = [f"{percent(shares.of(*COMPUTING))} of the step is computation ({phases})"]
    if shares.sync is not None and summary.world_size > 1:
        rest.append(f"{percent(shares.sync)} is exposed synchronisation and {percent(shares.of('wait'))} waiting")
    if parts.quota >= WORTH_A_WORD:
        rest.append(f"The CPU quota throttles the rank for {percent(parts.quota)} of the step")
    if parts.no_core >= WORTH_A_WORD:
        rest.append(f"For {percent(parts.no_core)}, the rank waits for a free CPU core")
    return f"Compute-bound: {'. '.join(rest)}."


def _about_ceiling(summary: Summary, shares: Shares) -> Iterator[str]:
    """What the best of all modes could gain."""
    if shares.sync is not None and summary.run.bytes_sent_per_step and shares.sync < 1:
        yield f"With zero-cost synchronisation, steps would be at most {1 / (1 - shares.sync):.2f} times as fast."


def _about_straggler(summary: Summary, shares: Shares) -> Iterator[str]:
    straggler, wait = summary.run.straggler, shares.wait
    if straggler:
        interval = (
            ""
            if straggler.work_ratio_low is None or straggler.work_ratio_high is None
            else f" ({straggler.work_ratio_low:.2f} to {straggler.work_ratio_high:.2f})"
        )
        text = (
            f"Rank {straggler.rank} is the straggler: its own work takes {straggler.work_ratio:.2f} times{interval} as "
            f"long as the others', and it finishes last in {percent(straggler.last_in)} of steps"
        )
        if straggler.others_wait_seconds is None or straggler.wait_seconds is None:
            yield f"{text}. In this mode, no rank waits for another's gradients."
        else:
            yield (
                f"{text}. The others wait {duration(straggler.others_wait_seconds)} per step for it, and it waits "
                f"{duration(straggler.wait_seconds)} for them."
            )
        return
    if wait is None or wait < WORTH_A_WORD:
        return
    if summary.run.straggler_undecided:
        yield (
            f"The ranks spend {percent(wait)} of the step waiting for each other. There are too few steps to "
            "identify a straggler."
        )
    else:
        yield f"The ranks spend {percent(wait)} of the step waiting for each other, but no rank is consistently slow."


def _about_hiding(summary: Summary) -> Iterator[str]:
    """Like for like: from a bucket's readiness to its end, with the wait for other ranks' buckets on both sides."""
    run = summary.run
    hidden, exposed = run.hidden_sync_seconds, run.exposed_sync_seconds
    if not run.bytes_sent_per_step or not hidden or not exposed or not hidden.mean + exposed.mean:
        return
    part = hidden.mean / (hidden.mean + exposed.mean)
    waiting = "" if run.wait_seconds is None else f", of which {duration(run.wait_seconds.mean)} is waiting"
    yield (
        f"{percent(part)} of the synchronisation, including waiting for other ranks, is hidden behind backward: "
        f"{duration(hidden.mean)} per step. {duration(exposed.mean)} per step is exposed{waiting}."
    )
    if run.buckets_per_step == 1:
        yield "A single bucket cannot be hidden: it is ready only when backward ends."


def _about_links(summary: Summary, shares: Shares, manifest: Manifest) -> Iterator[str]:
    bandwidth, used = summary.run.bandwidth, utilisation(summary)
    if not bandwidth:
        return
    if least := bandwidth.sync_seconds_at_least:
        faster = bandwidth.sync_seconds < least
        yield (
            f"On the measured links, this mode needs at least {duration(least)} per step. It took "
            f"{duration(bandwidth.sync_seconds)} (median)"
            + (": the links were faster than in the measurement before the run." if faster else ".")
        )
    if used is not None and used < HARDLY_USED and shares.of("sync") > MUCH:
        yield (
            f"The links are not the bottleneck: their utilisation is {percent(used)}. The time goes into message "
            "handling, and into waiting for a CPU if ranks share or lack one."
        )
    speeds = {
        (rank.rank, way): rank.link.direction(way).measured_bytes_per_second
        for rank in manifest.ranks
        if rank.link
        for way in WAYS
    }
    if speeds and min(speeds.values()) < UNEVEN_LINKS * sorted(speeds.values())[len(speeds) // 2]:
        (rank, way), speed = min(speeds.items(), key=lambda item: item[1])
        yield f"Rank {rank} has the slowest link: {speed / 1e6:.1f} MB/s {way}."


def _about_other_modes(summary: Summary, shares: Shares, manifest: Manifest) -> Iterator[str]:
    """Only where they would change something."""
    better = faster_mode(summary, manifest)
    if better and shares.of("sync") > WORTH_A_WORD:
        mode, least, own = better
        yield f"On these links, {mode} needs at least {duration(least)} per step, this mode {duration(own)}."


def _about_bytes(summary: Summary) -> Iterator[str]:
    counted = [(rank.bytes_sent_per_step, rank.formula_bytes_sent_per_step) for rank in summary.ranks]
    if not any(formula for _, formula in counted):
        return
    if wrong := [rank for rank, (sent, formula) in enumerate(counted) if sent is not None and abs(sent - formula) > 1]:
        yield f"The bytes sent differ from the formula on rank(s) {', '.join(map(str, wrong))}."
        return
    excess = [
        rank.interface_bytes_sent_per_step / rank.bytes_sent_per_step - 1
        for rank in summary.ranks
        if rank.interface_bytes_sent_per_step is not None and rank.bytes_sent_per_step
    ]
    amounts = sorted({formula for _, formula in counted})
    size = f"{amounts[0] / 1e6:.2f}" if len(amounts) == 1 else f"{amounts[0] / 1e6:.2f} to {amounts[-1] / 1e6:.2f}"
    kernel = f" The kernel counted at most {percent(max(excess), 1)} more." if excess else ""
    yield f"The bytes sent match the formula on every rank: {size} MB per step.{kernel}"


def _about_rounding(summary: Summary, manifest: Manifest) -> Iterator[str]:
    error = summary.run.wire_rounding_error
    if error is not None:
        yield (
            f"WIRE_PRECISION={manifest.settings.get('wire_precision')} halves the bytes sent. The relative "
            f"rounding error of a rank's gradient is {percent(error, 3)}."
        )


def _about_quota(summary: Summary, manifest: Manifest) -> Iterator[str]:
    asked = manifest.settings.get("rank_cpus")
    throttled = held_back(summary)
    if isinstance(asked, int | float) and throttled:
        yield (
            f"The quota RANK_CPUS={asked:g} throttled a rank for up to {max(throttled):.2g} s per second, "
            "summed over CPUs."
        )


def _about_learning(summary: Summary) -> Iterator[str]:
    losses, accuracy = summary.losses, summary.run.accuracy
    if losses:
        tested = "" if accuracy is None else f" Test accuracy is {percent(accuracy, 1)}."
        yield f"The loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses)} steps.{tested}"
    if summary.replicas_identical and summary.world_size > 1:
        yield "At the end, all replicas are bitwise identical."
