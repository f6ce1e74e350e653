"""The emulated network: the bandwidth, delay and loss of each rank's link, and how strictly it is measured."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app.errors import ConflictError
from app.machine.say import shown
from app.settings import link_rates
from app.settings.concern import Concern, Mark
from app.settings.kinds import Form
from app.settings.link_rates import read_delay, read_loss, read_rate, read_rate_by_rank

LinkCheck = Literal["strict", "warn", "off"]

LINK_RATE = Form(read_rate, link_rates.RATE_WORDS)
LINK_RATE_BY_RANK = Form(read_rate_by_rank, link_rates.RATE_BY_RANK_WORDS)
LINK_DELAY = Form(read_delay, link_rates.DELAY_WORDS)
LINK_LOSS = Form(read_loss, link_rates.LOSS_WORDS)


@dataclass(frozen=True)
class RequestedLink:
    """The link that is requested for one rank; None for a property without a request."""

    bits_per_second: float | None = None  # in each direction, headers included
    delay_seconds: float | None = None  # of each packet on its way out, and again on its way in
    loss: float | None = None  # probability for each packet, in each direction

    def __bool__(self) -> bool:
        return self != RequestedLink()


class LinkSettings(Concern):
    """Settings that shape each rank's link, and the check that it is shaped as requested."""

    meaning = "the emulated network"

    link_rate: Annotated[str | None, AfterValidator(LINK_RATE), Mark.AT_CONTAINER_START, Mark.CHANGES_STEP_TIME] = (
        Field(None, description="bandwidth of each rank's link, in each direction [not shaped]")
    )
    link_rate_by_rank: Annotated[
        str | None, AfterValidator(LINK_RATE_BY_RANK), Mark.AT_CONTAINER_START, Mark.CHANGES_STEP_TIME
    ] = Field(None, description="bandwidth of single ranks' links, instead of LINK_RATE")
    link_delay: Annotated[
        str | None, AfterValidator(LINK_DELAY), Mark.AT_CONTAINER_START, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED
    ] = Field(None, description="delay of each packet on its way out of a rank, and again on its way in [none]")
    link_loss: Annotated[
        str | None, AfterValidator(LINK_LOSS), Mark.AT_CONTAINER_START, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED
    ] = Field(None, description="share of packets that each rank's link drops, in each direction [none]")
    link_check: LinkCheck = Field(
        "strict",
        description="if measured links miss the requested rate by more than 10 %: strict stops, warn continues, "
        "off skips the measurement",
    )

    @property
    def rates_by_rank(self) -> dict[int, float]:
        """Bits per second of the ranks that LINK_RATE_BY_RANK names."""
        return read_rate_by_rank(self.link_rate_by_rank) if self.link_rate_by_rank else {}

    def of(self, rank: int) -> RequestedLink:
        usual = read_rate(self.link_rate) if self.link_rate else None
        return RequestedLink(
            self.rates_by_rank.get(rank, usual),
            read_delay(self.link_delay) if self.link_delay else None,
            read_loss(self.link_loss) if self.link_loss else None,
        )

    @property
    def of_any_rank(self) -> RequestedLink:
        """The link of rank 0, or of the first rank that LINK_RATE_BY_RANK names."""
        return self.of(next(iter(self.rates_by_rank), 0))

    def check_ranks(self, world_size: int) -> None:
        """Refuse the link of a rank that does not exist."""
        for rank in self.rates_by_rank:
            if rank >= world_size:
                raise no_such_rank("LINK_RATE_BY_RANK", str(self.link_rate_by_rank), rank, world_size)


def no_such_rank(name: str, value: str, rank: int, world_size: int) -> ConflictError:
    return ConflictError(f"{name}={shown(value)}: there is no rank {rank}. The ranks are 0 to {world_size - 1}.")
