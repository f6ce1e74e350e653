"""A run's checkpoints: what all ranks have brought to their disks, and rank 0 has then declared whole.

Each rank writes its part and tells the others its checksum. When all have told theirs, rank 0 writes `commit.json`,
which names them all. So a step is committed when every rank's part is safe; and a rank removes an older part only
after it has heard that a newer step is committed. No shared folder is needed: a rank reads its own parts, and rank 0
the commits.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE
from app.errors import DamagedError, LockstepError
from app.machine.durable import keep_names, seal, unseal, write_durably
from app.records.places import COMMIT, FINISHED, STATE, STATES
from app.training.checkpoint import part
from app.training.checkpoint.state import Label, State

SET_ASIDE = "set-aside"
UNCOMMITTED = "not every rank holds it whole, or it was never committed."


@dataclass(frozen=True)
class Found:
    """The state with which a rank goes on."""

    step: int  # so many steps had been taken
    state: State


class Keeper:
    """One rank's view of them. All ranks save and find together."""

    def __init__(self, cluster: Cluster, run_folder: Path, attempt: int) -> None:
        self._cluster, self._folder, self._attempt = cluster, run_folder / STATES, attempt
        self._run = run_folder.name
        self._committed: list[int] = []  # steps, oldest first, that this rank knows to be

    @property
    def newest(self) -> int | None:
        """The newest step that was saved, as far as this rank knows; a run goes on there."""
        return self._committed[-1] if self._committed else None

    def save(self, step: int, state: State) -> int:
        """Save the state after so many steps; returns the bytes of its tensors."""
        folder = self._of(step)
        folder.mkdir(parents=True, exist_ok=True)
        keep_names(self._folder)
        label = self._label(step)
        own = {"run": self._run, "attempt": self._attempt, "step": step, "sha256": part.write(folder, label, state)}
        told = self._cluster.exchange("checkpoint", own)
        if any(each | {"sha256": ""} != own | {"sha256": ""} for each in told):
            raise LockstepError(f"rank {self._cluster.rank}: the ranks save different steps or runs: {told}")
        # That all are here shows that rank 0 has written the commit before this one. With this one there are two: if
        # the newest is damaged, there is another.
        for old in self._committed[:-1]:
            self._remove(old)
        self._committed = [*self._committed[-1:], step]
        if self._cluster.rank == CENTRE:
            parts = [each["sha256"] for each in told]
            write_durably(folder / COMMIT, seal({"label": asdict(label), "parts": parts}))
        return sum(tensor.nbytes for tensor in state.tensors.values())

    def settle(self) -> None:
        """Wait until the last state is committed: until then rank 0 may still be at it."""
        self._cluster.exchange("last checkpoint", self._committed)

    def finish(self) -> None:
        """Keep the last state alone: the training has come to its end."""
        self.settle()
        if self._cluster.rank == CENTRE:
            (self._folder / FINISHED).touch()
        for old in self._committed[:-1]:
            self._remove(old)

    def find(self, warn: Callable[[str], None]) -> Found | None:
        """The newest committed step that every rank holds whole; what is newer, or damaged, is set aside."""
        own, damaged = self._held()
        held = self._cluster.exchange("checkpoints held", own)
        commits = self._cluster.exchange("commits", self._commits() if self._cluster.rank == CENTRE else {})[CENTRE]
        whole = sorted(
            int(step)
            for step, parts in commits.items()
            if len(parts) == len(held) and all(each.get(step) == sha for each, sha in zip(held, parts, strict=True))
        )
        for step in set(self._steps()).difference(whole):
            if reason := damaged.get(step) or (UNCOMMITTED if str(step) in own else None):
                warn(f"rank {self._cluster.rank}: its checkpoint of step {step} is set aside: {reason}")
                part.move(self._of(step), self._cluster.rank, self._folder / SET_ASIDE)
            self._remove(step)
        self._committed = whole
        return Found(whole[-1], part.read(self._of(whole[-1]), self._cluster.rank)) if whole else None

    def _held(self) -> tuple[dict[str, str], dict[int, str]]:
        """This rank's parts: the checksums of whole ones, and what is wrong with the others; both by step."""
        whole, damaged = dict[str, str](), dict[int, str]()
        for step in self._steps():
            if part.exists(self._of(step), self._cluster.rank):
                try:
                    whole[str(step)] = part.checksum(self._of(step), self._label(step))
                except DamagedError as error:
                    damaged[step] = str(error)
        return whole, damaged

    def _commits(self) -> dict[str, list[str]]:
        """The checksums of all ranks' parts, by step, that rank 0 has committed."""
        found = {}
        for step in self._steps():
            with suppress(OSError, DamagedError, LookupError, TypeError):
                content = unseal(self._of(step) / COMMIT)
                label = content["label"]
                if label == asdict(self._label(step)) | {"attempt": label["attempt"]}:
                    found[str(step)] = content["parts"]
        return found

    def _steps(self) -> Iterator[int]:
        for path in self._folder.glob(f"{STATE}*"):
            if path.name.removeprefix(STATE).isdecimal():
                yield int(path.name.removeprefix(STATE))

    def _label(self, step: int) -> Label:
        return Label(self._run, self._attempt, step, self._cluster.rank, self._cluster.world_size)

    def _of(self, step: int) -> Path:
        return self._folder / f"{STATE}{step}"

    def _remove(self, step: int) -> None:
        folder = self._of(step)
        if self._cluster.rank == CENTRE:
            (folder / COMMIT).unlink(missing_ok=True)  # first: without its parts it would be worth nothing
        part.remove(folder, self._cluster.rank)
        with suppress(OSError):  # another rank has a part there still
            folder.rmdir()


def is_unfinished(run_folder: Path) -> bool:
    """Whether the run has saved a state, and has not come to its end."""
    folder = run_folder / STATES
    return folder.is_dir() and not (folder / FINISHED).exists()


def newest_commit(run_folder: Path) -> int | None:
    """The newest step that rank 0 has committed, if its commit is whole; nothing else is looked at."""
    steps = []
    for path in (run_folder / STATES).glob(f"{STATE}*/{COMMIT}"):
        with suppress(OSError, DamagedError, LookupError, TypeError, ValueError):
            steps.append(int(unseal(path)["label"]["step"]))
    return max(steps, default=None)
