"""What the attempts of a run leave for each other: places, numbers, ends, and a diagnosis."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.cluster.identity import Identity
from app.errors import DivergedError, JoinError, LockstepError, WriteError
from app.machine import folders
from app.machine.folders import RunTicket
from app.records.places import ATTEMPTS
from app.run import attempts, rank
from app.settings.settings import Settings
from tests.unit.test_records import FINISHED, steps, write_run

SEATS = ("p-rank0-1", "p-worker-1")
LOST = JoinError("rank 0: lost rank 1 (p-worker-1, 10.77.1.3)\nThe last lines of its output say why.")


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prepared").mkdir()
    folders.write_ticket(RunTicket("mine", start="first"))
    folder = folders.RESULTS / "mine"
    folder.mkdir(parents=True)
    return folder


def test_a_start_knows_what_it_has_begun_and_nothing_of_another_start(run_folder: Path) -> None:
    assert attempts.started_run() is None
    assert attempts.begin(run_folder, SEATS) == 0
    attempts.end(run_folder, 0, LOST)
    begun = attempts.started_run()
    assert begun
    assert (begun.run, begun.seats, len(begun.attempts)) == ("mine", SEATS, 1)
    assert attempts.begin(run_folder, SEATS) == 1
    folders.write_ticket(RunTicket("mine", goes_on=True, start="second"))
    assert attempts.started_run() is None
    others = ("p-rank0-1", "p-worker-2")
    assert attempts.begin(run_folder, others) == 2
    begun = attempts.started_run()
    assert begun
    assert (begun.seats, len(begun.attempts)) == (others, 1)


def test_an_attempt_that_cannot_be_noted_ends_with_a_line(run_folder: Path) -> None:
    """With no right to write, say; the tests may be root's, who has it always."""
    (run_folder / f".{ATTEMPTS}.new").mkdir()
    identity = Identity(0, SEATS, SEATS[0], SEATS[0], "127.0.0.1", "127.0.0.1", "127.0.0.1", 0.0)
    with pytest.raises(WriteError, match=r"rank 0: .* results/mine/\.attempts\.jsonl\.new: "):
        rank._open_attempt(Settings.of(), "mine", identity, []).__enter__()


def test_a_start_knows_a_run_that_rank_0_has_opened_in_place_of_the_chosen_one(run_folder: Path) -> None:
    """Where the chosen one has another number of ranks, which only rank 0 can count."""
    attempts.begin(folders.RESULTS / "mine", SEATS)
    folders.write_ticket(RunTicket("mine", goes_on=True, start="second"))
    (folders.RESULTS / "other").mkdir()
    (folders.RESULTS / "latest").symlink_to("other")
    attempts.begin(folders.RESULTS / "other", SEATS[:1])
    begun = attempts.started_run()
    assert begun
    assert (begun.run, begun.seats) == ("other", SEATS[:1])


def test_where_nobody_has_prepared_a_start_there_is_none(run_folder: Path) -> None:
    folders.RUN_FILE.unlink()
    assert attempts.begin(run_folder, SEATS) == 0
    assert attempts.started_run() is None


def test_a_damaged_line_hides_one_attempt_and_gives_its_number_to_no_other(run_folder: Path) -> None:
    for _ in range(3):
        attempts.begin(run_folder, SEATS)
    lines = (run_folder / ATTEMPTS).read_text().splitlines()
    (run_folder / ATTEMPTS).write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    assert attempts.begin(run_folder, SEATS) == 3
    begun = attempts.started_run()
    assert begun
    assert [each.attempt for each in begun.attempts] == [0, 2, 3]


def test_only_what_would_come_again_is_refused(run_folder: Path) -> None:
    attempts.begin(run_folder, SEATS)
    attempts.end(run_folder, 0, LOST)
    begun = attempts.started_run()
    assert begun
    attempts.refuse_deterministic_failure(begun)
    attempts.begin(run_folder, SEATS)
    attempts.end(run_folder, 1, DivergedError("rank 0: the loss is nan"))
    begun = attempts.started_run()
    assert begun
    with pytest.raises(LockstepError, match=r"attempt 1 .*: rank 0: the loss is nan"):
        attempts.refuse_deterministic_failure(begun)


def test_the_diagnosis_says_how_far_each_attempt_came_and_whether_it_was_the_same_step(run_folder: Path) -> None:
    content = [*steps(1, 1, 1), *(replace(each, attempt=2) for each in steps(1, first=2, began=9.0))]
    write_run(run_folder, content)
    for number in range(3):
        attempts.begin(run_folder, SEATS)
        if number < 2:
            attempts.end(run_folder, number, LOST)
    lost, none, silent = attempts.diagnosis(run_folder).splitlines()
    assert re.fullmatch(r" *attempt 0: .*step 2; rank 0: lost rank 1 \(p-worker-1, 10\.77\.1\.3\)", lost)
    assert re.fullmatch(r" *attempt 1: no step; rank 0: lost rank 1 \(p-worker-1, 10\.77\.1\.3\)", none)
    assert re.fullmatch(r" *attempt 2: .*step 2; [^:]*", silent)
    write_run_again = [*content, *(replace(each, attempt=3) for each in steps(1, first=2, began=12.0))]
    for path in run_folder.glob("rank-*"):
        path.unlink()
    write_run(run_folder, write_run_again)
    attempts.begin(run_folder, SEATS)
    *lines, conclusion = attempts.diagnosis(run_folder).splitlines()
    assert ["attempt" in line and ":" in line for line in lines] == [True] * 4
    assert re.search(r" step 2: .*deterministic", conclusion)


def test_everyone_has_finished_when_each_rank_s_last_record_says_so(run_folder: Path) -> None:
    assert not attempts.everyone_has_finished(run_folder)
    whole = [*steps(1, 1, 1), FINISHED]
    write_run(run_folder, whole, whole)
    assert attempts.everyone_has_finished(run_folder)
    path = run_folder / "rank-1.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert not attempts.everyone_has_finished(run_folder)
