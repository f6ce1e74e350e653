"""The faults that are injected into runs: what a seed plans, what the host does, and what the judge finds."""

import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.analysis.run_records import RankRecords
from app.cluster.identity import Identity, missing_error
from app.errors import SettingError
from app.modes import MODES
from app.records.lines import Record
from app.tools.faults import judge as judgement
from app.tools.faults import plan, sayings, seen, sweep, table
from app.tools.faults.judge import NO_EFFECT, OK, WRONG, FaultVerdict
from app.tools.faults.plan import KILL_PHASES, KINDS, NO_RECOVERY, Fault, FaultMoment, FaultTrial
from app.tools.faults.seen import Left, Observations, RankSeen
from app.tools.faults.stranger import RUBBISH
from tests.unit.test_records import FINISHED, MANIFEST, steps, write_run
from tests.unit.test_scripts import bash

HOST = ". scripts/host/cluster.sh; . scripts/host/faults.sh"
SETTINGS = plan.DEFAULTS | NO_RECOVERY | {"SYNC_MODE": "ddp", "PEER_TIMEOUT": "8", "RUN_NAME": "trial-001"}
TRAIN, JOIN, END = (FaultMoment(phase, "then") for phase in ("train", "join", "end"))
STARTED, STRUCK, WOKEN = 100.0, 110.0, 140.0
ALL = range(4)
STEPS_OF_AN_EPOCH = MANIFEST["plan"]["steps_per_epoch"]


# The plan.


def test_the_same_seed_gives_the_same_plan_and_more_trials_go_on_from_it() -> None:
    for kills in (False, True):
        first = plan.make(7, 20, None, {}, kills=kills)
        assert plan.make(7, 20, None, {}, kills=kills) == first
        assert struck(plan.make(7, 14, None, {}, kills=kills)) == struck(first)[:14]
        assert plan.make(8, 20, None, {}, kills=kills) != first


def struck(trials: list[FaultTrial]) -> list[FaultTrial]:
    return [trial for trial in trials if trial.faults]


def test_every_kind_mode_rank_and_phase_comes_up() -> None:
    trials = plan.make(1, 300, None, {"WORKERS": "4"})
    faults = [fault for trial in trials for fault in trial.faults]
    for kind in KINDS:
        assert {fault.rank for fault in faults if fault.kind == kind} == ({0} if kind == "stranger" else {*range(5)})
    assert {fault.rubbish for fault in faults} == {"", *RUBBISH}
    assert {trial.settings["SYNC_MODE"] for trial in trials} == {*MODES}
    assert {trial.moment.phase for trial in trials} == {"join", "train", "end"}
    pairs = [trial.faults for trial in trials if len(trial.faults) == 2]
    assert all(one.rank != other.rank for one, other in pairs)
    assert {fault.kind for pair in pairs for fault in pair} == {*plan.AT_ONCE}
    assert sum(pair[0].rank == 0 for pair in pairs) > len(pairs) / 2
    assert len({trial.name for trial in trials}) == 300


def test_every_moment_mode_and_rank_is_killed_and_each_mode_has_an_undisturbed_run_first() -> None:
    trials = plan.make(1, 300, None, {"WORKERS": "4"}, kills=True)
    killed = struck(trials)
    assert len(killed) == 300
    assert {each.moment.phase for each in killed[:6]} == {each.moment.phase for each in killed} == {*KILL_PHASES}
    assert {rank for each in killed for rank in each.victims} == {*range(5)}
    assert {len(each.victims) for each in killed} == {1, 2, 5}
    assert {each.mode for each in killed} == {*MODES}
    names = [each.name for each in trials]
    assert len({*names}) == len(names) == 300 + len(MODES)
    assert all(each.undisturbed in names[: number + 1] for number, each in enumerate(trials))


def test_a_plan_keeps_to_what_was_asked_for_and_to_its_bounds() -> None:
    trials = plan.make(2, 40, ["ddp", "none"], {"PEER_TIMEOUT": "20", "MODEL": "vgg11"}, kinds=["kill", "blink"])
    assert {fault.kind for trial in trials for fault in trial.faults} == {"kill", "blink"}
    assert [trial.settings["SYNC_MODE"] for trial in trials[:3]] == ["ddp", "none", "ddp"]
    for trial in trials:
        assert trial.settings["PEER_TIMEOUT"] == "20"
        assert trial.settings["MODEL"] == "vgg11"
        assert all(fault.seconds < 20 / 2 for fault in trial.faults)
        assert bool(trial.settings["MAX_STEPS"]) is (trial.moment.phase == "end")
        assert trial.place.master_port == 29500
    assert {trial.settings["SYNC_MODE"] for trial in plan.make(2, 9, None, {"SYNC_MODE": "ddp"})} == {"ddp"}
    assert "two" not in {trial.words for trial in plan.make(2, 50, None, {"WORKERS": "1"})}
    assert all(len(trial.faults) == 1 for trial in plan.make(2, 50, None, {"WORKERS": "1"}))


@pytest.mark.parametrize(
    ("number", "given", "options", "name", "facts"),
    [
        (0, {}, {}, "invalid-argument", "--trials '0'.* 1 to 10000"),
        (3, {}, {"kinds": ["kil"]}, "unknown-name", r"--faults .*\bkil\b.* kill, pause"),
        (3, {"WORKERS": "1"}, {"kinds": ["two"]}, "conflicting-arguments", "--faults two.* WORKERS=1"),
        (3, {"WORKERS": "0"}, {}, "invalid-setting", "WORKERS=0.* 1 "),
        (3, {"PEER_TIMEOUT": "soon"}, {}, "invalid-setting", "PEER_TIMEOUT.*soon"),
        (3, {"RUN_NAME": "mine"}, {}, "conflicting-settings", "RUN_NAME"),
        (0, {}, {"kills": True}, "invalid-argument", "--kills '0'.* 1 to 10000"),
        (1, {"CHECKPOINT_EVERY": "0"}, {"kills": True}, "invalid-setting", "CHECKPOINT_EVERY=0.* 1 "),
        (1, {"MAX_RESTARTS": "0"}, {"kills": True}, "invalid-setting", "MAX_RESTARTS=0.* 1 "),
        (1, {"RESUME": "auto"}, {"kills": True}, "conflicting-settings", "RESUME"),
    ],
)
def test_a_wrong_argument_is_refused(
    number: int, given: dict[str, str], options: dict[str, Any], name: str, facts: str
) -> None:
    with pytest.raises(SettingError, match=facts) as caught:
        plan.make(1, number, None, given, **options)
    assert caught.value.name == name


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SettingError, match=r"--modes .*dpp.* none, ") as caught:
        plan.make(1, 3, ["dpp"], {})
    assert caught.value.name == "unknown-name"


# The host: it does what the plan says.


def test_the_host_has_a_function_for_every_kind() -> None:
    for kind in (*KINDS, "strike"):
        assert bash(f"{HOST}; declare -F inject_{kind}") == (0, f"inject_{kind}\n")


@pytest.mark.parametrize("kills", [None, 20])
def test_the_host_does_what_the_plan_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int | None) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"WORKERS": "5", "DATA_FOLDER": "/srv/it's my data", "MAX_RESTARTS": "5"}  # which faults override
    planned(given, kills)
    folder = tmp_path / "results/faults/sweep"
    made = plan.make(3, kills or 40, None, given, kills=kills is not None)
    for number, trial in enumerate(made, 1):
        sweep.go_on("sweep", pytest.fail)
        told = 'printf "%s\n" "$TRIAL $MOMENT" "$START_PATIENCE $PATIENCE" "${PAUSED[*]}" "$ENDLESS" "${FAULTS[@]}"'
        told += (
            '; echo "$RUN_NAME $SYNC_MODE $RESUME $MAX_RESTARTS $DATA_FOLDER"; name_containers; echo "${CONTAINERS[@]}"'
        )
        code, output = bash(f"{HOST}; . {folder}/orders; {told}", COMPOSE_PROJECT_NAME="p")
        assert code == 0, output
        head, patience, paused, endless, *faults, settings, containers = output.splitlines()
        at = trial.moment
        when = f"{at.epochs * STEPS_OF_AN_EPOCH or at.steps} {at.seconds} {at.file}".strip()
        assert head.strip() == (trial.name if trial.recovers else f"{trial.name} {when}")
        assert patience == ("600 600" if trial.recovers else f"50 {trial.patience:.0f}")
        assert paused.split() == [str(each.rank) for each in trial.faults if each.kind == "pause"]
        assert (endless == "yes") is not (trial.recovers or trial.victims or trial.moment.phase == "end")
        for fault, order in zip(trial.faults, [each for each in faults if each], strict=True):
            details = f"{fault.seconds} {fault.rubbish} {number} 29500"
            assert order.strip() == (
                f"strike {fault.rank} {when}" if trial.recovers else f"{fault.kind} {fault.rank} {details}"
            )
        restarts = "5" if trial.recovers else "0"
        assert settings == f"{trial.name} {trial.mode} never {restarts} /srv/it's my data"
        assert containers.split() == ["p-rank0-1", *(f"p-worker-{rank}" for rank in range(1, 6))]
        if trial.recovers and not trial.faults:
            (folder / trial.name).mkdir()
            write_run(folder / trial.name)
        conclude(folder, trial)
    said: list[str] = []
    assert sweep.go_on("sweep", said.append) == 0
    assert not (folder / "orders").exists()
    assert (folder / "table.txt").read_text().splitlines() == said[0].splitlines()
    assert f"{kills or 40} {'kills: ' if kills else ''}" in said[0].splitlines()[-1] + " "


def test_a_rank_that_rewrites_the_plan_runs_nothing_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned({}, None)
    folder = tmp_path / "results/faults/sweep"
    trials = json.loads((folder / sweep.PLAN).read_text())
    harm = f"'; touch {tmp_path}/harmed; '$(touch {tmp_path}/harmed)"
    trials[0]["settings"][f"X{harm}"] = trials[0]["moment"]["file"] = harm
    (folder / sweep.PLAN).write_text(json.dumps(trials))
    sweep.go_on("sweep", pytest.fail)
    bash(f"{HOST}; . {folder}/orders")
    assert not (tmp_path / "harmed").exists()


def planned(given: dict[str, str], kills: int | None, modes: list[str] | None = None) -> None:
    options = {"trials": 40, "kills": kills, "seed": 3, "kinds": None, "modes": modes, "dry_run": False}
    sweep.make_plan("sweep", lambda line: None, given=given, **options)  # type: ignore[arg-type]


def conclude(folder: Path, trial: FaultTrial) -> None:
    verdict = FaultVerdict(OK)
    columns = table.row(trial, Observations(()), verdict)
    content = {"verdict": verdict.word, "reasons": verdict.reasons, "columns": columns}
    (folder / f"{trial.name}-seen/verdict.json").write_text(json.dumps(content))


def test_a_kill_that_came_too_late_is_made_again_sooner_and_in_the_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned({}, 1, ["ddp"])
    folder = tmp_path / "results/faults/sweep"
    said: list[str] = []
    delays = []
    undisturbed, kill = plan.make(3, 1, ["ddp"], {}, kills=True)
    for trial in (undisturbed, *[kill] * 4):
        assert sweep.go_on("sweep", said.append) == 0
        orders = (folder / "orders").read_text()
        assert f"TRIAL={trial.name}\n" in orders
        delays += [float(each) for each in re.findall(r"strike \d+ \d+ (\S+)", orders)[:1]]
        make_run(folder, trial.name)
    assert delays == [round(kill.moment.seconds / 2**n, 3) for n in range(3)] + [0.0]
    assert sweep.go_on("sweep", said.append) == 0
    assert "1 kill: 1 no effect" in said[-2]
    assert [line.endswith("retried") for line in said[:-2]] == [False, True, True, True, False]


def make_run(folder: Path, name: str) -> None:
    """What a run that nothing has disturbed leaves, and what the host notes about it."""
    run, notes = folder / name, folder / f"{name}-seen"
    run.mkdir()
    write_run(run, *[[*steps(1, 1, 1), FINISHED]] * 2)
    (run / "summary.json").write_text('{"complete": true}')
    (run / "report.html").touch()
    (notes / "seen").write_text("110,5 fault\n111.0 missed fault not injected: strike rank 1\n")
    times = {"StartedAt": "1970-01-01T00:01:40.500000000Z", "FinishedAt": "1970-01-01T00:02:00Z"}
    state = {"ExitCode": 0, "Running": False, "OOMKilled": False, **times}
    (notes / "containers.json").write_text(json.dumps([{"State": state, "RestartCount": 0}] * 2))
    for rank in range(2):
        (notes / f"rank-{rank}.log").write_text("step 3\n")


def test_what_the_host_has_noted_is_read(tmp_path: Path) -> None:
    (tmp_path / "x-seen").mkdir()
    make_run(tmp_path, "x")
    observed = seen.read(tmp_path / "x-seen", tmp_path / "x")
    assert (observed.fault_at, observed.woken_at, observed.over) == (110.5, None, True)
    assert observed.missed == ("fault not injected: strike rank 1",)
    assert observed.ranks[1] == RankSeen(1, 0, 100.5, 120.0, "step 3\n")
    containers = tmp_path / "x-seen/containers.json"
    containers.write_text(containers.read_text().replace('"Running": false', '"Running": true'))
    assert seen.read(tmp_path / "x-seen", tmp_path / "x").ranks[0].ended_at is None


# The judge: what is right is called so, and whatever is wrong in one way is found.


def trial(*faults: tuple[str, int], moment: FaultMoment = TRAIN) -> FaultTrial:
    settings = SETTINGS | {"MAX_STEPS": "40" if moment is END else ""}
    return FaultTrial(tuple(Fault(kind, rank) for kind, rank in faults), moment, settings)


def judge(trial: FaultTrial, seen: Observations, undisturbed: Left | None = None) -> FaultVerdict:
    return judgement.judge(trial, seen, undisturbed or Left())


def names(speaker: int, *lost: int) -> str:
    told = ", ".join(f"rank {rank} (p-worker-{rank}, 10.77.1.{rank})" for rank in lost)
    return f"error: rank {speaker}: lost {told} during barrier at step 3: closed\n"


def ended(rank: int, code: int, after: float, log: str = "", since: float = STRUCK) -> RankSeen:
    return RankSeen(rank, code, STARTED, since + after, log)


LEFT = Left(begun=True, complete=False, report=True)
OVER = Left(begun=True, complete=True, report=True, ranks=[RankRecords(rank, finished=FINISHED) for rank in ALL])

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
AFTER_BLINK = Observations(
    tuple(RankSeen(rank, 0, STARTED, None, "step 3\n") for rank in ALL), Left(begun=True), STRUCK
)
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
    assert judge(AT_THE_END, replace(AFTER_THE_END, fault_at=None)).word == NO_EFFECT
    assert judge(trial(("stranger", 0), moment=END), AFTER_THE_END).word == OK
    assert judge(trial(("stranger", 0), moment=END), replace(AFTER_THE_END, fault_at=None)).word == NO_EFFECT


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
        (KILL, replace(AFTER_KILL, missed=("fault not injected: kill rank 2",)), "inject.*kill rank 2$"),
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
        (BLINK, but(AFTER_BLINK, 1, ended_at=STRUCK + 9, exit_code=1, log=names(1, 0)), "rank 1 .* 1: lost rank 0$"),
        (BLINK, but(AFTER_BLINK, 0, ended_at=STRUCK + 9), r"rank 0 exited .* 0\b"),
        (BLINK, replace(AFTER_BLINK, missed=("the run took no further steps",)), "no further steps"),
        (AT_THE_END, replace(AFTER_THE_END, left=replace(OVER, ranks=OVER.ranks[1:])), r" 0\b.* 1$"),
        (trial(("blink", 2), moment=END), but(AFTER_THE_END, 3, exit_code=1), r"rank 3 .* 1\b"),
        (trial(("stranger", 0), moment=END), but(AFTER_THE_END, 0, ended_at=None), "rank 0 did not"),
        (
            trial(("blink", 2), moment=END),
            replace(but(AFTER_THE_END, 3, exit_code=1), left=replace(OVER, report=False)),
            "did not finish",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_whatever_is_wrong_is_found(planned: FaultTrial, seen: Observations, told: str) -> None:
    verdict = judge(planned, seen)
    assert verdict.word == WRONG
    assert any(re.search(told, reason) for reason in verdict.reasons), verdict.reasons


# Runs that must recover.

KILLED = FaultTrial((Fault("kill", 1),), FaultMoment("save", "during a save"), plan.KILL_DEFAULTS | {
    "SYNC_MODE": "ddp", "RUN_NAME": "kill-003"})  # fmt: skip
UNDISTURBED = replace(KILLED, faults=())


def killed(*codes: int, restarts: int = 1, log: str = "") -> Observations:
    ranks = tuple(
        RankSeen(rank, code, 0.0, 1.0, log, restarts=restarts if rank == 1 else 0) for rank, code in enumerate(codes)
    )
    return Observations(ranks, fault_at=0.5)


def left_by(folder: Path, records: list[Record], *, complete: bool = True) -> Left:
    """What a run leaves whose two ranks have recorded this."""
    folder.mkdir()
    write_run(folder, records, records)
    return replace(seen.left_in(folder), complete=complete, report=True)


def again(**changes: float) -> list[Record]:
    """Two steps; then another attempt, which begins eight seconds later with the second one again."""
    one, two = (replace(each, attempt=1) for each in steps(1, 1, first=1, began=10.0))
    repeated = [one, replace(two, **changes)]  # type: ignore[arg-type]
    return [*steps(1, 1), *repeated, replace(FINISHED, attempt=1)]


@pytest.fixture
def undisturbed(tmp_path: Path) -> Left:
    """Left by three steps of a second each."""
    return left_by(tmp_path / "undisturbed-ddp", [*steps(1, 1, 1), FINISHED])


def test_a_run_that_recovered_with_the_same_bits_is_right_and_its_cost_is_told(
    tmp_path: Path, undisturbed: Left
) -> None:
    observed = replace(killed(0, 0), left=left_by(tmp_path / "kill-003", again()))
    verdict = judge(KILLED, observed, undisturbed)
    assert (verdict.word, verdict.reasons) == (OK, ())
    row = table.row(KILLED, observed, verdict)
    assert [row[name] for name in ("killed", "attempts", "recovery (s)", "steps repeated", "verdict")] == [
        "rank 1 during a save", 2, 8.0, 1, OK]  # fmt: skip
    nothing = table.row(UNDISTURBED, replace(observed, left=undisturbed), verdict)
    total = table.text([nothing, row]).splitlines()[-1]
    assert re.fullmatch(r"1 kill: 1 ok\. .* 8\.0 s, .* 8\.0 s; .* 1, .* 1", total)


def test_a_kill_that_came_too_late_has_no_effect(undisturbed: Left) -> None:
    observed = replace(killed(0, 0, restarts=0), left=undisturbed)
    assert judge(KILLED, observed, undisturbed).word == NO_EFFECT
    assert judge(UNDISTURBED, observed, undisturbed).word == OK


@pytest.mark.parametrize(
    ("told", "disturbed", "observed", "complete"),
    [
        ("rank 0.* losses", again(loss=2.25), killed(0, 0), True),
        ("rank 1.* losses", again(correct=8), killed(0, 0), True),
        ("rank 0.* parameters", [*again()[:-1], replace(FINISHED, parameters_sha256="d")], killed(0, 0), True),
        ("the run did not", again(), killed(0, 0), False),
        ("rank 1 did not exit", again(), but(killed(0, 0), 1, ended_at=None), True),
        (r"rank 1 .* 1\b", again(), killed(0, 1), True),
        ("rank 0 printed a stack trace", again(), killed(0, 0, log="Traceback (most recent call last)"), True),
    ],
)
def test_whatever_is_wrong_with_a_recovery_is_found(
    tmp_path: Path, undisturbed: Left, told: str, disturbed: list[Record], observed: Observations, complete: bool
) -> None:
    left = left_by(tmp_path / "kill-003", disturbed, complete=complete)
    verdict = judge(KILLED, replace(observed, left=left), undisturbed)
    assert verdict.word == WRONG
    assert any(re.match(told, reason) for reason in verdict.reasons), verdict.reasons


def test_nothing_is_the_same_as_a_run_that_left_nothing(tmp_path: Path) -> None:
    left = left_by(tmp_path / "kill-003", again())
    assert judge(KILLED, replace(killed(0, 0), left=left)).word == WRONG


def test_an_undisturbed_run_that_was_disturbed_proves_nothing(tmp_path: Path) -> None:
    left = left_by(tmp_path / "undisturbed-ddp", again())
    verdict = judge(UNDISTURBED, replace(killed(0, 0), left=left))
    assert (verdict.word, len(verdict.reasons)) == (WRONG, 1)
    assert "undisturbed" in verdict.reasons[0]


# What ranks print.


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
