"""summary.json: the figures of a run, and their interpretation."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.analysis.figures import Figures
from app.machine.folders import replace_file
from app.records.summary import FILE


@dataclass(frozen=True)
class Advice:
    """A recommendation for the next run."""

    sentence: str
    command: str | None  # null if no setting helps


@dataclass(frozen=True)
class Verdict:
    """The interpretation of the figures, most important sentence first."""

    bound: str | None  # the part that outweighs all others together
    sentences: list[str]  # the main point first
    advice: Advice | None


@dataclass(frozen=True)
class Summary:
    """The figures and the verdict of a run."""

    run_name: str
    sync_mode: str
    model: str
    dataset: str
    world_size: int
    global_batch_size: int  # samples per step over all ranks
    steps_planned: int
    steps: int  # that all ranks recorded
    complete: bool  # whether every rank finished, with all planned steps
    attempts: int
    repeated_steps: int  # steps recorded by one attempt and repeated by a later one
    replicas_identical: bool | None  # whether all ranks ended with the same parameters; null if one did not finish
    buffers_identical: bool | None  # the same of the model's buffers; also null without buffers and in older records
    run: Figures  # all ranks together, without the first step
    ranks: list[Figures]  # each rank, in order
    losses: list[float]  # of the global batch, of each step that all ranks recorded
    warnings: list[str]  # about the figures
    verdict: Verdict
    wall_clock: Mapping[str, float | None] | None = None  # the whole run by part; null if no rank has records

    def content(self) -> dict[str, Any]:
        figures = {"run": _party(self.run), "ranks": [_party(rank) for rank in self.ranks]}
        return vars(self) | {"verdict": asdict(self.verdict)} | figures

    def write(self, run_folder: Path) -> None:
        replace_file(run_folder / FILE, json.dumps(self.content(), indent=2, allow_nan=False) + "\n")


def _party(figures: Figures) -> dict[str, Any]:
    return figures.nested() | {"epochs": [epoch.nested() for epoch in figures.epochs]}
