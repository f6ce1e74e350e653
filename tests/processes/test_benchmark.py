"""The benchmarks run, and tell of everything; their figures are for reading, and no test asserts them."""

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.modes import MODES
from app.settings import environment
from app.settings.averaging import AveragingSettings
from app.settings.settings import Settings
from app.tools.benchmark import child, course
from app.tools.benchmark.choice import OPERATION_NAMES
from app.tools.benchmark.operations import OPERATIONS
from app.training import models
from tests.bench import compute, overhead
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.group import Ranks

ROW = re.compile(r"^(?P<mode>\w+).* +(?P<seconds>[\d.]+) +.+ +[\d.]+ +(?P<ratio>[\d.]+) +\([\d.]+ to [\d.]+\)$")


def test_every_mode_is_timed_beside_plain_code(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark sync")
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    rows = [row for row in map(ROW.match, outcomes[0][1].splitlines()) if row]
    assert {row["mode"] for row in rows} == set(MODES) - {"none"}
    assert all(float(row["seconds"]) > 0 and float(row["ratio"]) > 0 for row in rows)


def test_a_wrong_name_is_refused(tmp_path: Path) -> None:
    code, output = group.wait(group.start("benchmark synk", tmp_path))
    assert code == 2
    assert "invalid choice: 'synk' (choose from step, sync, collectives)" in output


TIMED = r"(?P<p50>[\d.]+) +(?P<p99>[\d.]+) +(?P<algorithm>[\d.]+) +(?P<bus>[\d.]+) +(?P<wrong>\d+) +\d+%"
RATIO = r"[\d.]+(?: \([\d.]+ to [\d.]+\))?"
CELL = re.compile(
    rf"^(?P<operation>\w+) +(?P<size>\d+) +\d+ +{TIMED} +{TIMED.replace('?P<', '?P<straight_')} +{RATIO}$"
)


def test_every_operation_is_timed_at_every_size_for_every_number_of_ranks(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3, "benchmark collectives --smallest 16k --largest 16k", LINK_CHECK="strict")
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0, 0], outcomes
    tables = re.split(r"^(\d) ranks, links of .*$", outcomes[0][1], flags=re.MULTILINE)[1:]
    assert tables[::2] == ["2", "3"]
    for table in tables[1::2]:
        cells = [cell for cell in map(CELL.match, table.splitlines()) if cell]
        expected = [(name, "16384") for name in OPERATION_NAMES]
        assert [(cell["operation"], cell["size"]) for cell in cells] == expected
        for cell in cells:
            assert cell["wrong"] == cell["straight_wrong"] == "0"
            assert 0 < float(cell["p50"]) <= float(cell["p99"])


def test_links_that_are_not_as_asked_end_a_benchmark(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark collectives --largest 4k", LINK_RATE="1mbit", LINK_CHECK="strict")
    ranks.start()
    code, output = ranks.wait()[0]
    assert code == 1
    assert "the network misses the LINK_* settings" in output


def wrong_numbers(cluster: Cluster, name: str) -> list[list[int]]:
    """Through the communicator, and directly: before anything came, and after."""
    found = []
    communicator = Communicator(cluster)
    exercise = OPERATIONS[name].exercise(communicator, AveragingSettings(), 4096)
    for run in (exercise.run, exercise.run_directly):
        exercise.prepare()
        before = exercise.wrong()
        communicator.wait_for_peers()
        run()
        found.append([before, exercise.wrong()])
    return found


@pytest.mark.parametrize("name", OPERATION_NAMES)
def test_numbers_that_did_not_come_are_counted_as_wrong(group_of: GroupOf, name: str) -> None:
    outcomes = group_of(2).run(wrong_numbers, name)
    for variant in (0, 1):
        assert sum(outcome[variant][0] for outcome in outcomes) > 0
        assert [outcome[variant][1] for outcome in outcomes] == [0, 0]


# Whole steps, against the course script

SETUPS = ["course_one_node", "one_node", "all_reduce", "none", "all_reduce+PRECISION=bf16", "tuned_ddp"]


def test_every_setup_takes_its_turn_beside_the_course_script(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    ranks = Ranks(tmp_path, 2, f"benchmark step --rounds 5 --steps 1 --only {' '.join(SETUPS)}", GLOBAL_BATCH_SIZE=8)
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    [path] = (tmp_path / "results/benchmarks").glob("*-step.json")
    outcome = json.loads(path.read_text())
    assert list(outcome["setups"]) == SETUPS
    for name, each in outcome["setups"].items():
        assert len(each["seconds"]) == len(each["cpu_seconds"]) == 5
        assert min(each["seconds"]) > 0
        assert (each["phases"] is None) == name.startswith(("course", "tuned"))
    assert outcome["setups"]["all_reduce"]["replicas_identical"]
    assert len(outcome["setups"]["one_node"]["phases"]) == 1
    pairs = {(each["of"], each["against"]) for each in outcome["ratios"]}
    assert {("one_node", "course_one_node"), ("all_reduce", "none")} <= pairs
    assert ("all_reduce+PRECISION=bf16", "none") not in pairs  # which computes in fp32
    assert all(each["low"] <= each["value"] <= each["high"] for each in outcome["ratios"])
    _, *phases = outcomes[0][1].partition("forward  backward")[2].splitlines()
    own = [name for name in SETUPS if not name.startswith(("course", "tuned"))]
    assert [line.split()[0] for line in phases[: len(own)]] == own


def test_a_course_script_that_dies_ends_the_benchmark_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark step --rounds 1000 --only course_all_reduce", GLOBAL_BATCH_SIZE=8)
    ranks.start()
    scripts = [script_of(ranks, rank) for rank in (0, 1)]
    processes = [process for script in scripts for process in (script, *script.children(recursive=True))]
    os.kill(scripts[1].pid, signal.SIGKILL)
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [1, 1], outcomes
    for _, output in outcomes.values():
        assert re.search("rank 1: the course script course_all_reduce .*killed by SIGKILL", output)
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive, alive


def script_of(ranks: Ranks, rank: int) -> psutil.Process:
    """A rank's course script, once it has taken turns."""
    deadline = time.monotonic() + group.PATIENCE_SECONDS
    benchmark = psutil.Process(ranks.processes[rank].pid)
    while time.monotonic() < deadline and all(process.poll() is None for process in ranks.processes.values()):
        scripts = benchmark.children()
        if any(script.children() for script in scripts):  # it has begun to load batches
            return scripts[0]
        time.sleep(0.1)
    for process in ranks.processes.values():
        with suppress(psutil.NoSuchProcess):
            for script in psutil.Process(process.pid).children(recursive=True):
                script.kill()  # one that is left would keep its rank's output open
        process.kill()
    raise TimeoutError(f"rank {rank} started no course script: {ranks.wait()}")


def averaged(cluster: Cluster, name: str) -> list[list[float]]:
    """Gradients as the course script averages them, and what the mean is."""
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((3, 2), (5,))]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(cluster.rank * 10 + number))
    course.AVERAGES[name](parameters)
    return [parameter.grad.flatten().tolist() for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("name", course.AVERAGES)
def test_the_course_script_averages_gradients(group_of: GroupOf, name: str) -> None:
    for outcome in group_of(3).run(averaged, name):
        assert outcome == [[10.0] * 6, [11.0] * 5]


def test_the_course_scripts_model_is_ours() -> None:
    """The same parameters give the same numbers."""
    for name in ("vgg11", "lenet5"):
        ours, theirs = models.build(name, 1), course.MODELS[name]()
        for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.data.copy_(own.data)
        images = torch.randn(1, 1 if name == "lenet5" else 3, 32, 32)
        torch.testing.assert_close(theirs.eval()(images), ours.eval()(images))


def test_a_plain_script_gets_nothing_that_the_image_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLIBC_TUNABLES", "OMP_NUM_THREADS", "PYTHONUNBUFFERED", "SYNC_MODE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LANG", "C")
    plain = child.plain_environment()
    assert plain["LANG"] == "C"
    assert not {"GLIBC_TUNABLES", "OMP_NUM_THREADS", "PYTHONUNBUFFERED", "SYNC_MODE"} & plain.keys()


# What times the house itself


def test_choices_of_the_compute_path_are_timed_with_and_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    some = compute.variants("contiguous")[:2]  # each takes a process that imports torch
    monkeypatch.setattr(compute, "variants", lambda _: some)
    monkeypatch.setenv("MODEL", "lenet5")
    monkeypatch.setenv("BATCH_SIZE_PER_RANK", "4")
    measured = compute.measure(environment.load(), rounds=1)
    assert [variant.name for variant, _ in measured] == [each.name for each in some]
    assert all(len(values) == 1 and values[0] > 0 for _, samples in measured for values in samples)


def overheads(cluster: Cluster, mode: str) -> dict[str, float]:
    settings = Settings.of(model="lenet5", global_batch_size=8, sync_mode=mode)
    return overhead.together(overhead.measure(settings, cluster, pairs=1)[2])


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])  # with a barrier before sync, and with overlapping messages
def test_each_part_of_measuring_is_timed(mode: str) -> None:
    costs, others = group.run_group(2, overheads, mode)
    parts = {overhead.MARKS, overhead.ACCOUNTS, overhead.RECORD, overhead.USAGE}
    assert costs.keys() == others.keys() == (parts | {overhead.BARRIER} if mode == "all_reduce" else parts)
    assert min(costs.values()) > 0
