"""Which rank a process is, by what started it."""

from collections.abc import Mapping

import pytest

from app.errors import SettingError
from app.settings.launchers import Sourced, find, first_host

SLURM = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[01-03,7]", "SLURM_JOB_ID": "5"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "none"}


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, {}),
        ({}, {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, {}),  # a shell in an allocation
        ({"rank": "2", "world_size": "4"}, {"RANK": ""}, {"rank": "2", "world_size": "4"}),
        ({"rank": "2"}, {"rank": "02"}, {"rank": "2"}),
        (
            {},
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h"},
            {"rank": "1", "world_size": "2", "master_addr": "h"},
        ),
        ({}, OPENMPI | {"MASTER_ADDR": "h"}, {"rank": "1", "world_size": "4", "master_addr": "h"}),
        (
            {},
            OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            {"rank": "1", "world_size": "4", "master_addr": "127.0.0.1"},
        ),
        ({}, SLURM, {"rank": "2", "world_size": "4", "master_addr": "n01", "master_port": "16389"}),
        (
            {"master_addr": "10.0.0.1"},
            SLURM | {"MASTER_PORT": "2000", "RANK": "2"},
            {"rank": "2", "world_size": "4", "master_addr": "10.0.0.1", "master_port": "2000"},
        ),
        # mpirun in an allocation of Slurm: the nearer one counts
        ({"master_addr": "h"}, SLURM | OPENMPI, {"rank": "1", "world_size": "4", "master_addr": "h"}),
        ({}, SLURM | TORCHRUN, {"rank": "3", "world_size": "4", "master_addr": "h", "master_port": "29400"}),
        # a shell in a step of one task, where ranks are started by hand
        (
            {},
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "h"},
            {"rank": "3", "world_size": "4", "master_addr": "h"},
        ),
    ],
)
def test_the_nearest_source_gives_the_rank_and_settings_come_first(
    options: Mapping[str, str], environment: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    assert find(options, environment) == expected


@pytest.mark.parametrize(("port", "taken"), [("29400", "29401"), ("65535", "65534")])
def test_the_join_leaves_its_port_to_the_agent_of_torchrun_that_listens_there(port: str, taken: str) -> None:
    agent = TORCHRUN | {"MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert find({}, agent)["master_port"] == taken


@pytest.mark.parametrize(
    ("options", "environment", "named"),
    [
        ({"rank": "2"}, {"RANK": "3"}, ["--rank 2", "RANK=3"]),
        ({"master_addr": "a"}, {"MASTER_ADDR": "b"}, ["--master-ip a", "MASTER_ADDR=b"]),
        ({}, SLURM | {"RANK": "1"}, ["RANK=1", "SLURM_PROCID=2"]),
        ({"world_size": "8"}, SLURM, ["--num-nodes 8", "SLURM_STEP_NUM_TASKS=4"]),
        ({}, OPENMPI | {"WORLD_SIZE": "3"}, ["WORLD_SIZE=3", "OMPI_COMM_WORLD_SIZE=4"]),
    ],
)
def test_two_sources_that_disagree_are_refused_by_name(
    options: Mapping[str, str], environment: Mapping[str, str], named: list[str]
) -> None:
    with pytest.raises(SettingError) as refused:
        find(options, environment)
    assert refused.value.name == "conflicting-settings"
    assert all(name in str(refused.value) for name in named)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[01-03,7],m2", "n01"),
        ("n[7,9-12]", "n7"),
        ("rack[2-3]n[010-020]-ib,x", "rack2n010-ib"),
        ("node-1.cluster.org,node-2.cluster.org", "node-1.cluster.org"),
    ],
)
def test_the_first_host_of_slurms_list(hosts: str, first: str) -> None:
    assert first_host(Sourced(hosts, f"SLURM_STEP_NODELIST={hosts}")) == first


@pytest.mark.parametrize("hosts", ["", ",", "[1-3", "n[1-3", "n[]", "n[a-b]", "n 1", "n1;n2", "$(id)", "[]]"])
def test_what_is_no_list_of_hosts_is_refused(hosts: str) -> None:
    with pytest.raises(SettingError, match=r"SLURM_STEP_NODELIST=.*MASTER_ADDR"):
        first_host(Sourced(hosts, f"SLURM_STEP_NODELIST={hosts}"))
