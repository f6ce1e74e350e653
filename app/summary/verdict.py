"""What a run's figures mean, in plain words: each sentence follows from the summary and the manifest alone."""

from collections.abc import Iterator
from statistics import median

from app.records.manifest import WAYS, Manifest
from app.records.summary import GroupFigures, Shares, Summary, Verdict

BOUNDS = {  # what can dominate a step, and the phases that count towards it
    "compute": ("forward", "backward", "optimiser"),
    "communication": ("sync",),
    "straggler": ("wait",),
    "data": ("data",),
}
MIXED = "mixed"  # no part outweighs all others together
OUTWEIGHS = 0.5  # of the step
WORTH_A_WORD = 0.05  # of the step
HARDLY_USED = 0.3  # of a link, while gradients are synchronised
MUCH = 0.2
UNEVEN_LINKS = 0.5  # of the median link; above that, unshaped links may differ by chance
CLOCK_TOLERANCE_SECONDS = 0.005

EMBEDDED = {
    "shapes": "the images are `shapes`, which are synthetic: accuracy on them says nothing about CIFAR-10's photos.",
    "digits": "the images are `digits`, scikit-learn's 1,797: accuracy on them says nothing about MNIST's.",
}


def percent(share: float, digits: int = 0) -> str:
    """A share of one as text."""
    return f"{100 * share:.{digits}f} %"


def reach(summary: Summary, manifest: Manifest) -> Verdict:
    """The verdict on a run, the main point first."""
    bound = _bound(summary)
    return Verdict(bound, [*_sentences(bound, summary, manifest)])


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
                    f"{usage.throttled_seconds:.3g} s, summed over CPUs, in {usage.seconds:.3g} s."
                )
    uncertain = summary.run.clock_uncertainty_seconds
    if uncertain is not None and uncertain > CLOCK_TOLERANCE_SECONDS:
        yield (
            f"the ranks' clocks could be compared only to within {uncertain * 1e3:.1f} ms: the split of "
            "exposed time into waiting and synchronisation is no more exact than that."
        )
    if (note := EMBEDDED.get(summary.dataset)) and summary.run.accuracy is not None:
        yield note


def _bound(summary: Summary) -> str | None:
    """What outweighs the rest of the step together; `compute`, too, if ranks lack the CPU time to use idle links."""
    shares = summary.run.shares
    if shares is None:
        return None
    parts = {bound: shares.of(*phases) for bound, phases in BOUNDS.items()}
    most = max(parts, key=lambda bound: parts[bound])
    if most in ("communication", "straggler") and _lacks_cpu(summary):
        return "compute"
    return most if parts[most] > OUTWEIGHS else MIXED


def _lacks_cpu(summary: Summary) -> bool:
    """Whether a quota throttles most ranks for much of the time, while their links are hardly used."""
    use, held_back = _busiest_link(summary), _held_back(summary)
    return bool(held_back) and median(held_back) > MUCH and not (use and use[1] > HARDLY_USED)


def _held_back(summary: Summary) -> list[float]:
    """Seconds per second for which a quota throttled each rank, summed over CPUs."""
    return [
        rank.usage.throttled_seconds / rank.usage.seconds
        for rank in summary.ranks
        if rank.usage and rank.usage.throttled_seconds is not None
    ]


def _sentences(bound: str | None, summary: Summary, manifest: Manifest) -> Iterator[str]:
    shares = summary.run.shares
    if bound is None or shares is None:
        yield "There are no times to judge: the run has no step after the first, which sets everything up."
    else:
        yield _headline(bound, summary, shares)
        yield from _about_straggler(summary, shares)
        yield from _about_hiding(summary.run)
        yield from _about_links(summary, shares, manifest)
        yield from _about_bytes(summary)
        yield from _about_quota(summary, manifest)
    yield from _about_learning(summary)


def _headline(bound: str, summary: Summary, shares: Shares) -> str:
    sync, wait, computes = shares.of("sync"), shares.of("wait"), shares.of(*BOUNDS["compute"])
    computing = ", ".join(f"{phase} {percent(shares.of(phase))}" for phase in BOUNDS["compute"])
    match bound:
        case "communication":
            use = _busiest_link(summary)
            link = f"; {use[0]} runs at {percent(use[1])} of its measured speed" if use else ""
            return f"Communication-bound: {percent(sync)} of the step is exposed synchronisation{link}."
        case "straggler":
            straggler = summary.run.straggler
            whom = f"rank {straggler.rank}" if straggler else "the slowest rank"
            return f"Straggler-bound: on average, a rank spends {percent(wait)} of the step waiting for {whom}."
        case "mixed":
            return f"Mixed: no part of the step outweighs the others. {', '.join(_parts(shares))}."
        case "data":
            return f"Data-bound: {percent(shares.data)} of the step goes into preparing the batch."
        case "compute" if computes < max(sync, wait):
            return (
                f"Compute-bound: a CPU quota throttles the ranks for up to {max(_held_back(summary)):.2g} s in each "
                f"second, even while they synchronise ({percent(sync)} of the step) or wait ({percent(wait)}); "
                f"{percent(computes)} is computation."
            )
        case _:
            rest = (
                ""
                if shares.sync is None or summary.world_size == 1
                else f"; {percent(sync)} is exposed synchronisation and {percent(wait)} waiting"
            )
            return f"Compute-bound: {percent(computes)} of the step is computation ({computing}){rest}."


def _parts(shares: Shares) -> Iterator[str]:
    """All parts of the step, the largest first."""
    names = {
        "compute": "computation",
        "communication": "exposed synchronisation",
        "straggler": "waiting for other ranks",
        "data": "preparing the batch",
    }
    parts = sorted(((shares.of(*BOUNDS[bound]), name) for bound, name in names.items()), reverse=True)
    yield from (f"{percent(part)} {name}" for part, name in parts if part >= 0.005)


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
                f"{text}. The others wait for it {straggler.others_wait_seconds:.3g} s a step; it waits for them "
                f"{straggler.wait_seconds:.3g} s."
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


def _about_hiding(run: GroupFigures) -> Iterator[str]:
    """Like for like: from a bucket's readiness to its end, with the wait for other ranks' buckets on both sides."""
    hidden, exposed = run.hidden_sync_seconds, run.exposed_sync_seconds
    if not run.bytes_sent_per_step or not hidden or not exposed or not hidden.mean + exposed.mean:
        return
    part = hidden.mean / (hidden.mean + exposed.mean)
    waiting = "" if run.wait_seconds is None else f", {run.wait_seconds.mean:.3g} s of it waiting for other ranks"
    yield (
        f"{percent(part)} of the synchronisation, with the wait for other ranks' gradients, is hidden behind backward: "
        f"{hidden.mean:.3g} s a step. {exposed.mean:.3g} s a step is exposed{waiting}."
    )


def _about_links(summary: Summary, shares: Shares, manifest: Manifest) -> Iterator[str]:
    bandwidth = summary.run.bandwidth
    if not bandwidth:
        return
    if least := bandwidth.sync_seconds_at_least:
        faster = bandwidth.sync_seconds < least
        yield (
            f"On the measured links, this mode's messages need at least {least:.3g} s a step; they took "
            f"{bandwidth.sync_seconds:.3g} s (median)"
            + (": the links carried more in the run than when they were measured before it." if faster else ".")
        )
    use, sync = _busiest_link(summary), shares.of("sync")
    if use and use[1] < HARDLY_USED and sync > MUCH:
        yield (
            f"The links do not limit synchronisation: the busiest one, {use[0]}, runs at {percent(use[1])} of its "
            "measured speed. Time goes into handling messages, and into waiting for a CPU if ranks share or lack one."
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


def _busiest_link(summary: Summary) -> tuple[str, float] | None:
    """The busiest link while gradients are synchronised, and its utilisation."""
    uses = [
        (f"rank {rank.rank}'s link", used)
        for rank in summary.ranks
        for way in WAYS
        if (used := rank.link.direction(way)) is not None
    ]
    return max(uses, key=lambda use: use[1]) if uses else None


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


def _about_quota(summary: Summary, manifest: Manifest) -> Iterator[str]:
    asked = manifest.settings.get("rank_cpus")
    held_back = _held_back(summary)
    if isinstance(asked, int | float) and held_back:
        yield (
            f"RANK_CPUS gives each rank {asked:g} CPUs; this quota throttled a rank for up to "
            f"{max(held_back):.2g} s in each second, summed over CPUs."
        )


def _about_learning(summary: Summary) -> Iterator[str]:
    losses, accuracy = summary.losses, summary.run.accuracy
    if losses:
        tested = "" if accuracy is None else f"; {percent(accuracy, 1)} of the test images are classified correctly"
        yield f"The loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses)} steps{tested}."
    if summary.replicas_identical and summary.world_size > 1:
        yield "All replicas ended bitwise identical."
