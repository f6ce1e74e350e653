"""The kills that runs must recover from: what a seed plans, what the host does, and what the judge finds."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import SettingError
from app.modes import MODES
from app.records.lines import Record
from app.tools.faults import kills, recovery, sweep
from app.tools.faults.judge import NO_EFFECT, OK, WRONG
from app.tools.faults.kills import MOMENTS, Kill, KillMoment
from app.tools.faults.seen import Left, Observations, RankSeen
from tests.unit.test_faults import HOST
from tests.unit.test_records import FINISHED, MANIFEST, steps, write_run
from tests.unit.test_scripts import bash

FACTS = {"SYNC_MODE": "ddp"}
STEPS_OF_AN_EPOCH = MANIFEST["plan"]["steps_per_epoch"]
KILLED = Kill(3, (1,), KillMoment("save", "checkpoint/step-20", 0.01), FACTS)
UNDISTURBED = Kill(0, (), KillMoment("train", "", 0.0), FACTS)


def test_the_same_seed_gives_the_same_plan_and_more_kills_go_on_from_it() -> None:
    first = kills.make(7, 20, None, {})
    assert kills.make(7, 20, None, {}) == first
    fewer = [each for each in kills.make(7, 14, None, {}) if each.victims]
    assert fewer == [each for each in first if each.victims][:14]
    assert kills.make(8, 20, None, {}) != first


def test_every_moment_mode_and_rank_comes_up_and_each_mode_has_an_undisturbed_run_first() -> None:
    plan = kills.make(1, 300, None, {"WORKERS": "4"})
    struck = [each for each in plan if each.victims]
    assert len(struck) == 300
    assert {each.moment.name for each in struck} == {*MOMENTS}
    assert {each.moment.name for each in struck[:6]} == {*MOMENTS}
    assert {rank for each in struck for rank in each.victims} == {*range(5)}
    assert {len(each.victims) for each in struck} == {1, 2, 5}
    assert {each.settings["SYNC_MODE"] for each in struck} == {*MODES}
    assert len({each.name for each in plan}) == len(plan) == 300 + len(MODES)
    for number, each in enumerate(plan):
        first = kills.undisturbed(each.settings["SYNC_MODE"])
        assert first in [before.name for before in plan[: number + 1]]


@pytest.mark.parametrize(
    ("number", "given", "told"),
    [
        (0, {}, "--kills '0'.* 1 to 10000"),
        (1, {"CHECKPOINT_EVERY": "0"}, "CHECKPOINT_EVERY=0.* 1 "),
        (1, {"MAX_RESTARTS": "0"}, "MAX_RESTARTS=0.* 1 "),
        (1, {"RUN_NAME": "mine"}, "RUN_NAME"),
        (1, {"RESUME": "auto"}, "RESUME"),
        (1, {"SEED": "x"}, "SEED.*x"),
    ],
)
def test_a_wrong_argument_is_refused(number: int, given: Mapping[str, str], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        kills.make(1, number, None, given)


def test_the_host_does_what_the_plan_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep.make_plan_of_kills(
        "sweep", lambda line: None, number=20, seed=3, modes=None, given=["WORKERS=5"], dry_run=False
    )
    for kill in kills.make(3, 20, None, {"WORKERS": "5"}):
        orders: list[str] = []
        sweep.next_trial("sweep", orders.append)
        told = 'echo "$TRIAL $RECOVER $SYNC_MODE $RUN_NAME $RESUME $MAX_RESTARTS"; printf "%s\n" "${KILLS[@]}"'
        lines = "\n".join(orders)
        code, output = bash(f"{HOST}; take_orders '{lines}'; {told}", COMPOSE_PROJECT_NAME="p")
        assert code == 0, output
        head, *struck = output.splitlines()
        assert head == f"{kill.name} 600 {kill.settings['SYNC_MODE']} {kill.name} never 5"
        steps = STEPS_OF_AN_EPOCH * kill.moment.epochs
        moment = f"{kill.moment.seconds} {steps} {kill.moment.file}".strip()
        assert [each.strip() for each in struck if each] == [f"{rank} {moment}" for rank in kill.victims]
        if not kill.victims:
            (folder := tmp_path / "results/faults/sweep" / kill.name).mkdir()
            write_run(folder)
        (tmp_path / f"results/faults/sweep/{kill.name}-seen/verdict.json").write_text("{}")
    sweep.next_trial("sweep", pytest.fail)


def test_a_kill_that_came_too_late_comes_sooner_and_in_the_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moment = KillMoment("farewell", "checkpoint/finished", 0.2)
    assert [moment.sooner(tries) for tries in range(kills.MOST_TRIES)] == [0.2, 0.1, 0.05, 0.0]
    sweep.make_plan_of_kills("sweep", lambda line: None, number=1, seed=3, modes="ddp", given=[], dry_run=False)
    planned = kills.make(3, 1, ["ddp"], {})[1]
    notes = tmp_path / "results/faults/sweep" / f"{planned.name}-seen"
    (first := notes.with_name(f"{planned.undisturbed}-seen")).mkdir()
    (first / "verdict.json").write_text("{}")
    notes.mkdir()
    (notes / "tries").write_text("1")
    orders: list[str] = []
    sweep.next_trial("sweep", orders.append)
    assert f"kill {planned.victims[0]} {planned.moment.sooner(1)} " in "\n".join(orders)


def seen(*codes: int, restarts: int = 1, complete: bool = True, log: str = "") -> Observations:
    ranks = tuple(
        RankSeen(rank, code, 0.0, 1.0, log, restarts=restarts if rank == 1 else 0) for rank, code in enumerate(codes)
    )
    return Observations(ranks, Left(True, "", complete, True, frozenset((0, 1))))


def runs(results: Path, disturbed: list[Record]) -> Path:
    """Folders of an undisturbed run of three steps of a second, and of one whose ranks have recorded this."""
    for name, content in (("undisturbed-ddp", [*steps(1, 1, 1), FINISHED]), ("kill-003", disturbed)):
        (results / name).mkdir()
        write_run(results / name, content, content)
    return results / "kill-003"


def again(**changes: float) -> list[Record]:
    """Two steps; then another attempt, which begins eight seconds later with the second one again."""
    one, two = (replace(each, attempt=1) for each in steps(1, 1, first=1, began=10.0))
    repeated = [one, replace(two, **changes)]  # type: ignore[arg-type]
    return [*steps(1, 1), *repeated, replace(FINISHED, attempt=1)]


def test_a_run_that_recovered_with_the_same_bits_is_right_and_its_cost_is_told(tmp_path: Path) -> None:
    row = recovery.judge(KILLED, seen(0, 0), runs(tmp_path, again()))
    assert (row.verdict, row.attempts, row.steps_repeated, row.recovery_seconds) == (OK, 2, 1, 8.0)
    assert re.fullmatch(r"1 kill: 1 ok\. .* 8\.0 s, .* 8\.0 s; .* 1, .* 1", recovery.tally([row]))


def test_a_kill_that_came_too_late_has_no_effect(tmp_path: Path) -> None:
    folder = runs(tmp_path, [*steps(1, 1, 1), FINISHED])
    assert recovery.judge(KILLED, seen(0, 0, restarts=0), folder).verdict == NO_EFFECT
    assert recovery.judge(UNDISTURBED, seen(0, 0, restarts=0), folder.with_name("undisturbed-ddp")).verdict == OK


@pytest.mark.parametrize(
    ("told", "disturbed", "observed"),
    [
        ("rank 0.* losses", again(loss=2.25), seen(0, 0)),
        ("rank 1.* losses", again(correct=8), seen(0, 0)),
        ("rank 0.* parameters", [*again()[:-1], replace(FINISHED, parameters_sha256="d")], seen(0, 0)),
        ("the run did not", again(), seen(0, 0, complete=False)),
        (r"rank 1 .* 1\b", again(), seen(0, 1)),
        ("rank 0 printed a stack trace", again(), seen(0, 0, log="Traceback (most recent call last)")),
    ],
)
def test_whatever_is_wrong_is_found(tmp_path: Path, told: str, disturbed: list[Record], observed: Observations) -> None:
    row = recovery.judge(KILLED, observed, runs(tmp_path, disturbed))
    assert row.verdict == WRONG
    assert any(re.match(told, reason) for reason in row.reasons), row.reasons


def test_an_undisturbed_run_that_was_disturbed_proves_nothing(tmp_path: Path) -> None:
    folder = runs(tmp_path, again())
    row = recovery.judge(UNDISTURBED, seen(0, 0), folder.with_name("undisturbed-ddp"))
    assert (row.verdict, len(row.reasons)) == (WRONG, 1)
    assert "undisturbed" in row.reasons[0]
