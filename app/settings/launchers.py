"""Translates the variables of torchrun, mpirun and Slurm, and the options of `train`, into settings.

Each launcher has its own names for a process's rank, the number of ranks and rank 0's address. Two sources that
disagree are refused: a process with a wrong rank would wait forever, or train on another rank's samples.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.errors import ConflictError, SettingError
from app.machine.say import shown

# The options of `train`, by setting, named as in the course's scripts.
OPTIONS = {"rank": "--rank", "world_size": "--num-nodes", "master_addr": "--master-ip", "master_port": "--master-port"}

LOOPBACK = "127.0.0.1"
LAST_PORT = 65_535

# Ports for the ranks in Slurm, one per job step, below those that the kernel assigns to outgoing connections.
FIRST_PORT, PORTS = 16_384, 16_384
BETWEEN_STEPS = 1009  # a prime, so that the steps of one job are far from those of the next

GROUP = re.compile(r"[^,\[\]]*(?:\[[0-9,-]+\][^,\[\]]*)*")  # of a node list, without the comma after it: n[01-03,7]-ib
FIRST_NUMBER = re.compile(r"\[([0-9]+)[0-9,-]*\]")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Sourced:
    """A setting's value, and its source as a user would write it, such as RANK=3 or --rank 3."""

    value: str
    source: str


Place = dict[str, Sourced]  # by setting


def find(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that identify this process, if any are given: rank, number of ranks, rank 0's address and port.

    Options and variables with the settings' own names take precedence, then the innermost launcher.
    """
    given = _given(options, environment)
    if "TORCHELASTIC_RUN_ID" in environment:  # torchrun uses the settings' own names
        if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            given |= _beside_the_agent(given)
    elif launcher := _of_openmpi(environment) or _of_slurm(environment):
        _check_agreement(given, launcher)
        given = launcher | given
    return {setting: each.value for setting, each in given.items()}


def _given(options: Mapping[str, str], environment: Mapping[str, str]) -> Place:
    place: Place = {}
    named = {name.lower(): Sourced(value, f"{name}={shown(value)}") for name, value in environment.items() if value}
    for setting, option in OPTIONS.items():
        both = [Sourced(options[setting], f"{option} {shown(options[setting])}")] if setting in options else []
        both += [named[setting]] if setting in named else []
        for each in both[1:]:
            _refuse_unequal(both[0], each)
        place |= {setting: both[0]} if both else {}
    return place


def _beside_the_agent(given: Place) -> Place:
    """The port next to MASTER_PORT for the join: torchrun's agent on rank 0's node listens on MASTER_PORT."""
    agents = given.get("master_port")
    if agents is None or not agents.value.isdecimal():
        return {}
    port = int(agents.value)
    return {
        "master_port": Sourced(str(port + 1 if port < LAST_PORT else port - 1), f"beside torchrun's {agents.source}")
    }


def _of_openmpi(environment: Mapping[str, str]) -> Place:
    place = dict(_named(environment, rank=["OMPI_COMM_WORLD_RANK"], world_size=["OMPI_COMM_WORLD_SIZE"]))
    size = place.get("world_size")
    if size and size.value == environment.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        place["master_addr"] = Sourced(LOOPBACK, f"OMPI_COMM_WORLD_LOCAL_SIZE={size.value}")
    return place if "rank" in place else {}


def _of_slurm(environment: Mapping[str, str]) -> Place:
    place = dict(_named(environment, rank=["SLURM_PROCID"], world_size=["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]))
    if "rank" not in place:
        return {}
    hosts = dict(_named(environment, hosts=["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]))
    if listed := hosts.get("hosts"):
        place["master_addr"] = Sourced(first_host(listed), listed.source)
    job, step = (environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    if job.isdecimal():
        number = int(job) + BETWEEN_STEPS * (int(step) if step.isdecimal() else 0)
        place["master_port"] = Sourced(str(FIRST_PORT + number % PORTS), f"SLURM_JOB_ID={job}")
    return place


def _named(environment: Mapping[str, str], **names: list[str]) -> Iterator[tuple[str, Sourced]]:
    """Each setting with the first of its variables that has a value."""
    for setting, variables in names.items():
        for name in variables:
            if value := environment.get(name):
                yield setting, Sourced(value, f"{name}={shown(value)}")
                break


def first_host(hosts: Sourced) -> str:
    """The first host of a list in Slurm's notation: n01 of n[01-03,7],m2."""
    group = GROUP.match(hosts.value)
    first = group[0] if group else ""
    host, behind = FIRST_NUMBER.sub(r"\1", first), hosts.value[len(first) :]
    if not HOST.fullmatch(host) or (behind and behind[0] != ","):
        raise SettingError(
            f"cannot parse {hosts.source} as a list of hosts, such as n[01-03,7]. "
            "Set MASTER_ADDR to the name or address of rank 0's host."
        )
    return host


def _check_agreement(given: Place, launcher: Place) -> None:
    """Refuse a rank or a number of ranks that differs from the launcher's.

    A launcher may have started a single process, such as a shell, from which a user starts ranks by hand. Rank 0's
    address and port may always differ, because those of the launcher are only derived.
    """
    size = launcher.get("world_size")
    if size is None or size.value == "1":
        return
    for setting in ("rank", "world_size"):
        if setting in given and setting in launcher:
            _refuse_unequal(given[setting], launcher[setting])


def _refuse_unequal(one: Sourced, other: Sourced) -> None:
    numbers = one.value.isdecimal() and other.value.isdecimal()
    if (int(one.value) != int(other.value)) if numbers else (one.value != other.value):
        raise ConflictError(f"{one.source} contradicts {other.source}. Unset one of them.")
