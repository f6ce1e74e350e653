"""Settings of the ranks: their number, how they find each other, and their CPUs, memory and network."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app.errors import ConflictError, SettingError
from app.machine.say import counted, shown
from app.settings.concern import MOST_RANKS, Concern, Mark, Needs
from app.settings.kinds import Form, Memory, Pattern
from app.settings.links import no_such_rank

BackendName = Literal["gloo", "mpi"]
NetworkName = Literal["host", "overlay"]

MOST_WORKERS = 100
MOST_CPUS = 1024
LEAST_MEMORY_MEBIBYTES = 320  # 240 do not suffice for rank 0 of four ranks with LeNet-5, which also draws the report
MOST_MEMORY_GIBIBYTES = 16_384  # no machine that runs containers has more

# The ranks' machine can be larger than the one that checks, but no setting may overload a small one with threads.
MOST_THREADS = 256
ALWAYS_ALLOWED_THREADS, THREADS_PER_CPU = 16, 4

HOST = r"(?=[^,]{1,253}(,|$))[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]{1,63})*"
MASTER_ADDR = Form(re.compile(HOST).fullmatch, "a host's name or IPv4 address, of letters, digits, '.', '_' or '-'")
NODES = Form(re.compile(f"{HOST}(,{HOST})*").fullmatch, "host names or IPv4 addresses, separated by commas")
RANK_MEMORY = Memory.between(
    LEAST_MEMORY_MEBIBYTES * 2**20,
    MOST_MEMORY_GIBIBYTES * 2**30,
    f"a whole number with k, m or g, such as 2g, from {LEAST_MEMORY_MEBIBYTES}m to {MOST_MEMORY_GIBIBYTES}g",
)
BYTE = "([1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"  # of an address
# Only private networks, because the ranks would shadow the real hosts of a public one.
NETWORK_PREFIX = Pattern.of(
    f"(10[.]{BYTE}|172[.](1[6-9]|2[0-9]|3[01])|192[.]168|100[.](6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7]))[.]{BYTE}",
    "the first three numbers of a private IPv4 network, such as 10.77.1: within 10, 172.16 to 172.31, 192.168, or "
    "100.64 to 100.127",
)
# Python and POSIX write "no control characters" differently.
DATA_FOLDER = Pattern(
    re.compile(r"(~|[.][.]?)?/[^\x00-\x1f\x7f]+").fullmatch,
    "the path of a folder that exists, beginning with /, ./, ../ or ~/",
    "(~|[.][.]?)?/[^[:cntrl:]]+",
)
EXPERIMENT_NETWORK = Pattern.of(
    f"({BYTE}[.]){{3}}{BYTE}/([89]|[12][0-9]|30)", "an IPv4 network with its length, 8 to 30, such as 10.10.1.0/24"
)


class PlaceSettings(Concern):
    """Settings of the ranks' number, machines, network and limits."""

    meaning = "how many ranks there are, where they run, and how they find each other"

    workers: Annotated[int, Mark.READ_BY_COMPOSE, Mark.AT_CONTAINER_START] = Field(
        3, ge=0, le=MOST_WORKERS, exclude=True, description="number of ranks besides rank 0"
    )
    backend: Annotated[BackendName, Mark.AT_CONTAINER_START, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED] = Field(
        "gloo", description="the library that passes messages: gloo, or mpi, which is OpenMPI under mpirun"
    )
    rank_cpus: Annotated[
        float | None, Mark.READ_BY_COMPOSE, Mark.AT_CONTAINER_START, Mark.RANKS_MAY_DIFFER, Mark.CHANGES_STEP_TIME
    ] = Field(None, ge=0.01, le=MOST_CPUS, description="CPU limit of each rank, such as 0.5 [no limit]")
    rank_memory: Annotated[str | None, AfterValidator(RANK_MEMORY), Mark.READ_BY_COMPOSE, Mark.AT_CONTAINER_START] = (
        Field(None, exclude=True, description="memory limit of each rank [no limit]")
    )
    threads_per_rank: Annotated[int | None, Mark.RANKS_MAY_DIFFER, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED] = Field(
        None, ge=1, le=MOST_THREADS, description="compute threads of each rank [by its share of the CPUs]"
    )
    slow_rank: Annotated[int | None, Mark.CHANGES_STEP_TIME] = Field(
        None, ge=0, le=MOST_RANKS - 1, description="a rank to slow down on purpose [none]"
    )
    slow_factor: Annotated[float, Needs("slow_rank"), Mark.CHANGES_STEP_TIME] = Field(
        2, ge=1, le=100, description="how many times as long each computation of SLOW_RANK takes"
    )
    join_timeout: Annotated[float, Mark.FREE_ON_RESUME] = Field(
        120, ge=1, le=86_400, description="seconds within which every rank must join"
    )
    peer_timeout: Annotated[float, Mark.FREE_ON_RESUME] = Field(
        300, ge=1, le=86_400, description="seconds after which a silent rank counts as lost"
    )
    network_prefix: Annotated[str | None, AfterValidator(NETWORK_PREFIX), Mark.READ_BY_COMPOSE, Mark.NOT_IN_A_GRID] = (
        Field(None, exclude=True, description="the ranks' private network [a free one, chosen by Docker]")
    )
    data_folder: Annotated[str, AfterValidator(DATA_FOLDER), Mark.READ_BY_COMPOSE, Mark.NOT_IN_A_GRID] = Field(
        "./data",
        exclude=True,
        description="folder of the archives of real data sets, which are downloaded there if missing; a shared folder "
        "that has them may be read-only",
    )
    world_size: Annotated[
        int | None, Mark.AT_CONTAINER_START, Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START, Mark.NOT_IN_A_GRID
    ] = Field(None, ge=1, le=MOST_RANKS, description="number of ranks [counted in Compose; if set, it must match]")
    rank: Annotated[
        int | None, Needs("world_size"), Mark.GIVEN_BY_LAUNCHER, Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START
    ] = Field(None, ge=0, le=MOST_RANKS - 1, description="this process's rank, with WORLD_SIZE [found in Compose]")
    ranks_started: Annotated[int | None, Mark.GIVEN_BY_LAUNCHER, Mark.RANKS_MAY_DIFFER] = Field(
        None, ge=1, le=MOST_RANKS, exclude=True, description="number of ranks that a script has started [scripts/up]"
    )
    master_addr: Annotated[
        str | None, AfterValidator(MASTER_ADDR), Mark.GIVEN_BY_LAUNCHER, Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START
    ] = Field(None, description="rank 0's address or name [from compose.yaml]")
    master_port: Annotated[int, Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START] = Field(
        29500, ge=1024, le=65_535, description="rank 0's port for the join"
    )
    nodes: Annotated[
        str | None, AfterValidator(NODES), Mark.GIVEN_BY_LAUNCHER, Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START
    ] = Field(None, description="all nodes in the order of their ranks [found in Compose]")
    node: Annotated[
        str | None, AfterValidator(MASTER_ADDR), Mark.GIVEN_BY_LAUNCHER, Mark.RANKS_MAY_DIFFER, Mark.OF_ONE_START
    ] = Field(None, description="this node, as NODES names it [the one of NODES with an address of this machine]")
    network: Annotated[NetworkName, Mark.READ_BY_CLOUDLAB] = Field(
        "host",
        description="network of ranks on several machines: host uses the machines' own; overlay uses Docker's tunnel "
        "through it, to measure the tunnel's cost",
    )
    experiment_network: Annotated[str, AfterValidator(EXPERIMENT_NETWORK), Mark.READ_BY_CLOUDLAB] = Field(
        "10.10.1.0/24", exclude=True, description="subnet of the machines' network that carries the gradients"
    )

    def _conflicts(self) -> Iterator[ConflictError]:
        if self.rank is not None and self.world_size is not None and self.rank >= self.world_size:
            yield ConflictError(
                f"RANK={self.rank} is not below WORLD_SIZE={self.world_size}. Give 0 to {self.world_size - 1}."
            )
        nodes = shown(self.nodes or "")
        if self.node is not None and self.node not in self.all_nodes:
            yield ConflictError(f"NODE={self.node} is not one of NODES={nodes}. Set both, or neither inside Compose.")
        if len(set(self.all_nodes)) < len(self.all_nodes):
            yield ConflictError(f"NODES={nodes} names a node twice. Each node has one rank.")
        if self.all_nodes and self.world_size not in (None, len(self.all_nodes)):
            yield ConflictError(
                f"WORLD_SIZE={self.world_size}, but NODES={nodes} names {len(self.all_nodes)}. Unset WORLD_SIZE."
            )

    def check_ranks(self, world_size: int) -> None:
        """Refuse to slow down a rank that does not exist."""
        if self.slow_rank is not None and self.slow_rank >= world_size:
            raise no_such_rank("SLOW_RANK", str(self.slow_rank), self.slow_rank, world_size)

    def check_machine(self, cpus: int) -> None:
        """Refuse more CPUs or threads for a rank than a machine of this many CPUs can give."""
        if self.rank_cpus is not None and self.rank_cpus > cpus:
            raise SettingError(
                f"invalid RANK_CPUS '{self.rank_cpus:g}'. Give at most {cpus}, the CPUs of this machine."
            )
        most = max(ALWAYS_ALLOWED_THREADS, THREADS_PER_CPU * cpus)
        if self.threads_per_rank is not None and self.threads_per_rank > most:
            raise SettingError(
                f"invalid THREADS_PER_RANK '{self.threads_per_rank}'. "
                f"Give at most {most} on this machine, which has {counted(cpus, 'CPU')}."
            )

    @property
    def all_nodes(self) -> tuple[str, ...]:
        """The nodes by rank; empty if NODES does not assign the ranks."""
        return tuple(self.nodes.split(",")) if self.nodes else ()
