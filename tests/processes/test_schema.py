"""All that a run leaves behind is as app/records/schema.json says, which follows from the program."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.analysis import schema
from app.modes import MODES
from app.pages.conclusion import conclude
from app.records import journal
from app.records import lines as records
from tests.processes import group
from tests.processes.group import ROOT, Ranks, Value
from tests.processes.test_faults import run_until

FILE = ROOT / "app/records/schema.json"
SCHEMA = json.loads(FILE.read_text())
UNPLANNED = ("none", "all_reduce", "flat_all_reduce", "ddp", "bucketed_all_reduce")  # or chosen by the backend


def validator(place: str) -> Draft202012Validator:
    return Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{place}"})


def lines(run_folder: Path, rank: int) -> list[Any]:
    """A rank's whole lines."""
    return [json.loads(line) for line in journal.path_of(run_folder, rank).read_text().split("\n")[:-1]]


def contents(run_folder: Path) -> Iterator[tuple[str, Any]]:
    """All that a run has left behind, each with the name of its definition."""
    for name in ("manifest", "summary"):
        yield name, json.loads((run_folder / f"{name}.json").read_text())
    for rank in range(len(list(run_folder.glob("rank-*.jsonl")))):
        for line in lines(run_folder, rank):
            yield line["kind"], line


def faults(run_folder: Path) -> list[str]:
    """What is not as the schema says, each with its place."""
    found = [
        f"{name}, {error.json_path}: {error.message}"
        for name, content in contents(run_folder)
        for error in validator(name).iter_errors(content)
    ]
    others = [
        f"not one record: {content}"
        for name, content in contents(run_folder)
        if name in records.KINDS and not validator("record").is_valid(content)
    ]
    return found + others


def objects(content: Any) -> Iterator[dict[str, Any]]:
    """This object and all inside it but the settings, which vary, as do the names of the modes."""
    if isinstance(content, dict):
        yield content
        inside = [value for name, value in content.items() if name not in {"settings", "given"}]
        content = [[*value.values()] if value is content.get("modes") and value else value for value in inside]
    if isinstance(content, list):
        for each in content:
            yield from objects(each)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory for many runs: those that have a name need not be prepared one by one."""
    folder = tmp_path_factory.mktemp("runs")
    group.prepare(folder)
    return folder


def run(folder: Path, name: str, world_size: int, **settings: Value) -> Path:
    """A whole run that has to succeed; its folder."""
    ranks = Ranks(folder, world_size, "train", RUN_NAME=name, MAX_STEPS=3, **settings)
    ranks.start()
    for code, output in ranks.wait().values():
        assert code == 0, output
    return folder / "results" / name


@pytest.fixture(scope="module")
def measured(folder: Path) -> Path:
    """A run of which more is measured than usual."""
    return run(folder, "measured", 2, LINK_CHECK="strict", GRADIENT_CLIP=1)


@pytest.mark.parametrize(("mode", "world_size"), [*((mode, 2) for mode in MODES), ("ddp", 1)])
def test_a_run(folder: Path, mode: str, world_size: int) -> None:
    run_folder = run(folder, f"{mode}-{world_size}", world_size, SYNC_MODE=mode)
    assert faults(run_folder) == []
    assert {name for name, _ in contents(run_folder)} == {"manifest", "summary", *records.KINDS}
    planned = json.loads((run_folder / "manifest.json").read_text())["messages"]
    assert (planned is None) == (mode in UNPLANNED)
    for rank in range(world_size if planned else 0):
        step = next(line for line in lines(run_folder, rank) if line["kind"] == "step")
        for end, way in (("sender", "sent"), ("receiver", "received")):
            own = [message["bytes"] for message in planned if message[end] == rank]
            assert abs(sum(own) - step[f"bytes_{way}"]) <= len(own), "each message is rounded to whole bytes"


def test_a_run_whose_links_were_measured(measured: Path) -> None:
    assert faults(measured) == []
    assert all(rank["link"] for rank in json.loads((measured / "manifest.json").read_text())["ranks"])


def test_a_run_of_which_a_rank_was_killed(tmp_path: Path) -> None:
    group.prepare(tmp_path)
    ranks = Ranks(tmp_path, 2, EPOCHS=1_000_000, EVALUATE="never")
    ranks.start()
    run_until(ranks, 8)
    ranks.processes[1].kill()
    ranks.wait()
    run_folder = tmp_path / "results/latest"
    assert faults(run_folder) == []

    before = lines(run_folder, 1)
    path = journal.path_of(run_folder, 1)
    os.truncate(path, path.stat().st_size - len(json.dumps(before[-1])) // 2)
    summary = conclude(run_folder)
    assert summary is not None
    assert summary.complete is False
    assert faults(run_folder) == []
    assert lines(run_folder, 1) == before[:-1]


def test_the_file_is_current() -> None:
    assert FILE.read_text() == schema.text(), "write it again: python -m app schema > app/records/schema.json"


def test_every_object_is_closed_and_every_field_required() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    closed = [each for each in objects(SCHEMA) if "properties" in each]
    assert closed
    for each in closed:
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])


def test_nothing_else_passes(measured: Path) -> None:
    """Whatever is left out, added, negative or of another type, anywhere in what a run has left behind."""
    passed = []
    for name, content in dict(contents(measured)).items():  # of each kind, one line
        valid = validator("record" if name in records.KINDS else name).is_valid
        for each in objects(content):
            whole = dict(each)
            wrong = [{**whole, "unknown": 1}]
            for field, value in whole.items():
                wrong.append({other: whole[other] for other in whole if other != field})
                if isinstance(value, int | float):
                    wrong.append({**whole, field: str(value)})
                if isinstance(value, str):
                    wrong.append({**whole, field: 1})
                if "bytes" in field and value is not None:
                    wrong.append({**whole, field: -1})
            for other in wrong:
                each.clear()
                each.update(other)
                if valid(content):
                    passed.append((name, other))
            each.clear()
            each.update(whole)
    assert passed == []
