"""Identifies the containers of a Compose project by their names in Docker's DNS."""

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
    """A container, with the number that Compose gave it."""

    container: str
    service: str
    number: int

    @property
    def rank(self) -> int:
        """The container's number for workers, which Compose numbers from 1."""
        return 0 if self.service == RANK0_SERVICE else self.number

    def worker(self, number: int) -> str:
        """The name of a worker's container in the same project, whether it exists or not."""
        return f"{self.container.removesuffix(f'-{self.service}-{self.number}')}-{WORKER_SERVICE}-{number}"


def find_replica(address: str) -> Replica | None:
    """Find the container with this address in Docker's DNS.

    The query goes to the DNS server itself, because /etc/hosts would shadow its answer.
    """
    found = next(filter(None, map(REPLICA.match, _names(address))), None)
    return found and Replica(found["container"], found["service"], int(found["number"]))


def is_at(container: str, address: str) -> bool:
    replica = find_replica(address)
    return replica is not None and replica.container == container


def find_workers() -> dict[str, tuple[int, str]]:
    """The number and address of each running worker, by container name. The numbers may have gaps."""
    if not _addresses(RANK0_SERVICE):
        raise JoinError(
            f"cannot count the workers: Docker's DNS does not resolve '{RANK0_SERVICE}'. Start all ranks again."
        )
    named = [(find_replica(address), address) for address in _addresses(WORKER_SERVICE)]
    return {each.container: (each.number, address) for each, address in named if each}


def not_running(containers: Iterable[str]) -> set[str]:
    """The worker containers among these names that are not running."""
    workers = {each for each in containers if CONTAINER.fullmatch(each)}
    return workers.difference(find_workers()) if workers else workers


def where_to_read(name: str) -> str:
    """How to find a rank's output, as the end of a sentence."""
    return f": docker logs {name}" if CONTAINER.fullmatch(name) else f". It runs on {name}."


def refuse_single_container(addresses: Iterable[str]) -> None:
    """Refuse `docker compose run rank0`: its container is not part of the cluster, so no rank would answer it."""
    if any(SINGLE.match(name) for address in addresses for name in _names(address)):
        raise SettingError(
            "`docker compose run` starts a single container, which cannot join a cluster. "
            "Start all ranks: docker compose up.",
            "invalid-argument",
        )


def _names(address: str) -> list[str]:
    try:
        return [str(record) for record in dns.resolver.resolve_address(address, lifetime=DNS_SECONDS)]
    except dns.exception.DNSException:
        return []


def _addresses(service: str) -> list[str]:
    """The addresses of a service's running containers.

    Depending on its version, Docker forwards the query for an unknown name, refuses it or does not answer. So every
    failure means that this network does not have the name.
    """
    try:
        answer = dns.resolver.resolve(service, "A", search=False, lifetime=DNS_SECONDS)
    except dns.exception.DNSException:
        return []
    return [str(record) for record in answer]
