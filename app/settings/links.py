"""What LINK_RATE, LINK_RATE_BY_RANK, LINK_DELAY and LINK_LOSS ask of a rank's link."""

from dataclasses import dataclass
from typing import Self

from app.settings.fields import Settings
from app.settings.link_rates import read_delay, read_loss, read_rate, read_rate_by_rank


@dataclass(frozen=True)
class RequestedLink:
    """One rank's link; None where nothing is asked."""

    bits_per_second: float | None = None  # in each direction, headers included
    delay_seconds: float | None = None  # of each packet on its way out, and again on its way in
    loss: float | None = None  # probability for each packet, in each direction

    @classmethod
    def of(cls, settings: Settings, rank: int) -> Self:
        """What the settings ask of this rank's link."""
        rates = read_rate_by_rank(settings.link_rate_by_rank) if settings.link_rate_by_rank else {}
        usual = read_rate(settings.link_rate) if settings.link_rate else None
        return cls(
            rates.get(rank, usual),
            read_delay(settings.link_delay) if settings.link_delay else None,
            read_loss(settings.link_loss) if settings.link_loss else None,
        )

    @classmethod
    def somewhere(cls, settings: Settings) -> Self:
        """What is asked of all ranks; where only some ranks are named, what is asked of one of those."""
        named = read_rate_by_rank(settings.link_rate_by_rank) if settings.link_rate_by_rank else {}
        return cls.of(settings, next(iter(named), 0))

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return self != RequestedLink()
