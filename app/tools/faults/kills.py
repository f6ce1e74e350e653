"""The plan of kills from which runs must recover: ranks, runs and times, all determined by a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from app.errors import SettingError
from app.machine.say import numbered
from app.records.journal import path_of
from app.records.places import ATTEMPTS, COMMIT, FINISHED, STATE, STATES
from app.settings import environment
from app.tools.faults.plan import MOST_TRIALS, modes_in_turn

# Small runs with several epochs and checkpoints. The user's settings take precedence.
DEFAULTS = {
    "MODEL": "lenet5",
    "EPOCHS": "15",
    "CHECKPOINT_EVERY": "20",
    "JOIN_TIMEOUT": "60",
    "PEER_TIMEOUT": "20",
    "MAX_RESTARTS": "5",
    "WORKERS": "3",
}
PATIENCE_SECONDS = 600  # for one run, including its recovery
MOST_STATES = 3  # the last checkpoint for which a kill may wait
MOST_EPOCHS = 10  # the last epoch for which a kill may wait
MOST_TRIES = 4  # attempts at a kill that comes after its ranks have exited
LONGEST_START, LONGEST_EVALUATION, LONGEST_SAVE, LONGEST_FAREWELL = (
    5.0,
    0.03,
    0.06,
    0.2,
)  # bounds of random delays, in seconds
JOIN, LINKS, TRAIN, EVALUATION, SAVE, FAREWELL = "join", "links", "train", "evaluation", "save", "farewell"
MOMENTS = (JOIN, LINKS, TRAIN, EVALUATION, SAVE, FAREWELL)
WORDS = {
    JOIN: "during the join",
    LINKS: "during the join or link measurement",
    TRAIN: "during training",
    EVALUATION: "during evaluation",
    SAVE: "during a save",
    FAREWELL: "during shutdown",
}


@dataclass(frozen=True)
class KillMoment:
    """The time of a kill: a delay after a file of the run exists or, without a file, after the start of the ranks."""

    name: str
    file: str
    seconds: float
    epochs: int = 0  # the file must contain the steps of this many epochs

    def sooner(self, tries: int) -> float:
        """The delay after this many kills that came too late: half as long after each, and 0 in the last attempt."""
        return 0.0 if tries + 1 >= MOST_TRIES else round(self.seconds / 2**tries, 3)


@dataclass(frozen=True)
class Kill:
    """One run, and its ranks that are killed at the same time."""

    number: int  # from 1; 0 for an undisturbed run
    victims: tuple[int, ...]
    moment: KillMoment
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the trial and of its run."""
        return f"kill-{self.number:03}" if self.victims else self.undisturbed

    @property
    def undisturbed(self) -> str:
        """The name of the run with which this one is compared."""
        return undisturbed(self.settings["SYNC_MODE"])

    @property
    def words(self) -> str:
        return f"{numbered('rank', self.victims)} {WORDS[self.moment.name]}" if self.victims else "none"


def undisturbed(mode: str) -> str:
    """The name of the run with which the others of this mode are compared."""
    return f"undisturbed-{mode}"


def make(seed: int, number: int, modes: Sequence[str] | None, given: Mapping[str, str]) -> list[Kill]:
    """Plan the kills: moments in random rounds, modes in turn, everything else at random.

    An undisturbed run of each mode precedes its first kill.
    """
    settings = DEFAULTS | dict(given)
    _check(number, settings)
    turns = modes_in_turn(modes, settings)
    order = Random(f"{seed}")  # noqa: S311  # a plan, not a secret
    moments = [moment for _ in range(-(-number // len(MOMENTS))) for moment in order.sample(MOMENTS, len(MOMENTS))]
    plan: list[Kill] = []
    for index in range(number):
        mode = turns[index % len(turns)]
        own = settings | {"SYNC_MODE": mode, "RESUME": "never"}
        if index < len(turns):
            plan.append(Kill(0, (), KillMoment(TRAIN, "", 0.0), own | {"RUN_NAME": undisturbed(mode)}))
        plan.append(_kill(seed, index + 1, moments[index], own | {"RUN_NAME": f"kill-{index + 1:03}"}))
    return plan


def _kill(seed: int, number: int, name: str, settings: Mapping[str, str]) -> Kill:
    chance = Random(f"{seed}/{number}")  # noqa: S311
    ranks = range(int(settings["WORKERS"]) + 1)
    at_once = min(len(ranks), chance.choice((1, 1, 2, len(ranks))))
    victims = tuple(sorted(chance.sample(ranks, at_once)))
    return Kill(number, victims, _moment(chance, name, int(settings["CHECKPOINT_EVERY"])), settings)


def _moment(chance: Random, name: str, every: int) -> KillMoment:
    if name == EVALUATION:
        seconds = round(chance.uniform(0, LONGEST_EVALUATION), 3)
        return KillMoment(name, path_of(Path(), 0).name, seconds, chance.randint(1, MOST_EPOCHS))
    state = f"{STATES}/{STATE}{every * chance.randint(1, MOST_STATES)}"
    file, longest = {
        JOIN: ("", LONGEST_START),
        LINKS: (ATTEMPTS, LONGEST_START / 2),
        TRAIN: (f"{state}/{COMMIT}", 1.0),
        SAVE: (state, LONGEST_SAVE),
        FAREWELL: (f"{STATES}/{FINISHED}", LONGEST_FAREWELL),
    }[name]
    return KillMoment(name, file, round(chance.uniform(0, longest), 3))


def _check(number: int, settings: Mapping[str, str]) -> None:
    if not 1 <= number <= MOST_TRIALS:
        raise SettingError(f"invalid --kills '{number}'. Give 1 to {MOST_TRIALS}.", "invalid-argument")
    for name in ("RUN_NAME", "RESUME"):
        if name in settings:
            raise SettingError(f"{name} is set, but each trial starts its own run. Unset it.", "conflicting-settings")
    if problems := environment.problems(settings):
        raise SettingError("\n".join(problems.values()))
    for name in ("CHECKPOINT_EVERY", "MAX_RESTARTS"):
        if int(settings[name]) == 0:
            raise SettingError(f"{name}=0 makes recovery impossible. Set it to 1 or more.")
