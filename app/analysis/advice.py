"""What to try next, with the command that tries it: one thing, chosen by what bounds the run."""

import math
import shlex
from collections.abc import Callable

from app.analysis.bound import HARDLY_USED, MIXED, MUCH, Parts
from app.analysis.measures import BUCKETS, SHARES, STRAGGLER, UTILISATION
from app.analysis.summary import Advice, Summary
from app.analysis.words import duration, percent
from app.records.manifest import Manifest, Setting
from app.settings.averaging import OF_AVERAGING
from app.settings.settings import FIELDS

WORTH_TRYING = 0.8  # of the time now
WORTH = 0.05  # of the step, to do something about it
FEW_SAMPLES = 8  # on each rank: each step's fixed costs outweigh them
SMALL_BUCKET_BYTES = 1 << 20
AS_GOOD = 1.01  # of the least time
BUCKETS_TO_HIDE_WITH = 4
NEARLY_ALL = 0.8  # of the step
MORE, MUCH_MORE = 2, 8  # times as many samples
MOST_RANKS = 32  # that one command starts on a host without being asked
WITH_FLOOR = "--with-floor"
STEPS_LEFT = 2  # in an epoch, at least, or nothing can be measured


def advise(bound: str | None, summary: Summary, manifest: Manifest) -> Advice | None:
    """None where there is nothing to judge, or an earlier version did not record the given settings."""
    parts = Parts.of(summary.run)
    if bound is None or parts is None or manifest.given is None:
        return None
    largest = {
        "cpu": parts.no_core,
        "communication": parts.synchronising,
        "straggler": parts.waiting,
        "compute": parts.computes,
        "data": parts.data,
    }
    chosen = max(largest, key=lambda each: largest[each]) if bound == MIXED else bound
    for rule in (*WHATEVER_BOUNDS, *RULES[chosen]):
        if advice := rule(summary, manifest):
            return advice
    return None


def command(manifest: Manifest, *options: str, **changes: Setting) -> str | None:
    """The run's own settings, with some of them otherwise; None is the default."""
    own = manifest.given or {}
    if _on_nodes(manifest):
        if "workers" in changes:
            return None  # a node is a rank, so no setting changes their number
        start, wanted = ["scripts/cloudlab", "HOST..."], own | changes
        if WITH_FLOOR in options:
            wanted |= {**dict.fromkeys(OF_AVERAGING), "sync_mode": "none"}
    else:
        start, wanted = ["scripts/up", *options], own | {"workers": manifest.world_size - 1} | changes
        if {"global_batch_size", "batch_size_per_rank"} <= wanted.keys():
            del wanted["batch_size_per_rank"]
        if wanted["workers"] == FIELDS["workers"].default:
            del wanted["workers"]
    return shlex.join([*start, *(f"{name.upper()}={value}" for name, value in wanted.items() if value is not None)])


def faster_mode(summary: Summary, manifest: Manifest) -> tuple[str, float, float] | None:
    """Another mode that needs much less time on these links, its least time, and this mode's."""
    modes = manifest.modes or {}
    own = modes.get(summary.sync_mode)
    if own is None or ((used := summary.run[UTILISATION]) is not None and used < HARDLY_USED):
        return None  # it is not the links that take the time
    least = min(mode.sync_seconds_at_least for mode in modes.values())
    # Many modes need the same time within a chunk's one element more. What hides it is to be preferred.
    best = min(modes, key=lambda name: (modes[name].sync_seconds_at_least > AS_GOOD * least, not modes[name].hides))
    least = modes[best].sync_seconds_at_least
    return (best, least, own.sync_seconds_at_least) if least < WORTH_TRYING * own.sync_seconds_at_least else None


# Rules: each says what to try, or None where it does not apply. No command leaves out a rank that a setting names.


def _spare_the_slow_rank(summary: Summary, manifest: Manifest) -> Advice | None:
    straggler, parts = summary.run[STRAGGLER], Parts.of(summary.run)
    if straggler is None or parts is None or parts.waiting < WORTH:
        return None
    if manifest.settings.get("slow_rank") == straggler:
        return Advice(
            f"SLOW_RANK={straggler} slows this rank down. Without it, no rank waits.",
            command(manifest, slow_rank=None, slow_factor=None),
        )
    if _one_host(manifest) and not _on_nodes(manifest):
        return Advice(
            f"Rank {straggler} shares its host with the others, so look for what holds it up: the doctor tests the "
            "machine, and the table of the processor shows on which cores the ranks ran.",
            "scripts/doctor",
        )
    look = "scripts/cloudlab --check HOST..." if _on_nodes(manifest) else "scripts/doctor"
    return Advice(f"Compare rank {straggler}'s host with the others.", look)


def _larger_batch_for_few(summary: Summary, manifest: Manifest) -> Advice | None:
    if summary.global_batch_size >= FEW_SAMPLES * summary.world_size:
        return None
    why = "Each rank has few samples per step, so fixed costs dominate. Use a larger batch."
    return _larger_batch(MUCH_MORE, why, summary, manifest)


def _equal_shares(summary: Summary, manifest: Manifest) -> Advice | None:
    """More ranks than cores. The number of ranks is the user's question, so it stays."""
    cores = min(rank.cores for rank in manifest.ranks)
    if not _one_host(manifest) or summary.world_size <= cores or manifest.settings.get("rank_cpus") is not None:
        return None
    share = math.floor(100 * cores / summary.world_size) / 100
    return Advice(
        f"{summary.world_size} ranks compete for {cores} cores. RANK_CPUS={share:g} gives each the same share, as if "
        "it had a slower machine of its own.",
        command(manifest, rank_cpus=share, threads_per_rank=None),
    )


def _fewer_threads(summary: Summary, manifest: Manifest) -> Advice | None:
    """More threads than cores, because somebody asked for them."""
    threads, cores = sum(rank.threads for rank in manifest.ranks), min(rank.cores for rank in manifest.ranks)
    if not _one_host(manifest) or threads <= cores or manifest.settings.get("threads_per_rank") is None:
        return None
    return Advice(
        f"{threads} compute threads share {cores} cores. The default is at most one per core.",
        command(manifest, threads_per_rank=None),
    )


def _find_the_others(summary: Summary, manifest: Manifest) -> Advice:
    return Advice("If other programs use these cores, stop them. Otherwise, use a host with more cores.", None)


def _faster_mode(summary: Summary, manifest: Manifest) -> Advice | None:
    better = faster_mode(summary, manifest)
    if better is None:
        return None
    mode, least, own = better
    return Advice(
        f"On these links, {mode} needs at least {duration(least)} per step, {summary.sync_mode} {duration(own)}.",
        command(manifest, sync_mode=mode, bucket_bytes=None, group_size=None, shards=None),
    )


def _larger_buckets(summary: Summary, manifest: Manifest) -> Advice | None:
    buckets, asked, sync = summary.run[BUCKETS], manifest.settings.get("bucket_bytes"), summary.run[SHARES["sync"]]
    small = isinstance(asked, int) and asked < SMALL_BUCKET_BYTES
    if not buckets or buckets <= 1 or not small or _uses_links(summary) or (sync or 0.0) < WORTH:
        return None
    return Advice(
        f"The gradients are sent in {buckets:.0f} buckets per step, each with a fixed cost. Larger buckets reduce "
        "their number.",
        command(manifest, bucket_bytes=None),
    )


def _smaller_buckets(summary: Summary, manifest: Manifest) -> Advice | None:
    """Only where the links, and not the messages, take the time."""
    if summary.run[BUCKETS] != 1 or not _uses_links(summary):
        return None
    return Advice(
        f"The model's {manifest.gradient_bytes / 1e6:.2f} MB of gradients fit in one bucket, so none can be sent "
        "during backward. Smaller buckets are sent earlier.",
        command(manifest, bucket_bytes=-(-manifest.gradient_bytes // BUCKETS_TO_HIDE_WITH)),
    )


def _fewer_messages(summary: Summary, manifest: Manifest) -> Advice | None:
    """Where the links are idle, and what takes the time is handling one message for each parameter."""
    hiding, used = _hiding_mode(summary, manifest), summary.run[UTILISATION]
    if hiding is None or used is None or _uses_links(summary):
        return None
    return Advice(
        f"Link utilisation is only {percent(used)}: message handling takes the time. {hiding} sends gradients "
        f"in buckets, {summary.sync_mode} parameter by parameter.",
        command(manifest, sync_mode=hiding),
    )


def _hide(summary: Summary, manifest: Manifest) -> Advice | None:
    """A mode that hides, where there is backward to hide behind and more than one bucket to send."""
    hiding, backward = _hiding_mode(summary, manifest), summary.run[SHARES["backward"]]
    if hiding is None or backward is None or manifest.gradient_bytes <= SMALL_BUCKET_BYTES:
        return None
    gained = min(summary.run[SHARES["sync"]] or 0.0, backward)
    if 1 - gained > WORTH_TRYING:
        return None
    return Advice(
        f"{hiding} overlaps synchronisation with backward, which can hide up to {percent(gained)} of the step.",
        command(manifest, sync_mode=hiding),
    )


def _larger_batch_for_messages(summary: Summary, manifest: Manifest) -> Advice | None:
    times = MUCH_MORE if (summary.run[SHARES["sync"]] or 0.0) > NEARLY_ALL else MORE
    why = "A larger batch synchronises less often for the same number of images."
    return _larger_batch(times, why, summary, manifest)


def _larger_batch(times: int, why: str, summary: Summary, manifest: Manifest) -> Advice | None:
    """As large as still leaves an epoch of a few steps. Training then takes other steps, which readers must know."""
    samples = manifest.settings.get("train_samples")
    if not isinstance(samples, int):
        return None
    size = summary.global_batch_size
    while size < times * summary.global_batch_size and 2 * size <= samples // STEPS_LEFT:
        size *= 2
    if size == summary.global_batch_size:
        return None
    return Advice(
        f"{why} This changes the training: LEARNING_RATE_SCALING=linear adapts the learning rate.",
        command(manifest, global_batch_size=size),
    )


def _more_of_the_cpu(summary: Summary, manifest: Manifest) -> Advice | None:
    parts, asked = Parts.of(summary.run), manifest.settings.get("rank_cpus")
    share = min(rank.cores / summary.world_size for rank in manifest.ranks)
    if parts is None or parts.quota < MUCH or not isinstance(asked, int | float) or asked >= share:
        return None
    return Advice(
        f"RANK_CPUS={asked:g} throttles each rank, but the host has {share:.3g} CPUs per rank.",
        command(manifest, rank_cpus=round(share, 3)),
    )


def _more_ranks(summary: Summary, manifest: Manifest) -> Advice | None:
    cores = min(rank.cores for rank in manifest.ranks)
    busy = sum(rank.threads for rank in manifest.ranks)
    if not _one_host(manifest) or busy >= cores or manifest.settings.get("rank_cpus"):
        return None
    if "threads_per_rank" in (manifest.given or {}):
        return Advice(
            f"THREADS_PER_RANK limits the ranks to {busy} of {cores} cores. By default, they use all of them.",
            command(manifest, threads_per_rank=None),
        )
    ranks = min(cores, MOST_RANKS, summary.global_batch_size // FEW_SAMPLES)
    if ranks <= summary.world_size:
        return None
    return Advice(
        f"Only {busy} of {cores} cores compute. More ranks use more of them.",
        command(manifest, workers=ranks - 1),
    )


def _see_the_floor(summary: Summary, manifest: Manifest) -> Advice | None:
    """Where computing is what takes the time, only the machine can change that."""
    if summary.world_size == 1 or summary.sync_mode == "none":
        return None
    return Advice(
        "More or faster cores would help most. For the cost of synchronisation, compare with a run without it.",
        command(manifest, WITH_FLOOR),
    )


def _hiding_mode(summary: Summary, manifest: Manifest) -> str | None:
    """One that hides communication behind backward, where this one does not."""
    modes = manifest.modes or {}
    own = modes.get(summary.sync_mode)
    return None if own is None or own.hides else next((name for name, mode in modes.items() if mode.hides), None)


def _uses_links(summary: Summary) -> bool:
    used = summary.run[UTILISATION]
    return used is not None and used >= HARDLY_USED


def _on_nodes(manifest: Manifest) -> bool:
    return bool(manifest.settings.get("nodes"))


def _one_host(manifest: Manifest) -> bool:
    return len({rank.host_boot_id for rank in manifest.ranks}) == 1


Rule = Callable[[Summary, Manifest], Advice | None]
WHATEVER_BOUNDS: tuple[Rule, ...] = (_spare_the_slow_rank, _larger_buckets, _larger_batch_for_few)
RULES: dict[str, tuple[Rule, ...]] = {
    "straggler": (_equal_shares, _fewer_threads),
    "cpu": (_equal_shares, _fewer_threads, _find_the_others),
    "communication": (
        _faster_mode,
        _smaller_buckets,
        _fewer_messages,
        _hide,
        _larger_batch_for_messages,
    ),
    "compute": (_more_of_the_cpu, _more_ranks, _see_the_floor),
    "data": (),
}
