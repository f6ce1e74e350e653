"""After which step all ranks stop, once one of them was asked to: agreed on by datagrams, any of which may be lost.

Each rank proposes the highest step that it has heard of, or a later one if it is already past it. A rank that has
reached the step it proposes waits there until all others propose the same. No rank can have passed it: a rank that
proposes a step has not taken it yet, and proposes nothing lower afterwards.
"""

import threading
from collections.abc import Callable, Iterable

LATEST = 2**40  # far beyond any run: what names more is damaged


class Stopping:
    """One rank's part in it. The training and the failure detector use it from threads of their own."""

    def __init__(self, others: Iterable[int], tell: Callable[[], None]) -> None:
        """`tell` lets the others know what this rank names."""
        self._said = dict.fromkeys(others, 0)
        self._tell = tell
        self._changed = threading.Condition()
        self._taken, self._ahead = 0, 1
        self._named = 0

    @property
    def named(self) -> int:
        """The number of steps after which this rank would stop; 0 if nobody has asked."""
        return self._named

    def begin(self, taken: int) -> None:
        """This rank's training begins after so many steps."""
        with self._changed:
            self._taken = taken

    def ask(self) -> None:
        """This rank is to stop soon."""
        with self._changed:
            if self._named:
                return
            self._named = self._taken + self._ahead
        self._tell()

    def hear(self, rank: int, named: int) -> None:
        """Another rank names a step, or none (0). Its words may come late: what it names only grows."""
        with self._changed:
            if rank not in self._said or not self._said[rank] < named <= LATEST:
                return
            self._said[rank] = named
            raised = named > self._named
            if raised:
                self._named = named if named > self._taken else self._taken + self._ahead
            self._changed.notify_all()
        if raised:
            self._tell()

    def due(self, taken: int, ahead: int, patience: float) -> bool:
        """Whether all stop now that this rank has taken so many steps; `ahead` is how many take the words' time.

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
        return all(said == self._named for said in self._said.values())
