"""The benchmarks run, and tell of everything; their figures are for reading, and no test asserts them."""

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.modes import MODES
from app.settings.averaging import AveragingSettings
from app.tools.benchmark import child, course
from app.tools.benchmark.choice import OPERATION_NAMES
from app.tools.benchmark.collectives import OPERATIONS
from app.training import models
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
    assert "invalid choice: 'synk' (choose from step, sync, collectives, overhead, compute, startup, report" in output


COST = re.compile(r"^(?P<part>\w[\w .,]*?) +(?P<milliseconds>[\d.]+|-) +(?:[\d.]+%|-)$")


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])  # one that waits at a barrier, one that hides what it sends
def test_what_measuring_costs_is_told_part_by_part(tmp_path: Path, mode: str) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark overhead", SYNC_MODE=mode)
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    told = outcomes[0][1]
    costs = {row["part"]: row["milliseconds"] for row in map(COST.match, told.splitlines()) if row}
    *parts, everything = costs
    assert (len(parts), everything) == (5, "all")
    assert [part for part in parts if costs[part] == "-"] == (["timed barrier"] if mode == "ddp" else [])
    measured = [float(costs[part]) for part in parts if costs[part] != "-"]
    assert abs(sum(measured) - float(costs["all"])) <= 0.0005 * (len(measured) + 1) + 1e-9  # each is rounded
    assert f"lenet5, {mode}, 2 ranks, 256 images" in told
    assert re.search(r"^step.* [\d.]+ \([\d.]+ to [\d.]+ over \d+ pairs\)$", told, re.MULTILINE)


TIMED = r"(?P<p50>[\d.]+) +(?P<p99>[\d.]+) +(?P<algorithm>[\d.]+) +(?P<bus>[\d.]+) +(?P<wrong>\d+) +\d+%"
RATIO = r"[\d.]+(?: \([\d.]+ to [\d.]+\))?"
CELL = re.compile(
    rf"^(?P<operation>\w+) +(?P<size>\d+) +\d+ +{TIMED} +{TIMED.replace('?P<', '?P<straight_')} +{RATIO}$"
)


def test_every_operation_is_timed_at_every_size_for_every_number_of_ranks(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3, "benchmark collectives --smallest 16k --largest 60k", LINK_CHECK="strict")
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0, 0], outcomes
    tables = re.split(r"^(\d) ranks, links of .*$", outcomes[0][1], flags=re.MULTILINE)[1:]
    assert tables[::2] == ["2", "3"]
    for table in tables[1::2]:
        cells = [cell for cell in map(CELL.match, table.splitlines()) if cell]
        expected = [(name, size) for name in OPERATION_NAMES for size in ("16384", "61440")]
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
    """Of each variant: before anything came, and after."""
    found = []
    communicator = Communicator(cluster)
    for variant in OPERATIONS[name].variants(communicator, AveragingSettings(), 4096):
        variant.prepare()
        before = variant.wrong()
        communicator.wait_for_peers()
        variant.run()
        found.append([before, variant.wrong()])
    return found


@pytest.mark.parametrize("name", OPERATION_NAMES)
def test_numbers_that_did_not_come_are_counted_as_wrong(group_of: GroupOf, name: str) -> None:
    outcomes = group_of(2).run(wrong_numbers, name)
    for variant in (0, 1):
        assert sum(outcome[variant][0] for outcome in outcomes) > 0
        assert [outcome[variant][1] for outcome in outcomes] == [0, 0]


# What the compute path's choices gain


def results(folder: Path, benchmark: str) -> dict[str, Any]:
    [path] = (folder / "results/benchmarks").glob(f"*-{benchmark}.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_each_choice_of_the_compute_path_is_timed_with_and_without_it(tmp_path: Path) -> None:
    command = "benchmark compute --rounds 2 --steps 1"
    code, output = group.wait(group.start(command, tmp_path, MODEL="lenet5", BATCH_SIZE_PER_RANK=4))
    assert code == 0, output
    written = results(tmp_path, "compute")
    ours, *others = written["choices"].items()
    assert (ours[0], written["images"], written["layout"]) == ("as it is", 4, "contiguous")
    assert {"memory kept", "fused SGD against foreach", "denormals as zero"} < {name for name, _ in others}
    for name, each in written["choices"].items():
        assert len(each["cpu_seconds"]) == len(each["seconds"]) == 2
        assert all(value > 0 for value in each["cpu_seconds"] + each["seconds"])
        assert name == ours[0] or re.search(rf"^{name} +{'yes' if each['taken'] else 'no'} +\d", output, re.MULTILINE)
    wrong, said = group.wait(group.start("benchmark compute", tmp_path, MODEL="vgg12"))
    assert (wrong, "invalid MODEL 'vgg12'. " in said) == (2, True), said


# Whole steps, against the course script

SETUPS = ["course_one_node", "one_node", "all_reduce", "none", "all_reduce+PRECISION=bf16", "tuned_ddp"]


def test_every_setup_takes_its_turn_beside_the_course_script(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    ranks = Ranks(tmp_path, 2, f"benchmark step --rounds 5 --steps 1 --only {' '.join(SETUPS)}", GLOBAL_BATCH_SIZE=8)
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    outcome = results(tmp_path, "step")
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
    code, rows = group.wait(group.start("benchmark table", tmp_path))
    assert code == 0
    assert [row.split("|")[1].strip() for row in rows.splitlines()[2:]] == [
        "`one_node`", "`all_reduce`", "`none`", "`all_reduce PRECISION=bf16`"
    ]  # fmt: skip


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


def test_the_report_of_a_long_run_is_timed(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    code, output = group.wait(group.start("benchmark report --ranks 2 --steps 20 --rounds 1", tmp_path))
    assert code == 0, output
    assert set(results(tmp_path, "report")["seconds"]) == {"plain reading", "summary", "trace", "page", "all"}
