"""What to try next, with the command that tries it: the first that has not been asked yet."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.errors import SettingError
from app.settings.link_rates import read_rate
from app.tools.prediction import cells
from app.tools.prediction.forecast import MOST_RANKS, VERIFIED_RANKS, Forecast
from app.tools.prediction.limits import HALF
from app.tools.prediction.names import RANKS, RATE

MODES = ("ring_all_reduce", "halving_doubling", "flat_all_reduce", "ddp", "all_reduce")
WORKERS = (1, 3, 7, 15, 31)
FASTER = 10  # times the rate
LARGER = 4  # times the batch


@dataclass(frozen=True)
class NextCommand:
    """A sentence, and the command."""

    sentence: str
    command: str


def advise(words: Sequence[str], options: Sequence[str], found: Sequence[Forecast]) -> NextCommand:
    """Of the same lists with one of them longer, or a run of what was predicted."""
    names = [word for word in words if "=" not in word]
    if names:
        why = f"These are predictions. scripts/verify makes the runs of {names[0]} and says how far they are apart."
        return NextCommand(why, shlex.join(["scripts/verify", names[0]]))
    lists = dict(word.split("=", 1) for word in words)
    for rule in (_other_modes, _more_ranks, _other_rates, _larger_batch):
        for sentence, change in rule(lists, found):
            asked = [f"{name}={value}" for name, value in (lists | change).items()]
            if _accepted(asked):
                return NextCommand(sentence, shlex.join(["scripts/predict", *options, *asked]))
    why = "These are predictions. scripts/verify holds this calibration against runs."
    return NextCommand(why, "scripts/verify cells --quick")


Rule = Callable[[dict[str, str], Sequence[Forecast]], Iterator[tuple[str, dict[str, str]]]]


def _other_modes(lists: dict[str, str], found: Sequence[Forecast]) -> Iterator[tuple[str, dict[str, str]]]:
    ways = {each.setup.settings.averaging.sync_mode for each in found}
    if len(ways) == 1 and max(each.setup.ranks for each in found) > 1:
        for modes in (MODES, MODES[:3]):  # what compresses fits no mode that hides
            both = ",".join(dict.fromkeys([*ways, *modes]))
            yield "All cells synchronise in the same way. Others may be faster.", {"SYNC_MODE": both}


def _more_ranks(lists: dict[str, str], found: Sequence[Forecast]) -> Iterator[tuple[str, dict[str, str]]]:
    given = lists.get(RANKS, "").split(",")
    most = max(each.setup.ranks for each in found)
    if len(given) == 1:
        longer = sorted({*WORKERS, most - 1})
        yield (
            f"All cells have {most} ranks. With others, the page shows where more stop paying.",
            {RANKS: ",".join(map(str, longer))},
        )
    elif most < MOST_RANKS and any(each.efficiency >= HALF for each in found if each.setup.ranks == most):
        longer = [min(4 * most, MOST_RANKS) - 1, min(16 * most, MOST_RANKS) - 1]
        yield (
            f"With {most} ranks, efficiency is still above a half. More may halve it.",
            {RANKS: ",".join([*given, *map(str, dict.fromkeys(longer))])},
        )


def _other_rates(lists: dict[str, str], found: Sequence[Forecast]) -> Iterator[tuple[str, dict[str, str]]]:
    rate = lists.get(RATE, "")
    if rate and "," not in rate:
        faster = f"{FASTER * read_rate(rate) / 1e6:g}mbit"
        yield "All links have one rate. Faster ones show how much of the step is theirs.", {RATE: f"{rate},{faster}"}


def _larger_batch(lists: dict[str, str], found: Sequence[Forecast]) -> Iterator[tuple[str, dict[str, str]]]:
    batches = {each.setup.settings.training.global_batch(each.setup.ranks) for each in found}
    computing = sum(each.bound == "computation" for each in found)
    if len(batches) == 1 and computing < len(found) / 2 and "BATCH_SIZE_PER_RANK" not in lists:
        size = batches.pop()
        yield (
            "Computation is less than the rest of most steps. A larger batch synchronises less for each image.",
            {"GLOBAL_BATCH_SIZE": f"{size},{LARGER * size}"},
        )


def _accepted(words: Sequence[str]) -> bool:
    try:
        cells.asked(words)
    except SettingError:
        return False
    return True


def after_verification(name: str, *, quick: bool, missing: int, holds: bool) -> NextCommand:
    """What makes it whole, or its predictions better, or use of them."""
    if missing:
        return NextCommand(f"{missing} runs are not finished. The same command resumes.", _verify(name, quick=quick))
    if quick:
        return NextCommand("This is the quick version: few cells, one run of each.", _verify(name, quick=False))
    if not holds:
        return NextCommand(
            "Calibrate once more, on a machine that does nothing else. Then discard these runs and make them again: "
            f"scripts/verify {name} --fresh.",
            "scripts/calibrate",
        )
    workers = ",".join(map(str, (*WORKERS[:3], 2 * VERIFIED_RANKS - 1)))
    return NextCommand(
        "Ask for what nobody has run.", f"scripts/predict WORKERS={workers} SYNC_MODE=ring_all_reduce,ddp"
    )


def _verify(name: str, *, quick: bool) -> str:
    return shlex.join(["scripts/verify", name, *(["--quick"] if quick else [])])
