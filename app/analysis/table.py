"""A run as a table: one row per rank and step, one column per number in a step's record. NaN means not measured.

By hand on numpy, because pandas would add 46 MB to the image for what the columns below do.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from app.analysis.run_records import RankRecords, RunRecords
from app.analysis.statistics import Numbers
from app.records.lines import Step
from app.records.manifest import Manifest

Mask = npt.NDArray[np.bool_]


class Rows:
    """The rows of some ranks of a run. A column has the name of a field of `Step`, such as `cpu_seconds.data`."""

    def __init__(self, table: "RunTable", ranks: Sequence[RankRecords], place: slice) -> None:
        self.table, self.ranks, self._place = table, ranks, place
        self._known: dict[Hashable, object] = {}

    @property
    def manifest(self) -> Manifest:
        return self.table.records.manifest

    @property
    def rank(self) -> RankRecords:
        """The only rank of these rows."""
        (rank,) = self.ranks
        return rank

    @property
    def steps(self) -> list[Step]:
        return self.table.steps[self._place]

    def column(self, name: str) -> Numbers:
        """A number of every step."""
        return self.table.column(name)[self._place]

    def warm(self, name: str) -> Numbers:
        """A number of every step but the first one of each attempt, which includes setup."""
        return self.column(name)[self.table.warm[self._place]]

    def once[Result](self, key: Hashable, make: Callable[[], Result]) -> Result:
        """A result on which several measures depend, computed on first use."""
        if key not in self._known:
            self._known[key] = make()
        return cast("Result", self._known[key])


class RunTable:
    """The rows of a run: of all ranks together, and of each rank."""

    def __init__(self, records: RunRecords) -> None:
        self.records = records
        self.steps = [step for rank in records.ranks for step in rank.steps]
        self._columns: dict[str, Numbers] = {}
        self.all = Rows(self, records.ranks, slice(None))
        edges = [0, *accumulate(len(rank.steps) for rank in records.ranks)]
        self.ranks = [
            Rows(self, [rank], slice(*edge)) for rank, edge in zip(records.ranks, pairwise(edges), strict=True)
        ]

    @cached_property
    def warm(self) -> Mask:
        return np.array([counts for rank in self.records.ranks for counts in rank.warm_mask], dtype=bool)

    def column(self, name: str) -> Numbers:
        """A number of every step of every rank."""
        if name not in self._columns:
            field, *inside = name.split(".")
            values = [getattr(step, field) for step in self.steps]
            for key in inside:
                values = [None if value is None else getattr(value, key) for value in values]
            self._columns[name] = np.array(values, dtype=float)
        return self._columns[name]
