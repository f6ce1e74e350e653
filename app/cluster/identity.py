"""A process's identity before it joins the others, from the environment or from Docker's DNS."""

import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

import dns.exception
import dns.resolver
import psutil

from app.errors import JoinError, SettingError
from app.settings.fields import Settings

LOOPBACK = "127.0.0.1"
RANK0_SERVICE = "rank0"
WORKER_SERVICE = "worker"
REPLICA = re.compile(rf"(?P<container>.+-(?P<service>{RANK0_SERVICE}|{WORKER_SERVICE})-(?P<number>\d+))\.")
SINGLE = re.compile(rf".+-(?:{RANK0_SERVICE}|{WORKER_SERVICE})-run-[0-9a-f]+\.")  # by `docker compose run`
DNS_SECONDS = 6.0
PAUSE_SECONDS = 0.1  # before a name is looked up again


@dataclass(frozen=True)
class Identity:
    """This process, and where to find rank 0."""

    rank: int | None  # None: rank 0 assigns it
    seats: tuple[str, ...]  # by rank, the key under which each rank joins; only rank 0 has them
    seat: str  # this process's
    number: int  # its rank; for a worker of Compose its replica number, which is its rank unless numbers are missing
    name: str
    address: str
    master_address: str
    deadline: float  # when the join must be complete, on the clock of `time.monotonic`
    absent: tuple[str, ...] = ()  # workers that were started and are not there; only rank 0 looks


@dataclass(frozen=True)
class Replica:
    """A container as Compose numbers it."""

    container: str
    service: str
    number: int


def identify(settings: Settings) -> Identity:
    """Identify this process: by RANK and WORLD_SIZE if set, else by its place in Compose, else as the only rank.

    It waits for rank 0's name, which Docker's DNS does not know until rank 0's container runs. That is part of the
    join, and JOIN_TIMEOUT counts from here.
    """
    deadline = time.monotonic() + settings.join_timeout
    if settings.rank is None and settings.master_addr is not None:
        _refuse_single_container()
    master = _address_of(settings.master_addr or LOOPBACK, deadline)
    address = _own_address(master, settings.master_port)
    if settings.rank is not None:
        seats = tuple(str(rank) for rank in range(settings.world_size or 1))
        own = settings.rank
        return Identity(own, seats, str(own), own, socket.gethostname(), address, master, deadline)
    if settings.master_addr is None:
        return Identity(0, ("0",), "0", 0, socket.gethostname(), address, master, deadline)

    replica = find_replica(address)
    if replica is None:
        raise JoinError(
            f"{address} is neither {RANK0_SERVICE} nor a {WORKER_SERVICE} of a Compose project, and RANK is not set. "
            "Outside Compose set RANK and WORLD_SIZE."
        )
    if replica.service == WORKER_SERVICE:
        return Identity(None, (), address, replica.number, replica.container, address, master, deadline)
    workers = find_workers()
    seats = (address, *workers.values())
    absent = _absent(workers, settings.ranks_started or 0)
    return Identity(0, seats, address, 0, replica.container, address, master, deadline, absent)


def place_of(settings: Settings) -> tuple[int, str]:
    """This process's number and address as in its identity, but in Compose without a wait for rank 0."""
    if settings.rank is None and settings.master_addr is not None:
        for address in _own_addresses():
            if replica := find_replica(address):
                return (0 if replica.service == RANK0_SERVICE else replica.number), address
    identity = identify(settings)
    return identity.number, identity.address


def interface_of(address: str) -> str:
    """The name of the network interface that has this address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    raise JoinError(f"no network interface has the address {address} any more.")


def find_replica(address: str) -> Replica | None:
    """Ask Docker's DNS whose address this is.

    /etc/hosts would shadow the answer, so the query goes to the DNS server itself.
    """
    found = next(filter(None, map(REPLICA.match, _names(address))), None)
    return found and Replica(found["container"], found["service"], int(found["number"]))


def find_workers() -> dict[int, str]:
    """The workers' addresses by replica number, in order; the numbers may have gaps."""
    if not _addresses(RANK0_SERVICE):
        raise JoinError(f"Docker's DNS does not know '{RANK0_SERVICE}', so the workers cannot be counted.")
    numbers = {}
    for address in _addresses(WORKER_SERVICE):
        replica = find_replica(address)
        if replica is None:
            raise JoinError(f"Docker's DNS lists {address} as a {WORKER_SERVICE} but has no name for it. Start again.")
        numbers[replica.number] = address
    return dict(sorted(numbers.items()))


def _absent(workers: Mapping[int, str], started: int) -> tuple[str, ...]:
    """The workers that are not there, of a start that makes them with the numbers from 1."""
    return tuple(f"worker {number} (of {started - 1})" for number in range(1, started) if number not in workers)


def _refuse_single_container() -> None:
    """Refuse `docker compose run rank0`: such a container has no place in the cluster, and nobody would answer it."""
    if any(SINGLE.match(name) for address in _own_addresses() for name in _names(address)):
        raise SettingError(
            "`docker compose run` starts a single container, which is no rank of a cluster. "
            "Start them all: docker compose up."
        )


def _own_addresses() -> list[str]:
    entries = [entry for each in psutil.net_if_addrs().values() for entry in each]
    return [entry.address for entry in entries if entry.family == socket.AF_INET and entry.address != LOOPBACK]


def _names(address: str) -> list[str]:
    """The names that the DNS has for an address."""
    try:
        return [str(record) for record in dns.resolver.resolve_address(address, lifetime=DNS_SECONDS)]
    except dns.exception.DNSException:
        return []


def _addresses(service: str) -> list[str]:
    """A service's addresses; none if no container of it runs.

    Depending on its version, Docker forwards an unknown name, refuses it or leaves it unanswered. So every failure
    means the same: this network has no such name.
    """
    try:
        answer = dns.resolver.resolve(service, "A", search=False, lifetime=DNS_SECONDS)
    except dns.exception.DNSException:
        return []
    return [str(record) for record in answer]


def _address_of(name: str, deadline: float) -> str:
    """The IPv4 address behind rank 0's name; an address stays as it is."""
    while True:
        try:
            return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            if time.monotonic() + PAUSE_SECONDS > deadline:
                raise JoinError(
                    f"rank 0 is not to be found: the name MASTER_ADDR={name} has no address ({error.strerror}), and "
                    "JOIN_TIMEOUT has passed. See what rank 0 printed."
                ) from None
            time.sleep(PAUSE_SECONDS)


def _own_address(master: str, port: int) -> str:
    """The address that this host would use towards rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, port))  # sends nothing: only the route is looked up
        except OSError as error:
            raise JoinError(f"no route to rank 0 at MASTER_ADDR={master}: {error.strerror}.") from None
        return str(probe.getsockname()[0])
