"""A run as a table: one row per rank and step, one column per number in a step's record. NaN means not measured.

By hand on numpy, because pandas would add 46 MB to the image for what the columns below do.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import cast

import numpy as np

from app.analysis.run_records import RankRecords, RunRecords, columns
from app.analysis.statistics import Mask, Numbers
from app.records.lines import PHASES, Step
from app.records.manifest import Manifest

OBJECTS = ("buckets", "buffers", "cpu_seconds", "no_core_seconds", "quota_seconds")
NUMBERS = [each.name for each in fields(Step) if each.name not in OBJECTS]


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
    def each(self) -> list["Rows"]:
        return [self.table.ranks[rank.rank] for rank in self.ranks]

    @property
    def steps(self) -> list[Step]:
        return self.table.steps[self._place]

    def column(self, name: str) -> Numbers:
        return self.table.column(name)[self._place]

    def warm(self, name: str) -> Numbers:
        """A number of every step but the first one of each attempt, which includes setup."""
        return self.column(name)[self.table.warm[self._place]]

    def by_rank(self, name: str) -> Numbers:
        """A number of every step that all of these ranks recorded: a row per rank."""
        paired = self.once("paired", lambda: _paired([rank.column("step") for rank in self.each]))
        return np.array([rank.column(name)[kept] for rank, kept in zip(self.each, paired, strict=True)])

    def warm_by_rank(self, name: str) -> Numbers:
        """The same without the first step of each attempt."""
        paired = self.once("warm paired", lambda: _paired([rank.warm("step") for rank in self.each]))
        return np.array([rank.warm(name)[kept] for rank, kept in zip(self.each, paired, strict=True)])

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
        self._columns = columns(self.steps, NUMBERS)
        self.all = Rows(self, records.ranks, slice(None))
        edges = [0, *accumulate(len(rank.steps) for rank in records.ranks)]
        self.ranks = [
            Rows(self, [rank], slice(*edge)) for rank, edge in zip(records.ranks, pairwise(edges), strict=True)
        ]

    @cached_property
    def warm(self) -> Mask:
        return np.array([counts for rank in self.records.ranks for counts in rank.warm_mask], dtype=bool)

    def column(self, name: str) -> Numbers:
        whole, _, part = name.partition(".")
        if part and name not in self._columns:
            self._columns |= self._parts(whole)
        return self._columns[name]

    def _parts(self, whole: str) -> dict[str, Numbers]:
        """The fields of a field, NaN where that is null."""
        wholes = list(map(attrgetter(whole), self.steps))
        known = np.array([each is not None for each in wholes], dtype=bool)
        found: dict[str, Numbers] = {f"{whole}.{phase}": np.full(len(known), np.nan) for phase in PHASES}
        for phase, values in columns([each for each in wholes if each], PHASES).items():
            found[f"{whole}.{phase}"][known] = values
        return found


def _paired(numbers: Sequence[Numbers]) -> list[Mask]:
    """Of each rank's steps, those that all have."""
    common = reduce(np.intersect1d, numbers)
    return [np.isin(own, common) for own in numbers]
