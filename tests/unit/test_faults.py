"""The faults that are injected into runs: what a seed plans, and what the judge finds in what was seen."""

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from app.cluster.identity import Identity, missing_error
from app.errors import SettingError
from app.modes import MODES
from app.tools.faults import kinds, plan, sayings, sweep
from app.tools.faults.judge import NO_EFFECT, OK, WRONG, judge
from app.tools.faults.kinds import KINDS
from app.tools.faults.plan import Fault, FaultMoment, FaultTrial
from app.tools.faults.seen import Left, Observations, RankSeen
from app.tools.faults.stranger import RUBBISH
from tests.unit.test_scripts import bash

HOST = ". scripts/host/cluster.sh; . scripts/host/faults.sh"
SETTINGS = plan.DEFAULTS | {"SYNC_MODE": "ddp", "PEER_TIMEOUT": "8", "MAX_STEPS": ""}
TRAIN, JOIN, END = FaultMoment("train", 9, 0.0), FaultMoment("join", 0, 1.0), FaultMoment("end", 39, 0.5)
STARTED, STRUCK, WOKEN, STOPPED = 100.0, 110.0, 140.0, 115.0
ALL = frozenset(range(4))


# The plan.


def test_the_same_seed_gives_the_same_plan_and_more_trials_go_on_from_it() -> None:
    first = plan.make(7, 20, None, None, {})
    assert plan.make(7, 20, None, None, {}) == first
    assert plan.make(7, 14, None, None, {}) == first[:14]
    assert plan.make(8, 20, None, None, {}) != first


def test_every_kind_mode_rank_and_phase_comes_up() -> None:
    trials = plan.make(1, 300, None, None, {"WORKERS": "4"})
    faults = [fault for trial in trials for fault in trial.faults]
    for kind in KINDS:
        assert {fault.rank for fault in faults if fault.kind == kind} == ({0} if kind == "stranger" else {*range(5)})
    assert {fault.rubbish for fault in faults} == {"", *RUBBISH}
    assert {trial.settings["SYNC_MODE"] for trial in trials} == {*MODES}
    assert {trial.moment.phase for trial in trials} == {"join", "train", "end"}
    pairs = [trial.faults for trial in trials if len(trial.faults) == 2]
    assert all(one.rank != other.rank for one, other in pairs)
    assert {fault.kind for pair in pairs for fault in pair} == {*kinds.AT_ONCE}
    assert sum(pair[0].rank == 0 for pair in pairs) > len(pairs) / 2
    assert len({trial.name for trial in trials}) == 300


def test_a_plan_keeps_to_what_was_asked_for_and_to_its_bounds() -> None:
    trials = plan.make(2, 40, ["kill", "blink"], ["ddp", "none"], {"PEER_TIMEOUT": "20", "MODEL": "vgg11"})
    assert {fault.kind for trial in trials for fault in trial.faults} == {"kill", "blink"}
    assert [trial.settings["SYNC_MODE"] for trial in trials[:3]] == ["ddp", "none", "ddp"]
    for trial in trials:
        assert trial.settings["PEER_TIMEOUT"] == "20"
        assert trial.settings["MODEL"] == "vgg11"
        assert all(fault.seconds < 20 / 2 for fault in trial.faults)
        assert bool(trial.settings["MAX_STEPS"]) is (trial.moment.phase == "end")
        assert trial.port == 29500
    assert {trial.settings["SYNC_MODE"] for trial in plan.make(2, 9, None, None, {"SYNC_MODE": "ddp"})} == {"ddp"}
    assert "two" not in {trial.words for trial in plan.make(2, 50, None, None, {"WORKERS": "1"})}
    assert all(len(trial.faults) == 1 for trial in plan.make(2, 50, None, None, {"WORKERS": "1"}))


@pytest.mark.parametrize(
    ("number", "named", "modes", "given", "name", "facts"),
    [
        (0, None, None, {}, "invalid-argument", "--trials '0'.* 1 to 10000"),
        (3, ["kil"], None, {}, "unknown-name", r"--faults .*\bkil\b.* kill, pause"),
        (3, None, ["dpp"], {}, "unknown-name", "--modes .*dpp.* none, "),
        (3, ["two"], None, {"WORKERS": "1"}, "conflicting-arguments", "--faults two.* WORKERS=1"),
        (3, None, None, {"WORKERS": "0"}, "invalid-setting", "WORKERS=0.* 1 "),
        (3, None, None, {"PEER_TIMEOUT": "soon"}, "invalid-setting", "PEER_TIMEOUT.*soon"),
        (3, None, None, {"RUN_NAME": "mine"}, "conflicting-settings", "RUN_NAME"),
    ],
)
def test_a_wrong_argument_is_refused(
    number: int, named: list[str] | None, modes: list[str] | None, given: dict[str, str], name: str, facts: str
) -> None:
    with pytest.raises(SettingError, match=facts) as caught:
        plan.make(1, number, named, modes, given)
    assert caught.value.name == name


# The host: it does what the plan says.


def test_the_host_has_a_function_for_every_kind() -> None:
    for kind in KINDS:
        assert bash(f"{HOST}; declare -F inject_{kind}") == (0, f"inject_{kind}\n")


def test_the_host_does_what_the_plan_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = plan.make(3, 40, None, None, {"WORKERS": "5", "DATA_FOLDER": "/srv/my data"})
    asked = {"trials": 40, "seed": 3, "kinds": None, "modes": None, "given": ["WORKERS=5", "DATA_FOLDER=/srv/my data"]}
    sweep.make_plan("sweep", lambda line: None, **asked, dry_run=False)  # type: ignore[arg-type]
    for trial in made:
        orders: list[str] = []
        sweep.next_trial("sweep", orders.append)
        told = 'echo "$TRIAL $STEP $DELAY $PORT $PATIENCE ${UNHARMED:-no}"; printf "%s\n" "${FAULTS[@]}"'
        told += "; echo ${PAUSED[*]}; echo ${#OTHERS[@]} $SYNC_MODE $MAX_STEPS; echo $DATA_FOLDER"
        lines = "\n".join(orders)
        code, output = bash(f"{HOST}; take_orders '{lines}'; {told}", COMPOSE_PROJECT_NAME="p")
        assert code == 0, output
        head, *faults, paused, rest, spaced = output.splitlines()
        assert spaced == "/srv/my data"
        unharmed = "no" if trial.victims else "end" if trial.settings["MAX_STEPS"] else "stop"
        moment = f"{trial.moment.step} {trial.moment.seconds}"
        assert head == f"{trial.name} {moment} 29500 {trial.patience:.0f} {unharmed}"
        assert [fault.split()[:2] for fault in faults] == [[each.kind, str(each.rank)] for each in trial.faults]
        names = [f"p-worker-{rank}" if rank else "p-rank0-1" for rank in range(6)]
        silent = sorted(each.rank for each in trial.faults if each.kind == "pause")
        assert paused.split() == [names[rank] for rank in silent]
        assert rest.split()[:2] == [str(6 - len(silent)), trial.settings["SYNC_MODE"]]
        assert rest.split()[2:] == [each for each in [trial.settings["MAX_STEPS"]] if each]
        (tmp_path / f"results/faults/sweep/{trial.name}-seen/verdict.json").write_text("{}")
    sweep.next_trial("sweep", pytest.fail)


# The judge: what is right is called so, and whatever is wrong in one way is found.


def trial(*faults: tuple[str, int], moment: FaultMoment = TRAIN) -> FaultTrial:
    return FaultTrial(1, tuple(Fault(kind, rank) for kind, rank in faults), moment, SETTINGS)


def names(speaker: int, *lost: int) -> str:
    told = ", ".join(f"rank {rank} (p-worker-{rank}, 10.77.1.{rank})" for rank in lost)
    return f"error: rank {speaker}: lost {told} during barrier at step 3: closed\n"


def ended(rank: int, code: int, after: float, log: str = "", since: float = STRUCK) -> RankSeen:
    return RankSeen(rank, code, STARTED, since + after, log)


LEFT = Left(begun=True, complete=False, report=True)
OVER = Left(begun=True, complete=True, report=True, finished=ALL)

KILL = trial(("kill", 2))
AFTER_KILL = Observations((*(ended(r, 1, 1.0, names(r, 2)) for r in (0, 1)), ended(2, 137, 0.1),
                   ended(3, 1, 17.9, names(3, 2))), LEFT, STRUCK)  # fmt: skip
TWO = trial(("kill", 0), ("pause", 3))
WOKE = f"error: rank 3: the other ranks {sayings.LATE}: ...\n"
AFTER_TWO = Observations((ended(0, 137, 0.1), *(ended(r, 1, 9.0, names(r, 0, 3)) for r in (1, 2)),
                  ended(3, 1, 2.0, WOKE, since=WOKEN)), Left(begun=True), STRUCK, woken_at=WOKEN)  # fmt: skip
CUT = trial(("disconnect", 0))
AFTER_CUT = Observations((ended(0, 1, 9.0, "error: rank 0: cut off from the other ranks: ...\n"),
                  *(ended(r, 1, 9.0, names(r, 0)) for r in (1, 2, 3))), Left(begun=True), STRUCK)  # fmt: skip
FULL = trial(("disk", 1))
AFTER_FULL = Observations((ended(1, 1, 0.3, f"error: rank 1: {sayings.FULL} results/x/rank-1.jsonl: File too large."),
                   *(ended(r, 1, 1.0, names(r, 1)) for r in (0, 2, 3))), LEFT, STRUCK)  # fmt: skip
IN_JOIN = trial(("kill", 2), moment=JOIN)
INCOMPLETE = (
    "the group is not complete after JOIN_TIMEOUT=30 s. Joined: rank 0. Missing: rank 2 (p-worker-2). The output"
)
APP = Path(__file__).parents[2] / "app"
SEATS = ("p-rank0-1", "p-worker-1", "p-worker-2", "p-worker-3")
RANK_0 = Identity(0, SEATS, SEATS[0], SEATS[0], "10.0.0.2", "rank0", "10.0.0.2", 0.0)
UNCOUNTED = str(missing_error(RANK_0, SEATS[2:3]))
AFTER_JOIN = Observations((ended(0, 1, 29.0, f"error: {INCOMPLETE}"), ended(2, 137, 0.1),
                   *(ended(r, 1, 29.5, f"error: rank 1: rank 0 ended the join: {INCOMPLETE}") for r in (1, 3))),
                  Left(), STRUCK)  # fmt: skip
BLINK = trial(("blink", 1))
AFTER_BLINK = Observations(tuple(ended(r, 143, 1.0, "stopped by SIGTERM\n", since=STOPPED) for r in range(4)), LEFT,
                           STRUCK, stopped_at=STOPPED)  # fmt: skip
AT_THE_END = trial(("kill", 1), moment=END)
AFTER_THE_END = Observations(tuple(ended(r, 0, 1.0) for r in range(4)), OVER, STRUCK)

RIGHT = [(KILL, AFTER_KILL), (TWO, AFTER_TWO), (CUT, AFTER_CUT), (FULL, AFTER_FULL), (IN_JOIN, AFTER_JOIN),
         (BLINK, AFTER_BLINK)]  # fmt: skip


def but(seen: Observations, rank: int, **changes: object) -> Observations:
    """The same, with one rank otherwise."""
    changed = tuple(replace(each, **changes) if each.rank == rank else each for each in seen.ranks)  # type: ignore[arg-type]
    return replace(seen, ranks=changed)


@pytest.mark.parametrize(("planned", "seen"), RIGHT, ids=lambda each: getattr(each, "words", ""))
def test_what_is_right_is_called_so(planned: FaultTrial, seen: Observations) -> None:
    assert judge(planned, seen).reasons == ()
    assert judge(planned, seen).word == OK


def test_a_run_that_was_over_before_shows_nothing() -> None:
    assert judge(AT_THE_END, AFTER_THE_END).word == NO_EFFECT
    assert judge(AT_THE_END, replace(AFTER_THE_END, missed=("kill rank 1",))).word == NO_EFFECT
    assert judge(AT_THE_END, but(AFTER_THE_END, 1, exit_code=137)).word == OK
    assert judge(AT_THE_END, but(AFTER_THE_END, 3, exit_code=1, log=names(3, 1))).word == OK
    assert judge(trial(("stranger", 0), moment=END), AFTER_THE_END).word == OK


@pytest.mark.parametrize(
    "log", [UNCOUNTED, "rank 2 (p-worker-2) exited during the join", names(0, 2)], ids=["uncounted", "left", "trained"]
)
def test_in_the_join_any_message_that_names_the_victim_is_right(log: str) -> None:
    seen = but(AFTER_JOIN, 0, log=log)
    gone = "error: rank 3 (p-worker-3): rank 0 disconnected during the join: reset"
    assert judge(IN_JOIN, but(seen, 3, log=gone)).reasons == ()


@pytest.mark.parametrize(
    ("log", "word"),
    [(UNCOUNTED, OK), ("rank 2 (p-worker-2) exited during the join", OK), (INCOMPLETE, WRONG), (names(0, 2), WRONG)],
)
def test_a_join_that_one_rank_ended_at_once_need_not_name_a_silent_one(log: str, word: str) -> None:
    planned = trial(("kill", 2), ("pause", 3), moment=JOIN)
    said = tuple(ended(rank, 1, 1.0, f"error: {log}") for rank in (0, 1))
    woken = ended(3, 1, 5.0, "error: cannot resolve MASTER_ADDR=rank0", since=WOKEN)
    seen = Observations((*said, ended(2, 137, 0.1), woken), Left(), STRUCK, woken_at=WOKEN)
    assert judge(planned, seen).word == word, judge(planned, seen).reasons
    both_killed = trial(("kill", 2), ("kill", 3), moment=JOIN)
    assert judge(both_killed, but(seen, 3, exit_code=137)).word == WRONG, "a rank that has ended is not merely silent"


@pytest.mark.parametrize(
    ("planned", "seen", "told"),
    [
        (KILL, but(AFTER_KILL, 3, ended_at=STRUCK + 18.5), "rank 3 .* 18.5 s .* 18.0 s"),
        (KILL, but(AFTER_KILL, 0, ended_at=None, exit_code=137), "rank 0 .* 28 s .* 18.0 s"),
        (KILL, but(AFTER_KILL, 1, exit_code=2), r"rank 1 .* 2\b.* 1$"),
        (KILL, but(AFTER_KILL, 1, exit_code=0), r"rank 1 .* 0\b.* 1$"),
        (KILL, but(AFTER_KILL, 1, log=names(1, 3)), "rank 1 .*rank 2.*: lost rank 3$"),
        (KILL, but(AFTER_KILL, 1, log=names(1, 2, 3)), "rank 1 .*rank 2.*: lost rank 2, rank 3$"),
        (KILL, but(AFTER_KILL, 1, log="error: rank 1: broken"), "rank 1 .*rank 2.*: 'rank 1: broken'$"),
        (KILL, but(AFTER_KILL, 1, log=names(0, 2)), "rank 1 .*as rank 0$"),
        (KILL, but(AFTER_KILL, 2, exit_code=1), r"rank 2 .* 1\b.* 137$"),
        (
            KILL,
            but(AFTER_KILL, 0, log=f"{names(0, 2)}Traceback (most recent call last):"),
            "rank 0 printed a stack trace",
        ),
        (KILL, but(AFTER_KILL, 0, log=f"{names(0, 2)}\nframe #0: c10d::x"), "rank 0 printed a stack trace: frame #0"),
        (KILL, but(AFTER_KILL, 2, log="terminate called after"), "rank 2 printed a stack trace: terminate called"),
        (KILL, but(AFTER_KILL, 1, out_of_memory=True), "rank 1 ran out of memory"),
        (KILL, replace(AFTER_KILL, left=replace(LEFT, report=False)), "report.html"),
        (KILL, replace(AFTER_KILL, left=replace(LEFT, complete=None)), "summary.json"),
        (KILL, replace(AFTER_KILL, left=replace(LEFT, complete=True)), "summary.json .*complete"),
        (KILL, replace(AFTER_KILL, left=replace(LEFT, unreadable="line 3")), "read.*: line 3$"),
        (KILL, replace(AFTER_KILL, fault_at=None), "the moment of the fault"),
        (KILL, replace(AFTER_KILL, missed=("kill rank 2",)), "inject.*kill rank 2$"),
        (TWO, but(AFTER_TWO, 1, log=names(1, 0)), "rank 1 .*rank 0 and rank 3.*: lost rank 0$"),
        (TWO, but(AFTER_TWO, 3, log=names(3, 0)), f"rank 3 .*'{sayings.LATE}'.*: lost rank 0$"),
        (TWO, but(AFTER_TWO, 3, exit_code=0), r"rank 3 .* 0\b.* 1$"),
        (TWO, but(AFTER_TWO, 3, ended_at=WOKEN + 18.5), "rank 3 .* 48.5 s .* 48.0 s"),
        (CUT, but(AFTER_CUT, 0, log=names(0, 1, 2, 3)), f"rank 0 .*'{sayings.CUT_OFF}'"),
        (FULL, but(AFTER_FULL, 1, log=names(1, 0)), f"rank 1 .*'{sayings.FULL}'"),
        (FULL, but(AFTER_FULL, 0, log=names(0, 2)), "rank 0 .*rank 1.*: lost rank 2$"),
        (IN_JOIN, but(AFTER_JOIN, 0, ended_at=STARTED + 41), "rank 0 .* 31.0 s .* 30.0 s"),
        (IN_JOIN, but(AFTER_JOIN, 0, exit_code=2), r"rank 0 .* 2\b.* 1$"),
        (IN_JOIN, but(AFTER_JOIN, 0, log=INCOMPLETE.replace("rank 2", "rank 3")), "rank 0 .*rank 2.* rank 3 "),
        (IN_JOIN, but(AFTER_JOIN, 0, log=UNCOUNTED.replace("rank 2", "rank 1")), "rank 0 .*rank 2.* rank 1 "),
        (
            IN_JOIN,
            but(AFTER_JOIN, 1, log="rank 0 did not answer at", ended_at=STRUCK + 20),
            "rank 1 .*rank 2.* rank 0 ",
        ),
        (IN_JOIN, but(AFTER_JOIN, 1, log=""), "rank 1 .*rank 2.*: nothing$"),
        (BLINK, but(AFTER_BLINK, 1, ended_at=STOPPED - 1, exit_code=1), "rank 1 .* before SIGTERM.* 1: "),
        (BLINK, but(AFTER_BLINK, 1, exit_code=139), "rank 1 .*SIGTERM.* 139$"),
        (BLINK, but(AFTER_BLINK, 0, exit_code=1), "rank 0 .*SIGTERM.* 1$"),
        (
            BLINK,
            but(AFTER_BLINK, 0, log=f"stopped by SIGTERM\n{names(0, 1)}"),
            "rank 0 .*SIGTERM.*: lost rank 1$",
        ),
        (BLINK, replace(AFTER_BLINK, left=replace(LEFT, report=False)), "report.html"),
        (BLINK, but(AFTER_BLINK, 1, ended_at=STOPPED + 19), "rank 1 .*SIGTERM.* 1.0 s$"),
        (BLINK, but(AFTER_BLINK, 1, ended_at=None), "rank 1 .*running.*SIGTERM"),
        (BLINK, replace(AFTER_BLINK, stuck=True), "no further steps"),
        (BLINK, replace(AFTER_BLINK, missed=("blink rank 1",)), "inject.*blink rank 1$"),
        (AT_THE_END, replace(AFTER_THE_END, left=replace(OVER, finished=ALL - {1})), r" 0\b.* 1$"),
        (trial(("blink", 2), moment=END), but(AFTER_THE_END, 3, exit_code=1), r"rank 3 .* 1\b"),
        (trial(("stranger", 0), moment=END), but(AFTER_THE_END, 0, ended_at=None), "rank 0 did not"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_whatever_is_wrong_is_found(planned: FaultTrial, seen: Observations, told: str) -> None:
    verdict = judge(planned, seen)
    assert verdict.word == WRONG
    assert any(re.search(told, reason) for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize(
    ("log", "short"),
    [
        (names(1, 2), "lost rank 2"),
        (names(1, 0, 3), "lost rank 0, rank 3"),
        (WOKE, "considered lost"),
        (f"error: {UNCOUNTED}", "missed rank 2 in the join"),
        ("error: rank 0 did not answer at 10.77.1.5:29500", "missed rank 0 in the join"),
        ("step 3\n", "nothing"),
    ],
)
def test_the_table_says_it_in_short(log: str, short: str) -> None:
    assert sayings.in_short(log) == short


def test_the_same_seed_sends_the_same_rubbish() -> None:
    for make in RUBBISH.values():
        first, second = (make(Random(1)) for _ in range(2))  # noqa: S311
        assert first == second != b""


@pytest.mark.parametrize(
    "words",
    [
        "the group is not complete after JOIN_TIMEOUT=",
        "exited during the join",
        "could not connect to all others",
        "no UDP datagram has arrived from",
        "ranks were requested, but",
        "did not answer at",
        "disconnected during the join",
        "assigned no ranks within",
        "cannot resolve MASTER_ADDR=",
        sayings.LATE,
        sayings.CUT_OFF,
    ],
)
def test_the_judge_recognises_the_messages_of_the_program(words: str) -> None:
    """If only the message or only the pattern were reworded, each such trial would be judged as wrong."""
    sources = (path.read_text() for room in ("cluster", "machine") for path in (APP / room).glob("*.py"))
    assert any(words in text for text in sources)
    patterns = (*sayings.INCOMPLETE, sayings.AT_ONCE, sayings.WITHOUT_RANK_0)
    assert any(words in each for each in (*(each.pattern for each in patterns), *sayings.SHORT.values()))
