"""The registration that each rank sends, the table that it receives, and the check that their settings agree."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from app.cluster.identity import Identity, interface_of
from app.cluster.lines import InvalidMessageError
from app.cluster.members import Member
from app.errors import SettingError
from app.machine.cpus import Machine, look, threads
from app.machine.say import shown
from app.settings.concern import MOST_RANKS
from app.settings.place import MOST_THREADS, PlaceSettings
from app.settings.settings import Value as SettingValue

Value = bool | int | Annotated[float, Field(allow_inf_nan=False)] | str | None
Port = Annotated[int, Field(ge=1, le=65_535)]


@dataclass(frozen=True)
class Registration:
    """One rank's details, sent to rank 0 as JSON."""

    name: Annotated[str, Field(max_length=255)]
    address: Annotated[str, Field(max_length=15)]
    port: Port  # where its failure detector listens
    interface: Annotated[str, Field(max_length=64)]
    machine: Machine
    threads: Annotated[int | None, Field(ge=1, le=MOST_THREADS)]  # None: by its share of the CPUs
    world_size: Annotated[int | None, Field(ge=1, le=MOST_RANKS)]  # None: the number of ranks that join
    settings: dict[str, Value]  # that must be the same on all ranks

    @classmethod
    def of(cls, place: PlaceSettings, shared: dict[str, SettingValue], identity: Identity, port: int) -> Self:
        return cls(
            name=identity.name,
            address=identity.address,
            port=port,
            interface=interface_of(identity.address),
            machine=look(),
            threads=place.threads_per_rank,
            world_size=place.world_size,
            settings=shared,
        )

    @classmethod
    def read(cls, content: object) -> "Registration":
        """Validate a registration from an untrusted peer; raises InvalidMessageError if it is invalid."""
        registration = _read(_REGISTRATION, content)
        try:
            IPv4Address(registration.address)
        except ValueError:
            raise InvalidMessageError("invalid address") from None
        if not (registration.name + registration.interface).isprintable():
            raise InvalidMessageError("unprintable name")
        return registration

    def content(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RankTable:
    """Rank 0's answer once all have joined: the members, and the password of their heartbeats."""

    members: tuple[Member, ...]
    password: Annotated[str, Field(max_length=64)]
    attempt: Annotated[int, Field(ge=0)]  # of the run

    def content(self) -> dict[str, Any]:
        return asdict(self)


def read_table(content: object) -> RankTable:
    """Validate a table from an untrusted peer; raises InvalidMessageError if it is invalid."""
    return _read(_TABLE, content)


def check_agreement(registrations: Sequence[Registration]) -> None:
    """Refuse ranks of different runs, which would deadlock or average unrelated gradients."""
    first = registrations[0]
    for rank, registration in enumerate(registrations):
        if registration.settings.keys() != first.settings.keys():
            names = registration.settings.keys() ^ first.settings.keys()
            odd = ", ".join(sorted(shown(name.upper()) for name in names))
            raise SettingError(
                f"only one of ranks 0 and {rank} knows the settings {odd}, so they run different versions of Lockstep. "
                "Start all ranks from one image.",
                "ranks-differ",
            )
        if registration.world_size not in (None, len(registrations)):
            raise SettingError(
                f"rank {rank} has WORLD_SIZE={registration.world_size}, but {len(registrations)} ranks were found. "
                f"Unset WORLD_SIZE, or start {registration.world_size} ranks."
            )
        for name, value in registration.settings.items():
            if value != first.settings[name]:
                raise SettingError(
                    f"rank {rank} has {name.upper()}={shown(str(value))}, rank 0 has {first.settings[name]}. "
                    "Give all ranks the same settings.",
                    "ranks-differ",
                )


def members_of(registrations: Sequence[Registration]) -> tuple[Member, ...]:
    """The table of members, from the registrations in the order of the ranks."""
    machines = [registration.machine for registration in registrations]
    return tuple(
        Member(
            rank, own.name, own.address, own.port, own.interface, own.threads or threads(own.machine, machines),
            own.machine,
        )
        for rank, own in enumerate(registrations)
    )  # fmt: skip


def _read[Kind](reader: TypeAdapter[Kind], content: object) -> Kind:
    """Validate strictly: the string "1" is not a number."""
    try:
        return reader.validate_json(json.dumps(content), strict=True)
    except ValidationError:
        raise InvalidMessageError("invalid fields") from None


_REGISTRATION = TypeAdapter(Registration)
_TABLE = TypeAdapter(RankTable)
