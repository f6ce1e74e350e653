"""What a run's figures mean, in plain words: each sentence follows from the summary and the manifest alone."""

from collections.abc import Iterator

from app.analysis import busiest, measures
from app.analysis.advice import advise, faster_mode
from app.analysis.bound import HARDLY_USED, MUCH, OUTWEIGHS, Parts, bound_of, held_back
from app.analysis.summary import Summary, Verdict
from app.analysis.units import digits
from app.analysis.words import WORTH_LISTING, duration, percent
from app.machine.say import numbered
from app.records.manifest import WAYS, Manifest

WORTH_A_WORD = 0.05  # of the step
UNEVEN_LINKS = 0.5  # of the median link; above that, unshaped links may differ by chance
CLOCK_TOLERANCE_SECONDS = 0.005

EMBEDDED = {
    "shapes": "`shapes` is a synthetic data set: its accuracy does not carry over to CIFAR-10's photos.",
    "digits": "`digits` is scikit-learn's set of 1,797 images: its accuracy does not carry over to MNIST.",
}


def reach(summary: Summary, manifest: Manifest) -> Verdict:
    bound = bound_of(summary)
    return Verdict(bound, [*_sentences(bound, summary, manifest)], advise(bound, summary, manifest))


def warnings(summary: Summary, manifest: Manifest) -> Iterator[str]:
    """What readers of the figures must know and only the end of the run shows."""
    if not summary.complete:
        unfinished = [rank[measures.RANK] for rank in summary.ranks if not rank[measures.FINISHED]]
        yield (
            f"the run is incomplete: all ranks recorded {summary.steps} of {summary.steps_planned} steps. "
            f"Unfinished ranks: {', '.join(map(str, unfinished)) or 'none'}."
        )
    if summary.replicas_identical is False:
        yield "the replicas differ: the ranks ended with different parameters."
    if manifest.settings.get("rank_cpus") is None:
        for rank in summary.ranks:
            throttled, seconds = rank[measures.USAGE["throttled_seconds"]], rank[measures.USAGE["seconds"]]
            if throttled and seconds:
                yield (
                    f"rank {rank[measures.RANK]} was throttled by a CPU quota that RANK_CPUS did not set: for "
                    f"{duration(throttled)} in {duration(seconds)}, summed over CPUs."
                )
    uncertain = summary.run[measures.CLOCK_UNCERTAINTY]
    if uncertain is not None and uncertain > CLOCK_TOLERANCE_SECONDS:
        yield (
            f"clock offsets between ranks are known only to within {uncertain * 1e3:.1f} ms. So is the "
            "split of exposed time into waiting and synchronisation."
        )
    if (note := EMBEDDED.get(summary.dataset)) and summary.run[measures.ACCURACY] is not None:
        yield note


def _sentences(bound: str | None, summary: Summary, manifest: Manifest) -> Iterator[str]:
    if not summary.complete:
        yield f"The run stopped after {summary.steps} of {summary.steps_planned} steps."
    parts = Parts.of(summary.run)
    if bound is None or parts is None:
        yield "No timings to analyse: the run has no step after the first, which includes the setup."
    else:
        yield _headline(bound, summary, parts)
        yield from _about_ceiling(summary)
        yield from _about_straggler(summary)
        yield from _about_hiding(summary)
        yield from _about_links(summary, manifest)
        yield from _about_other_modes(summary, manifest)
        yield from _about_bytes(summary)
        yield from _about_rounding(summary, manifest)
        yield from _about_quota(summary, manifest)
    yield from _about_learning(summary)


def _headline(bound: str, summary: Summary, parts: Parts) -> str:
    sync, wait, computes = _share(summary, "sync"), _share(summary, "wait"), _share(summary, *measures.COMPUTING)
    match bound:
        case "communication":
            used = summary.run[measures.UTILISATION]
            links = "" if used is None else f", at {percent(used)} link utilisation"
            return f"Communication-bound: {percent(sync)} of the step is exposed synchronisation{links}."
        case "straggler":
            straggler = summary.run[measures.STRAGGLER]
            bound, whom = ("Waiting", "others") if straggler is None else ("Straggler", f"rank {straggler}")
            return f"{bound}-bound: on average, a rank spends {percent(wait)} of the step waiting for {whom}."
        case "mixed":
            return f"Mixed: no single cause takes most of the step. {_by_phase(summary)}.{_without_a_core(parts)}"
        case "data":
            return f"Data-bound: {percent(_share(summary, 'data'))} of the step is batch preparation."
        case "cpu":
            return f"CPU-saturated: the ranks compete for CPU cores. {_by_phase(summary)}.{_without_a_core(parts)}"
        case "compute" if parts.wants_cpu <= OUTWEIGHS:
            return (
                f"Compute-bound: a CPU quota throttles the ranks for up to {max(held_back(summary)):.2g} s per second, "
                f"also during synchronisation ({percent(sync)} of the step) and waiting ({percent(wait)}). "
                f"Computation is {percent(computes)}."
            )
        case _:
            return _computation(summary, parts)


def _computation(summary: Summary, parts: Parts) -> str:
    rest = [f"{percent(_share(summary, *measures.COMPUTING))} of the step is computation"]
    sync = summary.run[measures.SHARES["sync"]]
    if sync is not None and summary.world_size > 1:
        rest.append(f"{percent(sync)} is exposed synchronisation and {percent(_share(summary, 'wait'))} waiting")
    if parts.quota >= WORTH_A_WORD:
        rest.append(f"The CPU quota throttles the rank for {percent(parts.quota)} of the step")
    return f"Compute-bound: {'. '.join(rest)}.{_without_a_core(parts)}"


def _share(summary: Summary, *phases: str) -> float:
    """The share of the step in these phases. A phase that was not measured counts as 0."""
    return summary.run.sum(*(measures.SHARES[phase] for phase in phases))


def _about_ceiling(summary: Summary) -> Iterator[str]:
    """What the best of all modes could gain."""
    sync, sent = summary.run[measures.SHARES["sync"]], summary.run[measures.BYTES_SENT]
    if sync is not None and sync < 1 and sent:
        yield f"With zero-cost synchronisation, steps would be at most {1 / (1 - sync):.2f} times as fast."


def _about_straggler(summary: Summary) -> Iterator[str]:
    run = summary.run
    straggler, ratio, wait = run[measures.STRAGGLER], run[measures.STRAGGLER_RATIO], run[measures.SHARES["wait"]]
    if straggler is not None and ratio is not None:
        low, high = run[measures.STRAGGLER_RATIO_LOW], run[measures.STRAGGLER_RATIO_HIGH]
        own, others = run[measures.STRAGGLER_WAIT], run[measures.STRAGGLER_OTHERS_WAIT]
        interval = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
        text = (
            f"Rank {straggler} is the straggler: its own work takes {ratio:.2f} times{interval} as "
            f"long as the others', and it finishes last in {percent(run[measures.STRAGGLER_LAST_IN] or 0.0)} of steps"
        )
        if others is None or own is None:
            yield f"{text}. In this mode, no rank waits for another's gradients."
        else:
            yield (
                f"{text}. The others wait {duration(others)} per step for it, and it waits {duration(own)} for them."
            )
        return
    if wait is None or wait < WORTH_A_WORD:
        return
    if run[measures.STRAGGLER_UNDECIDED]:
        yield (
            f"The ranks spend {percent(wait)} of the step waiting for each other. There are too few steps to "
            "identify a straggler."
        )
    else:
        yield f"The ranks spend {percent(wait)} of the step waiting for each other, but no rank is consistently slow."


def _about_hiding(summary: Summary) -> Iterator[str]:
    """Like for like: from a bucket's readiness to its end, with the wait for other ranks' buckets on both sides."""
    run = summary.run
    hidden, exposed, wait = run[measures.HIDDEN_SYNC.mean], run[measures.EXPOSED_SYNC.mean], run[measures.WAIT.mean]
    if not run[measures.BYTES_SENT] or hidden is None or exposed is None or not hidden + exposed:
        return
    if not hidden and run[measures.BUCKETS] == 1:
        yield "The gradients are one bucket, which is ready only when backward ends: no synchronisation is hidden."
        return
    part = hidden / (hidden + exposed)
    waiting = "" if wait is None else f", including {duration(wait)} of waiting"
    yield (
        f"{percent(part)} of the synchronisation, including waiting for other ranks, is hidden behind backward: "
        f"{duration(hidden)} per step. {duration(exposed)} per step is exposed{waiting}."
    )


def _about_links(summary: Summary, manifest: Manifest) -> Iterator[str]:
    taken, used = summary.run[measures.TRANSFER], summary.run[measures.UTILISATION]
    if taken is None:
        return
    if least := summary.run[measures.LEAST_TRANSFER]:
        faster = taken < least
        carries = busiest.of(summary, manifest)
        lead = f"{carries.words}: at least" if carries else "On the measured links, this mode needs at least"
        yield (
            f"{lead} {duration(least)} per step. It took {duration(taken)} (median)"
            + (": the links were faster than in the measurement before the run." if faster else ".")
        )
    if used is not None and used < HARDLY_USED and _share(summary, "sync") > MUCH:
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


def _about_other_modes(summary: Summary, manifest: Manifest) -> Iterator[str]:
    better = faster_mode(summary, manifest)
    if better and _share(summary, "sync") > WORTH_A_WORD:
        mode, least, own = better
        yield f"On these links, {mode} needs at least {duration(least)} per step, this mode {duration(own)}."


def _about_bytes(summary: Summary) -> Iterator[str]:
    counted = [(rank[measures.BYTES_SENT], rank[measures.FORMULA_BYTES_SENT] or 0.0) for rank in summary.ranks]
    if not any(formula for _, formula in counted):
        return
    if wrong := [rank for rank, (sent, formula) in enumerate(counted) if sent is not None and abs(sent - formula) > 1]:
        yield f"The bytes sent differ from the formula on {numbered('rank', wrong)}."
        return
    matching = [rank for rank, (sent, _) in enumerate(counted) if sent is not None]
    if not matching:
        return
    excess = [each for rank in summary.ranks if (each := rank[measures.SENT_EXCESS]) is not None]
    amounts = sorted(formula for _, formula in counted)
    size = " to ".join(dict.fromkeys(digits(end / 1e6) for end in (amounts[0], amounts[-1])))
    kernel = f" The kernel counted at most {percent(max(excess), 1)} more." if excess else ""
    where = "every rank" if len(matching) == len(counted) else numbered("rank", matching)
    yield f"The bytes sent match the formula on {where}: {size} MB per step.{kernel}"


def _about_rounding(summary: Summary, manifest: Manifest) -> Iterator[str]:
    error = summary.run[measures.ROUNDING_ERROR]
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
    losses, accuracy = summary.losses, summary.run[measures.ACCURACY]
    if losses:
        tested = "" if accuracy is None else f" Test accuracy is {percent(accuracy, 1)}."
        alone = summary.world_size > 1 and not any(rank[measures.FORMULA_BYTES_SENT] for rank in summary.ranks)
        of_what = "of the ranks' own models " if alone else "of the global batch " if summary.world_size > 1 else ""
        yield f"The loss {of_what}went from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses)} steps.{tested}"
        last = summary.run[measures.LAST_BATCH]
        if last is not None and last < summary.global_batch_size:
            yield f"The last step had {last} samples instead of {summary.global_batch_size}, so its loss varies more."
    if summary.replicas_identical and summary.world_size > 1:
        what = "parameters and buffers" if summary.buffers_identical else "parameters"
        yield f"At the end, the {what} of all replicas are bitwise identical."
        if summary.buffers_identical is False:
            yield "Their buffers, such as batch normalisation's running statistics, differ."


def _by_phase(summary: Summary) -> str:
    """The whole step, largest phase first."""
    phases = {
        "computation": _share(summary, *measures.COMPUTING),
        "exposed synchronisation": _share(summary, "sync"),
        "waiting for other ranks": _share(summary, "wait"),
        "batch preparation": _share(summary, "data"),
    }
    shown = sorted(((share, name) for name, share in phases.items() if share >= WORTH_LISTING), reverse=True)
    return ", ".join(f"{percent(share)} {name}" for share, name in shown)


def _without_a_core(parts: Parts) -> str:
    """Waiting for a core happens within phases, so it is named apart from them."""
    if parts.no_core < WORTH_A_WORD:
        return ""
    return f" Within these phases, the rank waits for a free CPU core for {percent(parts.no_core)} of the step."
