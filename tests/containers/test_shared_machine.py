"""Several users, and several checkouts of one user, on one machine: nobody sees or ends another's run."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.cluster import Caller, Clone, docker, owners, until
from tests.containers.conftest import MakeClone, make_in

CALLERS: list[Caller] = [(0, 0), (12345, 23456), (12346, 23456)]
LEAST_SAMPLES = 12  # of a run that other programs disturb, half a second each, to say so
LONG = {"MODEL": "lenet5", "EPOCHS": "1000000", "EVALUATE": "never", "WORKERS": "1", "LINK_CHECK": "off"}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Clone]]:
    """Of three users, in folders of the same name; none of them names a project."""
    made = [make_in(tmp_path_factory, caller) for caller in CALLERS]
    for clone in made:
        clone.use_its_own_project()
    yield made
    for clone in made:
        clone.remove()


@needs_root
def test_three_users_run_at_once_and_each_ends_only_their_own(clones: list[Clone]) -> None:
    assert len({clone.folder.name for clone in clones}) == 1
    assert len({clone.project for clone in clones}) == 3
    processes = [clones[0].start("scripts/up", **LONG)]
    clones[0].wait_for_step(2)
    processes += [clone.start("scripts/up", **LONG) for clone in clones[1:]]
    for clone in clones[1:]:
        clone.wait_for_step(2)
        clone.wait_for("usage", LEAST_SAMPLES)
    for clone, process in zip(clones, processes, strict=True):
        left = [each for each in clones if each.containers()]
        assert clone in left
        assert clone.run("scripts/down")[0] == 0
        assert [each for each in clones if each.containers()] == [each for each in left if each is not clone]
        output, _ = process.communicate(timeout=60)
        assert process.returncode != 0, output
        results = list((clone.folder / "results").glob("2*"))
        assert len(results) == 1
        assert owners(results) == {clone.caller}
    for clone in clones[1:]:
        warnings = clone.summary()["warnings"]
        assert any(f"project {clones[0].project} of root" in warning for warning in warnings)
        assert any("other programs used" in warning for warning in warnings)


@needs_root
def test_equal_sources_make_one_image_which_goes_with_its_last_checkout(clones: list[Clone]) -> None:
    numbers = [docker("image", "inspect", "--format", "{{.Id}}", clone.image) for clone in clones]
    assert len({*numbers}) == 1
    assert "compose" not in docker("image", "inspect", "--format", "{{json .Config.Labels}}", clones[0].image)
    assert clones[0].run("scripts/down", "--all")[0] == 0
    assert f"{clones[0].project}_prepared" not in docker("volume", "ls", "--quiet").split()
    tags = docker("image", "ls", "--format", "{{.Tag}}", "lockstep").split()
    assert clones[0].image.partition(":")[2] not in tags
    assert clones[1].image.partition(":")[2] in tags


@needs_root
def test_plain_compose_says_who_has_the_volume_of_an_equally_named_folder(clones: list[Clone]) -> None:
    _, first, second = clones
    shared = {"COMPOSE_PROJECT_NAME": f"{first.project}-shared"}
    assert first.run("docker", "compose", "run", "--rm", "prepare", **shared)[0] == 0
    code, output = second.run("docker", "compose", "run", "--rm", "prepare", **shared)
    assert first.run("scripts/down", "--all", **shared)[0] == 0
    assert code == 2, output
    assert re.search(rf"\[no-permission\] .* user {CALLERS[1][0]}, .* user {CALLERS[2][0]}\.", output)
    assert "COMPOSE_PROJECT_NAME=other" in output


def test_of_two_starts_at_once_one_is_refused(clone: Clone) -> None:
    processes = [clone.start("scripts/up", **LONG) for _ in range(3)]
    until(lambda: sum(process.poll() is None for process in processes) == 1, "all but one to be refused")
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)
            continue
        output, _ = process.communicate()
        assert process.returncode == 2, output
        assert "has a run in progress" in output.splitlines()[-1]
    assert clone.containers("--all") == []


@pytest.mark.long
def test_beyond_the_networks_that_docker_has_the_script_finds_one(clone: Clone, tmp_path: Path) -> None:
    taken: list[str] = []
    try:
        while True:
            name = f"{clone.project}-{len(taken)}"
            made = subprocess.run(["docker", "network", "create", name], capture_output=True, text=True, check=False)
            if made.returncode:
                assert "address pool" in made.stderr
                break
            taken.append(name)
        clone.up(WORKERS="1")
    finally:
        docker("network", "rm", *taken)
    assert clone.summary()["complete"]


def test_a_script_finds_its_checkout_through_a_link_and_in_a_folder_of_any_name(
    make_clone: MakeClone, tmp_path: Path
) -> None:
    clone = make_clone()
    moved = clone.folder.rename(clone.folder.parent / "訓練")
    link = tmp_path / "train"
    link.symlink_to(moved / "scripts/up")
    clone.folder = tmp_path
    clone.use_its_own_project(moved)
    code, output = clone.run(str(link), MODEL="lenet5", WORKERS="0", MAX_STEPS="2")
    clone.folder = moved
    assert code == 0, output
    assert clone.summary()["complete"]
