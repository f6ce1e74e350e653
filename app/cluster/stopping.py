"""The agreement on the step after which all ranks stop, over datagrams, any of which may be lost.

Each rank proposes the highest step that it has heard of, or a later one if it is already past it. A rank that reaches
the step it proposes waits there until all others propose the same. No rank can have passed it, because a rank only
proposes steps that it has not taken yet, and never lowers its proposal.
"""

import threading
from collections.abc import Callable, Iterable

LATEST = 2**40  # far beyond any run: a higher proposal is invalid


class Stopping:
    """One rank's part in the agreement. The training and the failure detector call it from different threads."""

    def __init__(self, others: Iterable[int], notify: Callable[[], None]) -> None:
        """`notify` sends this rank's proposal to the others."""
        self._proposed = dict.fromkeys(others, 0)
        self._notify = notify
        self._changed = threading.Condition()
        self._taken, self._ahead = 0, 1
        self._named = 0

    @property
    def named(self) -> int:
        """The step after which this rank proposes to stop; 0 without a request."""
        return self._named

    def begin(self, taken: int) -> None:
        """Set the number of steps that this rank's training has taken at its start."""
        with self._changed:
            self._taken = taken

    def ask(self) -> None:
        """Propose a step at which to stop, unless this rank already has a proposal."""
        with self._changed:
            if self._named:
                return
            self._named = self._taken + self._ahead
        self._notify()

    def hear(self, rank: int, named: int) -> None:
        """Note another rank's proposal, 0 for none. A lower one is an older message, because proposals only grow."""
        with self._changed:
            if rank not in self._proposed or not self._proposed[rank] < named <= LATEST:
                return
            self._proposed[rank] = named
            raised = named > self._named
            if raised:
                self._named = named if named > self._taken else self._taken + self._ahead
            self._changed.notify_all()
        if raised:
            self._notify()

    def due(self, taken: int, ahead: int, patience: float) -> bool:
        """Whether all ranks stop after this step. `ahead` is the number of steps that a message takes to arrive.

        Raises TimeoutError if the others do not agree in time.
        """
        with self._changed:
            self._taken, self._ahead = taken, ahead
            if not self._named or self._named != taken:
                return False
            if not self._changed.wait_for(lambda: self._named > taken or self._agreed(), patience):
                raise TimeoutError
            return self._named == taken

    def _agreed(self) -> bool:
        return all(proposed == self._named for proposed in self._proposed.values())
