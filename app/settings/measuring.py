"""Settings of the measurements between steps, and of the trace."""

from typing import Annotated

from pydantic import Field

from app.settings.concern import MOST_STEPS, Concern, Mark

DEFAULT_TRACE_STEPS = 200


class MeasuringSettings(Concern):
    """Settings of measurements and of the trace."""

    meaning = "printing, sampling and tracing"

    usage_interval: float = Field(
        0.5, ge=0.05, le=3600, description="seconds between two samples of a rank's CPU, memory and network use"
    )
    trace_steps: Annotated[int, Mark.CHANGES_NO_FIGURE] = Field(
        DEFAULT_TRACE_STEPS,
        ge=0,
        le=MOST_STEPS,
        description="steps of each rank in trace.json, half from the beginning of the run and half from its end; "
        "0 writes no trace",
    )
