"""The scripts' own decisions, each function called in a real bash."""

import hashlib
import os
import pty
import re
import shutil
import socket
import subprocess
import tomllib
from contextlib import closing
from functools import partial
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.modes import MODES
from app.settings import environment, texts
from app.settings.concern import Mark
from app.settings.names import names
from app.settings.settings import marked

ROOT = Path(__file__).parents[2]
SCRIPTS = [path.name for path in sorted((ROOT / "scripts").iterdir()) if path.is_file()]
SCREEN_LINES, SCREEN_COLUMNS = 40, 100
MOST_NAMES = 28
ROUNDS = 20
PARTS = "; ".join(
    f". scripts/host/{part}.sh"
    for part in ("messages", "arguments", "settings", "engine", "project", "image", "network")
)


def bash(command: str, cwd: str | Path = ROOT, given: str = "", **environment: str) -> tuple[int, str]:
    result = subprocess.run(
        ["bash", "-c", f"{PARTS}; {command}"],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **environment},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


def test_the_scripts_table_is_generated_from_the_settings() -> None:
    assert (ROOT / "scripts/host/settings.table").read_text() == texts.settings_table(), (
        "regenerate: see CONTRIBUTING.md"
    )


def test_the_scripts_take_the_settings_that_the_program_has() -> None:
    assert bash("known_settings")[1].split() == names()


@pytest.mark.parametrize(
    ("arguments", "name", "fact"),
    [
        ("SYNCMODE=ring", "unknown-setting", "Did you mean SYNC_MODE?"),
        ("sync_mode=ring", "unknown-setting", "Did you mean SYNC_MODE?"),
        ("MEMORY=1g", "unknown-setting", "Did you mean RANK_MEMORY?"),
        ("LR=0.1", "unknown-setting", "unknown setting LR. scripts/up --help"),
        ("X=1 WORKERS=3", "unknown-setting", "unknown setting X. scripts/up --help"),
        ("RANK=1", "unknown-setting", "WORKERS"),
        ("SYNC_MODE.=ring", "unknown-setting", "'SYNC_MODE.'"),
        ("=1", "unknown-setting", "SYNC_MODE=ddp"),
        ("--sync-mode ring", "unknown-option", ": SYNC_MODE=ring\n"),
        ("--sync-mode=ring", "unknown-option", ": SYNC_MODE=ring\n"),
        ("--workers --with-floor", "unknown-option", ": WORKERS=...\n"),
        ("--with-flor", "unknown-option", "Did you mean --with-floor?"),
        ("--fast", "unknown-option", "--with-floor, NAME=value, --help.\n"),
        ("workers 7", "unknown-argument", ": WORKERS=7\n"),
        ("fast", "unknown-argument", ": SYNC_MODE=ddp\n"),
    ],
)
def test_every_other_argument_is_refused_with_the_form_that_was_probably_meant(
    arguments: str, name: str, fact: str, without_docker: str
) -> None:
    code, output = bash(f"scripts/up {arguments}", PATH=without_docker)
    assert (code, output.count("\n")) == (2, 1), output
    assert output.startswith(f"error: [{name}] ")
    assert fact in output


def test_options_settings_and_words_come_in_any_order_and_a_value_in_either_form() -> None:
    sorting = "sort_arguments --quick --calibration= NAME=value GRID; "
    sorting += 'printf \'%s \' "${OPTIONS[@]}" / "${SETTINGS[@]}" / "${WORDS[@]}"'
    for value in ("--calibration=mine", "--calibration mine"):
        for arguments in permutations([value, "SEED=3", "cells"]):
            code, output = bash(f"ARGUMENTS=({' '.join(arguments)}); {sorting}")
            assert (code, output) == (0, "--calibration=mine / SEED=3 / cells "), arguments
    assert bash(f"ARGUMENTS=(--quick=yes); {sorting}")[0] == 2
    assert bash(f"ARGUMENTS=(cells --calibration); {sorting}")[0] == 2


REFUSALS = {
    "benchmark nonsense": "unknown-name",
    "benchmark step --round 3": "unknown-option",
    "benchmark step 'a;b'": "unknown-argument",
    "benchmark sync WORKER=3": "unknown-setting",
    "benchmark": "missing-argument",
    "calibrate --fres": "unknown-option",
    "calibrate SEED=3": "unknown-argument",
    "calibrate a/b": "invalid-argument",
    "cloudlab node0 --chek": "unknown-option",
    "cloudlab": "missing-argument",
    "compare a b --base-line c": "unknown-option",
    "compare": "missing-argument",
    "conformance nonsense": "unknown-name",
    "conformance nonsense.py": "missing-file",
    "conformance --all": "missing-argument",
    "conformance --all nowhere": "missing-file",
    "conformance tree ddp": "conflicting-arguments",
    "doctor --quick": "unknown-option",
    "down --everything": "unknown-option",
    "experiment": "missing-argument",
    "experiment rings": "unknown-name",
    "experiment ring --quik": "unknown-option",
    "experiment ring MAX_STEP=3": "unknown-setting",
    "faults --seed": "missing-argument",
    "faults --fault kill": "unknown-option",
    "hardening --stak": "unknown-option",
    "predict": "missing-argument",
    "predict networks": "unknown-name",
    "predict WORKER=1,3": "unknown-setting",
    "report --all": "unknown-option",
    "schedule SYNC_MOD=tree": "unknown-setting",
    "test quick": "unknown-name",
    "up --help nonsense": "unknown-name",
    "verify cells --fresch": "unknown-option",
    "verify cells ring": "conflicting-arguments",
    "host/ready_node --disk": "unknown-option",
}


def test_every_error_of_the_scripts_has_one_of_a_few_names() -> None:
    files = [*(ROOT / "scripts").iterdir(), *(ROOT / "scripts/host").iterdir()]
    lines = [line for path in files if path.is_file() for line in path.read_text().splitlines()]
    calls = [found for line in lines for found in re.findall(r"\b(?:refuse|fail|error) ([a-z-]+ )?[\"'](?!\$@)", line)]
    assert len(calls) > MOST_NAMES
    assert len({name for name in calls if name}) <= MOST_NAMES
    assert "" not in calls


@pytest.fixture(scope="module")
def without_docker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which docker is a program that no script may call."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "docker").write_text("#!/bin/sh\necho docker was called >&2\nkill -9 $PPID\n")
    (folder / "docker").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize("command", REFUSALS)
def test_wrong_arguments_of_every_script_are_refused_without_docker(command: str, without_docker: str) -> None:
    code, output = bash(f"scripts/{command}", PATH=without_docker)
    assert (code, output.count("\n")) == (2, 1), output
    assert output.startswith(f"error: [{REFUSALS[command]}] ")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_of_every_script_is_one_screen_and_needs_no_docker(script: str, without_docker: str) -> None:
    code, output = bash(f"scripts/{script} --help", PATH=without_docker)
    assert code == 0
    assert output.startswith("usage: ")
    assert output.count("\n") <= SCREEN_LINES
    assert max(map(len, output.splitlines())) <= SCREEN_COLUMNS
    assert "@settings" not in output
    assert bash(f"scripts/{script} x -h", PATH=without_docker) == (0, output)


def test_help_on_a_group_prints_each_of_its_settings_with_default_and_meaning(without_docker: str) -> None:
    help_on = partial(bash, PATH=without_docker)
    groups = re.findall(r"^## (\w+): (.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert groups
    screen = help_on("scripts/up --help")[1]
    pages = []
    for group, meaning in groups:
        assert re.search(rf"^  {group} +{re.escape(meaning)}$", screen, re.MULTILINE)
        code, page = help_on(f"scripts/up --help {group}")
        assert (code, page.splitlines()[0]) == (0, f"{group}: {meaning}")
        assert max(map(len, page.splitlines())) <= SCREEN_COLUMNS
        pages.append(page)
    assert help_on("scripts/doctor --help settings") == (0, "".join(pages))
    entries = re.findall(r"^  ([A-Z_]+)=(.*)\n    \S", "".join(pages), re.MULTILINE)
    assert sorted(name for name, _ in entries) == sorted(names())
    assert ("WORKERS", "3") in entries


def test_a_script_is_found_through_a_link_and_in_a_folder_with_a_space(tmp_path: Path, without_docker: str) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "a b/scripts")
    (tmp_path / "down").symlink_to("a b/scripts/down")
    assert bash(f"cd '{tmp_path}'; ./down --al", PATH=without_docker)[1].startswith("error: [unknown-option] ")


def test_every_experiment_is_listed_with_its_title_without_docker(without_docker: str) -> None:
    grids = {path.stem: tomllib.loads(path.read_text()) for path in (ROOT / "scripts/experiments").glob("*.toml")}
    code, output = bash("scripts/experiment --list", PATH=without_docker)
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == sorted(grids)
    for line in output.splitlines():
        name, title = line.split(maxsplit=1)
        rounds = grids[name].get("repeats", 1)
        assert title == f"{grids[name]['title']}: {rounds} round{'s' if rounds > 1 else ''}"


def test_every_mode_is_known_without_docker() -> None:
    assert bash(". scripts/host/conformance.sh; modes_in app/sync/modes")[1].split() == sorted(MODES)


def test_the_place_of_a_rank_is_no_setting_of_the_cluster() -> None:
    for name in marked(Mark.GIVEN_BY_LAUNCHER):
        assert "cannot be set here" in bash(f"check_setting {name.upper()}=1")[1]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("SYNCMODE", "SYNC_MODE"),
        ("max_step", "MAX_STEPS"),
        ("MAX_SETPS", "MAX_STEPS"),
        ("MEMORY", "RANK_MEMORY"),
        ("LR", ""),
        ("QQ", ""),
        ("", ""),
        ("$(x) \\n `y`", ""),
        ("x" * 100_000, ""),
    ],
)
def test_the_nearest_word_however_it_is_written(word: str, near: str) -> None:
    known = " ".join(names())
    assert bash(f'read -r word; nearest "$word" {known}', given=word) == (0, near and f"{near}\n")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("WORKERS", "0 3 007 100 101 1000 -1 1.5 ten 3x"),
        ("RANK_CPUS", "0.5 2 2. .25 10.05 00.01 .01 0.0099 1024.0 1024.1 1023.9 1e1 0 0.0 . -1 half 1,5"),
        (
            "RANK_MEMORY",
            "320m 319m 327680k 327679k 1g 2GB 600mb 16384g 16385g 16777216m 16777217m 17179869184k 17179869185k "
            "9999999g 99999999999999999999 0g 1m 1.5g 2x 2 much g",
        ),
        (
            "NETWORK_PREFIX",
            "10.77.1 10.0.0 10.255.255 192.168.0 192.167.0 172.16.0 172.31.255 172.15.0 172.32.0 100.64.0 100.127.9 "
            "100.63.0 100.128.0 223.255.255 8.8.8 10.77 10.77.1.0 10.77.256 0.1.2 127.0.0 224.0.0 10.077.1 "
            "010.077.030 a.b.c",
        ),
        ("NETWORK", "host overlay Host bridge hosts"),
        (
            "EXPERIMENT_NETWORK",
            "10.10.1.0/24 10.10.1.1/30 192.168.1.0/8 10.10.1.0 10.10.1/24 10.10.1.0/31 10.256.1.0/24",
        ),
        ("DATA_FOLDER", "/srv/data ./data ../data ~/data /Übungen /a:b data ~other/data C:/data -/data . .. / ./ ~"),
    ],
)
def test_scripts_and_program_refuse_the_same_values_in_the_same_words(name: str, values: str) -> None:
    for value in values.split():
        code, output = bash("check_compose_settings", **{name: value})
        told = environment.problems({name: value})
        refusal = told.get(name, "").partition(" Did you mean ")[0]  # bash suggests names, not values
        assert (code, output) == ((2, f"error: [invalid-setting] {refusal}\n") if told else (0, "")), value


def test_a_folder_of_data_may_hold_spaces_and_no_control_characters() -> None:
    assert bash("check_compose_settings", DATA_FOLDER="/srv/my data") == (0, "")
    for control in ("\n", "\t", "\x1b"):
        assert bash("check_compose_settings", DATA_FOLDER=f"/srv/my{control}data")[0] == 2
        assert environment.problems({"DATA_FOLDER": f"/srv/my{control}data"})


def test_each_user_and_each_folder_has_its_own_project(tmp_path: Path) -> None:
    """It is always the same, and a name that Compose takes."""
    places = [tmp_path / "a" / "lockstep", tmp_path / "b" / "lockstep", tmp_path / "\u8a13"]
    for place in places:
        place.mkdir(parents=True)
    names = [bash(f"cd '{place}'; name_project; project_name")[1].strip() for place in (*places, places[0])]
    assert len({*names}) == len(places)
    assert names[0] == names[-1]
    assert all(re.fullmatch(r"lockstep-[a-z0-9]+-[0-9a-f]{8}", name) for name in names)
    other = bash(f"cd '{places[0]}'; id() {{ echo 4242; }}; name_project; project_name")[1].strip()
    assert other not in names
    assert bash("name_project; project_name", COMPOSE_PROJECT_NAME="mine") == (0, "mine\n")
    for wrong in ("Mine", "a/b", "-a", "a b", "x" * 64, "\u8a13"):
        code, output = bash("name_project", COMPOSE_PROJECT_NAME=wrong)
        assert (code, output.count("\n")) == (2, 1)
        assert "error: [invalid-setting] " in output


def test_equal_sources_have_one_number_and_others_another(tmp_path: Path) -> None:
    number = "image_id() { echo base; }; REVISION=one; number_of_sources"
    for name in ("docker", "app"):
        (tmp_path / name).mkdir()
    for name in ("docker/Dockerfile", "docker/entrypoint", "docker/health", "docker/torchrun", "app/x.py"):
        (tmp_path / name).write_text(name)
    here = f"cd '{tmp_path}'; {number}"
    first = bash(here)
    (tmp_path / "app/__pycache__").mkdir()
    (tmp_path / "app/__pycache__/x.pyc").write_text("bytecode")
    assert bash(here) == first
    assert re.fullmatch(r"[0-9a-f]{16}\n", first[1])
    (tmp_path / "app/x.py").write_text("edited")
    assert bash(here) != first


def test_a_script_that_was_killed_holds_nobody_up_even_if_what_it_started_goes_on(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho started; exec cat\n")
    (tmp_path / "docker").chmod(0o755)
    claim = f"CLAIM={tmp_path}/claim; take_claim"
    with subprocess.Popen(
        ["bash", "-c", f"{PARTS}; . scripts/host/cluster.sh; {claim}; begin cat; docker"],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert bash(claim) == (1, "")
        holder.kill()
        holder.wait()
        assert bash(claim) == (0, "")


def test_of_two_starts_at_once_upon_the_claim_of_a_killed_one_one_begins(tmp_path: Path) -> None:
    start = f"{PARTS}; CLAIM={tmp_path}/claim; read -r; take_claim && echo began || echo refused; read -r"
    for _ in range(ROUNDS):  # each leaves the claim as a killed script does
        pair = [
            subprocess.Popen(["bash", "-c", start], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for each in pair:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        answers = [each.stdout.readline() for each in pair if each.stdout is not None]
        for each in pair:
            each.communicate()
        assert sorted(answers) == ["began\n", "refused\n"]


def test_a_claim_is_never_taken_from_one_that_releases_it_while_another_waits(tmp_path: Path) -> None:
    turn = "if take_claim; then mkdir alone && rmdir alone || echo two; release_project; fi"
    loop = f"cd {tmp_path}; for ((turn = 0; turn < 60; turn++)); do CLAIM=./claim; {turn}; done"
    starts = [subprocess.Popen(["bash", "-c", f"{PARTS}; {loop}"], cwd=ROOT, stdout=subprocess.PIPE) for _ in range(4)]
    assert {each.communicate()[0] for each in starts} == {b""}
    assert not list(tmp_path.iterdir())


def test_without_flock_a_claim_stands_until_it_is_released_or_removed_by_hand(tmp_path: Path) -> None:
    claim = f"command() {{ [[ $2 != flock ]]; }}; CLAIM={tmp_path}/claim; take_claim"
    assert [bash(each)[0] for each in (f"{claim}; release_project", claim, claim)] == [0, 0, 1]
    (tmp_path / "claim").unlink()
    assert bash(claim) == (0, "")


def test_down_removes_the_containers_of_a_run_in_progress_and_only_the_claim_of_a_killed_script(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "docker").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked; echo 27 4\n')
    (tmp_path / "docker").chmod(0o755)
    there = partial(bash, cwd=tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin", COMPOSE_PROJECT_NAME="x")
    claim = "CLAIM=results/.claim-x; take_claim"
    assert there(claim) == (0, "")
    assert there("scripts/down")[0] == 0
    assert not (tmp_path / "results/.claim-x").exists()
    code, output = there(f"{claim}; scripts/down; ({claim}); echo $?")
    assert (code, output.splitlines()[-1]) == (0, "1"), output
    assert (tmp_path / "asked").read_text().count("down --remove-orphans") == 2


def test_a_start_makes_the_folder_of_results_again_if_it_was_deleted(tmp_path: Path) -> None:
    assert bash(f"CLAIM={tmp_path}/results/claim; take_claim") == (0, "")
    (tmp_path / "results").rename(tmp_path / "a")
    (tmp_path / "results").touch()
    code, output = bash(f"CLAIM={tmp_path}/results/claim; take_claim")
    assert code == 1
    assert "error: [no-permission] " in output


@pytest.mark.parametrize("name", ["x y", "x *", 'x\' "y" $HOME `y`'])
def test_what_a_script_removes_at_its_end_has_exactly_the_name_that_it_made(tmp_path: Path, name: str) -> None:
    """Whatever the paths of the checkout, the home and the temporary files hold."""
    for bystander in ("x", "y", "home", "x y/z", name):
        (tmp_path / bystander).mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "scripts/host", tmp_path / name / "scripts/host")
    before = set(tmp_path.rglob("*"))
    claims = "name_project; CLAIM=$PWD/results/claim; take_claim; at_exit release_project"
    makes = 'temporary_file made; mkdir "$TMPDIR/folder y"; at_exit rm -rf "$TMPDIR/folder y"; [[ -e $made ]]'
    place = str(tmp_path / name)
    assert bash(f"{claims}; {makes}", cwd=place, TMPDIR=place, HOME=place) == (0, "")
    assert set(tmp_path.rglob("*")) == before | {tmp_path / name / "results"}


def test_a_run_is_judged_by_its_own_records_and_not_by_those_of_another_project(tmp_path: Path) -> None:
    """Of another project, theirs/ diverged after it had saved a state, and named/ has just been opened."""
    shutil.copytree(ROOT / "scripts/host", tmp_path / "scripts/host")
    engine = """
        docker() { case $* in
            ps*) echo container ;;
            wait*) echo 0; mkdir -p results/{mine,named,theirs/checkpoint/step-1}
                echo '{"exit_code": 1, "comes_again": true}' | tee results/theirs/{attempts,rank-0}.jsonl >/dev/null
                touch results/{mine,named,theirs/checkpoint/step-1/commit.json} ;;
            *logs*--tail*) echo 'no luck here' ;;
            logs*) echo 'results/mine: LeNet-5' ;;
            *inspect*RestartCount*) echo 'exited 0 now' ;;
            *inspect*.Id*) echo '2026-01-01 3 id worker-1' ;;
            *inspect*FinishedAt*) echo '2026-01-02' ;;
            *inspect*ExitCode*) echo "$RANK0" ;;
            *inspect*Status*) echo exited ;;
        esac; }"""
    run = f". scripts/host/cluster.sh; {engine}; name_project; CLAIM=results/claim; take_claim; run_ranks prepare train"
    start = partial(bash, f"set -euo pipefail; {run}", cwd=tmp_path, LOCKSTEP_IMAGE="x")
    code, output = start(RANK0="0")
    assert code == 0, output
    code, output = start(RANK0="1")
    assert code == 1
    assert "worker-1 exited before rank 0 with exit code 3. Its last lines:\n    no luck here" in output
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"claim", "named", "theirs"}


def test_a_user_without_rights_to_the_engine_of_a_node_uses_it_through_sudo() -> None:
    with TemporaryDirectory() as folder, closing(socket.socket(socket.AF_UNIX)) as engine:
        engine.bind(f"{folder}/docker.sock")
        Path(folder).chmod(0o755)
        Path(folder, "docker.sock").chmod(0)
        node = (
            f'PROJECT=x ENGINE_SOCKET={folder}/docker.sock; sudo() {{ echo "sudo $*"; }}; . scripts/host/swarm_node.sh'
        )
        as_nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*as_nobody, "bash", "-c", f"{PARTS}; {node} >/dev/null; docker ps"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.stdout == "sudo --preserve-env docker ps\n", result.stderr


def test_world_size_must_agree_with_workers() -> None:
    code, output = bash("check_compose_settings", WORKERS="1", WORLD_SIZE="4")
    assert code == 2
    assert "[conflicting-settings] WORLD_SIZE=4 " in output
    assert bash("check_compose_settings", WORKERS="3", WORLD_SIZE="4") == (0, "")


def test_the_program_is_given_the_names_of_all_variables() -> None:
    code, output = bash("variables", SYNC_MODES="x", LANG="C")
    assert code == 0
    assert {"SYNC_MODES", "LANG", "PATH"} <= set(output.strip().split(","))


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("10.77.1.0/24", "10.77.1.0/24", True),
        ("10.77.1.0/24", "10.77.0.0/16", True),
        ("10.77.1.0/24", "10.77.1.130/32", True),
        ("10.77.1.0/24", "10.77.2.0/24", False),
        ("10.77.1.0/24", "172.17.0.0/16", False),
        ("10.77.1.0/24", "0.0.0.0/0", True),
        ("10.77.1.0/24", "fd00::/64", False),
    ],
)
def test_subnets_that_share_an_address_are_told_from_others(one: str, other: str, common: bool) -> None:
    assert (bash(f"overlap {one} {other}")[0] == 0) is common


@pytest.mark.parametrize("distribution", ["debian 12", "debian 13", "ubuntu 22.04", "ubuntu 24.04"])
@pytest.mark.parametrize("part", ["engine", "compose", "buildx"])
def test_every_part_has_packages_on_the_distributions_that_are_known(part: str, distribution: str) -> None:
    code, packages = bash(f"packages_for {part} '{distribution}'")
    assert code == 0
    assert "docker" in packages


def made_up_suite(archive: Path, suite: str, more: str = "", **versions: int) -> str:
    """An unsigned suite of Debian in a folder; gives its line for sources.list."""
    packages = "".join(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nFilename: {name}\nSize: 1\n\n"
        for name, version in versions.items()
    )
    folder = archive / "dists" / suite / "main/binary-amd64"
    folder.mkdir(parents=True)
    (folder / "Packages").write_text(packages)
    sha256 = hashlib.sha256(packages.encode()).hexdigest()
    (archive / "dists" / suite / "Release").write_text(
        f"Origin: Debian\nCodename: {suite}\nSuite: {suite}\nComponents: main\nArchitectures: amd64\n{more}"
        f"SHA256:\n {sha256} {len(packages)} main/binary-amd64/Packages\n"
    )
    return f"deb file:{archive} {suite} main\n"


def test_only_docker_comes_from_trixie_until_the_machine_itself_is_upgraded(tmp_path: Path) -> None:
    """The whole of apt, on archives in folders. An earlier version's pins kept every package from an upgrade."""
    etc, debian, security = tmp_path / "etc/apt", tmp_path / "debian", tmp_path / "debian-security"
    later = "NotAutomatic: yes\nButAutomaticUpgrades: yes\n"
    bookworm = made_up_suite(debian, "bookworm", docker=1, libc=1)
    bookworm += made_up_suite(security, "bookworm-security", libc=2)
    trixie = made_up_suite(debian, "trixie", docker=3, libc=3)
    trixie += made_up_suite(debian, "trixie-updates", libc=4)
    trixie += made_up_suite(security, "trixie-security", docker=5, libc=5)
    trixie += made_up_suite(debian, "trixie-backports", later, docker=3, libc=6)
    for folder in (etc / "sources.list.d", etc / "preferences.d", tmp_path / "var/lib/apt/lists/partial"):
        folder.mkdir(parents=True)
    sources, pins = etc / "sources.list.d/lockstep-trixie.sources", etc / "preferences.d/lockstep-trixie"
    sources.touch()
    pins.write_text("Package: *\nPin: release n=trixie\nPin-Priority: -1\n")
    (tmp_path / "status").write_text("Package: libc\nStatus: install ok installed\nVersion: 2\nArchitecture: amd64\n")
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir "{tmp_path}"; Dir::State::status "{tmp_path}/status"; APT::Architecture "amd64"; '
        'APT::Sandbox::User "root"; Acquire::AllowInsecureRepositories "true";'
    )

    def candidates(own_sources: str, first: str = "") -> list[str]:
        (etc / "sources.list").write_text(own_sources)
        names = f'as_root() {{ "$@"; }}; TRIXIE_SOURCES={sources}; TRIXIE_PINS={pins}; TRIXIE_PACKAGES=docker'
        command = f"{names}; {first} apt-get update >&2 && apt-cache policy docker libc"
        code, output = bash(command, APT_CONFIG=str(configuration))
        assert code == 0, output
        return re.findall(r"Candidate: (\S+)", output)

    assert candidates(bookworm, "add_trixie_source;") == ["5", "2"]
    assert candidates(trixie) == ["5", "5"]


def test_docker_s_package_sources_are_removed_only_if_somebody_says_so(tmp_path: Path) -> None:
    files = [tmp_path / "sources", tmp_path / "pins"]
    for file in files:
        file.touch()
    offer = f'as_root() {{ "$@"; }}; TRIXIE_SOURCES={files[0]}; TRIXIE_PINS={files[1]}; offer_to_remove_trixie_source'
    code, output = bash(f"{offer} </dev/null")
    assert code == 0
    assert f"sudo rm -f {files[0]} {files[1]}" in output
    for answer, kept in (("", True), ("y", False)):
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        command = ["bash", "-c", f"{PARTS}; {offer}"]
        subprocess.run(command, cwd=ROOT, stdin=theirs, stderr=theirs, check=True, timeout=60)
        os.close(theirs)
        os.close(ours)
        assert [file.exists() for file in files] == [kept, kept]
    assert bash(offer) == (0, "")


@pytest.mark.parametrize(
    ("system", "distribution", "advice"),
    [
        ("Darwin", "", "Docker Desktop"),
        ("Linux", "fedora 42", "sudo dnf install moby-engine docker-compose docker-buildx"),
        ("Linux", "plan9 4", "install Docker Engine, the Compose v2 plug-in and the buildx plug-in"),
    ],
)
def test_elsewhere_it_says_what_to_install(system: str, distribution: str, advice: str) -> None:
    stand_ins = f"uname() {{ echo {system}; }}; distribution() {{ echo '{distribution}'; }}"
    code, output = bash(f"{stand_ins}; install_packages engine")
    assert code == 1
    assert advice in output


def test_an_init_script_that_may_not_raise_limits_starts_the_engine_without_a_change_to_its_settings(
    tmp_path: Path,
) -> None:
    script = tmp_path / "docker"
    script.write_text(
        "#!/bin/sh\nset -e\n"
        'if [ "$1" = start ]; then ulimit -n not-allowed; "$0" status; fi\n'
        f'echo "$1${{SETTING:-}}" >>{tmp_path}/calls\n'
    )
    script.chmod(0o755)
    stand_ins = f'as_root() {{ "$@"; }}; service() {{ {script} start; }}; ENGINE_INIT_SCRIPT={script}'
    assert bash(f"{stand_ins}; start_engine_without_systemd", SETTING="leaks") == (0, "")
    assert (tmp_path / "calls").read_text().split() == ["status", "start"]


@pytest.mark.parametrize(
    ("version", "accepted"),
    [("2.21.0", False), ("v2.9.0", False), ("2.22.0", True), ("2.26.1-4", True), ("v2.40.3", True), ("5.0.0", True)],
)
def test_a_compose_that_cannot_read_the_cluster_is_refused(version: str, accepted: bool) -> None:
    code, output = bash(f'check_version "Docker Compose" "$LEAST_COMPOSE" {version}')
    assert (code, output == "") == (0, True) if accepted else (1, False)
    assert accepted or "error: [outdated-software] Docker Compose" in output


def test_a_checkpoint_is_reported_if_the_same_command_would_resume_it(tmp_path: Path) -> None:
    def report(**environment: str) -> tuple[int, int]:
        """The exit code, and the number of lines printed."""
        code, output = bash(f". scripts/host/cluster.sh; RUN_FOLDER={tmp_path}; report_saved_state", **environment)
        return code, output.count("\n")

    assert report() == (0, 0)
    commit = tmp_path / "checkpoint/step-1/commit.json"
    commit.parent.mkdir(parents=True)
    commit.touch()
    assert report() == (0, 1)
    assert report(RESUME="never") == (0, 0)
    (tmp_path / "summary.json").write_text('{"complete": true}')
    assert report() == (0, 0)
