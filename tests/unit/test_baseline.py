"""A run against a baseline: what differs is told with its noise, and what the noise may explain is called none."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.analysis.baseline import SPEED, PartDifference, batches, compare, difference
from app.analysis.measures import STEP as STEP_TIMES
from app.analysis.run import Run
from app.analysis.statistics import FEWEST_STEPS, StepEstimate, steps_to_settle
from app.errors import LockstepError
from app.pages import on_demand
from app.pages.baseline import Against
from app.pages.comparison import headline
from app.pages.run_names import call_by_difference
from app.pages.table import Table
from app.records.journal import Recorder
from app.records.lines import Finished
from tests import runs
from tests.unit.test_records import STEP

Numbers = npt.NDArray[np.float64]
RUNS = 400
PHASES = ("data", "forward", "backward", "sync", "optimiser")


def of(own: Numbers, base: Numbers, part: str = "step") -> PartDifference:
    """Two runs' means over steps."""
    return difference(
        part,
        *(
            StepEstimate.of(float(each.mean()), [each[batch].mean() for batch in batches(len(each))])
            for each in (own, base)
        ),
    )


def noise(draw: np.random.Generator, steps: int, memory: float) -> Numbers:
    """Of a step by 10 %, and so much of the last step's in the next one."""
    noise, last = np.empty(steps), 0.0
    for step, shock in enumerate(draw.normal(0, 0.1 * np.sqrt(1 - memory**2), steps)):
        noise[step] = last = memory * last + shock
    return 1 + noise


@pytest.mark.parametrize("memory", [0.0, 0.6])
@pytest.mark.parametrize("steps", [3, 5, 9, 24, 200])
def test_of_two_equal_runs_hardly_any_part_is_said_to_differ(steps: int, memory: float) -> None:
    """Although each step is like the one before; with the draws given by a seed, and room for their own chance."""
    draw = np.random.default_rng([steps, round(10 * memory)])
    named = sum(of(noise(draw, steps, memory), noise(draw, steps, memory)).beyond_noise is True for _ in range(RUNS))
    most = 0.08 if memory else 0.05
    assert named <= most * RUNS + 3 * np.sqrt(most * RUNS)


def test_a_difference_that_is_there_is_found_and_lies_in_its_interval() -> None:
    draw = np.random.default_rng(1)
    found = [of(1.2 * noise(draw, 60, 0.3), noise(draw, 60, 0.3)) for _ in range(RUNS)]
    assert np.mean([each.beyond_noise is True for each in found]) >= 0.98
    for value, intervals in ((0.2, [each.difference for each in found]), (1.2, [each.ratio for each in found])):
        ends = [(each.low, each.high) for each in intervals if each and each.low is not None and each.high is not None]
        assert len(ends) == RUNS
        assert np.mean([low <= value <= high for low, high in ends]) >= 0.93


def test_difference_and_ratio_never_contradict_each_other() -> None:
    draw = np.random.default_rng(2)
    for shift in draw.uniform(0.8, 1.3, RUNS):
        found = of(shift * noise(draw, 20, 0.0), noise(draw, 20, 0.0))
        assert found.ratio
        assert found.ratio.low is not None
        assert found.ratio.high is not None
        assert found.beyond_noise is not (found.ratio.low <= 1 <= found.ratio.high)


@pytest.mark.parametrize("steps", [0, 1, 2, 8, 37, 200, 10_000])
def test_every_step_is_in_one_of_at_most_forty_batches(steps: int) -> None:
    taken = [step for batch in batches(steps) for step in range(steps)[batch]]
    assert taken == list(range(steps))
    assert len(batches(steps)) == min(steps, 40)


@pytest.mark.parametrize("memory", [0.0, 0.3])
def test_nine_steps_show_that_one_run_takes_twice_as_long(memory: float) -> None:
    draw = np.random.default_rng(3)
    found = [of(6.9 * noise(draw, 9, memory), 3.4 * noise(draw, 9, memory)) for _ in range(RUNS)]
    assert np.mean([each.beyond_noise is True for each in found]) >= 0.9


@pytest.mark.parametrize("part", ["forward", "sync"])
@pytest.mark.parametrize("steps", [8, 24, 200])
def test_parts_are_held_to_a_stricter_standard_because_there_are_eight(steps: int, part: str) -> None:
    draw = np.random.default_rng(steps)
    named = sum(of(noise(draw, steps, 0.0), noise(draw, steps, 0.0), part).beyond_noise is True for _ in range(RUNS))
    assert named <= 0.01 * RUNS + 3 * np.sqrt(0.01 * RUNS)


# Runs whose records are given


def write(
    results: Path, name: str, steps: int, times: Mapping[str, float | None], wobble: float = 0.01, apart: float = 0.0
) -> Run:
    """A run of two ranks, each step a little longer or shorter than the last; times by phase."""
    folder = results / name
    folder.mkdir(parents=True)
    plan = runs.MANIFEST["plan"] | {"steps": steps}
    settings = runs.MANIFEST["settings"] | {
        "run_name": name,
        "sync_mode": "ring_all_reduce" if "sync" in times else "none",
    }
    ranks = [runs.participant(rank) for rank in (0, 1)]
    manifest: dict[str, Any] = {"run": name, "settings": settings, "plan": plan, "ranks": ranks}
    (folder / "manifest.json").write_text(json.dumps(runs.MANIFEST | manifest))
    for rank in (0, 1):
        with Recorder(folder, rank) as recorder:
            began = 0.0
            for step in range(steps):
                factor = 1 + wobble * (-1) ** (step // 4) + apart * (step % 2)
                taken = {f"{phase}_seconds": None if each is None else factor * each for phase, each in times.items()}
                seconds = sum(each for each in taken.values() if each is not None)
                changes: dict[str, Any] = {"wait_seconds": 0.0, **taken, "seconds": seconds, "at_seconds": began}
                recorder.write(replace(STEP, rank=rank, step=step, **changes))
                began += seconds
            recorder.write(Finished(rank, steps, began, "abc", 0))
    return Run(folder)


RING: dict[str, float | None] = {"data": 0.001, "forward": 0.01, "backward": 0.02, "sync": 0.03, "optimiser": 0.001}
FLOOR = RING | {"sync": None, "wait": None}


def rows(table: Table) -> list[dict[str, Any]]:
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def test_the_table_tells_each_part_with_its_noise(tmp_path: Path) -> None:
    ring, floor = write(tmp_path, "ring", 41, RING), write(tmp_path, "floor", 41, FLOOR)
    times, speeds = map(rows, Against([ring], floor).tables())
    assert [row["part"] for row in times] == ["step", "data", "forward", "backward", "wait", "sync", "optimiser"]
    found = {row["part"]: row for row in times}
    step = found["step"]
    assert step["difference"] == pytest.approx(0.03, rel=0.01)
    assert step["ratio"] == pytest.approx(62 / 32, rel=0.01)
    assert 0 < step["noise"] < 0.001
    assert step["finding"] == "longer"
    means = tuple(run.summary.run[STEP_TIMES.mean] for run in (ring, floor))
    assert None not in means
    assert (step["own_seconds"], step["baseline_seconds"]) == means
    assert found["forward"]["finding"] == "no difference beyond the noise"
    assert found["sync"]["finding"] == "not measured in floor"
    assert (found["sync"]["difference"], found["sync"]["ratio"]) == (None, None)
    assert "hidden sync" not in found  # which neither has
    (speed,) = speeds
    assert speed["finding"] == "fewer"
    assert speed["ratio"] == pytest.approx(32 / 62, rel=0.01)
    assert (speed["bytes_sent_difference"], speed["bytes_sent_ratio"]) == (0, 1)


def test_a_run_like_the_baseline_has_no_difference_in_any_part(tmp_path: Path) -> None:
    found = compare(write(tmp_path, "one", 41, RING), write(tmp_path, "other", 33, RING, 0.02))
    assert {each.part: each.beyond_noise for each in found if each.own} == dict.fromkeys(
        ["step", *PHASES, SPEED], False
    )


def test_the_sentences_lead_with_the_step_and_claim_nothing_within_the_noise(tmp_path: Path) -> None:
    ring, floor = write(tmp_path, "ring", 41, RING), write(tmp_path, "floor", 41, FLOOR)
    lead, *rest = Against([ring], floor).sentences()
    assert lead.startswith("A step of ring takes 1.9")
    assert re.search(r": 30(\.\d)? ms \(29[\d.]* ms to 3[01][\d.]* ms\) longer\.$", lead), lead
    assert "No difference beyond the noise in data, forward, backward, optimiser." in rest
    assert "scripts/experiment" in rest[-1]
    alike, *_ = Against([write(tmp_path, "again", 41, RING, 0.03)], ring).sentences()
    assert re.match(r".* again and ring: no difference beyond the noise, \S+ times \(", alike), alike


def test_two_steps_give_a_factor_and_the_number_of_steps_that_would_settle_it(tmp_path: Path) -> None:
    """A step of 19.9 s against one of 7.5 s, each a little longer or shorter than the other."""
    scale = {"few": 19.9, "many": 7.5}
    few, many = (
        write(tmp_path, name, FEWEST_STEPS, {phase: each and each * by for phase, each in FLOOR.items()}, apart=0.2)
        for name, by in scale.items()
    )
    told, *_ = Against([few], many).sentences()
    needed = re.search(r"MAX_STEPS=(\d+)", told)
    assert "2.65 times" in told
    assert "2 of few and 2 of many" in told
    assert needed
    assert 3 < int(needed[1]) < 30
    table, _ = Against([few], many).tables()
    assert {row["finding"] for row in rows(table) if row["difference"] is not None} == {"too few steps"}
    assert all(row["noise"] is None for row in rows(table))


def test_as_many_steps_as_were_named_settle_it() -> None:
    draw = np.random.default_rng(4)
    needed = []
    for _ in range(RUNS):
        own, base = (by * noise(draw, 2, 0.0) for by in (19.9, 7.5))
        found = [StepEstimate.of(float(each.mean()), [float(step) for step in each]) for each in (own, base)]
        needed.append(steps_to_settle(found[0], found[1]) or 10_000)
    typical = int(np.median(needed))
    settled = [of(19.9 * noise(draw, typical, 0.0), 7.5 * noise(draw, typical, 0.0)) for _ in range(RUNS)]
    assert np.mean([each.beyond_noise is True for each in settled]) >= 0.8


def test_a_run_without_steps_can_be_no_side_of_a_comparison(tmp_path: Path) -> None:
    told, *_ = Against([write(tmp_path, "none", 0, RING)], write(tmp_path, "ring", 9, RING)).sentences()
    assert re.fullmatch("none and ring cannot be compared: .* not measured in none.", told)


def test_a_comparison_leads_with_the_fastest_unless_the_noise_may_explain_it(tmp_path: Path) -> None:
    ring, floor = write(tmp_path, "ring", 41, RING), write(tmp_path, "floor", 41, FLOOR)
    again, few = write(tmp_path, "again", 41, RING, 0.03), write(tmp_path, "few", 3, FLOOR)
    factor, told = headline([ring, floor])
    assert factor
    assert float(factor.split()[0]) == pytest.approx(62 / 32, rel=0.01)
    assert all(fact in told for fact in ("floor does 4000 images/s", "ring 2065")), told
    third = write(tmp_path, "third", 41, FLOOR, 0.02)
    assert "Compared with third, there is no difference beyond the noise" in headline([ring, third, floor])[1]
    assert headline([ring, again]) == (None, "Between the runs there is no difference beyond the noise in images/s.")
    _, told = headline([ring, floor, few])
    assert "Compared with" not in told, "of few steps the noise is unknown, so nothing is said of a difference"
    factor, told = headline([few, ring])
    assert factor is None, "two steps do not prove a factor"
    assert "2 steps" in told
    assert headline([write(tmp_path, "none", 0, RING), ring])[0] is None


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([{"sync_mode": "ddp"}, {"sync_mode": "tree"}], ["ddp", "tree"]),
        ([{"sync_mode": "ddp"}, {"sync_mode": "ddp"}], ["ddp (1)", "ddp (2)"]),
        ([{"link_rate": "1gbit"}, {"link_rate": None}], ["LINK_RATE=1gbit", "LINK_RATE=unset"]),
        ([{"sync_mode": "ddp", "seed": 1}, {"sync_mode": "tree", "seed": 2}], ["ddp, SEED=1", "tree, SEED=2"]),
    ],
)
def test_a_time_stamp_is_no_name(changes: list[dict[str, Any]], names: list[str], tmp_path: Path) -> None:
    found = [write(tmp_path, f"20260101-00000{number}", 3, RING) for number in range(2)]
    for run, own in zip(found, changes, strict=True):
        run.manifest.settings.update(own)
    call_by_difference(found)
    assert [run.name for run in found] == names
    own_name = write(tmp_path, "mine", 3, FLOOR)
    call_by_difference([found[0], own_name])
    assert own_name.name == "mine"


def test_a_baseline_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "results", "ring", 9, RING)
    for baseline, told in (("ring", "--baseline ring: ring is also"), ("rings", "unknown run 'rings'")):
        with pytest.raises(LockstepError, match=told) as refused:
            on_demand.report(["ring"], print, baseline)
        assert refused.value.exit_code == 2
