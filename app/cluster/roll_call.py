"""Which ranks are gone: every living one answers a call, even while its training waits inside the backend."""

import json
import threading
import time
from datetime import timedelta

import torch.distributed as dist

ANSWER_SECONDS = 5.0
LISTEN_SECONDS = 3600.0  # then it listens again


class RollCall:
    """A thread that answers for this rank, on its own connection to the store."""

    def __init__(self, store: dist.Store, own_connection: dist.Store, rank: int, world_size: int) -> None:
        self._store, self._listener = store, own_connection
        self._rank, self._world_size = rank, world_size
        self._verdict: list[int] | None = None
        threading.Thread(target=self._listen, name="roll call", daemon=True).start()

    def find_lost(self) -> list[int]:
        """The ranks that do not answer. The first caller decides for all: ranks that then leave stop answering."""
        try:
            if self._verdict is None:
                self._store.set("call", "")
                answers = {f"here/{rank}": rank for rank in range(self._world_size)}
                silent = await_keys(self._store, list(answers), time.monotonic() + ANSWER_SECONDS)
                found = json.dumps([answers[key] for key in silent])
                verdict = self._store.compare_set("lost", "", found).decode()
                self._store.set("lost", verdict)  # compare_set does not wake the ranks that wait for it
                self._verdict = json.loads(verdict)
                self._store.set(f"read/{self._rank}", "")
        except RuntimeError:
            # The store is gone, and rank 0 with it. An earlier caller's verdict may have arrived before.
            self._verdict = self._verdict if self._verdict is not None else [0]
        return self._verdict

    def let_others_read(self) -> None:
        """Wait until the other living ranks have read the verdict, or briefly: the store closes when rank 0 leaves."""
        living = [f"read/{rank}" for rank in range(self._world_size) if rank not in (self._verdict or ())]
        await_keys(self._store, living, time.monotonic() + ANSWER_SECONDS)

    def _listen(self) -> None:
        try:
            while await_keys(self._listener, ["call"], time.monotonic() + LISTEN_SECONDS):
                pass
            self._listener.set(f"here/{self._rank}", "")
            if not await_keys(self._listener, ["lost"], time.monotonic() + 2 * ANSWER_SECONDS):
                self._verdict = json.loads(self._listener.get("lost"))
                self._listener.set(f"read/{self._rank}", "")
        except RuntimeError:
            return  # rank 0 has closed the store


def await_keys(store: dist.Store, keys: list[str], deadline: float) -> list[str]:
    """Wait until all keys are in the store; at the deadline, return those that are not."""
    if not keys:
        return []
    try:
        store.wait(keys, timedelta(seconds=max(0.01, deadline - time.monotonic())))
    except dist.DistStoreError:
        return [key for key in keys if not store.check([key])]  # type: ignore[attr-defined]  # its stub lacks it
    return []
