"""Over random grids of two to four dimensions: nothing compares cells that differ in more than what it names."""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.analysis.statistics import Blocks, Comparison
from app.machine import folders
from app.pages.plot import Plot
from app.pages.rows import Bars
from app.records.journal import Recorder
from app.records.lines import Finished
from app.tools.experiment import page
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.cells import OF_SEVERAL, Cell
from app.tools.experiment.plan.trials import ExperimentPlan, Trial
from app.tools.experiment.results import Results
from tests import runs
from tests.unit.test_chart import check
from tests.unit.test_records import STEP

DIMENSIONS: dict[str, list[str]] = {
    "SYNC_MODE": ["gather_scatter", "ring_all_reduce", "tree"],
    "WORKERS": ["0", "1", "3"],
    "LINK_RATE": ["20mbit", "200mbit", "1gbit"],
    "BATCH_SIZE_PER_RANK": ["8", "32"],
    "RANK_CPUS": ["0.5", "0.25"],
    "SYNC_EVERY": ["2", "4", "8"],
}
GRID = 'title = "Random"\nquestion = "?"\nrepeats = 2\n[settings]\nMODEL = "lenet5"\n[[grid]]\n'
STEPS = 3
ENOUGH = ("SYNC_MODE", "WORKERS", "SYNC_EVERY", "BATCH_SIZE_PER_RANK")  # for each view to compare some cells

Varied = dict[str, list[str]]
Pairs = list[tuple[str, str]]


@st.composite
def grids(draw: st.DrawFn) -> Varied:
    """Two to four settings with two or three values each."""
    names = draw(st.lists(st.sampled_from(sorted(DIMENSIONS)), min_size=2, max_size=4, unique=True))
    return {name: draw(st.sampled_from([DIMENSIONS[name][:2], DIMENSIONS[name]])) for name in names}


def write(folder: Path, trial: Trial, seconds: float) -> None:
    """A run whose synchronisation takes half of each step."""
    folder.mkdir(parents=True)
    world_size = int(trial.settings["WORKERS"]) + 1
    own: dict[str, Any] = {name.lower(): trial.settings.get(name) for name in ("SYNC_MODE", "RANK_CPUS", "LINK_RATE")}
    own |= {"sync_every": int(every) if (every := trial.settings.get("SYNC_EVERY")) else None}
    manifest: dict[str, Any] = {
        "run": trial.name,
        "world_size": world_size,
        "settings": runs.MANIFEST["settings"] | {name: value for name, value in own.items() if value is not None},
        "plan": runs.MANIFEST["plan"] | {"steps": STEPS, "steps_per_epoch": STEPS},
        "ranks": [runs.participant(rank, speed=1e6) for rank in range(world_size)],
    }
    (folder / "manifest.json").write_text(json.dumps(runs.MANIFEST | manifest))
    (folder / "summary.json").write_text('{"complete": true}')
    for rank in range(world_size):
        with Recorder(folder, rank) as recorder:
            for step in range(STEPS):
                parts = dict.fromkeys(("data", "forward", "backward", "optimiser"), seconds / 8)
                parts |= {"wait": 0.0, "sync": seconds / 2}
                changes: dict[str, Any] = {f"{phase}_seconds": each for phase, each in parts.items()}
                changes |= {"seconds": seconds, "at_seconds": step * seconds, "communication_seconds": seconds / 2}
                recorder.write(replace(STEP, rank=rank, step=step, **changes))
            recorder.write(Finished(rank, STEPS, STEPS * seconds, "abc", 0))


def differing(cell: Cell, other: Cell) -> set[str]:
    one, two = (each.settings | {"WORKERS": str(each.world_size - 1)} for each in (cell, other))
    return {name for name in DIMENSIONS if one.get(name) != two.get(name)}


LINE = 'kind = "line"\nmeasure = "seconds"\n'


def lines(varied: Varied) -> str:
    by, series, *_ = varied
    return f'{LINE}by = "{by}"\nseries = "{series}"'


def beside_a_line(varied: Varied) -> str:
    _, series, *_ = varied
    first = varied[series][0] if series != "WORKERS" else str(int(varied[series][0]) + 1)
    return f'{lines(varied)}\nagainst = "{first}"'


def single_line(varied: Varied) -> str:
    return f'{LINE}by = "{next(iter(varied))}"'


def speedups(varied: Varied) -> str:
    return f'{LINE}by = "ranks"\nagainst = "one rank"'


def by_mode(varied: Varied) -> str:
    options = 'measure = "bandwidth.sync_seconds"\nbound = "bandwidth.sync_seconds_at_least"'
    return f'kind = "line"\n{options}\nby = "ranks"\nseries = "mode"'


def bars(_: Varied) -> str:
    return 'kind = "bar"\nmeasure = "seconds"'


def of_names(varied: Varied, cell: Cell, other: Cell) -> bool:
    """Each of two bars has all in its name in which it differs from the other."""
    return all(
        value in each.name
        for each in (cell, other)
        for name in differing(cell, other)
        if (value := each.settings.get(name))
    )


def of_lines(varied: Varied, cell: Cell, other: Cell) -> bool:
    return differing(cell, other) <= {[*varied][1]}


def of_a_single_line(varied: Varied, cell: Cell, other: Cell) -> bool:
    return differing(cell, other) <= {next(iter(varied))}


def of_modes(varied: Varied, cell: Cell, other: Cell) -> bool:
    return differing(cell, other) <= {"SYNC_MODE"}


def of_speedup(varied: Varied, cell: Cell, other: Cell) -> bool:
    alone = 1 in (cell.world_size, other.world_size)
    return differing(cell, other) <= ({*OF_SEVERAL} if alone else {"WORKERS"})


@pytest.mark.parametrize(
    ("show", "may"),
    [
        pytest.param(lines, of_lines, id="lines"),
        pytest.param(beside_a_line, of_lines, id="beside a line"),
        pytest.param(single_line, of_a_single_line, id="a single line"),
        pytest.param(speedups, of_speedup, id="speedup"),
        pytest.param(by_mode, of_modes, id="modes by ranks"),
        pytest.param(bars, of_names, id="bars"),
    ],
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@example(varied={name: DIMENSIONS[name] for name in ("SYNC_MODE", "WORKERS")})  # unset, there are three as well
@example(varied={name: DIMENSIONS[name] for name in ENOUGH})
@given(varied=grids())
def test_cells_compare_only_in_what_is_named(
    show: Callable[[Varied], str],
    may: Callable[[Varied, Cell, Cell], bool],
    varied: Varied,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("random")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        pairs = recorded(patch)
        cells, section = section_of(place, varied, show(varied))
        assert pairs or not {*ENOUGH} <= {*varied}
        for one, other in pairs:
            assert may(varied, cells[one], cells[other]), (one, other)
    for drawing in section.drawings:
        chart = drawing.chart
        if isinstance(chart, Plot):
            names = [trace.name for panel in chart.panels for trace in panel.traces]
            assert all(len({*trace.x}) == len(trace.x) for panel in chart.panels for trace in panel.traces)
        elif isinstance(chart, Bars):
            names = [row.name for row in chart.rows]
        else:
            continue
        assert len(names) == len(set(names))
        check(chart)


def recorded(patch: pytest.MonkeyPatch) -> Pairs:
    """Every pair of cells that is compared from now on."""
    pairs: Pairs = []
    compare = Blocks.compare

    def recording(self: Blocks, cell: str | None, other: str | None) -> Comparison | None:
        if cell is not None and other is not None:
            pairs.append((cell, other))
        return compare(self, cell, other)

    patch.setattr(Blocks, "compare", recording)
    return pairs


def section_of(place: Path, varied: Varied, show: str) -> tuple[Mapping[str, Cell], Any]:
    text = GRID + "".join(f"{name} = {values}\n" for name, values in varied.items())
    left = [*varied.items()][:-1]  # in a block that leaves the last setting unset
    text += "[[grid]]\nquick = false\n" + "".join(f"{name} = {values}\n" for name, values in left)
    (place / "experiments").mkdir()
    (place / folders.RESULTS).mkdir()
    (place / "experiments/random.toml").write_text(f'{text}[[view]]\ntitle = "Random"\n{show}\n')
    read = grid.read("random")
    plan = ExperimentPlan.make(read, lambda trial: 1.0, fresh=True)
    plan.write(fresh=True)
    factors = {(name, value): 1.5**place for name, values in varied.items() for place, value in enumerate(values)}
    for number, trial in enumerate(plan.trials):
        slower = math.prod(factors.get((name, value), 1.0) for name, value in trial.settings.items())
        write(plan.folder / trial.name, trial, 0.1 * slower * (1 + 0.01 * (number % 3)))
    section = page.views_of(read)[0].section(Results(read, plan), "random")
    assert section.sentences
    assert all(itertools.chain.from_iterable(table.columns for table in section.tables))
    return {cell.name: cell for cell in read.cells}, section
