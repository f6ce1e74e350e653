"""Commands that use files in extensions/: what fails there, and what a run that goes on may not change."""

import json
import re
from pathlib import Path
from typing import Any

from app.records.places import newest_commit
from tests.processes.group import Ranks, Value, start, wait
from tests.solutions import on_the_page, solved

OWN: dict[str, Value] = {"SYNC_MODE": "my_mode", "MODEL": "my_model", "DATASET": "my_set", "GLOBAL_BATCH_SIZE": 40}


def put(folder: Path, **texts: str) -> None:
    (folder / "extensions").mkdir(exist_ok=True)
    for name, text in {**on_the_page(), "my_mode": solved("ring"), **texts}.items():
        (folder / "extensions" / f"{name}.py").write_text(text)


def test_a_data_set_that_fails_is_named_with_its_line_before_any_rank_starts(tmp_path: Path) -> None:
    for old, new, words in (
        ("return {", "1 / 0\n    return {", r"extensions/my_set\.py, line 15, in make: ZeroDivisionError"),
        ("return {", "return {}\n    return {", r"my_set: make\(\) .*train.*test"),
        ("np.uint8)", "np.int16)", r"train images .*int16 \(960, 32, 32, 3\).* uint8 \(960, 32, 32, 3\)"),
        ("train_samples=960", "train_samples='many'", r"extensions/my_set\.py: SOURCE .*'many'"),
        ("make=make", "make=dict", r"extensions/my_set\.py: SOURCE\.make"),
        ("SOURCE = Source", "SOURCE = dict", r"extensions/my_set\.py: SOURCE .*Source"),
    ):
        put(tmp_path, my_set=on_the_page()["my_set"].replace(old, new))
        code, output = wait(start("prepare", tmp_path, **OWN))
        assert code == 2, output
        assert re.search(words, output), output


def test_making_a_data_set_and_evaluating_never_go_on_in_silence(tmp_path: Path) -> None:
    slow_set = on_the_page()["my_set"].replace("def make():", "def make():\n    import time; time.sleep(3)")
    slow_model = "import time\n" + on_the_page()["my_model"].replace("build(", "fast(") + SLOW_WHEN_EVALUATED
    put(tmp_path, my_set=slow_set, my_model=slow_model)
    settings = {**OWN, "SYNC_MODE": "none", "MAX_STEPS": 1}
    code, output = wait(start("prepare", tmp_path, **settings))
    assert (code, "preparing the data set my_set: 2 s so far\n" in output) == (0, True), output
    code, output = wait(start("train", tmp_path, **settings))
    assert (code, "evaluating the test set: 2 s so far\n" in output) == (0, True), output


SLOW_WHEN_EVALUATED = """

class Slow(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, images):
        self.training or time.sleep(2)
        return self.body(images)


def build(batch_norm):
    return Slow(fast(batch_norm))
"""


def test_a_run_goes_on_with_the_same_files_alone(tmp_path: Path) -> None:
    put(tmp_path)
    settings = {**OWN, "MAX_STEPS": 4, "RUN_NAME": "own", "CHECKPOINT_EVERY": 2, "PEER_TIMEOUT": 20}
    on_rank_1 = "self._communicator.step == 3 and self._communicator.rank == 1 and 1 / 0\n        ranks, rank ="
    failing = solved("ring").replace("ranks, rank =", on_rank_1)
    put(tmp_path, my_mode=failing)
    code, output = wait(start("prepare", tmp_path, **settings))
    assert code == 0, output
    ranks = Ranks(tmp_path, 2, "train", **settings)
    ranks.start()
    for rank, (code, output) in ranks.wait().items():
        assert code == 1
        assert "extensions/my_mode.py, line " in output, (rank, output)
        assert "in average: ZeroDivisionError" in output
        assert output.count("self._communicator.rank == 1 and 1 / 0") == 1  # the line itself, of rank 1's file
    (attempt,) = (tmp_path / "results/own/attempts.jsonl").read_text().splitlines()
    assert (json.loads(attempt)["exit_code"], json.loads(attempt)["comes_again"]) == (1, True)
    assert newest_commit(tmp_path / "results/own") == 2
    changed = {**settings, "RESUME": "own", "LINK_CHECK": "off"}
    code, output = wait(start("prepare", tmp_path, **changed))
    assert code == 0, output
    put(tmp_path)
    code, output = wait(start("prepare", tmp_path, **changed))
    assert code == 2, output
    assert "[cannot-resume] RESUME=own: results/own was made by another version" in output
    assert "or with other files in extensions/" in output


def trained(folder: Path, name: str, mode: str) -> tuple[list[tuple[int, str]], list[dict[str, Any]], list[str]]:
    """Each rank's exit code and output, all records of steps, and the manifest's warnings."""
    put(folder, my_mode=mode)
    settings = {**OWN, "MAX_STEPS": 3, "RUN_NAME": name, "PEER_TIMEOUT": 20}
    code, output = wait(start("prepare", folder, **settings))
    assert code == 0, output
    ranks = Ranks(folder, 2, "train", **settings)
    ranks.start()
    ended = list(ranks.wait().values())
    texts = [path.read_text() for path in (folder / f"results/{name}").glob("rank-*.jsonl")]
    steps = [record for text in texts for record in map(json.loads, text.splitlines()) if record["kind"] == "step"]
    return ended, steps, json.loads((folder / f"results/{name}/manifest.json").read_text())["warnings"]


DIVIDES_DURING_BACKWARD = """
    def attach(self, model):
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient / self._communicator.world_size)
        return super().attach(model)
"""


def test_a_run_with_a_wrong_mean_ends_before_its_first_update(tmp_path: Path) -> None:
    sums = solved("ring").replace("chunks[rank] /= ranks", "pass")
    ended, steps, _ = trained(tmp_path, "sums", sums)
    for code, output in ended:
        assert code == 1
        assert "error: [wrong-mean] rank " in output
    assert steps == []
    (attempt,) = (tmp_path / "results/sums/attempts.jsonl").read_text().splitlines()
    assert (json.loads(attempt)["exit_code"], json.loads(attempt)["comes_again"]) == (1, True)

    ended, steps, warnings = trained(tmp_path, "votes", sums.replace("cost = RING", 'cost = RING\n    law = "vote"'))
    assert [code for code, _ in ended] == [0, 0], ended
    assert len(steps) == 2 * 3
    assert [output.count("scripts/conformance my_mode") for _, output in ended] == [1, 0]
    assert len([each for each in warnings if "scripts/conformance my_mode" in each]) == 1


def test_the_check_of_the_mean_adds_nothing_to_the_bytes_of_a_mode(tmp_path: Path) -> None:
    """The mode's own hooks divide each gradient during backward."""
    mode = f"{solved('ring').replace('chunks[rank] /= ranks', 'pass')}{DIVIDES_DURING_BACKWARD}"
    ended, steps, warnings = trained(tmp_path, "right", mode)
    assert [code for code, _ in ended] == [0, 0], ended
    assert len(steps) == 2 * 3
    assert len({step["bytes_sent"] for step in steps}) == 1
    assert not any("scripts/conformance my_mode" in each for each in warnings)
