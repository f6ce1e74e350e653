"""The plan of a fault sweep: faults, runs and times, all determined by a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from app.errors import SettingError
from app.machine.say import shown
from app.modes import MODES
from app.settings import environment
from app.tools.faults import kinds
from app.tools.faults.kinds import KINDS, FaultKind
from app.tools.faults.stranger import RUBBISH

# Small runs without an end, with short time limits. The user's settings take precedence.
DEFAULTS = {
    "MODEL": "lenet5",
    "EVALUATE": "never",
    "EPOCHS": "1000000",
    "LINK_CHECK": "off",
    "JOIN_TIMEOUT": "30",
    "WORKERS": "3",
}
LEAST_PEER_TIMEOUT, MOST_PEER_TIMEOUT = 5, 10
OVER_SECONDS = 10.0  # beyond its limit, within which a process must have exited
MOST_TRIALS = 10_000

JOIN_SECONDS = 6.0  # about as long as a start, so that a fault strikes before, during or just after the join
PHASES = ("train", "train", "join", "end")  # training is the longest part of a run
MOST_STEPS_BEFORE, STEPS_OF_A_SHORT_RUN = 30, 40
LAST_STEPS, LAST_SECONDS = 10, 0.3  # injection takes tenths of a second, in which small runs take several steps
LEAST_BLINK, MOST_BLINK = 0.1, 0.45  # as shares of PEER_TIMEOUT


@dataclass(frozen=True)
class Fault:
    """One fault, and the rank that it strikes."""

    kind: str
    rank: int
    seconds: float = 0.0  # its duration; 0 for a fault without an end
    rubbish: str = ""  # the kind of garbage that an untrusted peer sends

    @property
    def of(self) -> FaultKind:
        return KINDS[self.kind]

    @property
    def words(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"stranger ({self.rubbish})" if self.rubbish else f"{self.kind} rank {self.rank}{lasts}"


@dataclass(frozen=True)
class FaultMoment:
    """The time at which the faults of a trial strike."""

    phase: str  # join, train or end
    step: int  # the number of steps that rank 0 must have recorded
    seconds: float  # after these steps, or during the join after the ranks have started

    @property
    def words(self) -> str:
        match self.phase:
            case "join":
                return f"{self.seconds:.1f} s after the start"
            case "train":
                return f"after {self.step} steps"
            case _:
                return f"at the end, {self.seconds:.1f} s after {self.step} steps"


@dataclass(frozen=True)
class FaultTrial:
    """One run, and the faults that are injected into it."""

    number: int  # from 1
    faults: tuple[Fault, ...]
    moment: FaultMoment
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the trial and of its run."""
        return f"trial-{self.number:03}"

    @property
    def victims(self) -> frozenset[int]:
        """The ranks that all other ranks must report as lost."""
        return frozenset(fault.rank for fault in self.faults if fault.of.loses)

    @property
    def words(self) -> str:
        return " and ".join(fault.words for fault in self.faults)

    @property
    def peer_timeout(self) -> float:
        """The run's PEER_TIMEOUT in seconds."""
        return float(self.settings["PEER_TIMEOUT"])

    @property
    def join_timeout(self) -> float:
        """The run's JOIN_TIMEOUT in seconds."""
        return float(self.settings["JOIN_TIMEOUT"])

    @property
    def port(self) -> int:
        """The port on which rank 0 listens for the join."""
        return environment.of({name: value for name, value in self.settings.items() if value}).place.master_port

    @property
    def patience(self) -> float:
        """Seconds to wait for ranks that must exit: longer than the longest limit, so that a late exit is observed."""
        longest = max(self.peer_timeout, self.join_timeout) if self.moment.phase == "join" else self.peer_timeout
        return longest + 2 * OVER_SECONDS


def make(
    seed: int, number: int, named: Sequence[str] | None, modes: Sequence[str] | None, given: Mapping[str, str]
) -> list[FaultTrial]:
    """Plan the trials: kinds in random rounds, modes in turn, everything else at random."""
    settings = DEFAULTS | dict(given)
    _check(number, settings)
    ranks = int(settings["WORKERS"]) + 1
    possible = [name for name in kinds.NAMES if name != kinds.TWO or ranks > 2]
    chosen = _known("--faults", named, kinds.NAMES) or possible
    if kinds.TWO in chosen and kinds.TWO not in possible:
        raise SettingError(f"--faults two needs WORKERS=2 or more, not WORKERS={ranks - 1}.", "conflicting-arguments")
    turns = modes_in_turn(modes, settings)
    order = Random(f"{seed}")  # noqa: S311  # a plan, not a secret
    rounds = [order.sample(chosen, len(chosen)) for _ in range(-(-number // len(chosen)))]
    return [
        _trial(seed, index + 1, kind, ranks, settings | {"SYNC_MODE": turns[index % len(turns)]})
        for index, kind in enumerate([kind for each in rounds for kind in each][:number])
    ]


def modes_in_turn(named: Sequence[str] | None, settings: Mapping[str, str]) -> list[str]:
    """The modes of a sweep: those named with --modes, else the SYNC_MODE that is set, else all."""
    own = [settings["SYNC_MODE"]] if "SYNC_MODE" in settings else list(MODES)
    return _known("--modes", named, tuple(MODES)) or own


def _trial(seed: int, number: int, kind: str, ranks: int, settings: Mapping[str, str]) -> FaultTrial:
    chance = Random(f"{seed}/{number}")  # noqa: S311
    drawn = str(chance.randint(LEAST_PEER_TIMEOUT, MOST_PEER_TIMEOUT))
    own = {"PEER_TIMEOUT": drawn, "MAX_STEPS": ""} | dict(settings) | {"RUN_NAME": f"trial-{number:03}"}
    moment = _moment(chance, own)
    if moment.phase == "end":
        own["MAX_STEPS"] = own["MAX_STEPS"] or str(STEPS_OF_A_SHORT_RUN)
    return FaultTrial(number, _faults(chance, kind, ranks, float(own["PEER_TIMEOUT"])), moment, own)


def _moment(chance: Random, settings: Mapping[str, str]) -> FaultMoment:
    last = int(settings["MAX_STEPS"] or STEPS_OF_A_SHORT_RUN)
    match chance.choice(PHASES):
        case "join":
            return FaultMoment("join", 0, round(chance.uniform(0, JOIN_SECONDS), 2))
        case "train":
            return FaultMoment("train", chance.randint(1, max(1, min(MOST_STEPS_BEFORE, last - 1))), 0.0)
        case _:
            step = max(1, last - chance.randint(0, LAST_STEPS))
            return FaultMoment("end", step, round(chance.uniform(0, LAST_SECONDS), 2))


def _faults(chance: Random, kind: str, ranks: int, peer_timeout: float) -> tuple[Fault, ...]:
    rank = chance.randrange(ranks)
    match kind:
        case kinds.TWO:
            first = chance.choice((0, rank))
            second = chance.choice([other for other in range(ranks) if other != first])
            return tuple(Fault(chance.choice(kinds.AT_ONCE), each) for each in (first, second))
        case "blink":
            return (Fault(kind, rank, round(chance.uniform(LEAST_BLINK, MOST_BLINK) * peer_timeout, 2)),)
        case "stranger":
            return (Fault(kind, 0, rubbish=chance.choice(sorted(RUBBISH))),)
        case _:
            return (Fault(kind, rank),)


def _check(number: int, settings: Mapping[str, str]) -> None:
    if not 1 <= number <= MOST_TRIALS:
        raise SettingError(f"invalid --trials '{number}'. Give 1 to {MOST_TRIALS}.", "invalid-argument")
    if "RUN_NAME" in settings:
        raise SettingError("RUN_NAME is set, but each trial names its own run. Unset it.", "conflicting-settings")
    if problems := environment.problems(settings):
        raise SettingError("\n".join(problems.values()))
    if int(settings["WORKERS"]) < 1:
        raise SettingError("WORKERS=0 leaves no rank to detect a fault. Set it to 1 or more.")


def _known(option: str, named: Sequence[str] | None, allowed: Sequence[str]) -> list[str]:
    for name in named or ():
        if name not in allowed:
            raise SettingError(f"invalid {option} '{shown(name)}'. Choose from: {', '.join(allowed)}.", "unknown-name")
    return list(named or ())
