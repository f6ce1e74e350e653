"""Whatever stands in a run's files is read, or refused in a line that names the file; and nothing takes long."""

import copy
import csv
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.analysis.run import Run, find
from app.errors import LockstepError
from app.machine.say import for_terminal
from app.pages import comparison, tables
from app.pages.on_demand import report
from app.records import journal
from app.records.lines import Clock, Evaluation, OverlappedMessage, PhaseSeconds, Record, Step, Usage
from app.records.summary import is_complete
from tests import runs
from tests.unit.test_records import FINISHED, STEP, steps

PHASES = PhaseSeconds(0.1, 0.2, 0.3, 0.1, 0.1, 0.1)
MESSAGES = [OverlappedMessage(1000, 0.1, 0.2), OverlappedMessage(2000, 0.2, 0.4)]
MANIFEST = runs.MANIFEST | {
    "ranks": [runs.participant(0, 100.0, 2000.0), runs.participant(1, 120.0, 1000.0)],
    "plan": runs.MANIFEST["plan"] | {"steps": 6},
}
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    0.5,
    10**18,
    10**400,
    -1e9,
    1e308,
    float("inf"),
    float("nan"),
    "x",
    "",
    [],
    {},
    [[]],
]
LONGEST_LINE = 600


def rank_records(rank: int) -> list[Record]:
    """A rank's records as a run leaves them: of two epochs, with all that can be measured."""
    measured: dict[str, Any] = {
        "rank": rank,
        "wait_seconds": None,
        "sync_seconds": None,
        "exposed_sync_seconds": 0.2,
        "hidden_sync_seconds": 0.1,
        "buckets": MESSAGES,
        "buffers": MESSAGES[:1],
        "cpu_seconds": PHASES,
        "no_core_seconds": PHASES,
        "quota_seconds": PHASES,
        "wire_rounding_error": 0.002,
    }
    two = [steps(1, 1, 1, first=3 * epoch, began=4.0 * epoch) for epoch in (0, 1)]
    train = [
        [replace(each, epoch=epoch, **measured) for each in part if isinstance(each, Step)]
        for epoch, part in enumerate(two)
    ]
    usage = Usage(rank, 2.0, 0.5, 90.0, 5.0, 0.0, 1 << 28, 1000, 1000)
    tests = [Evaluation(rank, epoch, 2.0, 5, 10, 0.5, 0, 4.0 * epoch + 3, 0.5) for epoch in (0, 1)]
    clocks = [Clock(rank, at, 0.01 * rank, 0.001, 0, *((-2.0, -1.0, 0.5) if at == 0 else ())) for at in (0.0, 9.0)]
    finished = replace(FINISHED, rank=rank, steps=6, at_seconds=9.1)
    return [clocks[0], *train[0], usage, tests[0], *train[1], tests[1], clocks[1], finished]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a-run")
    write(folder, 1, [record(each) for each in rank_records(1)])
    return folder


def record(each: Record) -> dict[str, Any]:
    return {"kind": each.kind, **asdict(each)}


def write(folder: Path, rank: int, content: list[Any]) -> None:
    journal.path_of(folder, rank).write_text("".join(json.dumps(each) + "\n" for each in content))


def read(folder: Path) -> str | None:
    """Read it as `report` does; the refusal, if there is one."""
    try:
        run = find(str(folder))
        tables.of_run(run)
        comparison.compared([run])
    except LockstepError as error:
        refusal = error
    else:
        return None
    told = str(refusal)
    assert refusal.exit_code == 2
    assert told.isprintable()
    assert len(told) <= LONGEST_LINE
    assert str(folder) in told
    return told


def places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value of it stands."""
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [place, *(each for name, value in inside for each in places(value, (*place, name)))][not place :]


def changed(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    other = copy.deepcopy(content)
    parent = other
    for name in place[:-1]:
        parent = parent[name]
    parent[place[-1]] = value
    return other


RECORDS = [record(each) for each in rank_records(0)]
RECORD_PLACES, MANIFEST_PLACES = places(RECORDS), places(MANIFEST)
any_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@any_example
@given(st.sampled_from(RECORD_PLACES), st.sampled_from(ODD) | st.integers() | st.floats())
def test_a_value_of_a_record_is_another(folder: Path, place: tuple[Any, ...], value: Any) -> None:
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    write(folder, 0, changed(RECORDS, place, value))
    told = read(folder)
    assert told is None or f"rank-0.jsonl, line {place[0] + 1}:" in told


@any_example
@given(st.sampled_from(MANIFEST_PLACES), st.sampled_from(ODD) | st.integers() | st.floats())
def test_a_value_of_the_manifest_is_another(folder: Path, place: tuple[Any, ...], value: Any) -> None:
    write(folder, 0, RECORDS)
    (folder / "manifest.json").write_text(json.dumps(changed(MANIFEST, place, value)))
    told = read(folder)
    assert told is None or "manifest.json: " in told


@any_example
@given(st.sampled_from(["rank-0.jsonl", "manifest.json"]), st.data())
def test_any_bytes_are_others(folder: Path, name: str, data: st.DataObject) -> None:
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    write(folder, 0, RECORDS)
    path = folder / name
    whole = path.read_bytes()
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 9)) | st.just(len(whole)))
    path.write_bytes(whole[:begin] + data.draw(st.binary(max_size=30)) + whole[end:])
    read(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
)
NAMES_OF_A_STEP = st.sampled_from(sorted(asdict(STEP)))


@any_example
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_the_manifest_is_anything(folder: Path, content: bytes) -> None:
    write(folder, 0, RECORDS)
    (folder / "manifest.json").write_bytes(content)
    assert "manifest.json: " in (read(folder) or "")
    (folder / "summary.json").write_bytes(content)
    assert not is_complete(folder)


@any_example
@given(
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(NAMES_OF_A_STEP, JSON).map(lambda given: json.dumps({"kind": "step", **given}).encode())
)
def test_a_line_of_the_records_is_anything(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    journal.path_of(folder, 0).write_bytes(content.replace(b"\n", b"") + b"\n")
    assert "rank-0.jsonl, line 1:" in (read(folder) or "")


@pytest.mark.parametrize(
    ("rubbish", "told"),
    [
        (b"\x00\x01\xff\xfe\n", ""),
        (b'{"kind": "step", "rank": "\xff"}\n', ""),
        (b"[" * 100_000 + b"\n", "maximum recursion"),
        (b"[1]\n", "JSON object"),
        (b'{"kind": "tree"}\n', "tree"),
        (b"x" * (journal.LONGEST_LINE_BYTES + 5), str(journal.LONGEST_LINE_BYTES)),
        (b"\n", ""),
    ],
)
def test_rubbish_within_the_records_is_refused_with_its_line(tmp_path: Path, rubbish: bytes, told: str) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    for rank in (0, 1):
        write(tmp_path, rank, [record(each) for each in rank_records(rank)])
    path = journal.path_of(tmp_path, 0)
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*content[:3], rubbish, *content[3:]]))
    refusal = read(tmp_path) or ""
    assert f"{path}, line 4:" in refusal
    assert told in refusal


def test_a_sparse_file_of_a_terabyte_is_refused_at_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    with journal.path_of(tmp_path, 0).open("wb") as file:
        file.truncate(2**40)
    refusal = read(tmp_path) or ""
    assert "rank-0.jsonl, line 1:" in refusal
    assert str(journal.LONGEST_LINE_BYTES) in refusal
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(2**40)
    assert "manifest.json: it has 1099511627776 bytes" in (read(tmp_path) or "")


@pytest.mark.parametrize("make", [lambda run: None, lambda run: (run / "manifest.json").mkdir()])
def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    assert "unknown run" in (read(tmp_path) or "")


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "-a", "a\x1b[2J", "../a", "a/b", "a\n", ""])
def test_a_run_whose_name_cannot_be_a_folder_s_is_refused(folder: Path, name: str) -> None:
    (folder / "manifest.json").write_text(json.dumps(MANIFEST | {"run": name}))
    assert "manifest.json: run: " in (read(folder) or "")


def test_a_stranger_s_texts_neither_control_the_terminal_nor_become_formulas(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {"sync_mode": "=HYPERLINK(1)", "model": "\x1b]0;\a\nerror: forged", "dataset": "@a\r"}
    other = tmp_path / "other\x1b[2J"
    shutil.copytree(folder, other)
    for each, settings_of in ((folder, MANIFEST["settings"]), (other, MANIFEST["settings"] | hostile)):
        (each / "manifest.json").write_text(json.dumps(MANIFEST | {"settings": settings_of}))
        write(each, 0, RECORDS)
    told: list[str] = []
    monkeypatch.chdir(tmp_path)
    report([str(folder), str(other)], told.append)
    printed = for_terminal("\n".join(told))
    assert all(line.isprintable() for line in printed.split("\n"))
    assert printed.count("error: forged") == printed.count(r"\nerror: forged") > 0
    cells = [cell for row in csv.reader(io.StringIO(comparison.compared([Run(other)]).csv())) for cell in row]
    assert "'=HYPERLINK(1)" in cells
    assert all(cell.isprintable() and not cell.startswith(("=", "+", "@")) for cell in cells)


def test_a_step_number_that_no_run_has_is_told_and_takes_no_time(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    write(folder, 0, [*RECORDS[:2], record(replace(STEP, step=10**15, epoch=10**15))])
    assert read(folder) is None
    assert "rank 0: steps 1, 2, 3, 4, 5, ... are not recorded." in Run(folder).summary.warnings


def test_copies_of_a_run_are_called_by_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one/mine", "two/mine", "other"):
        copied = tmp_path / name
        copied.mkdir(parents=True)
        (copied / "manifest.json").write_text(json.dumps(MANIFEST))
        for rank in (0, 1):
            write(copied, rank, [record(each) for each in rank_records(rank)])
    told: list[str] = []
    names = [str(tmp_path / name) for name in ("one/mine", "other")]
    report(names, told.append)
    assert [line.split()[0] for line in told[1].strip().splitlines()[1:]] == ["mine", "other"]
    told.clear()
    report([*names, str(tmp_path / "two/mine")], told.append)
    called = {line.split()[0] for line in told[1].strip().splitlines()[1:]}
    assert called == {"one/mine", "other", "two/mine"}
