"""What a process knows of itself before it has met the others: from the environment, or from Compose's DNS."""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import dns.exception
import dns.resolver
import psutil

from app.errors import JoinError
from app.settings.fields import Settings

LOOPBACK = "127.0.0.1"
RANK0_SERVICE = "rank0"
WORKER_SERVICE = "worker"
REPLICA = re.compile(rf"(?P<container>.+-(?P<service>{RANK0_SERVICE}|{WORKER_SERVICE})-(?P<number>\d+))\.")
DNS_SECONDS = 6.0


@dataclass(frozen=True)
class Identity:
    """This process, and the way to rank 0."""

    rank: int | None  # None: rank 0 gives it out
    seats: tuple[str, ...]  # by rank, the key under which each one comes to the join; known to rank 0 alone
    seat: str  # this one's
    number: int  # its rank, or for a worker its number in Compose, which is its rank where the numbers have no gaps
    name: str
    address: str
    master_address: str


@dataclass(frozen=True)
class Replica:
    """A container as Compose numbers it."""

    container: str
    service: str
    number: int


def identify(settings: Settings) -> Identity:
    """Tell who this process is: RANK and WORLD_SIZE where set, else its place in Compose, else alone."""
    master = settings.master_addr or LOOPBACK
    address = _own_address(master, settings.master_port)
    if settings.rank is not None:
        seats = tuple(str(rank) for rank in range(settings.world_size or 1))
        own = settings.rank
        return Identity(own, seats, str(own), own, socket.gethostname(), address, master)
    if settings.master_addr is None:
        return Identity(0, ("0",), "0", 0, socket.gethostname(), address, master)

    replica = find_replica(address)
    if replica is None:
        raise JoinError(
            f"{address} is neither {RANK0_SERVICE} nor a {WORKER_SERVICE} of a Compose project, and RANK is not set. "
            "Outside Compose set RANK and WORLD_SIZE."
        )
    if replica.service == WORKER_SERVICE:
        return Identity(None, (), address, replica.number, replica.container, address, master)
    return Identity(0, (address, *find_workers()), address, 0, replica.container, address, master)


def interface_of(address: str) -> str:
    """The name of the network interface that has this address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    raise JoinError(f"no network interface has the address {address} any more.")


def find_replica(address: str) -> Replica | None:
    """Ask Docker's DNS whose address this is.

    /etc/hosts would shadow the answer, so the query goes to the server itself.
    """
    try:
        answer = dns.resolver.resolve_address(address, lifetime=DNS_SECONDS)
    except dns.exception.DNSException:
        return None
    found = next(filter(None, (REPLICA.match(str(record)) for record in answer)), None)
    return found and Replica(found["container"], found["service"], int(found["number"]))


def find_workers() -> Sequence[str]:
    """The workers' addresses, by replica number, which need not be without gaps."""
    if not _addresses(RANK0_SERVICE):
        raise JoinError(f"Docker's DNS does not know '{RANK0_SERVICE}', so the workers cannot be counted.")
    numbers = {}
    for address in _addresses(WORKER_SERVICE):
        replica = find_replica(address)
        if replica is None:
            raise JoinError(f"Docker's DNS gives {address} for a {WORKER_SERVICE} but no name for it. Start again.")
        numbers[address] = replica.number
    return sorted(numbers, key=numbers.__getitem__)


def _addresses(service: str) -> list[str]:
    """A service's addresses; none where no container of it runs.

    A name that Docker does not know is sent on, or refused, or left unanswered, according to its
    version, so that every failure means the same: not a name of this network.
    """
    try:
        answer = dns.resolver.resolve(service, "A", search=False, lifetime=DNS_SECONDS)
    except dns.exception.DNSException:
        return []
    return [str(record) for record in answer]


def _own_address(master: str, port: int) -> str:
    """The address that this host would use towards rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, port))  # sends nothing: only the route is looked up
        except OSError as error:
            raise JoinError(f"No way to rank 0 at MASTER_ADDR={master}: {error.strerror}.") from None
        return str(probe.getsockname()[0])
