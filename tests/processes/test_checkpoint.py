"""Saved and restored: a run that goes on ends with the bits of one that was never interrupted, or it says why not."""

import json
import random
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGSTOP, SIGTERM, Signals
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import _TYPES, load_file
from torch import nn

from app.analysis import run_records
from app.analysis.run import summarise
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.errors import ExtensionError, LockstepError, UnequalRanksError
from app.machine.durable import write_durably
from app.records import places
from app.records.places import newest_commit
from app.run.take_part import take_part
from app.settings.averaging import AveragingSettings
from app.settings.settings import Settings
from app.settings.training import TrainingSettings
from app.sync.modes.none import NoSync
from app.training import models, state
from app.training.batch_norm import BatchNorm
from app.training.checkpoint import part
from app.training.checkpoint.keeper import Keeper
from app.training.checkpoint.state import Label, State
from app.training.optimiser import LearningRateSchedule, Optimiser, cosine
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.miniatures import few_images, narrow_vgg_11

IMAGES, EPOCHS = 26, 2
STEPS, EVERY = 8, 3  # four steps in an epoch; saved at 3, 6 and 8: within an epoch, and at the end
BASE: dict[str, Any] = {
    "model": "lenet5",
    "global_batch_size": 8,  # the last batch of an epoch, of two images, leaves a rank without any
    "epochs": EPOCHS,
    "checkpoint_every": EVERY,
    "memory_format": "contiguous",
    "link_check": "off",
    "learning_rate": 0.02,
}
RUNS: dict[str, dict[str, Any]] = {
    "none": {"sync_mode": "none"},  # each rank has parameters of its own
    "top_k with error feedback": {"compression": "top_k", "compression_ratio": 0.05},
    "power_sgd, DiLoCo": {
        "compression": "power_sgd",
        "sync_mode": "hierarchical",
        "sync_every": 2,
        "outer_learning_rate": 0.7,
        "outer_momentum": 0.9,
    },
    "parameters every four steps": {"sync_every": 4},  # so that a state is saved between two averages
    "vgg11 with ddp": {"model": "vgg11", "sync_mode": "ddp"},
    "vgg11 in bf16, layers and wire": {
        "model": "vgg11",
        "sync_mode": "bucketed_all_reduce",
        "precision": "bf16",
        "wire_precision": "bf16",
        "memory_format": "mixed",
    },
    "vgg11 with synchronised statistics": {"model": "vgg11", "sync_mode": "all_reduce", "batch_norm": "synchronised"},
    "without momentum, in fp64": {"sync_mode": "ring_all_reduce", "momentum": 0, "precision": "fp64"},
}


def train(cluster: Cluster, folder: Path, values: dict[str, Any], attempt: int, threads: int = 1) -> None:
    settings = Settings.of(**values)
    members = tuple(replace(each, threads=threads) for each in cluster.members)
    own = replace(cluster, members=members, attempt=attempt)
    random.seed(attempt)  # whatever happened before in this process
    torch.manual_seed(attempt)
    with narrow_vgg_11():
        take_part(settings, own, few_images(settings.training.model, IMAGES), folder, lambda _: None)


def train_without_an_end(cluster: Cluster, folder: Path, values: dict[str, Any]) -> None:
    """As if it ended between its last step and the removal of the states before the last one."""
    with patch.object(Keeper, "finish", lambda _: None):
        train(cluster, folder, values, 0)


def ends(folder: Path, world_size: int) -> list[object]:
    """For each rank: its losses by step, its evaluations, and its last parameters, as of its last attempt."""
    found: list[object] = []
    for rank in run_records.read(folder).ranks[:world_size]:
        assert rank.finished
        steps = [(step.step, step.epoch, step.loss, step.correct, step.samples) for step in rank.steps]
        found.append((steps, [each.loss for each in rank.evaluations], rank.finished.parameters_sha256))
    return found


def cut_back(folder: Path, step: int) -> None:
    """Be where a run was when it had saved this step: without the states saved since, the records unharmed."""
    for path in (folder / places.STATES).glob("step-*"):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_goes_on_ends_with_the_same_bits(group_of: GroupOf, tmp_path: Path, name: str) -> None:
    values = BASE | RUNS[name]
    group_of(3).run(train_without_an_end, tmp_path / "run", values)
    undisturbed = ends(tmp_path / "run", 3)
    cut_back(tmp_path / "run", 6)
    # Other threads and another layout than it began with: both come with the state.
    group_of(3).run(train, tmp_path / "run", values | {"memory_format": "contiguous"}, 1, 2)
    assert ends(tmp_path / "run", 3) == undisturbed
    summary = summarise(run_records.read(tmp_path / "run"))
    planned = summary.steps_planned
    assert (summary.complete, summary.steps, summary.attempts, summary.repeated_steps) == (
        True,
        planned,
        2,
        planned - 6,
    )
    assert [len(rank.warm) for rank in run_records.read(tmp_path / "run").ranks] == [planned - 2] * 3
    assert summary.wall_clock
    assert (summary.wall_clock["saving_seconds"] or 0) > 0
    assert (summary.wall_clock["lost_seconds"] or 0) > 0


def ranks_of(folder: Path, **settings: group.Value) -> group.Ranks:
    own: dict[str, Any] = {
        "GLOBAL_BATCH_SIZE": 300,
        "EPOCHS": 4,
        "CHECKPOINT_EVERY": EVERY,
        "RUN_NAME": "it",
        "THREADS_PER_RANK": 1,
    }
    return group.Ranks(folder, 3, "train", **{"SYNC_MODE": "all_reduce", **own, **settings})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    group.prepare(folder)
    ranks = ranks_of(folder)
    ranks.start()
    assert {code for code, _ in ranks.wait().values()} == {0}
    return folder / "results/it"


def saving(folder: Path) -> bool:
    """At work on step 6, or a little later: a machine at the edge of its powers may look late."""
    return any(int(path.name.removeprefix("step-")) >= 6 for path in folder.glob("checkpoint/step-*"))


def evaluating(folder: Path) -> bool:
    """Within the second epoch's, which follows on step 9."""
    return '"step": 9,' in (folder / "rank-0.jsonl").read_text() if (folder / "rank-0.jsonl").exists() else False


@pytest.mark.parametrize(
    ("victims", "moment"),
    [((1, 2), saving), ((0,), evaluating)],
    ids=lambda value: getattr(value, "__name__", None) or "-".join(map(str, value)),
)
def test_the_same_command_goes_on_after_a_kill(
    undisturbed: Path, tmp_path: Path, victims: tuple[int, ...], moment: Callable[[Path], bool]
) -> None:
    group.prepare(tmp_path)
    folder = tmp_path / "results/it"
    ranks = ranks_of(tmp_path)
    ranks.start()
    until = time.monotonic() + group.PATIENCE_SECONDS
    while not moment(folder):
        assert time.monotonic() < until
        time.sleep(0.01)
    for victim in victims:
        ranks.processes[victim].kill()
    assert all(code for code, _ in ranks.wait().values())
    again = ranks_of(tmp_path)
    again.start()
    results = again.wait()
    assert {code for code, _ in results.values()} == {0}, results
    assert ends(folder, 3) == ends(undisturbed, 3)
    assert not [path for path in folder.rglob(".*") if path.name.endswith(".new")]


def stopped_after(ranks: group.Ranks, signals: dict[int, Signals]) -> int:
    """Signal some of the ranks. All stop after the same step, which is returned."""
    ranks.start()
    await_step(ranks.folder / "results/it", 3)
    for rank, number in signals.items():
        ranks.processes[rank].send_signal(number)
    results = ranks.wait()
    expected = {rank: 128 + signals.get(rank, SIGTERM) for rank in results}
    assert {rank: code for rank, (code, _) in results.items()} == expected
    (step,) = {step for _, output in results.values() for step in re.findall(r"stopped after step (\d+)", output)}
    assert newest_commit(ranks.folder / "results/it") == int(step) + 1
    assert not any("Traceback" in output or "error:" in output for _, output in results.values())
    return int(step)


def test_ranks_that_pass_no_gradients_stop_after_the_same_step(tmp_path: Path) -> None:
    group.prepare(tmp_path)
    ranks = ranks_of(tmp_path, SYNC_MODE="none", CHECKPOINT_EVERY=1000, EPOCHS=1000, EVALUATE="never")
    stopped_after(ranks, {0: SIGTERM, 1: SIGINT, 2: SIGTERM})


def test_a_run_that_a_signal_stopped_goes_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    settings: dict[str, Any] = {"SYNC_MODE": "ddp", "CHECKPOINT_EVERY": 1000, "EPOCHS": 8, "EVALUATE": "never"}
    for folder in (whole, stopped):
        folder.mkdir()
        group.prepare(folder)
        if folder == stopped:
            step = stopped_after(ranks_of(folder, **settings), {2: SIGINT})
        ranks = ranks_of(folder, **settings)
        ranks.start()
        results = ranks.wait()
        assert {code for code, _ in results.values()} == {0}, results
    assert f"resumes at step {step + 1}" in results[0][1]
    assert ends(stopped / "results/it", 3) == ends(whole / "results/it", 3)


def await_step(folder: Path, step: int) -> None:
    until = time.monotonic() + group.PATIENCE_SECONDS
    records = folder / "rank-0.jsonl"
    while not (records.exists() and f'"step": {step},' in records.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_second_signal_ends_a_rank_at_once(tmp_path: Path) -> None:
    """Rank 1 is stopped, so the ranks cannot agree."""
    group.prepare(tmp_path)
    ranks = ranks_of(tmp_path, EPOCHS=1000, EVALUATE="never")
    ranks.start()
    await_step(tmp_path / "results/it", 3)
    ranks.processes[1].send_signal(SIGSTOP)
    for each in (SIGTERM, SIGINT):
        ranks.processes[0].send_signal(each)
    code, output = group.wait(ranks.processes[0])
    for rank in (1, 2):
        ranks.processes[rank].kill()
        ranks.processes[rank].communicate(timeout=group.PATIENCE_SECONDS)
    assert code in (128 + SIGTERM, 128 + SIGINT)
    assert "stopped by SIG" in output


def test_what_cannot_go_on_is_refused_or_begins_anew(undisturbed: Path, tmp_path: Path) -> None:
    shutil.copytree(undisturbed.parents[1], tmp_path, dirs_exist_ok=True, symlinks=True)

    def prepare(**settings: group.Value) -> tuple[int, str]:
        given: dict[str, group.Value] = dict(ranks_of(tmp_path)._settings)
        given |= {"JOIN_TIMEOUT": 7, "MASTER_PORT": 29500} | settings
        return group.wait(group.start("prepare", tmp_path, **given))

    code, output = prepare()
    assert (code, "[run-exists] RUN_NAME=it: results/it " in output) == (2, True), output
    code, output = prepare(RESUME="it")
    assert (code, "[cannot-resume] RESUME=it: results/it has finished." in output) == (2, True), output
    manifest = tmp_path / "results/it/manifest.json"
    manifest.write_text(manifest.read_text().replace('"steps": 20,', '"steps": 30,'))
    (tmp_path / "results/it" / places.STATES / places.FINISHED).unlink()
    code, output = prepare()
    assert (code, "resumes at step 20" in output) == (0, True), output
    code, output = prepare(CHECKPOINT_EVERY=7, JOIN_TIMEOUT=61, PEER_TIMEOUT=61)
    assert (code, "resumes at step 20" in output) == (0, True), output
    code, output = prepare(RESUME="it", LEARNING_RATE=0.2, SEED=2)
    assert code == 2
    assert "RESUME=it: results/it has different settings: " in output
    assert re.search(r"LEARNING_RATE=0\.1 .*\b0\.2\b.* SEED=1 .*\b2\b", output)
    code, output = prepare(RESUME="it", WORLD_SIZE=2)
    assert (code, re.search(r"3 ranks .*\b2\b", output) is not None) == (2, True), output
    code, output = prepare(RESUME="never")
    assert (code, "[run-exists] RUN_NAME=it: results/it " in output) == (2, True), output
    code, output = prepare(RESUME="that")
    assert (code, "[conflicting-settings] RESUME=that and RUN_NAME=it " in output) == (2, True), output
    code, output = prepare(RESUME="never", RUN_NAME="")
    assert (code, "resumes" in output) == (0, False), output
    written = manifest.read_text()
    for name, old in (("torch", "1.13.1"), ("blas", "libblas.so.1"), ("cpu_model", "i386"), ("dataset_sha256", "0")):
        manifest.write_text(re.sub(f'"{name}": ".*"', f'"{name}": "{old}"', written))
        code, output = prepare(RUN_NAME="")
        assert code == 0, output
        assert "resumes at step" not in output
        assert f" was {old}, now " in output
        code, output = prepare(RUN_NAME="", RESUME="it")
        assert (code, "resumes at step 20" in output) == (0, True), output
    manifest.write_text(written)
    manifest.write_text(re.sub('"source_sha256": ".*"', '"source_sha256": "another"', manifest.read_text()))
    code, output = prepare(RESUME="it")
    assert (code, "made by another version" in output) == (2, True), output


def test_random_numbers_go_on_where_they_were() -> None:
    """A model may draw some, for dropout, say."""

    def draw() -> tuple[float, float, float]:
        return torch.rand(1).item(), np.random.rand(), random.random()  # noqa: S311

    sync = NoSync(cast("Communicator", None), AveragingSettings())
    model = nn.Linear(2, 2)
    optimiser = Optimiser(list(model.parameters()), TrainingSettings(), LearningRateSchedule(0.1, 0, 1, cosine))
    random.gauss(0, 1)  # leaves half a pair behind
    taken = state.take(model, optimiser, sync)
    kept = State(
        {name: tensor.clone() for name, tensor in taken.tensors.items()}, json.loads(json.dumps(taken.numbers))
    )
    drawn = [*draw(), random.gauss(0, 1)]
    state.restore(kept, model, optimiser, sync)
    assert [*draw(), random.gauss(0, 1)] == drawn
    with pytest.raises(LockstepError, match="another model"):
        state.restore(kept, nn.Linear(2, 3), optimiser, sync)


def save(cluster: Cluster, folder: Path, steps: Sequence[int]) -> None:
    own = Keeper(cluster, folder, 0)
    for step in steps:
        made = torch.Generator().manual_seed(step * 10 + cluster.rank)
        own.save(step, State({"model/a": torch.rand(5, generator=made)}, {"threads": 1}))


def find(cluster: Cluster, folder: Path) -> tuple[int | None, list[float], list[str]]:
    warnings: list[str] = []
    found = Keeper(cluster, folder, 1).find(warnings.append)
    return (found.step, found.state.tensors["model/a"].tolist(), warnings) if found else (None, [], warnings)


def damage(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if chance.random() < 0.5:
        del content[chance.randrange(len(content)) :]
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def check_damage(group_of: GroupOf, tmp_path: Path, seed: int) -> None:
    """Any cut or flipped bit in the newest step's files, on any rank: all go on from the one before it."""
    chance = random.Random(seed)  # noqa: S311
    folder = tmp_path / str(seed)
    group_of(2).run(save, folder, (4, 5))
    newest = sorted((folder / places.STATES / "step-5").iterdir())
    assert len(newest) == 5
    harmed = chance.choice(newest)
    damage(harmed, chance)
    found = group_of(2).run(find, folder)
    assert [step for step, _, _ in found] == [4, 4], harmed
    for rank, (_, values, warnings) in enumerate(found):
        assert values == torch.rand(5, generator=torch.Generator().manual_seed(40 + rank)).tolist()
        assert len(warnings) == 1
        assert re.search(rf"rank {rank}: .*checkpoint of step 5", warnings[0])
    assert {path.name for path in (folder / places.STATES).iterdir()} == {"step-4", "set-aside"}
    damage(chance.choice(sorted((folder / places.STATES / "step-4").iterdir())), chance)
    assert [step for step, _, _ in group_of(2).run(find, folder)] == [None, None]


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_checkpoint_is_never_restored(group_of: GroupOf, tmp_path: Path, seed: int) -> None:
    check_damage(group_of, tmp_path, seed)


@pytest.mark.long
def test_a_checkpoint_damaged_anywhere_is_never_restored(group_of: GroupOf, tmp_path: Path) -> None:
    for seed in range(100, 2100):
        check_damage(group_of, tmp_path, seed)
        shutil.rmtree(tmp_path / str(seed))


def test_another_run_s_checkpoint_is_never_restored(group_of: GroupOf, tmp_path: Path) -> None:
    group_of(2).run(save, tmp_path / "one", [4])
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    assert [step for step, _, _ in group_of(2).run(find, tmp_path / "other")] == [None, None]
    assert [step for step, _, _ in group_of(2).run(find, tmp_path / "one")] == [4, 4]


def test_of_a_run_under_way_the_two_newest_states_are_kept_and_of_a_finished_one_the_last(
    group_of: GroupOf, tmp_path: Path
) -> None:
    group_of(2).run(save, tmp_path, (2, 3, 4, 5))
    assert {path.name for path in (tmp_path / places.STATES).iterdir()} == {"step-4", "step-5"}
    group_of(3).run(train, tmp_path / "run", BASE | {"checkpoint_every": 1, "max_steps": 5}, 0)
    assert {path.name for path in (tmp_path / "run" / places.STATES).iterdir()} == {"step-5", "finished"}


@pytest.mark.parametrize("dtype", dict.fromkeys([*part.TYPES, *_TYPES.values()]), ids=str)
def test_the_library_reads_what_is_written(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": (torch.arange(6.0).view(2, 3) - 2).to(dtype), "none": torch.empty(0), "one": torch.tensor(3.5)}
    write_durably(tmp_path / "file", *part.as_safetensors({**tensors, "turned": tensors["a"].T}))
    read = load_file(tmp_path / "file")
    for name, tensor in {**tensors, "turned": tensors["a"].T}.items():
        assert (read[name].dtype, read[name].shape) == (tensor.dtype, tensor.shape)
        bits = (each.contiguous().view(-1).view(torch.uint8) for each in (read[name], tensor))
        assert torch.equal(*bits)


class Odd(nn.Module):
    """Tensors of every kind that a state can have."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.layer, self.tied = nn.Linear(2, 2), nn.Linear(2, 2)
        self.tied.weight = self.layer.weight
        nn.init.constant_(self.layer.weight, value)
        kinds = {
            "scalar": torch.tensor(value),
            "empty": torch.empty(0, 3),
            "turned": torch.full((2, 3), value).T,
            "sliced": torch.full((6,), value)[::2],
            "expanded": torch.full((1, 2), value).expand(3, 2),
            **{str(dtype).replace(".", "_"): torch.full((3,), value).to(dtype) for dtype in part.TYPES},
        }
        for name, tensor in kinds.items():
            self.register_buffer(name, tensor)
        self.register_buffer("left_out", torch.full((2,), value), persistent=False)


def test_tensors_of_every_kind_are_saved_and_restored(tmp_path: Path) -> None:
    sync = NoSync(cast("Communicator", None), AveragingSettings())
    saved, restored = Odd(3.0), Odd(5.0)
    optimisers = [
        Optimiser(list(each.parameters()), TrainingSettings(), LearningRateSchedule(0.1, 0, 1, cosine))
        for each in (saved, restored)
    ]
    taken = state.take(saved, optimisers[0], sync)
    state.check(saved)
    part.write(tmp_path, Label("run", 0, 1, 0, 1), taken)
    state.restore(part.read(tmp_path, 0), restored, optimisers[1], sync)
    for (name, one), other in zip(saved.named_buffers(), restored.buffers(), strict=True):
        assert torch.equal(one.double(), other.double()), name
    assert torch.equal(saved.layer.weight, restored.tied.weight)


def with_sparse_buffer(batch_norm: BatchNorm) -> nn.Module:
    model = models.LeNet5(batch_norm)
    model.register_buffer("odd", torch.zeros(2).to_sparse())
    return model


def refusal_of_sparse_buffer(cluster: Cluster, folder: Path, values: dict[str, Any]) -> str:
    try:
        with patch.dict(models.MODELS, lenet5=with_sparse_buffer):
            train(cluster, folder, values, 0)
    except ExtensionError as error:
        return str(error)
    return ""


def test_what_cannot_be_saved_is_refused_before_the_first_step(group_of: GroupOf, tmp_path: Path) -> None:
    values = BASE | {"sync_mode": "all_reduce", "max_steps": 1}
    for told in group_of(2).run(refusal_of_sparse_buffer, tmp_path / "saved", values):
        assert all(fact in told for fact in ("model/odd", "torch.sparse_coo", "CHECKPOINT_EVERY=0"))
    assert not run_records.read(tmp_path / "saved").ranks[0].steps
    unsaved = values | {"checkpoint_every": 0}
    assert group_of(2).run(refusal_of_sparse_buffer, tmp_path / "run", unsaved) == ["", ""]
    assert not (tmp_path / "run" / places.STATES).exists()
    for odd in (torch.zeros(1, dtype=torch.complex64), {"extra": "state"}):
        with pytest.raises(ExtensionError, match="in a checkpoint"):
            part.header_of({"odd": odd})  # type: ignore[dict-item]


def train_on_different_data(cluster: Cluster, folder: Path) -> None:
    images = replace(few_images("lenet5", IMAGES), sha256=f"{cluster.rank // 2}")
    with pytest.raises(UnequalRanksError, match=r"ranks \[2\] differ from rank 0 in their data set"):
        take_part(Settings.of(**BASE), cluster, images, folder, lambda _: None)


def test_ranks_whose_data_sets_differ_do_not_train(group_of: GroupOf, tmp_path: Path) -> None:
    group_of(3).run(train_on_different_data, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_at_its_state_even_if_it_is_to_save_no_more_and_on_another_platform_warns(
    group_of: GroupOf, tmp_path: Path
) -> None:
    group_of(2).run(train_without_an_end, tmp_path, BASE)
    undisturbed = ends(tmp_path, 2)
    cut_back(tmp_path, 6)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(re.sub('"torch": ".*"', '"torch": "1.13.1"', manifest.read_text()))
    for attempt in (1, 2):
        group_of(2).run(train, tmp_path, BASE | {"checkpoint_every": 0}, attempt)
    warnings = run_records.read(tmp_path).manifest.warnings
    assert len([each for each in warnings if "not be identical: PyTorch was 1.13.1, " in each]) == 1
    assert ends(tmp_path, 2) == undisturbed
    assert run_records.read(tmp_path).ranks[0].repeated_steps == 2 * (STEPS - 6)
