"""Bounds of values in records: above any clock, disk or network, and low enough for sums and squares."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from app.machine.folders import RUN_NAME
from app.machine.say import escaped

CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False)  # reject records of another version

MOST_NUMBER = 1e100
_COUNT = Field(ge=0, le=10**15)
_POSITIVE = Field(ge=1, le=10**15)
_NUMBER = Field(ge=0, le=MOST_NUMBER)
_SECONDS = Field(ge=-1e9, le=1e9)  # negative: a rounded difference, or a time before the clock's zero
_ELAPSED = Field(ge=0, le=1e9)

Count = Annotated[int, _COUNT]
CountOrNull = Annotated[int | None, _COUNT]
Positive = Annotated[int, _POSITIVE]
Number = Annotated[float, _NUMBER]
NumberOrNull = Annotated[float | None, _NUMBER]
Speed = Annotated[float, Field(ge=1e-3, le=MOST_NUMBER)]
Seconds = Annotated[float, _SECONDS]
SecondsOrNull = Annotated[float | None, _SECONDS]
Elapsed = Annotated[float, _ELAPSED]
ElapsedOrNull = Annotated[float | None, _ELAPSED]

Text = Annotated[str, AfterValidator(escaped)]  # from an untrusted file
RunName = Annotated[str, Field(pattern=f"^{RUN_NAME.pattern}$")]
