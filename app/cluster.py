"""The formed group: what each rank knows of the others, how they leave, and who went first when one is lost."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from app.errors import PeerLost
from app.machine import Machine

DIAGNOSIS_SECONDS = 5.0


@dataclass(frozen=True)
class Member:
    """One rank as the others know it."""

    rank: int
    name: str
    address: str
    threads: int
    machine: Machine

    @property
    def title(self) -> str:
        """How messages call this rank."""
        return f"rank {self.rank} ({self.name}, {self.address})"


@dataclass(frozen=True)
class Cluster:
    """The formed group, seen from one of its ranks."""

    rank: int
    members: tuple[Member, ...]
    store: dist.Store
    peer_timeout: float

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.members)

    @property
    def me(self) -> Member:
        """This rank."""
        return self.members[self.rank]

    def exchange(self, subject: str, value: Any) -> list[Any]:
        """Give a small value to all ranks and take theirs, by rank."""
        self.store.set(f"{subject}/{self.rank}", json.dumps(value))
        if missing := self._absent(subject, self.peer_timeout):
            names = ", ".join(member.title for member in missing)
            raise PeerLost(f"rank {self.rank}: {names} gave no '{subject}' within {self.peer_timeout:g} s.")
        return [json.loads(self.store.get(f"{subject}/{member.rank}")) for member in self.members]

    def leave(self) -> None:
        """Go when all ranks are done; rank 0 last, because the store that all talk to is its own."""
        self.store.set(f"done/{self.rank}", "")
        if self.rank == 0 and (missing := self._absent("done", self.peer_timeout)):
            names = ", ".join(member.title for member in missing)
            raise PeerLost(f"rank 0: {names} did not finish within {self.peer_timeout:g} s of the others.")
        dist.destroy_process_group()

    def find_lost(self, backend_message: str) -> list[Member]:
        """After a broken operation: which ranks went away first, as opposed to those that left because of them.

        Each rank that notices a loss writes down which one, before it goes itself. So whoever sees a
        rank go can ask whether that one had lost another, and another, back to the first.
        """
        seen = self._peer_in(backend_message)
        try:
            self.store.set(f"noticed/{self.rank}", json.dumps(seen))
            if seen is None:
                return self._absent("noticed", DIAGNOSIS_SECONDS)
            chain = [self.rank]
            while seen is not None and seen not in chain:
                chain.append(seen)
                noted = self.store.check([f"noticed/{seen}"])
                seen = json.loads(self.store.get(f"noticed/{seen}")) if noted else None
            return [self.members[chain[-1]]]
        except RuntimeError:  # the store went with rank 0
            return [self.members[0]] if self.rank else []

    def linger(self) -> None:
        """After a loss: rank 0 keeps the store open a moment, so that the others too can ask who went first."""
        if self.rank == 0:
            self._absent("noticed", DIAGNOSIS_SECONDS)

    def _absent(self, subject: str, seconds: float) -> list[Member]:
        keys = [f"{subject}/{member.rank}" for member in self.members]
        missing = set(await_keys(self.store, keys, time.monotonic() + seconds))
        return [member for member, key in zip(self.members, keys, strict=True) if key in missing]

    def _peer_in(self, backend_message: str) -> int | None:
        """The rank whose address the backend's message names, where only one has that address."""
        addresses = re.findall(r"\[([0-9a-fA-F.:]+)\]:\d+", backend_message)
        ranks = [member.rank for member in self.members if member.address in addresses]
        return ranks[0] if len(ranks) == 1 else None


def await_keys(store: dist.Store, keys: Sequence[str], deadline: float) -> list[str]:
    """Wait until all keys are in the store; at the deadline, return those that are not."""
    try:
        store.wait(list(keys), timedelta(seconds=max(0.01, deadline - time.monotonic())))
    except dist.DistStoreError:
        return [key for key in keys if not store.check([key])]
    return []
