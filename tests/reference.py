"""Every measure and every statistic of an experiment a second time: with numpy, from the records as they lie on disk.

Nothing here imports the program, so that an error in it cannot repeat itself.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
Span = tuple[float, float]
PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")
COMPUTING = ("data", "forward", "backward", "optimiser")
TIMES = ("seconds", *(f"{each}_seconds" for each in (*PHASES, "hidden_sync", "exposed_sync", "communication")))
STATISTICS: dict[str, Callable[[list[float]], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "p95": partial(np.percentile, q=95),
    "most": np.max,
}


def known(values: Iterable[float | None]) -> list[float]:
    return [each for each in values if each is not None]


def mean(values: Iterable[float | None]) -> float | None:
    return float(np.mean(there)) if (there := known(values)) else None


def divided(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def covered(spans: Iterable[Span]) -> float:
    total, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        total, until = total + max(0.0, end - max(begin, until)), max(until, end)
    return total


def score(steps: Iterable[Json]) -> Json:
    loss, correct, samples = (
        sum(each) for each in zip(*((s["loss"] * s["samples"], s["correct"], s["samples"]) for s in steps), strict=True)
    )
    return {"training_samples": samples, "training_loss": loss / samples, "training_accuracy": correct / samples}


def own_work(step: Json) -> float:
    return float(sum(step[f"{phase}_seconds"] for phase in COMPUTING) - (step["batch_norm_seconds"] or 0.0))


class Rank:
    """One rank's records; of a step that was repeated, those of the last attempt."""

    def __init__(self, run: "Run", number: int) -> None:
        self.run, self.number = run, number
        self.place: Json = run.manifest["ranks"][number]
        self.records = [json.loads(line) for line in (run.folder / f"rank-{number}.jsonl").read_text().splitlines()]
        self.steps: list[Json] = self._last("step", "step")
        self.evaluations: list[Json] = self._last("evaluation", "epoch")
        self.finished: Json = self.of("finished")[0]
        self.moments = [[each[name] for each in self.of("clock")] for name in ("at_seconds", "ahead_seconds")]

    def of(self, kind: str) -> list[Json]:
        return [each for each in self.records if each["kind"] == kind]

    def _last(self, kind: str, number: str) -> list[Json]:
        found = {each[number]: each for each in sorted(self.of(kind), key=lambda each: int(each["attempt"]))}
        return [found[each] for each in sorted(found)]

    @cached_property
    def warm(self) -> list[Json]:
        """Without the first step of each attempt."""
        return [step for last, step in pairwise(self.steps) if last["attempt"] == step["attempt"]]

    def span(self, record: Json) -> Span:
        """On rank 0's clock."""
        at, ahead_at = self.moments
        ahead = float(np.interp(record["at_seconds"], at, ahead_at)) if at else 0.0
        return record["at_seconds"] - ahead, record["at_seconds"] - ahead + record["seconds"]

    def messages(self, step: Json, name: str) -> list[Span]:
        began = self.span(step)[0]
        return [(began + each["ready_seconds"], began + each["end_seconds"]) for each in step[name] or []]


class Party:
    """Some ranks of a run."""

    def __init__(self, run: "Run", ranks: list[Rank]) -> None:
        self.run, self.ranks = run, ranks
        self.steps, self.warm = ([s for rank in ranks for s in getattr(rank, which)] for which in ("steps", "warm"))

    def together(self, which: str = "steps") -> list[list[Json]]:
        """The steps that all have, each with every rank's record of it."""
        own = [{each["step"]: each for each in getattr(rank, which)} for rank in self.ranks]
        return [[steps[number] for steps in own] for number in sorted(set.intersection(*map(set, own)))]

    def spans(self, steps: Sequence[Json]) -> list[Span]:
        return [rank.span(step) for rank, step in zip(self.ranks, steps, strict=True)]

    @property
    def losses(self) -> list[float]:
        """Of the global batch, by step."""
        return [score(steps)["training_loss"] for steps in self.together()]

    @cached_property
    def transfer(self) -> float | None:
        """The slowest rank's, of gradients that all ranks had ready; the median over steps."""
        taken = []
        for steps in self.together("warm"):
            spans = [rank.messages(step, "buckets") for rank, step in zip(self.ranks, steps, strict=True)]
            if all(spans):
                ready = [max(begin for begin, _ in bucket) for bucket in zip(*spans, strict=True)]
                clipped = [[(min(r, end), end) for r, (_, end) in zip(ready, own, strict=True)] for own in spans]
                taken.append(max(map(covered, clipped)))
            elif any(step["bytes_sent"] for step in steps) and None not in [step["sync_seconds"] for step in steps]:
                taken.append(max(step["sync_seconds"] for step in steps))
        return float(np.median(taken)) if taken else None

    @property
    def sent(self) -> list[float]:
        return [float(np.mean([step["bytes_sent"] for step in rank.steps])) for rank in self.ranks]

    def due(self, steps: Sequence[Json]) -> list[Json]:
        """Those that average, as far as all ranks' records tell."""
        last, every = self.run.manifest["plan"]["steps"], self.run.every
        return [s for s in steps if (s["step"] + 1) % every == 0 or s["step"] + 1 == last]

    @property
    def computing(self) -> float | None:
        steps = [step for step in self.warm if step["wait_seconds"] is not None]
        return mean(step["seconds"] - step["wait_seconds"] - step["sync_seconds"] for step in steps)

    @property
    def averaging(self) -> float | None:
        steps = [step for step in self.due(self.warm) if step["wait_seconds"] is not None]
        return mean(step["wait_seconds"] + step["sync_seconds"] for step in steps)

    @property
    def long_run(self) -> float | None:
        own, average = self.computing, self.averaging
        return None if own is None or average is None else own + average / self.run.every

    def seconds(self, *phases: str) -> float | None:
        """The mean of these phases together in a step, as far as they were measured."""
        means = known(mean(step[f"{phase}_seconds"] for step in self.warm) for phase in phases)
        return sum(means) if means else None


class Run:
    """A run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, json.loads((folder / "manifest.json").read_text())
        self.size, self.gradients = self.manifest["world_size"], self.manifest["gradient_bytes"]
        self.every = self.manifest["settings"].get("sync_every") or 1
        self.least = self.manifest["sync_seconds_at_least"]
        self.ring = 2 * (self.size - 1) / self.size * self.gradients  # bytes that a rank sends
        self.tree = math.log2(self.size) * self.gradients
        links = [each["link"][way] for each in self.manifest["ranks"] if each["link"] for way in ("sent", "received")]
        self.link = min((each["measured_bytes_per_second"] for each in links), default=None)  # the slowest direction
        self.ranks = [Rank(self, rank) for rank in range(self.size)]
        for steps in Party(self, self.ranks).together():
            if steps[0]["buckets"]:
                self._split_exposed(steps)
        self.parties = {None: Party(self, self.ranks)} | {rank.number: Party(self, [rank]) for rank in self.ranks}

    def _split_exposed(self, steps: Sequence[Json]) -> None:
        """A rank waits until the last one has its last bucket ready, and before forward for rank 0's buffers."""
        ready = [rank.messages(step, "buckets")[-1][0] for rank, step in zip(self.ranks, steps, strict=True)]
        buffers = [rank.messages(step, "buffers") for rank, step in zip(self.ranks, steps, strict=True)]
        for step, own_ready, own in zip(steps, ready, buffers, strict=True):
            waited = min(max(ready) - own_ready, step["exposed_sync_seconds"] - sum(end - begin for begin, end in own))
            for (begin, end), (sent, _) in zip(own, buffers[0], strict=True):
                waited += min(max(sent - begin, 0), end - begin)
            step |= {"wait_seconds": waited, "sync_seconds": step["exposed_sync_seconds"] - waited}


Reference = Callable[[Party], Any]


def of_ranks(of: Callable[[Rank], Any], p: Party) -> float | None:
    """The mean over ranks, unless one lacks it."""
    each = [of(rank) for rank in p.ranks]
    return None if None in each else float(np.mean(each))


def of_time(name: str, statistic: Callable[[list[float]], Any], p: Party) -> float | None:
    there = known(step[name] for step in p.warm)
    return float(statistic(there)) if there else None


def mean_of(name: str, which: str, p: Party) -> float | None:
    return mean(step[name] for step in getattr(p, which))


def sent_excess(p: Party) -> float | None:
    more = divided(mean_of("interface_bytes_sent", "warm", p), mean_of("bytes_sent", "steps", p))
    return None if more is None else more - 1


def share(phase: str, p: Party) -> float | None:
    steps = [step for step in p.warm if step["wait_seconds"] is not None] or p.warm
    parts = known(step[f"{phase}_seconds"] for step in steps)
    return divided(sum(parts), sum(step["seconds"] for step in steps)) if parts else None


def account(name: str, phase: str, p: Party) -> float | None:
    return mean(step[name][phase] for step in p.warm if step.get("cpu_seconds") and step[name])


def account_share(name: str, p: Party) -> float | None:
    steps = [step for step in p.warm if step.get("cpu_seconds") and step[name]]
    delayed = sum(sum(known(step[name].values())) for step in steps)
    return delayed / sum(step["seconds"] for step in steps) if steps else None


def images_per_second(p: Party) -> float | None:
    """By wall clock, without the time in which no rank trained, because all evaluated, saved or restarted."""
    steps = p.together("warm")
    ends = [(min(begin for begin, _ in s), max(end for _, end in s)) for s in map(p.spans, steps)]
    apart = []
    for (before, (_, ended)), (after, (began, _)) in pairwise(zip(steps, ends, strict=True)):
        if before[0]["attempt"] != after[0]["attempt"]:
            apart.append((ended, began))
    for kind, key, last in (("evaluation", "epoch", steps[-1][0]["epoch"]), ("checkpoint", "step", math.inf)):
        for number in {each[key] for each in p.ranks[0].of(kind) if each[key] <= last}:
            spans = p.spans([next(e for e in rank.of(kind)[::-1] if e[key] == number) for rank in p.ranks])
            apart.append((max(begin for begin, _ in spans), min(end for _, end in spans)))
    (began, _), (_, ended) = ends[0], ends[-1]
    taken = ended - began - covered((max(begin, began), min(end, ended)) for begin, end in apart)
    return divided(sum(step["samples"] for each in steps for step in each), taken)


def scores(name: str, p: Party, epoch: int = -1) -> Any:
    """Of an epoch, or of the last one."""
    at = sorted({step["epoch"] for step in p.steps})[epoch]
    tests = [rank.evaluations[epoch] for rank in p.ranks if rank.evaluations]
    if key := {"test_loss": "loss", "accuracy": "accuracy"}.get(name):
        return mean(each[key] for each in tests)
    return score(step for step in p.steps if step["epoch"] == at)[name]


@cache
def student(tail: float, degrees: float) -> float:
    """Student's quantile, from the area below his density."""
    x = np.linspace(0, 20, 400_001)
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    density = scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
    area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * (x[1] - x[0]))])
    return float(np.interp(0.5 - tail, area, x))


def link_utilisation(way: str, rank: Rank) -> float | None:
    payload = mean(step[f"bytes_{way}"] for step in rank.steps if step["bytes_sent"] or step["bytes_received"])
    speed = rank.place["link"] and rank.place["link"][way]["measured_bytes_per_second"]
    return divided(divided(payload, rank.run.parties[None].transfer), speed)


def used(name: str, rank: Rank) -> float | None:
    amounts = [sample[name] for sample in rank.of("usage")]
    return sum(amounts) if amounts and None not in amounts else None


def first_step(name: str, rank: Rank) -> Any:
    return rank.steps[0][name]


def busy(name: str, when: str, by: str | int, rank: Rank) -> float | None:
    """Each sample counts for its seconds, or for as long as it overlaps with warm steps."""
    samples, steps = rank.of("usage"), rank.warm
    weights = np.array([each["seconds"] for each in samples])
    if when == "in training":
        end, begin = ([s["at_seconds"] - k * s["seconds"] for s in samples] for k in (0, 1))
        at, until = ([s["at_seconds"] + k * s["seconds"] for s in steps] for k in (0, 1))
        weights = np.clip(np.minimum.outer(end, until) - np.maximum.outer(begin, at), 0, None).sum(1)
    used = float(np.average([each[name] for each in samples], weights=weights)) if weights.any() else None
    return divided(used, rank.place[by] if isinstance(by, str) else by)


def passed(way: str, rank: Rank) -> float | None:
    counted = [step[f"interface_bytes_{way}"] for step in rank.warm]
    return None if None in counted else divided(sum(counted), sum(step["seconds"] for step in rank.warm))


def busiest_rank(p: Party) -> str | None:
    own = p.sent
    most = [str(rank) for rank, each in enumerate(own) if each >= max(own) - 1]
    named = "all alike" if len(most) == len(own) else f"rank {', '.join(most)}"
    return named if len(own) > 1 and max(own) > 0 else None


def formula_bytes(p: Party) -> float:
    formulas = [rank.place["formula_bytes_sent_per_step"] for rank in p.ranks]
    return float(np.mean(formulas)) * len(p.due(p.steps)) / len(p.steps)


def of_epoch(of: Reference, p: Party) -> float | None:
    own = of(p)
    return None if own is None else own * p.run.manifest["plan"]["steps_per_epoch"]


def mean_seconds_to(count: int, p: Party) -> float | None:
    enough = all(len(rank.steps) >= count for rank in p.ranks)
    return mean(step["seconds"] for rank in p.ranks for step in rank.steps[1:count]) if enough else None


def seconds_to_loss(loss: float, p: Party) -> float | None:
    """Until the end of the first ten steps whose mean loss is at most this."""
    reached = np.flatnonzero(np.convolve(p.losses, np.ones(10) / 10, "valid") <= loss)
    if not len(reached):
        return None
    first, last = (p.spans(p.together()[place]) for place in (0, reached[0] + 9))
    return max(end for _, end in last) - min(begin for begin, _ in first)


OF_RANK: dict[str, Callable[[Rank], Any]] = {
    "rank": lambda rank: rank.number,
    "steps": lambda rank: len(rank.steps),
    "work_seconds": lambda rank: np.median([own_work(step) for step in rank.warm]),
    "peak_memory_bytes": lambda rank: rank.finished["peak_memory_bytes"],
    "usage.seconds": partial(used, "seconds"),
    "usage.throttled_seconds": partial(used, "throttled_seconds"),
    "usage.most_memory_bytes": lambda rank: max((each["memory_bytes"] for each in rank.of("usage")), default=None),
    "usage.network_sent_bytes_per_second": lambda r: divided(used("network_sent_bytes", r), used("seconds", r)),
    "usage.network_received_bytes_per_second": lambda r: divided(used("network_received_bytes", r), used("seconds", r)),
    "interface_bytes_sent_per_second": partial(passed, "sent"),
    "interface_bytes_received_per_second": partial(passed, "received"),
    "link.sent_utilisation": partial(link_utilisation, "sent"),
    "link.received_utilisation": partial(link_utilisation, "received"),
    "cpus": lambda rank: rank.place["fair_share_cpus"],
}
for way in ("user", "system"):
    OF_RANK[f"usage.cpu_{way}_percent"] = partial(busy, f"cpu_{way}_percent", "all of the time", 1)
    OF_RANK[f"cpu_{way}_percent"] = partial(busy, f"cpu_{way}_percent", "in training", 1)
    OF_RANK[f"node_{way}_percent"] = partial(busy, f"cpu_{way}_percent", "in training", "fair_share_cpus")
for name in ("seconds", *(f"{phase}_seconds" for phase in PHASES)):
    OF_RANK[f"first_step.{name}"] = partial(first_step, name)

REFERENCE: dict[str, Reference] = {
    **{name: partial(of_ranks, of) for name, of in OF_RANK.items()},
    "images_per_second": images_per_second,
    "formula_bytes_sent_per_step": formula_bytes,
    "sent_kernel_over_counted": sent_excess,
    "loss": lambda p: p.losses[-1],
    "clock_uncertainty_seconds": lambda p: max(
        (each["uncertainty_seconds"] for rank in p.ranks[1:] for each in rank.of("clock")), default=None
    ),
    "bandwidth.sync_seconds": lambda p: p.transfer,
    "bandwidth.sync_seconds_at_least": lambda p: p.run.least if p.transfer else None,
    "bandwidth.utilisation": lambda p: divided(p.run.least, p.transfer),
    "bandwidth.algorithm_bytes_per_second": lambda p: divided(p.run.gradients, p.transfer),
    "bandwidth.bus_bytes_per_second": lambda p: divided(p.run.ring, p.transfer),
    "bandwidth.link_bytes_per_second": lambda p: p.run.link if p.transfer else None,
    "last_batch_samples": lambda p: sum(step["samples"] for step in p.together()[-1]),
    "buckets_per_step": lambda p: mean(len(step["buckets"]) for step in p.steps if step["buckets"]),
    "wire_rounding_error": partial(mean_of, "wire_rounding_error", "steps"),
    "warm_steps": lambda p: min(len(rank.warm) for rank in p.ranks),
    "first_step_seconds": lambda p: max(rank.steps[0]["seconds"] for rank in p.ranks),
    "training_seconds": lambda p: max(rank.finished["seconds"] for rank in p.ranks),
    "communication_share": lambda p: divided(p.seconds("wait", "sync"), mean(step["seconds"] for step in p.warm)),
    "hidden_share": lambda p: divided(p.seconds("hidden_sync"), p.seconds("hidden_sync", "sync")),
    "gradient_bytes": lambda p: p.run.gradients,
    "bytes_sent_in_all": lambda p: sum(p.sent),
    "sent_in_gradients": lambda p: sum(p.sent) / p.run.gradients,
    "busiest_rank": busiest_rank,
    "busiest_bytes_sent": lambda p: max(p.sent),
    "busiest_in_gradients": lambda p: max(p.sent) / p.run.gradients,
    "bytes_sent_per_second": lambda p: float(np.mean(p.sent)) / np.mean([s["seconds"] for s in p.warm]) or None,
    "sync_over_least": lambda p: divided(p.transfer, p.run.least),
    "bus_of_link": lambda p: divided(divided(p.run.ring, p.transfer), p.run.link),
    "all_links_bytes_per_second": lambda p: divided(p.run.size * p.run.ring, p.transfer),
    "all_links_of_link": lambda p: divided(divided(p.run.size * p.run.ring, p.transfer), p.run.link),
    "ring_seconds": lambda p: divided(p.run.ring, p.run.link) if p.transfer else None,
    "tree_seconds": lambda p: divided(p.run.tree, p.run.link) if p.transfer else None,
    "long_run_seconds": lambda p: p.long_run,
    "computing_seconds": lambda p: p.computing,
    "averaging_seconds": lambda p: p.averaging,
    "averaging_share_seconds": lambda p: divided(p.averaging, p.run.every),
    "computing_share": lambda p: divided(p.computing, p.long_run),
    "steps_per_epoch": partial(of_epoch, lambda p: 1),
    "epoch_seconds": partial(of_epoch, partial(of_time, "seconds", np.median)),
    "epoch_computing_seconds": partial(of_epoch, lambda p: p.seconds(*COMPUTING)),
    "epoch_communication_seconds": partial(of_epoch, lambda p: p.seconds("wait", "sync")),
    "epoch_hidden_seconds": partial(of_epoch, lambda p: p.seconds("hidden_sync")),
    "epoch_bytes_per_second": lambda p: divided(p.run.gradients, of_epoch(lambda p: p.seconds("wait", "sync"), p)),
    "mean_seconds_to(4)": partial(mean_seconds_to, 4),
    "mean_seconds_to(40)": partial(mean_seconds_to, 40),
    "seconds_to_loss(2)": partial(seconds_to_loss, 2),
    "seconds_to_loss(1e-9)": partial(seconds_to_loss, 1e-9),
}
for name in (*TIMES, "batch_norm_seconds", "throttled_seconds"):
    REFERENCE |= {f"{name}.{which}": partial(of_time, name, each) for which, each in STATISTICS.items()}
    REFERENCE[name] = partial(of_time, name, np.median)
for phase in PHASES:
    REFERENCE[f"shares.{phase}"] = partial(share, phase)
    for name in ("cpu_seconds", "no_core_seconds", "quota_seconds"):
        REFERENCE[f"processor.{name}.{phase}"] = partial(account, name, phase)
for name in ("no_core", "quota"):
    REFERENCE[f"processor.{name}"] = partial(account_share, f"{name}_seconds")
for name in ("bytes_sent", "bytes_received", "batch_norm_bytes_sent"):
    REFERENCE[f"{name}_per_step"] = partial(mean_of, name, "steps")
for name in ("interface_bytes_sent", "interface_bytes_received"):
    REFERENCE[f"{name}_per_step"] = partial(mean_of, name, "warm")
for name in ("training_samples", "training_loss", "training_accuracy", "test_loss", "accuracy"):
    REFERENCE[name] = partial(scores, name)


def over_rounds(runs: Sequence[Run], name: str, rank: int | None = None) -> Any:
    """The median over runs; None if one of them lacks it. Of a text or a flag, the first run's."""
    values = [REFERENCE[name](run.parties[rank]) for run in runs]
    if isinstance(values[0], str | bool):
        return values[0]
    return None if None in values else float(np.median(values))


Ends = tuple[float, float | None, float | None]  # a value and its interval


class Repeats:
    """One measure of cells by round, None where a run is missing: by ratio, or by difference."""

    def __init__(self, measured: Mapping[str, Sequence[float | None]], *, ratios: bool) -> None:
        self._back: Callable[[float], float] = math.exp if ratios else float
        into: Callable[[float], float] = math.log if ratios else float
        self.values = {cell: {n: into(v) for n, v in enumerate(own) if v is not None} for cell, own in measured.items()}

    def own(self, cell: str) -> Ends:
        """The median over rounds; around the mean, an interval whose spread is that of all cells' repeats."""
        own = [*self.values[cell].values()]
        middle = float(np.median([self._back(each) for each in own]))
        degrees = sum(len(each) - 1 for each in self.values.values())
        if not degrees:
            return middle, None, None
        within = sum(float(np.var([*each.values()])) * len(each) for each in self.values.values()) / degrees
        margin = student(0.025, degrees) * math.sqrt(within / len(own))
        low, high = (self._back(float(np.mean(own)) + sign * margin) for sign in (-1, 1))
        return middle, min(middle, low), max(middle, high)

    def compared(self, cell: str, other: str) -> Ends:
        """By least squares over cells and rounds, so that what a whole round has in common drops out."""
        cells, rounds = [*self.values], sorted({n for own in self.values.values() for n in own})
        rows = [(c, n, value) for c, own in self.values.items() for n, value in own.items()]
        design = np.array(
            [[*(c == each for each in cells), *(n == each for each in rounds)] for c, n, _ in rows], float
        )
        values = np.array([value for *_, value in rows])
        effects, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
        contrast = np.array([float(each == cell) - float(each == other) for each in [*cells, *rounds]])
        value, degrees = float(contrast @ effects), len(rows) - int(rank)
        if not degrees:
            return self._back(value), None, None
        variance = float(((values - design @ effects) ** 2).sum()) / degrees
        error = math.sqrt(variance * float(contrast @ np.linalg.pinv(design.T @ design) @ contrast))
        margin = student(0.025, degrees) * error
        return self._back(value), self._back(value - margin), self._back(value + margin)
