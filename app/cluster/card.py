"""The card that each rank hands in when it joins, and the settings that all ranks must share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import TypeAdapter

from app.cluster.identity import Identity, interface_of
from app.cluster.members import Member
from app.errors import SettingError
from app.machine.cpus import Machine, look, threads
from app.settings.fields import IDENTITY, Settings

Value = bool | int | float | str | None


@dataclass(frozen=True)
class Card:
    """One rank's details; they go to rank 0 as JSON."""

    name: str
    address: str
    interface: str
    number: int
    machine: Machine
    threads: int | None  # None: as many as its share of the CPUs allows
    world_size: int | None  # None: however many join
    settings: dict[str, Value]  # those that all ranks must share

    @classmethod
    def of(cls, settings: Settings, identity: Identity) -> Self:
        """This process's card."""
        return cls(
            name=identity.name,
            address=identity.address,
            interface=interface_of(identity.address),
            number=identity.number,
            machine=look(),
            threads=settings.threads_per_rank,
            world_size=settings.world_size,
            settings=settings.model_dump(mode="json", exclude=set(IDENTITY)),
        )

    @classmethod
    def read(cls, text: bytes) -> "Card":
        """Parse another rank's card."""
        return _CARD.validate_json(text)

    def text(self) -> str:
        """The card as JSON."""
        return _CARD.dump_json(self).decode()


def check_agreement(cards: Sequence[Card]) -> None:
    """Refuse ranks that were started for different runs: they would wait for each other, or average nonsense."""
    for rank, card in enumerate(cards):
        if card.settings["link_rate_by_rank"] and card.number != rank:
            raise SettingError(
                f"rank {rank} is {card.name}, but LINK_RATE_BY_RANK has shaped its link as rank {card.number}'s, "
                "because the workers' numbers have gaps. Remove the containers (scripts/down, or docker compose down) "
                "and start again."
            )
        if card.world_size not in (None, len(cards)):
            raise SettingError(
                f"rank {rank} has WORLD_SIZE={card.world_size}, but {len(cards)} ranks were found. "
                "Unset WORLD_SIZE, or start that many ranks."
            )
        for name, value in card.settings.items():
            if value != cards[0].settings[name]:
                raise SettingError(
                    f"rank {rank} has {name.upper()}={value}, rank 0 has {cards[0].settings[name]}. "
                    "Give all ranks the same settings."
                )


def seat(cards: Sequence[Card]) -> tuple[Member, ...]:
    """Make each card's rank a member, in the order of the cards."""
    machines = [card.machine for card in cards]
    return tuple(
        Member(rank, own.name, own.address, own.interface, own.threads or threads(own.machine, machines), own.machine)
        for rank, own in enumerate(cards)
    )


def table_text(members: Sequence[Member]) -> str:
    """The table of members as JSON."""
    return _TABLE.dump_json(tuple(members)).decode()


def read_table(text: bytes) -> tuple[Member, ...]:
    """Parse the table of members that rank 0 has published."""
    return _TABLE.validate_json(text)


_CARD = TypeAdapter(Card)
_TABLE = TypeAdapter(tuple[Member, ...])
