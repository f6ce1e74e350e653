"""The plan of a fault sweep: runs, faults and moments, all determined by a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from app.errors import SettingError
from app.machine.say import numbered, shown
from app.modes import MODES
from app.records.journal import path_of
from app.records.places import ATTEMPTS, COMMIT, FINISHED, STATE, STATES
from app.settings import environment
from app.settings.place import PlaceSettings
from app.tools.faults import sayings
from app.tools.faults.stranger import RUBBISH

MOST_TRIALS = 10_000
OVER_SECONDS = 10.0  # beyond its limit, within which a process must have exited
RECOVERY_SECONDS = 600  # for one run, including its recovery
RECORDS = path_of(Path(), 0).name
UNDISTURBED = "undisturbed-"

SMALL = {"MODEL": "lenet5", "DATASET": "digits", "WORKERS": "3"}
# Small runs without an end, with short time limits. The user's settings take precedence.
DEFAULTS = SMALL | {"EVALUATE": "never", "EPOCHS": "1000000", "LINK_CHECK": "off", "JOIN_TIMEOUT": "30"}
# Small runs with several epochs and checkpoints, from which ranks are killed.
KILL_DEFAULTS = SMALL | {
    "EPOCHS": "15",
    "CHECKPOINT_EVERY": "20",
    "JOIN_TIMEOUT": "60",
    "PEER_TIMEOUT": "20",
    "MAX_RESTARTS": "5",
}
NO_RECOVERY = {"CHECKPOINT_EVERY": "0", "MAX_RESTARTS": "0"}
LEAST_PEER_TIMEOUT, MOST_PEER_TIMEOUT = 5, 10

JOIN_SECONDS = 6.0  # about as long as a start, so that a fault strikes before, during or just after the join
PHASES = ("train", "train", "join", "end")  # training is the longest part of a run
MOST_STEPS_BEFORE, STEPS_OF_A_SHORT_RUN = 30, 40
LAST_STEPS, LAST_SECONDS = 10, 0.3  # injection takes tenths of a second, in which small runs take several steps
LEAST_BLINK, MOST_BLINK = 0.1, 0.45  # as shares of PEER_TIMEOUT

# The phases of a run in which ranks are killed, in words, and the longest delay after the file that begins each.
KILL_PHASES = {
    "join": ("during the join", 5.0),
    "links": ("during the join or link measurement", 2.5),
    "train": ("during training", 1.0),
    "evaluation": ("during evaluation", 0.03),
    "save": ("during a save", 0.06),
    "farewell": ("during shutdown", 0.2),
}
MOST_STATES = 3  # the last checkpoint for which a kill may wait
MOST_EPOCHS = 10  # the last epoch for which a kill may wait


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault, and the end that it must cause."""

    loses: bool  # whether the other ranks must lose this rank; otherwise the run must continue
    exit_code: int | None = None  # of the rank that it strikes
    says: str | None = None  # words that this rank must print


# scripts/faults explains them. scripts/host/faults.sh has a function for each, inject_KIND.
KINDS = {
    "kill": FaultKind(True, 137),
    "pause": FaultKind(True, 1, sayings.LATE),
    "blink": FaultKind(False),
    "disconnect": FaultKind(True, 1, sayings.CUT_OFF),
    "disk": FaultKind(True, 1, sayings.FULL),
    "stranger": FaultKind(False),
}
TWO = "two"  # two faults of AT_ONCE at the same time
AT_ONCE = ("kill", "pause", "disconnect")


@dataclass(frozen=True)
class Fault:
    """One fault, and the rank that it strikes."""

    kind: str
    rank: int
    seconds: float = 0.0  # its duration; 0 for a fault without an end
    rubbish: str = ""  # the kind of garbage that an untrusted peer sends

    @property
    def words(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"stranger ({self.rubbish})" if self.rubbish else f"{self.kind} rank {self.rank}{lasts}"


@dataclass(frozen=True)
class FaultMoment:
    """A delay after a file of the run exists and holds a number of steps, or without a file after the ranks' start."""

    phase: str
    words: str
    seconds: float = 0.0
    file: str = ""
    steps: int = 0
    epochs: int = 0  # instead of the number of steps, which only the undisturbed run's manifest tells


@dataclass(frozen=True)
class FaultTrial:
    """One run, and the faults that are injected into it."""

    faults: tuple[Fault, ...]
    moment: FaultMoment
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the trial and of its run."""
        return self.settings["RUN_NAME"]

    @property
    def mode(self) -> str:
        return self.settings["SYNC_MODE"]

    @property
    def recovers(self) -> bool:
        """Whether Docker restarts the ranks, so that the run must end as the undisturbed one."""
        return self.settings["MAX_RESTARTS"] != "0"

    @property
    def undisturbed(self) -> str:
        """The name of the run with which a run that recovers is compared."""
        return f"{UNDISTURBED}{self.mode}"

    @property
    def victims(self) -> frozenset[int]:
        """The ranks that all other ranks must report as lost."""
        return frozenset(fault.rank for fault in self.faults if KINDS[fault.kind].loses)

    @property
    def endless(self) -> bool:
        """Whether the run must take further steps after the fault, and not end."""
        return not self.recovers and not self.victims and not self.settings["MAX_STEPS"]

    @property
    def words(self) -> str:
        if self.recovers:
            return f"{numbered('rank', sorted(self.victims))} {self.moment.words}" if self.faults else "none"
        return " and ".join(fault.words for fault in self.faults)

    @property
    def in_full(self) -> str:
        """Its mode, its faults and their moment."""
        return f"{self.mode}, " + (f"killed: {self.words}" if self.recovers else f"{self.words}, {self.moment.words}")

    @cached_property
    def place(self) -> PlaceSettings:
        """The run's time limits and port."""
        return environment.of({name: value for name, value in self.settings.items() if value}).place

    @property
    def start_patience(self) -> float:
        """Seconds to wait for the moment, and for a run that must end by itself."""
        return RECOVERY_SECONDS if self.recovers else self.place.join_timeout + 2 * OVER_SECONDS

    @property
    def patience(self) -> float:
        """Seconds to wait for ranks that must exit: longer than the longest limit, so that a late exit is observed."""
        if self.recovers or not self.victims:
            return self.start_patience
        in_join = self.moment.phase == "join"
        return max(self.place.peer_timeout, self.place.join_timeout * in_join) + 2 * OVER_SECONDS


def make(
    seed: int,
    number: int,
    modes: Sequence[str] | None,
    given: Mapping[str, str],
    *,
    kinds: Sequence[str] | None = None,
    kills: bool = False,
) -> list[FaultTrial]:
    """Plan the trials: kinds in random rounds, modes in turn, everything else at random.

    With `kills`, runs must recover. Rounds are then of the phases in which ranks are killed, and an undisturbed run of
    each mode precedes its first kill.
    """
    settings = (KILL_DEFAULTS if kills else DEFAULTS) | dict(given)
    _check("--kills" if kills else "--trials", number, settings)
    turns = _known("--modes", modes, [*MODES]) or ([settings["SYNC_MODE"]] if "SYNC_MODE" in settings else [*MODES])
    of_a_round = [*KILL_PHASES] if kills else _chosen(kinds, int(settings["WORKERS"]) + 1)
    order = Random(f"{seed}")  # noqa: S311  # a plan, not a secret
    drawn = [each for _ in range(-(-number // len(of_a_round))) for each in order.sample(of_a_round, len(of_a_round))]
    plan: list[FaultTrial] = []
    for index, each in enumerate(drawn[:number]):
        mode = turns[index % len(turns)]
        own = settings | {"SYNC_MODE": mode, "RESUME": "never", "RUN_NAME": f"{UNDISTURBED}{mode}"}
        if kills and index < len(turns):
            plan.append(FaultTrial((), FaultMoment("", ""), own))
        own = own | {"RUN_NAME": f"{'kill' if kills else 'trial'}-{index + 1:03}"}
        chance = Random(f"{seed}/{index + 1}")  # noqa: S311
        plan.append(_kill(chance, each, own) if kills else _trial(chance, each, own))
    return plan


def _trial(chance: Random, kind: str, settings: Mapping[str, str]) -> FaultTrial:
    drawn = str(chance.randint(LEAST_PEER_TIMEOUT, MOST_PEER_TIMEOUT))
    own = {"PEER_TIMEOUT": drawn, "MAX_STEPS": ""} | dict(settings) | NO_RECOVERY
    moment = _moment(chance, int(own["MAX_STEPS"] or STEPS_OF_A_SHORT_RUN))
    if moment.phase == "end":
        own["MAX_STEPS"] = own["MAX_STEPS"] or str(STEPS_OF_A_SHORT_RUN)
    return FaultTrial(_faults(chance, kind, int(own["WORKERS"]) + 1, float(own["PEER_TIMEOUT"])), moment, own)


def _moment(chance: Random, last: int) -> FaultMoment:
    match phase := chance.choice(PHASES):
        case "join":
            seconds = round(chance.uniform(0, JOIN_SECONDS), 2)
            return FaultMoment(phase, f"{seconds:.1f} s after the start", seconds)
        case "train":
            step = chance.randint(1, max(1, min(MOST_STEPS_BEFORE, last - 1)))
            return FaultMoment(phase, f"after {step} steps", 0.0, RECORDS, step)
        case _:
            step = max(1, last - chance.randint(0, LAST_STEPS))
            seconds = round(chance.uniform(0, LAST_SECONDS), 2)
            return FaultMoment(phase, f"at the end, {seconds:.1f} s after {step} steps", seconds, RECORDS, step)


def _faults(chance: Random, kind: str, ranks: int, peer_timeout: float) -> tuple[Fault, ...]:
    rank = chance.randrange(ranks)
    match kind:
        case "two":
            first = chance.choice((0, rank))
            second = chance.choice([other for other in range(ranks) if other != first])
            return tuple(Fault(chance.choice(AT_ONCE), each) for each in (first, second))
        case "blink":
            return (Fault(kind, rank, round(chance.uniform(LEAST_BLINK, MOST_BLINK) * peer_timeout, 2)),)
        case "stranger":
            return (Fault(kind, 0, rubbish=chance.choice(sorted(RUBBISH))),)
        case _:
            return (Fault(kind, rank),)


def _kill(chance: Random, phase: str, settings: Mapping[str, str]) -> FaultTrial:
    """One, two or all ranks are killed at once."""
    ranks = range(int(settings["WORKERS"]) + 1)
    at_once = min(len(ranks), chance.choice((1, 1, 2, len(ranks))))
    faults = tuple(Fault("kill", rank) for rank in sorted(chance.sample(ranks, at_once)))
    words, longest = KILL_PHASES[phase]
    if phase == "evaluation":
        seconds = round(chance.uniform(0, longest), 3)
        return FaultTrial(
            faults, FaultMoment(phase, words, seconds, RECORDS, epochs=chance.randint(1, MOST_EPOCHS)), settings
        )
    state = f"{STATES}/{STATE}{int(settings['CHECKPOINT_EVERY']) * chance.randint(1, MOST_STATES)}"
    files = {"links": ATTEMPTS, "train": f"{state}/{COMMIT}", "save": state, "farewell": f"{STATES}/{FINISHED}"}
    moment = FaultMoment(phase, words, round(chance.uniform(0, longest), 3), files.get(phase, ""))
    return FaultTrial(faults, moment, settings)


def _check(option: str, number: int, settings: Mapping[str, str]) -> None:
    if not 1 <= number <= MOST_TRIALS:
        raise SettingError(f"invalid {option} '{number}'. Give 1 to {MOST_TRIALS}.", "invalid-argument")
    for name in ("RUN_NAME", "RESUME"):
        if name in settings:
            raise SettingError(f"{name} is set, but each trial starts its own run. Unset it.", "conflicting-settings")
    if problems := environment.problems(settings):
        raise SettingError("\n".join(problems.values()))
    needed = ("CHECKPOINT_EVERY", "MAX_RESTARTS") if option == "--kills" else ("WORKERS",)
    why = "makes recovery impossible" if option == "--kills" else "leaves no rank to detect a fault"
    for name in needed:
        if int(settings[name]) == 0:
            raise SettingError(f"{name}=0 {why}. Set it to 1 or more.")


def _chosen(named: Sequence[str] | None, ranks: int) -> list[str]:
    """The named kinds of faults; without names, every kind that this number of ranks allows."""
    all_kinds = [*KINDS, TWO]
    chosen = _known("--faults", named, all_kinds)
    if TWO in chosen and ranks <= 2:
        raise SettingError(f"--faults two needs WORKERS=2 or more, not WORKERS={ranks - 1}.", "conflicting-arguments")
    return chosen or [kind for kind in all_kinds if kind != TWO or ranks > 2]


def _known(option: str, named: Sequence[str] | None, allowed: Sequence[str]) -> list[str]:
    for name in named or ():
        if name not in allowed:
            raise SettingError(f"invalid {option} '{shown(name)}'. Choose from: {', '.join(allowed)}.", "unknown-name")
    return list(named or ())
