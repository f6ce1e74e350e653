"""A run's checkpoints, each committed by rank 0 once every rank's part is on disk.

Each rank writes its part and sends its checksum to the others. Rank 0 then writes all checksums to `commit.json`. A
step is therefore committed only if every rank's part is safe, and a rank removes an older part only once it knows that
a newer step is committed. No shared folder is needed: each rank reads its own parts, and rank 0 reads the commits.
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
UNCOMMITTED = "it is incomplete on another rank, or was not committed."


@dataclass(frozen=True)
class Found:
    """The checkpoint from which a rank resumes."""

    step: int  # steps taken
    state: State


class Keeper:
    """One rank's checkpoints. All ranks save and find together."""

    def __init__(self, cluster: Cluster, run_folder: Path, attempt: int) -> None:
        self._cluster, self._folder, self._attempt = cluster, run_folder / STATES, attempt
        self._run = run_folder.name
        self._committed: list[int] = []  # the steps, oldest first, as far as this rank knows

    @property
    def newest(self) -> int | None:
        """The newest step that this rank knows to be saved, from which a run resumes."""
        return self._committed[-1] if self._committed else None

    def save(self, step: int, state: State) -> int:
        """Save the state after this many steps, and return the bytes of its tensors."""
        folder = self._of(step)
        folder.mkdir(parents=True, exist_ok=True)
        keep_names(self._folder)
        label = self._label(step)
        own = {"run": self._run, "attempt": self._attempt, "step": step, "sha256": part.write(folder, label, state)}
        saved = self._cluster.exchange("checkpoint", own)
        if any(each | {"sha256": ""} != own | {"sha256": ""} for each in saved):
            message = f"internal error, please report: rank {self._cluster.rank}: ranks differ in step or run: {saved}"
            raise LockstepError(message, "internal-error")
        # All ranks are here, so rank 0 has written the previous commit. The previous step is kept as well, in case the
        # newest one is damaged.
        for old in self._committed[:-1]:
            self._remove(old)
        self._committed = [*self._committed[-1:], step]
        if self._cluster.rank == CENTRE:
            parts = [each["sha256"] for each in saved]
            write_durably(folder / COMMIT, seal({"label": asdict(label), "parts": parts}))
        return sum(tensor.nbytes for tensor in state.tensors.values())

    def settle(self) -> None:
        """Wait until rank 0 has committed the last state."""
        self._cluster.exchange("last checkpoint", self._committed)

    def finish(self) -> None:
        """Mark the training as finished, and keep only the last state."""
        self.settle()
        if self._cluster.rank == CENTRE:
            (self._folder / FINISHED).touch()
        for old in self._committed[:-1]:
            self._remove(old)

    def find(self, warn: Callable[[str], None]) -> Found | None:
        """The newest committed step that is intact on every rank. Newer or damaged ones are set aside."""
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
                warn(f"rank {self._cluster.rank}: unusable checkpoint of step {step}, moved to {SET_ASIDE}/: {reason}")
                part.move(self._of(step), self._cluster.rank, self._folder / SET_ASIDE)
            self._remove(step)
        self._committed = whole
        return Found(whole[-1], part.read(self._of(whole[-1]), self._cluster.rank)) if whole else None

    def _held(self) -> tuple[dict[str, str], dict[int, str]]:
        """This rank's parts, by step: the checksums of intact ones, and the faults of the others."""
        whole, damaged = dict[str, str](), dict[int, str]()
        for step in self._steps():
            if part.exists(self._of(step), self._cluster.rank):
                try:
                    whole[str(step)] = part.checksum(self._of(step), self._label(step))
                except DamagedError as error:
                    damaged[step] = str(error)
        return whole, damaged

    def _commits(self) -> dict[str, list[str]]:
        """The committed checksums of all ranks' parts, by step."""
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
            (folder / COMMIT).unlink(missing_ok=True)  # first, because a commit is useless without its parts
        part.remove(folder, self._cluster.rank)
        with suppress(OSError):  # another rank still has a part there
            folder.rmdir()
