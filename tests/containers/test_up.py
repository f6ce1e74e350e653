"""scripts/up and plain Compose, as users call them."""

import json
import os
import re
import signal

import pytest

from app.modes import MODES
from tests.containers.cluster import ENDLESS, PATIENCE_SECONDS, ROOT, SMALL, Clone, docker, owners, until
from tests.containers.conftest import MakeClone

README = ROOT / "README.md"


CORES = os.cpu_count() or 1


@pytest.mark.parametrize("workers", [0, 7])
def test_any_number_of_workers_and_cores_that_too_many_share_are_said(clone: Clone, workers: int) -> None:
    output = clone.up(WORKERS=str(workers), THREADS_PER_RANK=str(CORES), MAX_STEPS="2")
    run = clone.summary()
    shared = f"{workers + 1} ranks use {(workers + 1) * CORES} CPUs but share"
    assert (f"warning: {shared}" in output) is any(shared in each for each in run["warnings"]) is (workers > 0)
    assert run["world_size"] == workers + 1
    assert run["complete"]
    assert run["replicas_identical"]
    assert len(list((clone.folder / "results/latest").glob("rank-*.jsonl"))) == workers + 1
    manifest = json.loads((clone.folder / "results/latest/manifest.json").read_text())
    assert {rank["congestion_control"] for rank in manifest["ranks"]} == {"reno"}  # whatever the host's is
    assert manifest["image"]["packages_sha256"]
    assert "Results: results/" in output
    assert clone.containers("--all") == []


def test_real_handwriting_is_learned_with_the_readme_s_own_command(clone: Clone) -> None:
    """On two ranks, which learn the same as four: test_equivalence.py."""
    (command,) = re.findall(r"^scripts/up MODEL=lenet5.* EPOCHS=30.*?(?=  #|$)", README.read_text(), re.MULTILINE)
    code, output = clone.run(*command.split(), WORKERS="1", LINK_CHECK="off")
    assert code == 0, output
    run = clone.summary()
    assert run["complete"]
    assert len(run["run"]["epochs"]) == 30
    assert run["run"]["accuracy"] >= 0.95


def test_a_wrong_archive_is_refused_before_any_rank_starts(clone: Clone) -> None:
    """Of the user's own data/, which `prepare` sees and the ranks do not."""
    (clone.folder / "data/train-images-idx3-ubyte.gz").write_bytes(b"not what it should be")
    code, output = clone.run("scripts/up", MODEL="lenet5", DATASET="mnist")
    assert code == 2
    (clone.folder / "data/train-images-idx3-ubyte.gz").unlink()
    assert "data/train-images-idx3-ubyte.gz is damaged" in output
    assert not (clone.folder / "results/latest").exists()


def test_plain_compose_with_a_scale_goes_on_when_ranks_were_killed(clone: Clone) -> None:
    """Rank 0 and two workers at once. What was learned, test_faults.py compares bit by bit."""
    long = {**SMALL, "MAX_STEPS": "80", "EPOCHS": "30", "CHECKPOINT_EVERY": "20", "EVALUATE": "never"}
    process = clone.start("docker", "compose", "up", "--scale", "worker=5", **long)
    clone.wait_for("checkpoint", 1)
    for service, number in (("rank0", 1), ("worker", 1), ("worker", 5)):
        clone.kill(service, number)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output
    assert "attempt 1 resumes at step " in output
    run = clone.summary()
    assert (run["world_size"], run["complete"], run["attempts"], run["replicas_identical"]) == (6, True, 2, True)


def test_plain_compose_starts_no_rank_with_a_wrong_setting(clone: Clone) -> None:
    code, output = clone.run("docker", "compose", "up", SYNC_MODE="dpp")
    assert code == 1
    assert "[invalid-setting] invalid SYNC_MODE 'dpp'. " in output
    assert f"{', '.join(MODES)}, or the name of a file in extensions/. Did you mean ddp?" in output
    for service in ("rank0", "worker"):
        assert docker("inspect", "--format", "{{.State.Status}}", clone.container(service)).strip() == "created"
    assert docker("inspect", "--format", "{{.State.ExitCode}}", clone.container("prepare")).strip() == "2"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("SYNC_MODE=dpp", "Did you mean ddp?"),
        ("WORKERS=-1", "0 to 100"),
        ("WORKERS=ten", "0 to 100"),
        ("GLOBAL_BATCH_SIZE=0", "1 to 1000000"),
        ("MAX_STEPS=ten", "1 to 1000000000"),
        ("MAX_STEP=3", "Did you mean MAX_STEPS?"),
        ("RANK_CPUS=1000", "the CPUs that this engine has"),
        ("RANK_MEMORY=much", "such as 2g"),
        ("NETWORK_PREFIX=10.77", "such as 10.77.1"),
        ("MAX_RESTARTS=-1", "0 to 1000"),
        ("WORLD_SIZE=9", "[conflicting-settings] WORLD_SIZE=9"),
        ("MODEL=lenet5 DATASET=shapes", "DATASET from: fashion, digits"),
        ("--fast", "[unknown-option]"),
        ("--with-floor SYNC_MODE=none", "[conflicting-settings] SYNC_MODE=none "),
    ],
)
def test_a_wrong_setting_ends_with_2_before_any_rank_starts(used_clone: Clone, wrong: str, told: str) -> None:
    code, output = used_clone.run("scripts/up", *wrong.split())
    assert code == 2, output
    assert told in output
    assert used_clone.containers("--all") == []
    assert not (used_clone.folder / "results/latest").exists()


@pytest.mark.parametrize(
    ("dotenv", "told"),
    [
        ("WORKERS=-1 # fewer", "error: [invalid-setting] invalid WORKERS '-1'. "),
        ("WORKERS: 200\r", "error: [invalid-setting] invalid WORKERS '200'. "),
        ("=x", "error: [invalid-dotenv]"),
        ("A B=1", "error: [invalid-dotenv]"),
    ],
)
def test_a_wrong_value_in_dotenv_is_found_as_well(used_clone: Clone, dotenv: str, told: str) -> None:
    (used_clone.folder / ".env").write_text(f"{dotenv}\n")
    code, output = used_clone.run("scripts/up")
    (used_clone.folder / ".env").unlink()
    assert code == 2, output
    assert told in output
    assert len(output.splitlines()) == 1


def test_settings_come_from_arguments_else_the_environment_else_dotenv_and_near_misses_are_warned_of(
    clone: Clone,
) -> None:
    """And they hold for the floor of a run as well, but for the mode."""
    written = [
        "WORKERS: ${NOBODY:-0} # alone",
        "SYNC_MODE=send_recv\r",
        "export SEED = 7",
        "SEEDS=7",
        "RUN_NAME='mine'",
    ]
    (clone.folder / ".env").write_text("\n".join(written))
    output = clone.up(
        "--with-floor", "SYNC_MODE=all_reduce", "WORKERS=1", SYNC_MODE="none", SYNC_MODES="none", LEARNING_RAET="3"
    )
    assert clone.summary()["sync_mode"] == "all_reduce"
    assert clone.summary()["world_size"] == 2
    assert clone.manifest()["settings"]["seed"] == 7
    own, floor = (
        json.loads((clone.folder / f"results/{name}/manifest.json").read_text()) for name in ("mine", "mine-floor")
    )
    differing = {name for name, value in own["settings"].items() if floor["settings"][name] != value}
    assert differing == {"sync_mode", "run_name"}
    assert floor["settings"]["sync_mode"] == "none"
    against = (clone.folder / "results/comparisons/mine--against-mine-floor/tables/against.csv").read_text()
    assert "\nmine,sync,0.0," in against, "without synchronisation it takes no time"
    assert "Report: results/comparisons/mine--against-mine-floor/report.html" in output
    assert clone.containers("--all") == []
    assert output.count("SYNC_MODES is set") == 1
    assert "warning: SYNC_MODES is set, but is not a setting. Did you mean SYNC_MODE?" in output
    assert "warning: LEARNING_RAET is set, but is not a setting. Did you mean LEARNING_RATE?" in output
    assert "warning: SEEDS is set, but is not a setting. Did you mean SEED?" in output


def test_while_a_run_goes_on_its_project_and_its_network_are_taken_and_ctrl_c_ends_it(make_clone: MakeClone) -> None:
    clone, other = make_clone(), make_clone()
    process = clone.start("scripts/up", **ENDLESS, WORKERS="1", NETWORK_PREFIX="10.78.77")
    clone.wait_for_step(5)
    assert clone.subnet() == "10.78.77.0/24"

    code, output = clone.run("scripts/up", **SMALL)
    assert code == 2
    assert "has a run in progress" in output

    code, output = other.run("scripts/up", NETWORK_PREFIX="10.78.77")
    assert code == 2
    assert f"10.78.77.0/24 is in use by the Docker network {clone.project}_ranks" in output
    assert "such as NETWORK_PREFIX=10.77." in output

    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert clone.containers("--all") == []
    assert clone.summary()["complete"] is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_results_belong_to_whoever_called_and_nothing_else_is_left(make_clone: MakeClone) -> None:
    caller = (12345, 23456)
    clone = make_clone(caller)
    before = set(clone.folder.rglob("*"))
    clone.up(WORKERS="1")
    added = set(clone.folder.rglob("*")) - before
    results = clone.folder / "results"
    assert owners(added) == {caller}
    assert all(results in path.parents for path in added)
    assert {path.relative_to(results).parts[0] for path in added} == {
        "latest",
        (results / "latest").readlink().name,
    }


def test_down_removes_what_was_started(clone: Clone) -> None:
    code, output = clone.run("docker", "compose", "up", "--detach", "rank0", **ENDLESS, WORKERS="1")
    assert code == 0, output
    assert len(clone.containers()) == 2
    assert clone.run("docker", "compose", "logs", "rank0")[0] == 0
    code, output = clone.run("scripts/down")
    assert code == 0, output
    assert clone.containers("--all") == []
    assert clone.networks() == []
    assert f"{clone.project}_prepared" in docker("volume", "ls", "--quiet").split()
    code, output = clone.run("scripts/down", "--everything")
    assert code == 2


def test_an_edit_is_never_run_from_yesterdays_image(make_clone: MakeClone) -> None:
    clone = make_clone()
    version = clone.folder / "app/__init__.py"
    version.write_text(version.read_text().replace('__version__ = "', '__version__ = "edited-'))
    code, output = clone.run("docker", "compose", "up", **SMALL)
    assert code == 0, output
    assert clone.manifest()["versions"]["lockstep"].startswith("edited-")


def test_a_killed_worker_is_named_and_the_exit_code_is_rank_0s(clone: Clone) -> None:
    process = clone.start("scripts/up", **ENDLESS, WORKERS="2", MAX_RESTARTS="0")
    clone.wait_for_step(5)
    victim = clone.kill("worker", 2)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert f"rank 0: lost rank 2 ({victim}, " in output
    assert f"{victim} was killed by SIGKILL with exit code 137. Its last lines:\n    " in output
    assert output.count("Its last lines:") == 1
    assert clone.containers() == []
    assert len(clone.containers("--all")) == 4  # stopped, so that their output can be read
    assert clone.summary()["complete"] is False
    clone.up()


def test_a_worker_that_ends_in_the_start_is_named_with_its_last_lines(clone: Clone) -> None:
    override = clone.folder / "compose.override.yaml"
    override.write_text('services: {worker: {entrypoint: [sh, -c, "echo no luck here; exit 3"]}}\n')
    code, output = clone.run("scripts/up", JOIN_TIMEOUT="10", MAX_RESTARTS="0", **SMALL)
    override.unlink()
    assert code == 1, output  # for something that happened, not for something that the user has set
    told = f"{clone.container('worker')} exited before rank 0 with exit code 3. Its last lines:\n    no luck here\n"
    assert told in output


def test_a_worker_that_never_starts_is_missed(clone: Clone) -> None:
    """Plain Compose asks for two workers; nothing but DNS shows how many `--scale` has started."""
    code, output = clone.run(
        "docker", "compose", "up", "--scale", "worker=1", MAX_RESTARTS="1", **{**SMALL, "WORKERS": "2"}
    )
    until(lambda: not clone.containers(), "the end of the ranks")
    assert code == 1, output
    assert re.search(rf"\b3 ranks .*rank 2 \({clone.container('worker', 2)}\) is not running", output)
    assert "have joined" not in output


def test_a_gap_in_the_numbers_of_the_workers_is_refused(clone: Clone) -> None:
    """Where a container was removed by hand, Compose gives its successor another number."""
    code, output = clone.run("docker", "compose", "up", "--no-start", **{**SMALL, "WORKERS": "2"})
    assert code == 0, output
    docker("rm", clone.container("worker"))
    code, output = clone.run("docker", "compose", "up", MAX_RESTARTS="1", **SMALL)
    until(lambda: not clone.containers(), "the end of the ranks")
    assert code == 1, output
    assert re.search(rf"\b3 ranks .*rank 1 \({clone.container('worker')}\) is not running", output)
    assert "have joined" not in output
