"""Who is who in a Compose project, by the names that Docker's DNS has for its containers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import dns.exception
import dns.resolver

from app.errors import JoinError, SettingError

RANK0_SERVICE = "rank0"
WORKER_SERVICE = "worker"
REPLICA = re.compile(rf"(?P<container>.+-(?P<service>{RANK0_SERVICE}|{WORKER_SERVICE})-(?P<number>\d+))\.")
CONTAINER = re.compile(rf".+-(?:{RANK0_SERVICE}|{WORKER_SERVICE})-\d+")
SINGLE = re.compile(rf".+-(?:{RANK0_SERVICE}|{WORKER_SERVICE})-run-[0-9a-f]+\.")  # by `docker compose run`
DNS_SECONDS = 6.0


@dataclass(frozen=True)
class Replica:
    """A container as Compose numbers it."""

    container: str
    service: str
    number: int

    @property
    def rank(self) -> int:
        """Workers are numbered from 1."""
        return 0 if self.service == RANK0_SERVICE else self.number

    def worker(self, number: int) -> str:
        """The name of a worker's container in the same project, whether it exists or not."""
        return f"{self.container.removesuffix(f'-{self.service}-{self.number}')}-{WORKER_SERVICE}-{number}"


def find_replica(address: str) -> Replica | None:
    """Ask Docker's DNS whose address this is.

    /etc/hosts would shadow the answer, so the query goes to the DNS server itself.
    """
    found = next(filter(None, map(REPLICA.match, _names(address))), None)
    return found and Replica(found["container"], found["service"], int(found["number"]))


def is_at(container: str, address: str) -> bool:
    """Whether this is the address of that container now."""
    replica = find_replica(address)
    return replica is not None and replica.container == container


def find_workers() -> dict[str, tuple[int, str]]:
    """The number and address of each worker that is running, by its container's name. Numbers may have gaps."""
    if not _addresses(RANK0_SERVICE):
        raise JoinError(f"Docker's DNS does not know '{RANK0_SERVICE}', so the workers cannot be counted.")
    named = [(find_replica(address), address) for address in _addresses(WORKER_SERVICE)]
    return {each.container: (each.number, address) for each, address in named if each}


def not_running(containers: Iterable[str]) -> set[str]:
    """Those of these seats that are a worker's container which is not running now."""
    workers = {each for each in containers if CONTAINER.fullmatch(each)}
    return workers.difference(find_workers()) if workers else workers


def where_to_read(name: str) -> str:
    """Where the last lines of a rank's output are to be found."""
    return f": docker logs {name}" if CONTAINER.fullmatch(name) else f". It runs on {name}."


def refuse_single_container(addresses: Iterable[str]) -> None:
    """Refuse `docker compose run rank0`: such a container has no place in the cluster, and nobody would answer it."""
    if any(SINGLE.match(name) for address in addresses for name in _names(address)):
        raise SettingError(
            "`docker compose run` starts a single container, which is no rank of a cluster. "
            "Start them all: docker compose up."
        )


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
