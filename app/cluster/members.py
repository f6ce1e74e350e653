"""The formed group: its members, how they share small values and leave, and which rank was lost."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import torch.distributed as dist

from app.cluster.roll_call import RollCall, await_keys
from app.errors import PeerLostError
from app.machine.cpus import Machine


@dataclass(frozen=True)
class Member:
    """One rank as the others see it."""

    rank: int
    name: str
    address: str
    interface: str  # the network interface that has this address
    threads: int
    machine: Machine

    @property
    def title(self) -> str:
        """This rank's name in messages."""
        return f"rank {self.rank} ({self.name}, {self.address})"


@dataclass(frozen=True)
class Cluster:
    """The formed group, seen from one of its ranks."""

    rank: int
    members: tuple[Member, ...]
    store: dist.Store
    roll_call: RollCall
    peer_timeout: float
    _turn: Iterator[int] = field(default_factory=count)  # numbers the exchanges: none may read another's values

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.members)

    @property
    def me(self) -> Member:
        """This rank."""
        return self.members[self.rank]

    def exchange[Value](self, subject: str, value: Value) -> list[Value]:
        """Share a small value and return all ranks', by rank; all ranks make the same exchanges in the same order."""
        place = f"{subject}/{next(self._turn)}"
        with self._needing_the_store():
            self.store.set(f"{place}/{self.rank}", json.dumps(value))
            if missing := self._absent(place, self.peer_timeout):
                raise self._loss(missing, f"sent no '{subject}' within PEER_TIMEOUT={self.peer_timeout:g} s")
            return [json.loads(self.store.get(f"{place}/{member.rank}")) for member in self.members]

    def leave(self) -> None:
        """Leave when all ranks are done; rank 0 goes last, because it holds the store that all use."""
        with self._needing_the_store():
            for farewell in ("done", "gone"):
                self.store.set(f"{farewell}/{self.rank}", "")
                if (farewell == "done" or self.rank == 0) and (missing := self._absent(farewell, self.peer_timeout)):
                    raise self._loss(
                        missing, f"did not finish within PEER_TIMEOUT={self.peer_timeout:g} s of rank {self.rank}"
                    )

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Do the work inside, then leave with the others; after a loss, stay until they have heard of it."""
        try:
            yield
            self.leave()
        except PeerLostError:
            self.linger()
            raise

    def find_lost(self) -> list[Member]:
        """After a failed operation: the ranks that are gone, not those that merely noticed."""
        return [self.members[rank] for rank in self.roll_call.find_lost()]

    def linger(self) -> None:
        """After a loss: rank 0 keeps the store open until the others have read who was lost."""
        if self.rank == 0:
            self.roll_call.let_others_read()

    @contextmanager
    def _needing_the_store(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._loss(
                self.members[:1], f"went away, and the store with it: {str(error).splitlines()[0]}"
            ) from error

    def _loss(self, lost: Sequence[Member], what: str) -> PeerLostError:
        names = ", ".join(member.title for member in lost)
        return PeerLostError(f"rank {self.rank}: {names} {what}.")

    def _absent(self, subject: str, seconds: float) -> list[Member]:
        keys = {f"{subject}/{member.rank}": member for member in self.members}
        return [keys[key] for key in await_keys(self.store, list(keys), time.monotonic() + seconds)]
