"""The tables of `benchmark step`: each configuration's time and ratios, and the phases of Lockstep's own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any

from app.analysis.units import TEXT, Unit, Value
from app.pages.table import Column, Table
from app.pages.written import on_terminal
from app.tools.benchmark.ratios import Middle
from app.tools.benchmark.setups import COUNTERPARTS, COURSE_DDP, FLOOR, TUNED, BenchmarkSetup

Setups = Mapping[str, Mapping[str, Any]]  # by name, as in the results file
Shown = Mapping[tuple[str, str], str]  # ratios of pairs of them

PLACES = Unit(lambda value: f"{value:.2f}")
SHARE = Unit(lambda value: f"{value:.0%}")
PHASES = ("forward", "backward", "wait", "sync", "hidden_sync")

COSTS = [("configuration", TEXT), ("s/step", TEXT), ("CPU s", PLACES), ("/ course", TEXT), ("/ none", TEXT)]
BOUNDS = [("compute", SHARE), ("wire", SHARE)]
TIMES = [(phase, PLACES) for phase in ("forward", "backward", "wait", "sync", "hidden")]
PARTS = [("configuration", TEXT), *TIMES, ("MB sent per step by rank", TEXT), ("parameters", TEXT)]
MEANINGS = """\
s/step       median over the rounds, from the first rank's start to the last rank's end (90 % interval)
CPU s        CPU seconds per step, summed over the processes of all ranks
/ course     divided by the course script's matching configuration, else by its DDP: median of the rounds' ratios
/ none       divided by `none`, the baseline without synchronisation: the cost of synchronisation
compute, wire  least time of the arithmetic at the cores' matrix product rate, and of the bytes on the measured links,
             as a percentage of the step
forward to hidden  mean seconds over the ranks; sync holds up the step, hidden overlaps with backward"""


def in_columns(headings: Iterable[tuple[str, Unit]], rows: Iterable[Sequence[Value]]) -> str:
    columns = [Column(heading, heading, unit, str) for heading, unit in headings]
    return on_terminal(Table("", "", columns, [list(row) for row in rows], ""))


def ratios(setups: Setups) -> dict[tuple[str, str], Middle]:
    """Each configuration divided by those that it is compared with, where both were measured."""
    seconds = {name: each["seconds"] for name, each in setups.items()}
    return {
        (of, against): Middle.of_ratios(seconds[of], seconds[against])
        for of, against in _pairs(setups)
        if of in seconds and against in seconds
    }


def _pairs(setups: Setups) -> Iterator[tuple[str, str]]:
    for setup in map(BenchmarkSetup, setups):
        if setup.name == TUNED:
            yield setup.name, COURSE_DDP
        if not setup.of_the_house:
            continue
        if setup.name in COUNTERPARTS:
            yield setup.name, COUNTERPARTS[setup.name]
        if setup.synchronises:
            yield setup.name, COURSE_DDP
            if "PRECISION" not in setup.given:  # the baseline computes in fp32
                yield setup.name, FLOOR
    for exact in (True, False):
        if fastest := fastest_of(setups, exact=exact):
            yield fastest, TUNED


def fastest_of(setups: Setups, *, exact: bool) -> str | None:
    """Lockstep's fastest configuration that synchronises; with `exact`, of those that compute and send in fp32."""
    ours = [name for name in setups if BenchmarkSetup(name).of_the_house and BenchmarkSetup(name).synchronises]
    names = [name for name in ours if setups[name]["exact"] or not exact]
    return min(names, key=lambda name: median(setups[name]["seconds"])) if names else None


def text(outcome: Mapping[str, Any]) -> str:
    setups = outcome["setups"]
    shown = {pair: str(ratio) for pair, ratio in ratios(setups).items()}
    title = (
        f"\n{outcome['model']}, {outcome['world_size']} ranks, {outcome['global_batch_size']} images a step, "
        f"{outcome['options']['rounds']} rounds of {outcome['options']['steps']} steps"
    )
    costs = in_columns([*COSTS, *BOUNDS], (_costs(name, each, shown) for name, each in setups.items()))
    own = [(name, each) for name, each in setups.items() if BenchmarkSetup(name).of_the_house]
    parts = ["", in_columns(PARTS, (_parts(*each) for each in own))] if own else []
    return "\n".join([title, costs, *_conclusions(setups, shown), *parts, "", MEANINGS])


def _costs(name: str, measured: Mapping[str, Any], shown: Shown) -> list[Value]:
    middle = Middle(**measured["median_seconds"])
    bounds = [measured[f"{bound}_bound_seconds"] for bound in ("compute", "wire")]
    return [
        name,
        f"{middle.value:.3f}{middle.shown_interval}",
        measured["median_cpu_seconds"]["value"],
        shown.get((name, COUNTERPARTS.get(name, COURSE_DDP))),
        shown.get((name, FLOOR)),
        *(None if bound is None else bound / middle.value for bound in bounds),
    ]


def _parts(name: str, measured: Mapping[str, Any]) -> list[Value]:
    sent = [f"{size / 1e6:.1f}" for size in measured["bytes_sent_by_rank"]]
    return [
        name,
        *(_phase(measured["phases"], phase) for phase in PHASES),
        f"{sent[0]} each" if len(set(sent)) == 1 and len(sent) > 1 else ", ".join(sent),
        {True: "bitwise the same", False: "drift apart", None: None}[measured["replicas_identical"]],
    ]


def _phase(ranks: Sequence[Mapping[str, float | None]], phase: str) -> float | None:
    """The mean over the ranks. A mode that overlaps with backward has no `sync`: its exposed part counts."""
    values = [each["exposed_sync"] if phase == "sync" and each["sync"] is None else each[phase] for each in ranks]
    measured = [value for value in values if value is not None]
    return mean(measured) if len(measured) == len(values) else None


def _conclusions(setups: Setups, shown: Shown) -> Iterator[str]:
    for what, exact in (("fastest exact fp32 configuration", True), ("fastest configuration", False)):
        fastest = fastest_of(setups, exact=exact)
        for against, title in (
            (COURSE_DDP, "the course script's DDP"),
            (TUNED, "the hand-tuned DDP"),
            (FLOOR, "the baseline without synchronisation"),
        ):
            if fastest is not None and (fastest, against) in shown:
                yield f"{what}, {fastest}, / {title}: {shown[fastest, against]}"
