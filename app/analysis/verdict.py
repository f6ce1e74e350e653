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
    "shapes": "the images are `shapes`, which are synthetic: accuracy on them says nothing about CIFAR-10's photos.",
    "digits": "the images are `digits`, scikit-learn's 1,797: accuracy on them says nothing about MNIST's.",
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
            f"the run is incomplete: all ranks recorded {summary.steps} of {summary.steps_planned} steps; "
            f"ranks that did not finish: {', '.join(map(str, unfinished)) or 'none'}."
        )
    if summary.replicas_identical is False:
        yield "the replicas have drifted apart: the ranks ended with different parameters."
    if manifest.settings.get("rank_cpus") is None:
        for rank in summary.ranks:
            usage = rank.usage
            if usage and usage.throttled_seconds:
                yield (
                    f"rank {rank.rank}: a CPU quota that RANK_CPUS did not set throttled it for "
                    f"{duration(usage.throttled_seconds)}, summed over CPUs, in {duration(usage.seconds)}."
                )
    uncertain = summary.run.clock_uncertainty_seconds
    if uncertain is not None and uncertain > CLOCK_TOLERANCE_SECONDS:
        yield (
            f"the ranks' clocks could be compared only to within {uncertain * 1e3:.1f} ms: the split of "
            "exposed time into waiting and synchronisation is no more exact than that."
        )
    if (note := EMBEDDED.get(summary.dataset)) and summary.run.accuracy is not None:
        yield note


def _sentences(bound: str | None, summary: Summary, manifest: Manifest) -> Iterator[str]:
    shares, parts = summary.run.shares, Parts.of(summary.run)
    if bound is None or shares is None or parts is None:
        yield "There are no times to judge: the run has no step after the first, which sets everything up."
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
            links = "" if used is None else f", which uses {percent(used)} of what the links allow"
            return f"Communication-bound: {percent(sync)} of the step is exposed synchronisation{links}."
        case "straggler":
            straggler = summary.run.straggler
            whom = f"rank {straggler.rank}" if straggler else "the slowest rank"
            return f"Straggler-bound: on average, a rank spends {percent(wait)} of the step waiting for {whom}."
        case "mixed":
            return f"Mixed: no part of the step outweighs the others. {listed(parts)}."
        case "data":
            return f"Data-bound: {percent(shares.data)} of the step goes into preparing the batch."
        case "cpu":
            return (
                f"CPU-saturated: for {percent(parts.no_core)} of the step the rank was ready to run and had no core. "
                f"{listed(parts, parts.no_core)}."
            )
        case "compute" if parts.wants_cpu <= OUTWEIGHS:
            return (
                f"Compute-bound: a CPU quota throttles the ranks for up to {max(held_back(summary)):.2g} s in each "
                f"second, even while they synchronise ({percent(sync)} of the step) or wait ({percent(wait)}); "
                f"{percent(computes)} is computation."
            )
        case _:
            return _computation(summary, shares, parts)


def _computation(summary: Summary, shares: Shares, parts: Parts) -> str:
    phases = ", ".join(f"{phase} {percent(shares.of(phase))}" for phase in COMPUTING)
    rest = [f"{percent(shares.of(*COMPUTING))} of the step is computation ({phases})"]
    if shares.sync is not None and summary.world_size > 1:
        rest.append(f"{percent(shares.sync)} is exposed synchronisation and {percent(shares.of('wait'))} waiting")
    if parts.quota >= WORTH_A_WORD:
        rest.append(f"for {percent(parts.quota)} of the step the CPU quota held the rank back")
    if parts.no_core >= WORTH_A_WORD:
        rest.append(f"for {percent(parts.no_core)} of the step the rank was ready to run and others had the cores")
    return f"Compute-bound: {'; '.join(rest)}."


def _about_ceiling(summary: Summary, shares: Shares) -> Iterator[str]:
    """What the best of all modes could gain."""
    if shares.sync is not None and summary.run.bytes_sent_per_step and shares.sync < 1:
        yield f"If synchronisation cost nothing, a step would be at most {1 / (1 - shares.sync):.2f} times as fast."


def _about_straggler(summary: Summary, shares: Shares) -> Iterator[str]:
    straggler, wait = summary.run.straggler, shares.wait
    if straggler:
        interval = (
            ""
            if straggler.work_ratio_low is None or straggler.work_ratio_high is None
            else f" (at least {straggler.work_ratio_low:.2f}, at most {straggler.work_ratio_high:.2f})"
        )
        text = (
            f"Rank {straggler.rank} is the straggler: its own work takes {straggler.work_ratio:.2f} times{interval} as "
            f"long as the others', and it finishes last in {percent(straggler.last_in)} of the steps"
        )
        if straggler.others_wait_seconds is None or straggler.wait_seconds is None:
            yield f"{text}. In this mode no rank waits for another's gradients."
        else:
            yield (
                f"{text}. The others wait for it {duration(straggler.others_wait_seconds)} a step; it waits for them "
                f"{duration(straggler.wait_seconds)}."
            )
        return
    if wait is None or wait < WORTH_A_WORD:
        return
    if summary.run.straggler_undecided:
        yield (
            f"The ranks spend {percent(wait)} of the step waiting for each other. There are too few steps to say "
            "whether one of them is a straggler."
        )
    else:
        yield f"The ranks spend {percent(wait)} of the step waiting for each other, in turns: there is no straggler."


def _about_hiding(summary: Summary) -> Iterator[str]:
    """Like for like: from a bucket's readiness to its end, with the wait for other ranks' buckets on both sides."""
    run = summary.run
    hidden, exposed = run.hidden_sync_seconds, run.exposed_sync_seconds
    if not run.bytes_sent_per_step or not hidden or not exposed or not hidden.mean + exposed.mean:
        return
    part = hidden.mean / (hidden.mean + exposed.mean)
    waiting = "" if run.wait_seconds is None else f", {duration(run.wait_seconds.mean)} of it waiting for other ranks"
    yield (
        f"{percent(part)} of the synchronisation, with the wait for other ranks' gradients, is hidden behind backward: "
        f"{duration(hidden.mean)} a step. {duration(exposed.mean)} a step is exposed{waiting}."
    )
    if run.buckets_per_step == 1:
        yield "Nothing can be hidden in a single bucket: it is ready only when backward ends."


def _about_links(summary: Summary, shares: Shares, manifest: Manifest) -> Iterator[str]:
    bandwidth, used = summary.run.bandwidth, utilisation(summary)
    if not bandwidth:
        return
    if least := bandwidth.sync_seconds_at_least:
        faster = bandwidth.sync_seconds < least
        yield (
            f"On the measured links, this mode's messages need at least {duration(least)} a step; they took "
            f"{duration(bandwidth.sync_seconds)} (median)"
            + (": the links carried more in the run than when they were measured before it." if faster else ".")
        )
    if used is not None and used < HARDLY_USED and shares.of("sync") > MUCH:
        yield (
            f"The links do not limit synchronisation, which uses {percent(used)} of what they allow. "
            "Time goes into handling messages, and into waiting for a CPU if ranks share or lack one."
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
        yield f"On these links, {mode} needs at least {duration(least)} a step where this mode needs {duration(own)}."


def _about_bytes(summary: Summary) -> Iterator[str]:
    counted = [(rank.bytes_sent_per_step, rank.formula_bytes_sent_per_step) for rank in summary.ranks]
    if not any(formula for _, formula in counted):
        return
    if wrong := [rank for rank, (sent, formula) in enumerate(counted) if sent is not None and abs(sent - formula) > 1]:
        yield f"The bytes sent differ from the formula on ranks {', '.join(map(str, wrong))}."
        return
    excess = [
        rank.interface_bytes_sent_per_step / rank.bytes_sent_per_step - 1
        for rank in summary.ranks
        if rank.interface_bytes_sent_per_step is not None and rank.bytes_sent_per_step
    ]
    amounts = sorted({formula for _, formula in counted})
    size = f"{amounts[0] / 1e6:.2f}" if len(amounts) == 1 else f"{amounts[0] / 1e6:.2f} to {amounts[-1] / 1e6:.2f}"
    kernel = f"; the kernel counted at most {percent(max(excess), 1)} more" if excess else ""
    yield f"Each rank sends as many bytes as the formula says, {size} MB a step{kernel}."


def _about_rounding(summary: Summary, manifest: Manifest) -> Iterator[str]:
    error = summary.run.wire_rounding_error
    if error is not None:
        yield (
            f"WIRE_PRECISION={manifest.settings.get('wire_precision')} sends half the bytes of fp32, and its rounding "
            f"moves a rank's gradient by {percent(error, 3)} of its size."
        )


def _about_quota(summary: Summary, manifest: Manifest) -> Iterator[str]:
    asked = manifest.settings.get("rank_cpus")
    throttled = held_back(summary)
    if isinstance(asked, int | float) and throttled:
        yield (
            f"RANK_CPUS gives each rank {asked:g} CPUs; this quota throttled a rank for up to "
            f"{max(throttled):.2g} s in each second, summed over CPUs."
        )


def _about_learning(summary: Summary) -> Iterator[str]:
    losses, accuracy = summary.losses, summary.run.accuracy
    if losses:
        tested = "" if accuracy is None else f"; {percent(accuracy, 1)} of the test images are classified correctly"
        yield f"The loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses)} steps{tested}."
    if summary.replicas_identical and summary.world_size > 1:
        yield "All replicas ended bitwise identical."
