"""`benchmark step` for people: ratios, a table for the terminal, the rows of the README; all from its file."""

from collections.abc import Iterator, Mapping
from statistics import mean, median
from typing import Any

from app.tools.benchmark.ratios import Middle
from app.tools.benchmark.setups import COUNTERPARTS, COURSE_DDP, FLOOR, TUNED, BenchmarkSetup

MEANINGS = """\
s/step       median over the rounds, from the first rank's start to the last rank's end (90 % interval)
CPU s        CPU seconds per step, summed over the processes of all ranks
/ course     divided by the course script's matching configuration, else by its DDP: median of the rounds' ratios
/ none       divided by `none`, the baseline without synchronisation: the cost of synchronisation
compute, wire  least time of the arithmetic at the cores' matrix product rate, and of the bytes on the measured links,
             as a percentage of the step"""


def ratios(setups: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every set-up by what it is compared with, as far as both were measured."""
    seconds = {name: each["seconds"] for name, each in setups.items()}
    return [
        {"of": of, "against": against, **vars(Middle.of_ratios(seconds[of], seconds[against]))}
        for of, against in dict.fromkeys(_pairs(setups))
        if of in seconds and against in seconds
    ]


def _pairs(setups: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for setup in map(BenchmarkSetup, setups):
        if setup.name == TUNED:
            yield setup.name, COURSE_DDP
        if not setup.of_the_house:
            continue
        if setup.name in COUNTERPARTS:
            yield setup.name, COUNTERPARTS[setup.name]
        if setup.synchronises:
            yield setup.name, COURSE_DDP
            if "PRECISION" not in setup.given:  # the floor computes in fp32
                yield setup.name, FLOOR
    for exact in (True, False):
        if fastest := fastest_of(setups, exact=exact):
            yield fastest, TUNED


def fastest_of(setups: Mapping[str, Mapping[str, Any]], *, exact: bool) -> str | None:
    """Our fastest set-up that synchronises; with `exact`, of those that compute and send in fp32."""
    ours = [name for name in setups if BenchmarkSetup(name).of_the_house and BenchmarkSetup(name).synchronises]
    names = [name for name in ours if setups[name]["exact"] or not exact]
    return min(names, key=lambda name: median(setups[name]["seconds"])) if names else None


def text(outcome: dict[str, Any]) -> str:
    """The table of a terminal, and what its columns mean."""
    setups, found = outcome["setups"], _by_pair(outcome)
    width = max(len("configuration"), *map(len, setups))
    lines = [
        f"\n{outcome['model']}, {outcome['world_size']} ranks, {outcome['global_batch_size']} images a step, "
        f"{outcome['options']['rounds']} rounds of {outcome['options']['steps']} steps",
        f"{'configuration':<{width}}  {'s/step':<21} {'CPU s':>6}   {'/ course':<21} {'/ none':<21} "
        f"{'compute':>7} {'wire':>5}",
    ]
    for name, each in setups.items():
        middle, cpu_seconds = Middle(**each["median_seconds"]), each["median_cpu_seconds"]["value"]
        against_course = _shown(found, name, COUNTERPARTS.get(name, COURSE_DDP))
        lines.append(
            f"{name:<{width}}  {f'{middle.value:.3f}{_range(middle)}':<21} {cpu_seconds:>6.2f}   "
            f"{against_course:<21} {_shown(found, name, FLOOR):<21} "
            f"{_part(each['compute_bound_seconds'], middle.value):>7} "
            f"{_part(each['wire_bound_seconds'], middle.value):>5}"
        )
    return "\n".join([*lines, *_conclusions(outcome, found), "", MEANINGS])


def _conclusions(outcome: dict[str, Any], found: dict[tuple[str, str], Middle]) -> Iterator[str]:
    for what, exact in (("fastest exact fp32 configuration", True), ("fastest configuration", False)):
        fastest = fastest_of(outcome["setups"], exact=exact)
        for against, title in (
            (COURSE_DDP, "the course script's DDP"),
            (TUNED, "the hand-tuned DDP"),
            (FLOOR, "the baseline without synchronisation"),
        ):
            if fastest is not None and (fastest, against) in found:
                yield f"{what}, {fastest}, / {title}: {found[fastest, against]}"


def rows(outcome: dict[str, Any]) -> str:
    """The table of the README, in Markdown: our set-ups, phases in seconds."""
    found = _by_pair(outcome)
    lines = [
        "| configuration | s/step | course script | ratio | / none | forward | backward | wait | sync | hidden "
        "| MB sent per step by rank | replicas |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, each in outcome["setups"].items():
        setup = BenchmarkSetup(name)
        if not setup.of_the_house:
            continue
        course = COUNTERPARTS.get(name, "")
        other = outcome["setups"].get(course)
        cells = [
            f"`{name.replace('+', ' ')}`",
            f"{each['median_seconds']['value']:.2f}",
            f"{other['median_seconds']['value']:.2f}" if other else "-",
            _shown(found, name, course),
            _shown(found, name, FLOOR),
            *(_phase(each["phases"], phase) for phase in ("forward", "backward", "wait", "sync", "hidden_sync")),
            _megabytes(each["bytes_sent_by_rank"]),
            {True: "bitwise the same", False: "drift apart", None: "-"}[each["replicas_identical"]],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_pair(outcome: dict[str, Any]) -> dict[tuple[str, str], Middle]:
    return {
        (each["of"], each["against"]): Middle(each["value"], each["low"], each["high"], each["rounds"])
        for each in outcome["ratios"]
    }


def _shown(found: dict[tuple[str, str], Middle], of: str, against: str) -> str:
    return str(found[of, against]) if (of, against) in found else "-"


def _range(middle: Middle) -> str:
    return "" if middle.low is None or middle.high is None else f" ({middle.low:.2f} to {middle.high:.2f})"


def _part(bound: float | None, seconds: float) -> str:
    return "-" if bound is None else f"{bound / seconds:.0%}"


def _phase(ranks: list[dict[str, float | None]], phase: str) -> str:
    """The mean over the ranks. What a mode hides only in part stands under `sync` as what it does not hide."""
    values = [each["exposed_sync"] if phase == "sync" and each["sync"] is None else each[phase] for each in ranks]
    measured = [value for value in values if value is not None]
    return f"{mean(measured):.2f}" if len(measured) == len(values) else "-"


def _megabytes(by_rank: list[float]) -> str:
    each = [f"{value / 1e6:.1f}" for value in by_rank]
    return f"{each[0]} each" if len(set(each)) == 1 and len(each) > 1 else ", ".join(each)
