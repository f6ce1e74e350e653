"""What values in records can be: no clock, disk or network exceeds the bounds, and sums and squares have room."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from app.machine.folders import RUN_NAME
from app.machine.say import escaped

CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False)  # of a record that another version's would not pass for

MOST_NUMBER = 1e100
_COUNT = Field(ge=0, le=10**15)
_POSITIVE = Field(ge=1, le=10**15)
_NUMBER = Field(ge=0, le=MOST_NUMBER)
_SECONDS = Field(ge=-1e9, le=1e9)  # what is left after a subtraction, or came before the clock, may be below 0
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

Text = Annotated[str, AfterValidator(escaped)]  # read from a file that anybody may have written
RunName = Annotated[str, Field(pattern=f"^{RUN_NAME.pattern}$")]
