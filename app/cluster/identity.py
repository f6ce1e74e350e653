"""A process's identity before it joins the others: from its settings, or from Docker's DNS."""

import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address

import psutil

from app.cluster import compose
from app.errors import JoinError, MissingError, SettingError
from app.machine.say import shown
from app.settings.place import PlaceSettings

LOOPBACK = "127.0.0.1"
OVER = "the run has finished, so there is nothing to join."
PAUSE_SECONDS = 0.1  # between two look-ups of a name


def never() -> bool:
    return False


@dataclass(frozen=True)
class Identity:
    """The identity of this process, and the address of rank 0."""

    rank: int
    seats: tuple[str, ...]  # by rank, the key under which each rank joins; empty except on rank 0
    seat: str  # the key of this process
    name: str
    address: str
    master: str  # rank 0's name or address
    master_address: str
    deadline: float  # of the join, on the clock of `time.monotonic`
    absent: tuple[str, ...] = ()  # seats of requested ranks that were not running when rank 0 counted
    nodes: tuple[str, ...] = ()  # by rank, if the settings list them
    addresses: tuple[str, ...] = ()  # of rank 0 and the workers, in order, if rank 0 has just counted
    is_over: Callable[[], bool] = never  # whether the run has finished

    def title_of_seat(self, rank: int) -> str:
        """A rank's name in messages before it has registered."""
        where = self.nodes[rank] if self.nodes else self.seats[rank]
        return f"rank {rank}" if where == str(rank) else f"rank {rank} ({where})"


def identify(place: PlaceSettings, seats: tuple[str, ...] = (), is_over: Callable[[], bool] = never) -> Identity:
    """Identify this process by its rank or node if set, else by its container in Compose, else as a single rank.

    In Compose, rank 0 counts the workers unless the first attempt has fixed the seats. Every requested rank has a seat,
    whether it is running or not, and so has every further running worker, because `--scale` is not visible here.
    This waits until Docker's DNS resolves rank 0's name, that is, until rank 0's container runs. The wait is part of
    the join, so JOIN_TIMEOUT starts here. Raises JoinError if the run has finished.
    """
    deadline = time.monotonic() + place.join_timeout
    rank = _rank(place)
    if rank is None and place.master_addr is not None:
        compose.refuse_single_container(_own_addresses())
    name_of_rank0 = _name_of_rank0(place)
    master = _await_address_of(name_of_rank0, deadline, is_over)
    address = _own_address(master, place.master_port)
    if rank is not None:
        if rank == 0:
            _check_master_is_here(place, master, address)
        nodes = place.all_nodes
        _check_route(place, nodes[rank] if nodes else "", address, master)
        seats = tuple(
            nodes[each] if nodes and _is_address(nodes[each]) else str(each)
            for each in range(place.world_size or len(nodes) or 1)
        )
        name = socket.gethostname()
        return Identity(rank, seats, seats[rank], name, address, name_of_rank0, master, deadline, nodes=nodes)
    if place.master_addr is None:
        return Identity(0, ("0",), "0", socket.gethostname(), address, name_of_rank0, master, deadline)

    replica = compose.find_replica(address)
    if replica is None:
        raise JoinError(
            f"RANK is not set, and {address} is neither {compose.RANK0_SERVICE} nor a {compose.WORKER_SERVICE} of a "
            "Compose project. Outside Compose, set RANK and WORLD_SIZE.",
            "invalid-setting",
        )
    own = replica.container  # after a restart its name is the same, but its address may differ
    if replica.rank != 0:
        return Identity(replica.rank, (), own, own, address, name_of_rank0, master, deadline, is_over=is_over)
    if seats:
        return Identity(0, seats, own, own, address, name_of_rank0, master, deadline)
    running = compose.find_workers()
    found = sorted(running.values())
    most = max([(place.world_size or place.workers + 1) - 1, *(number for number, _ in found)])
    workers = [replica.worker(number) for number in range(1, most + 1)]
    return Identity(
        0,
        (own, *workers),
        own,
        own,
        address,
        name_of_rank0,
        master,
        deadline,
        absent=tuple(worker for worker in workers if worker not in running),
        addresses=(address, *(each for _, each in found)),
    )


def missing_error(identity: Identity, seats: Collection[str]) -> MissingError:
    """Rank 0's error if requested workers are not running."""
    ranks = [rank for rank, seat in enumerate(identity.seats) if seat in seats]
    names = ", ".join(identity.title_of_seat(rank) for rank in ranks)
    return MissingError(
        f"rank 0: {len(identity.seats)} ranks were requested, but {names} {'is' if len(ranks) == 1 else 'are'} not "
        "running. See the output of the missing ranks, if any. To change the number of ranks, set WORKERS. "
        "If you removed a container by hand, remove the others as well (scripts/down, or docker compose down)."
    )


def place_of(place: PlaceSettings) -> tuple[int, str]:
    """This process's rank and address, as in its identity. In Compose, this does not wait for rank 0."""
    if place.rank is None and not place.all_nodes and place.master_addr is not None:
        for address in _own_addresses():
            if replica := compose.find_replica(address):
                return replica.rank, address
    identity = identify(place)
    return identity.rank, identity.address


def interface_of(address: str) -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    raise JoinError(f"no network interface has the address {address} any more. Start all ranks again.", "network-lost")


def _rank(place: PlaceSettings) -> int | None:
    """The rank that the settings assign to this process, if any: by RANK, or by its node's position in NODES."""
    if not place.all_nodes:
        return place.rank
    named = [place.node] if place.node else [*_own_addresses(), socket.gethostname()]
    places = [rank for rank, node in enumerate(place.all_nodes) if node in named]
    if len(places) != 1:
        raise SettingError(
            f"NODES={shown(place.nodes or '')} has {len(places)} of this machine's names and addresses "
            f"({', '.join(named)}). It must have one. Set NODE to this machine's entry."
        )
    if place.rank not in (None, places[0]):
        raise SettingError(
            f"RANK={place.rank}, but this machine is {place.all_nodes[places[0]]}, which is rank "
            f"{places[0]} in NODES={shown(place.nodes or '')}. Unset one of them.",
            "conflicting-settings",
        )
    return places[0]


def _check_master_is_here(place: PlaceSettings, master: str, address: str) -> None:
    """Refuse a rank 0 on a machine to which the other ranks would not connect."""
    if address not in (master, LOOPBACK):
        raise SettingError(
            f"this process is rank 0, but MASTER_ADDR={_name_of_rank0(place)} ({master}) is another machine. "
            f"Start rank 0 there, or set MASTER_ADDR to an address of this machine: {', '.join(_own_addresses())}.",
            "conflicting-settings",
        )


def _check_route(place: PlaceSettings, node: str, address: str, master: str) -> None:
    """Refuse a node that would connect to rank 0 from another address than its entry in NODES."""
    if _is_address(node) and node != address:
        raise SettingError(
            f"this machine is {node} in NODES={shown(place.nodes or '')}, but it reaches rank 0 at {master} from "
            f"{address}. Use addresses of one network in NODES and MASTER_ADDR.",
            "conflicting-settings",
        )


def _is_address(node: str) -> bool:
    try:
        IPv4Address(node)
    except ValueError:
        return False
    return True


def _name_of_rank0(place: PlaceSettings) -> str:
    first = place.all_nodes[0] if place.all_nodes else LOOPBACK
    return place.master_addr or first


def _own_addresses() -> list[str]:
    entries = [entry for each in psutil.net_if_addrs().values() for entry in each]
    return [entry.address for entry in entries if entry.family == socket.AF_INET and entry.address != LOOPBACK]


def address_of(name: str) -> str:
    """Resolve a name to its IPv4 address; raises OSError. An address is returned unchanged."""
    return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def _await_address_of(name: str, deadline: float, is_over: Callable[[], bool]) -> str:
    """Wait for rank 0's address: Docker's DNS resolves its name only while rank 0's container runs."""
    while True:
        if is_over():
            raise JoinError(OVER)
        try:
            return address_of(name)
        except OSError as error:
            if time.monotonic() + PAUSE_SECONDS > deadline:
                raise JoinError(
                    f"cannot resolve MASTER_ADDR={name}, the address of rank 0 ({error.strerror}). "
                    "JOIN_TIMEOUT has passed. See rank 0's output."
                ) from None
            time.sleep(PAUSE_SECONDS)


def _own_address(master: str, port: int) -> str:
    """This host's address on its route to rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, port))  # only looks up the route and sends nothing
        except OSError as error:
            raise JoinError(
                f"no route to rank 0 at MASTER_ADDR={master}: {error.strerror}. "
                "Correct MASTER_ADDR, or connect this machine to rank 0's network."
            ) from None
        return str(probe.getsockname()[0])
