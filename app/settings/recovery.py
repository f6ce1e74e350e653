"""Settings of a run's name, its checkpoints, its restarts and how it is resumed."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from app.errors import ConflictError
from app.settings.concern import MOST_STEPS, Concern, Mark
from app.settings.kinds import Form

AUTO, NEVER = "auto", "never"
RESERVED = (
    *("latest", "benchmarks", "calibrations", "comparisons", "experiments", "faults", "predictions", "verifications"),
    *(AUTO, NEVER),
)
NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
MOST_RESTARTS = 1000

RUN_NAME = Form(
    re.compile(f"(?!(?:{'|'.join(RESERVED)})$){NAME}").fullmatch,
    "at most 100 letters, digits, '.', '_' or '-', a letter or digit first, and not "
    f"{', '.join(map(repr, RESERVED[:-1]))} or {RESERVED[-1]!r}",
)
RESUME = Form(re.compile(NAME).fullmatch, "auto, never, or the name of a run in results/")


class RecoverySettings(Concern):
    """Settings of a run's name, its checkpoints and its restarts."""

    meaning = "names of runs, checkpoints, restarts and resuming"

    run_name: Annotated[
        str | None, AfterValidator(RUN_NAME), Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START, Mark.NOT_IN_A_GRID
    ] = Field(None, description="name of the run's folder in results/ [the time of the start]")
    checkpoint_every: Annotated[int, Mark.FREE_ON_RESUME] = Field(
        100, ge=0, le=MOST_STEPS, description="save a checkpoint every N steps and at the end; 0 saves none"
    )
    resume: Annotated[str, AfterValidator(RESUME), Mark.OF_ONE_START] = Field(
        AUTO,
        description="the run to resume: auto resumes the newest unfinished one with the same settings and sources, if "
        "there is one; never starts a new run; a run's name resumes that one or fails",
    )
    max_restarts: Annotated[int, Mark.READ_BY_COMPOSE] = Field(
        5,
        ge=0,
        le=MOST_RESTARTS,
        exclude=True,
        description="how often Docker restarts each rank that fails, so that the run resumes from its last checkpoint "
        "without your help; 0 never does",
    )

    def _conflicts(self) -> Iterator[ConflictError]:
        if self.resume not in (AUTO, NEVER, self.run_name or self.resume):
            yield ConflictError(f"RESUME={self.resume} and RUN_NAME={self.run_name} name two runs. Unset one of them.")

    @property
    def restarts(self) -> int:
        """How often a failed rank is restarted; 0 unless Docker does it, by compose.yaml."""
        return self.max_restarts if "max_restarts" in self.model_fields_set else 0
