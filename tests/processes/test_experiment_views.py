"""The four kinds of views over made-up runs: numbers against the reference, verdicts where they hold and only there."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from app.errors import SettingError
from app.pages.chart import as_file
from app.pages.drawing import Drawing
from app.pages.intervals import NO_DIFFERENCE
from app.pages.plot import Plot
from app.pages.rows import Bars
from app.pages.section import Section
from app.tools.experiment import page
from tests.made_up import STEPS, Change, Experiment, Json
from tests.reference import REFERENCE, Repeats, over_rounds, scores


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'"{name}" = {toml(each)}' for name, each in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def view(kind: str, measure: str | Sequence[str], **options: Any) -> str:
    lines = {"kind": kind, "title": "A view", "measure": measure} | options
    return "[[view]]\n" + "".join(f"{name} = {toml(value)}\n" for name, value in lines.items())


def block(**settings: Any) -> str:
    return "[[grid]]\n" + "".join(f"{name} = {toml(value)}\n" for name, value in settings.items())


ONE = block(label="one", WORKERS=0, SYNC_MODE="none")
CELLS = ONE + block(label="{SYNC_MODE} on {ranks}", WORKERS=[1, 3], SYNC_MODE=["all_reduce", "tree"])
SECONDS = {"one": 4.0, "all_reduce on 2": 2.5, "tree on 2": 2.6, "all_reduce on 4": 2.0, "tree on 4": 1.5}
RANKS = {cell: int(cell[-1]) if cell != "one" else 1 for cell in SECONDS}


def differing(cell: str, number: int, record: Json) -> Json | None:
    """By cell and round, as losses and accuracies do; by rank, as loading does. A tree's replicas differ in one run."""
    own = {name: record[name] + number**2 / (20 + len(cell)) for name in ("loss", "accuracy") if name in record}
    own |= {"data_seconds": record["data_seconds"] + record["rank"]} if "data_seconds" in record else {}
    if record["kind"] == "finished" and (cell, number, record["rank"]) == (TREE, 2, 1):
        own["parameters_sha256"] = "another"
    return record | own


def uneven(*views: str) -> Experiment:
    """With a run that is missing, so that cells and rounds are of unequal weight."""
    return Experiment(CELLS + "".join(views)).steady(SECONDS, differing, "tree_on_4-2")


def repeats(made: Experiment, measure: str) -> Repeats:
    """Of the cells that have it in all of their runs."""
    share, values = measure.startswith("shares") or measure == "accuracy", {}
    for cell in (each.name for each in made.grid.cells):
        own = {number: REFERENCE[measure](run.parties[None]) for number, run in made.runs(cell).items()}
        if own and all(each is not None and (share or each > 0) for each in own.values()):
            values[cell] = [own.get(number) for number in range(1, made.rounds + 1)]
    return Repeats(values, ratios=not share)


def ends(row: Json, name: str) -> tuple[Any, ...]:
    return tuple(row[f"{name}{end}"] for end in ("", "_low", "_high"))


def close(found: tuple[float | None, ...] | None) -> Any:
    """Quantiles are numerical in both."""
    return tuple(None if each is None else pytest.approx(each, rel=1e-6, abs=1e-9) for each in found or (None,) * 3)


Base = Callable[[str, Repeats], str | None]  # of a cell: the one that it is compared with


def beside(other: str) -> Base:
    return lambda cell, own: other


def fastest_there(sign: int) -> Base:
    return lambda cell, own: min(
        (each for each in own.values if RANKS[each] == RANKS[cell]), key=lambda each: sign * own.compared(each, cell)[0]
    )


def same_place(cell: str, own: Repeats) -> str | None:
    return None if cell == "one" else f"all_reduce on {RANKS[cell]}"


def first_of_line(cell: str, own: Repeats) -> str:
    return cell.replace("4", "2")


LINE: Json = {"kind": "line", "by": "ranks"}
SPEEDUP, LINES = LINE | {"against": "one rank"}, LINE | {"measure": "seconds", "series": "mode"}
# By view: the column that compares, and with which cell. A column may have that one divided by the cell.
COMPARED: list[tuple[Json, str | None, Base | None]] = [
    ({"kind": "bar", "measure": "seconds", "baseline": "one"}, "ratio", beside("one")),
    ({"kind": "bar", "measure": ["forward_seconds.mean", "accuracy"], "baseline": "one"}, "ratio", beside("one")),
    ({"kind": "bar", "measure": "seconds", "baseline": "one", "times_less": True}, "times_less", beside("one")),
    ({"kind": "bar", "measure": "bytes_sent_per_second", "baseline": "tree on 2"}, "ratio", beside("tree on 2")),
    ({"kind": "bar", "measure": "bytes_sent_per_step", "baseline": "one"}, "ratio", beside("one")),
    ({"kind": "bar", "measure": "accuracy", "baseline": "one"}, "difference", beside("one")),
    ({"kind": "bar", "measure": "seconds"}, None, None),
    ({"kind": "table", "measure": "images_per_second"}, None, None),
    (LINES, "ratio", fastest_there(1)),
    (LINE | {"measure": "images_per_second", "series": "mode"}, "ratio", fastest_there(-1)),
    (LINES | {"against": "all_reduce"}, "ratio", same_place),
    (LINE | {"measure": "seconds", "by": "mode", "baseline": "one"}, "ratio", beside("one")),
    (LINE | {"measure": "seconds"}, "ratio", first_of_line),
    (LINE | {"measure": "bytes_sent_per_step"}, None, None),
    (LINE | {"measure": "hidden_sync_seconds.mean"}, None, None),
    (SPEEDUP | {"measure": "seconds"}, "speedup", beside("one")),
    (SPEEDUP | {"measure": "epoch_seconds"}, "speedup", beside("one")),
    (SPEEDUP | {"measure": "images_per_second"}, "speedup", beside("one")),
    (SPEEDUP | {"measure": "accuracy"}, "difference", beside("one")),
]


def test_every_kind_of_view_has_medians_and_compares_as_the_statistics_do() -> None:
    made = uneven(*(view(**options) for options, *_ in COMPARED))
    for number, (options, name, base_of) in enumerate(COMPARED):
        measures = [options["measure"]] if isinstance(options["measure"], str) else options["measure"]
        rows, measure = made.rows(number), measures[0]
        own = repeats(made, measure)
        turned = name == "times_less" or (name == "speedup" and measure != "images_per_second")
        assert sorted(row["cell"] for row in rows) == sorted(RANKS)
        drawn: dict[bool, list[Any]] = {True: [], False: []}  # by whether it is a comparison
        for row in rows:
            cell, runs = row["cell"], [*made.runs(row["cell"]).values()]
            assert (row["rounds"], row["world_size"], row["steps"]) == (len(runs), RANKS[cell], STEPS - 1)
            for each in measures:
                repeated = repeats(made, each)
                _, low, high = repeated.own(cell) if cell in repeated.values else (None,) * 3
                expected = close((over_rounds(runs, each), low, high))
                assert ends(row, each.replace(".", "_")) == expected, options
                drawn[False] += [expected] if each == measure else []
            if not name or not base_of:
                assert not {"ratio", "difference", "speedup", "times_less"} & {*row}
                continue
            base = base_of(cell, own) if cell in own.values else None
            told = base in own.values
            pair = (str(base), cell) if turned else (cell, str(base))
            drawn[True].append(close(own.compared(*pair) if told else None))
            assert ends(row, name) == drawn[True][-1], (options, cell)
            assert "efficiency" not in row or row["efficiency"] == pytest.approx(row["speedup"] / RANKS[cell])

        compares = "against" in options or "times_less" in options
        assert all(each in drawn[compares] for each in of_chart(made.sections[number].drawings)), options
        columns = made.sections[number].tables[-1].columns
        in_file = [f"{each.replace('.', '_')}_{end}" for each in measures[1:] for end in ("low", "high")]
        assert [column.name for column in columns if column.only_in_file] == in_file
        assert all(column.unit.words(0.25) == "+25.0" for column in columns if column.name == "difference")
        if options.get("against") == "one rank":
            assert_speedups(made.sections[number].drawings[0].chart, measure)
        if options.get("against") == "all_reduce":
            assert [name for name, _ in traces(made.sections[number])] == ["tree"]
        if options == LINE | {"measure": "seconds"}:
            lines = made.column("series", number)
            assert lines == {cell: "none" if cell == "one" else cell.split()[0] for cell in RANKS}
        if options.get("by") == "mode":
            assert [row["x"] for row in rows] == ["none", *["all_reduce"] * 2, *["tree"] * 2], "as in the grid file"


def assert_speedups(chart: object, measure: str) -> None:
    """Each line begins with one rank, beside as many times as ranks; a difference is beside no level."""
    assert isinstance(chart, Plot)
    own = [trace for trace in chart.panels[0].traces if len(trace.low)]
    ideal = [trace for trace in chart.panels[0].traces if not len(trace.low)]
    assert {(trace.name, *trace.x) for trace in own} == {(mode, 1, 2, 4) for mode in ("all_reduce", "tree")}
    assert not chart.panels[0].levels
    assert [(*trace.x, *trace.y) for trace in ideal] == ([] if measure == "accuracy" else [(1, 2, 4, 1, 2, 4)])


def traces(section: Section, drawing: int = 0) -> list[tuple[str, list[float]]]:
    """Names and values of the lines in a chart's panels."""
    chart = section.drawings[drawing].chart
    assert isinstance(chart, Plot)
    found = [trace for panel in chart.panels for trace in panel.traces]
    return [(trace.name, [value for value in trace.y if not math.isnan(value)]) for trace in found]


def of_chart(drawings: Sequence[Drawing]) -> Iterator[tuple[Any, ...]]:
    """Values and intervals as they are drawn."""
    for chart in (each.chart for each in drawings):
        if isinstance(chart, Bars):
            yield from ((row.value, row.low, row.high) for row in chart.rows)
        elif isinstance(chart, Plot):
            traces = [trace for trace in chart.panels[0].traces if len(trace.low)]
            points = (each for trace in traces for each in zip(trace.y, trace.low, trace.high, strict=True))
            yield from (tuple(None if math.isnan(each) else each for each in point) for point in points)


def test_a_stacked_bar_is_its_parts_end_to_end() -> None:
    parts = ("forward_seconds", "sync_seconds")
    phases = [f"{phase}_seconds_mean" for phase in ("data", "forward", "backward", "wait", "sync", "optimiser")]
    made = uneven(view("bar", ["seconds", *parts], stacked=True, baseline="one"), view("bar", "phases"))
    for section, own in enumerate((parts, phases)):
        chart = made.sections[section].drawings[0].chart
        assert isinstance(chart, Bars)
        for bar, row in zip(chart.rows, made.rows(section), strict=True):
            lengths = [row[part] for part in own if row[part] is not None]
            assert [span.end - span.begin for span in bar.spans] == pytest.approx(lengths)


def by_cell(**values: Any) -> Json:
    names = {"four": "tree on 4", "two": "tree on 2", "one": "one"}
    return {names[name]: value for name, value in values.items()}


FIGURES, TIMES = by_cell(one=6.0, four=1.5), {"measure": "seconds", "baseline": "one"}
THREE, HALF, SHARES = by_cell(four=3.0), by_cell(two=0.5), by_cell(one=0.5, two=0.75)
RATIO: Json = {"values": THREE, "ratio": True}
LEARNED: Json = {"values": HALF, "measure": "accuracy"}
BOTH: Json = {"measure": ["seconds", "accuracy"]}
EPOCHS: Json = SPEEDUP | {"measure": ["seconds", "epoch_seconds"]}
QUARTER, TIMES_FOUR = by_cell(one=1, four=0.25), by_cell(one=1, four=4)
# By view: the columns of published figures, and those of them that the drawing shows.
PUBLISHED: list[tuple[Json, Json | list[Json], dict[str, Json], Json]] = [
    (TIMES, {"values": FIGURES}, {"seconds": FIGURES, "ratio": QUARTER}, QUARTER),
    (
        TIMES,
        {"values": FIGURES, "scale": 1e-3},
        {"seconds": by_cell(one=0.006, four=0.0015), "ratio": QUARTER},
        QUARTER,
    ),
    (TIMES, RATIO, {"ratio": THREE}, THREE),
    (TIMES | BOTH, [LEARNED, RATIO], {"accuracy": HALF, "ratio": THREE}, THREE),
    (
        TIMES | {"measure": ["seconds", "forward_seconds"], "stacked": True},
        {"values": FIGURES},
        {"seconds": FIGURES, "ratio": QUARTER},
        FIGURES,
    ),
    (TIMES | {"times_less": True}, {"values": FIGURES}, {"seconds": FIGURES, "times_less": TIMES_FOUR}, TIMES_FOUR),
    (TIMES | {"times_less": True}, RATIO, {"times_less": THREE}, THREE),
    (BOTH, LEARNED, {"accuracy": HALF}, {}),
    ({"measure": "accuracy", "baseline": "one"}, {"values": SHARES}, {"accuracy": SHARES}, SHARES),
    ({"measure": "bytes_sent_per_step", "baseline": "one"}, RATIO, {"ratio": THREE}, {}),
    (
        SPEEDUP | {"measure": "seconds"},
        {"values": FIGURES},
        {"seconds": FIGURES, "speedup": TIMES_FOUR},
        by_cell(four=4),
    ),
    (SPEEDUP | {"measure": "seconds"}, RATIO, {"speedup": THREE}, THREE),
    (
        SPEEDUP | {"measure": "images_per_second"},
        {"values": FIGURES},
        {"images_per_second": FIGURES, "speedup": QUARTER},
        by_cell(four=0.25),
    ),
    (
        EPOCHS,
        {"values": FIGURES, "measure": "epoch_seconds"},
        {"epoch_seconds": FIGURES, "speedup": TIMES_FOUR},
        by_cell(four=4),
    ),
    (LINES, {"values": FIGURES}, {"seconds": FIGURES}, {}),
    (
        LINES | {"against": "tree"},
        {"values": by_cell(two=2.0)},
        {"seconds": by_cell(two=2.0), "ratio": by_cell(two=1)},
        {},
    ),
]


def test_published_figures_stand_beside_those_of_the_same_cell_with_the_same_comparison() -> None:
    tables = [
        [{"source": "a report"} | each for each in (told if isinstance(told, list) else [told])]
        for _, told, *_ in PUBLISHED
    ]
    made = uneven(
        *(view(**{"kind": "bar"} | case[0], published=own) for case, own in zip(PUBLISHED, tables, strict=True))
    )
    for number, (options, _, expected, marked) in enumerate(PUBLISHED):
        table = made.sections[number].tables[-1]
        assert {c.name.removeprefix("published_") for c in table.columns if "published_" in c.name} == {*expected}
        assert "a report" in table.note
        for name, values in expected.items():
            found = made.column(f"published_{name}", number)
            assert found == dict.fromkeys(RANKS) | {c: pytest.approx(v) for c, v in values.items()}, (options, name)
        chart = made.sections[number].drawings[0].chart
        if isinstance(chart, Bars):
            found = {row.name: row.published for row in chart.rows if row.published is not None}
        else:
            assert isinstance(chart, Plot)
            diamonds = [trace for trace in chart.panels[0].traces if trace.look == "diamond"]
            found = {f"tree on {at:g}": value for each in diamonds for at, value in zip(each.x, each.y, strict=True)}
        assert found == {cell: pytest.approx(value) for cell, value in marked.items()}, options


def test_tables_by_rank_have_published_lists_and_their_means() -> None:
    lists = {"source": "a report", "scale": 10, "values": {"tree on 2": [50, 60], "tree on 4": 70, "one": 1}}
    made = uneven(view("table", ["work_seconds", "test_loss"], by="rank", published=lists))
    found = {(row["cell"], row["rank"]): row["published_work_seconds"] for row in made.rows()}
    expected = {("one", 0): 10, ("tree on 2", 0): 500, ("tree on 2", 1): 600, ("tree on 2", "all"): 550}
    assert {place: value for place, value in found.items() if value} == expected | {("tree on 4", "all"): 700}
    ranks = {cell: [*range(size), *(["all"] if size > 1 else [])] for cell, size in RANKS.items()}
    assert [*found] == [(cell, rank) for cell in RANKS for rank in ranks[cell]]
    for row in made.rows():
        runs, rank = [*made.runs(row["cell"]).values()], row["rank"] if row["rank"] != "all" else None
        assert "work_seconds_low" not in row, "an interval would be that of all ranks"
        for name in ("work_seconds", "test_loss"):
            assert row[name] == pytest.approx(over_rounds(runs, name, rank), rel=1e-9)


SCORES = ("training_loss", "training_accuracy", "test_loss", "accuracy")
BLOCKS = ("forward", "backward", "communication", "optimiser")
PARTS = {part: ("wait", "sync") if part == "communication" else (part,) for part in BLOCKS}


def test_courses_are_rank_0s_of_the_first_round_or_medians_over_rounds() -> None:
    published = {"source": "a report", "scale": 2, "values": {"one": [1.25, 1.125]}}
    made = uneven(
        view("curve", "loss", every=5, published=published),
        view("curve", [*SCORES], by="epoch", published=published | {"measure": "accuracy"}),
        view("curve", "phases", every=5),
        view("curve", "loss", reference="one"),
        view("curve", "loss", reference="tree on 4", where={"WORKERS": "3"}),
        view("curve", "data_seconds"),
        view("curve", "memory_bytes", by="time"),
        view("curve", ["cpu_user_percent", "cpu_system_percent"], by="time"),
    )
    for path in made.folder.glob("*/rank-*.jsonl"):
        sampled = {"rank": int(path.stem[-1]), "at_seconds": 1.0, "seconds": 1.0, "throttled_seconds": 0.0}
        sampled |= {"memory_bytes": 5 + sampled["rank"], "cpu_user_percent": 7.0 + sampled["rank"]}
        sampled |= {"cpu_system_percent": 9.0, "network_sent_bytes": 1, "network_received_bytes": 1}
        with path.open("a") as file:
            file.write(json.dumps({"kind": "usage"} | sampled) + "\n")
    slugs = {cell: cell.replace(" ", "_") for cell in RANKS}
    runs = {cell: [*made.runs(cell).values()] for cell in RANKS}
    assert [row["step"] for row in made.rows()] == [0, 5, 10]
    assert [row["published_one"] for row in made.rows()] == [2.5, 2.25, None]
    for cell, slug in slugs.items():
        first = runs[cell][0]
        assert [row[f"loss_{slug}"] for row in made.rows()] == [step["loss"] for step in first.ranks[0].steps][::5]
        assert dict(traces(made.sections[0]))[cell] == pytest.approx(first.parties[None].losses)
        together = zip(*(rank.steps for rank in first.ranks), strict=True)
        loading = [fmean(step["data_seconds"] for step in steps) for steps in together]
        assert dict(traces(made.sections[5]))[cell] == pytest.approx(loading)
        for place, name in enumerate(SCORES):
            expected = [median(scores(name, run.parties[None], epoch) for run in runs[cell]) for epoch in (0, 1)]
            rows = made.rows(1, place)
            assert [row["epoch"] for row in rows] == [1, 2]
            assert [row[f"{name}_{slug}"] for row in rows] == pytest.approx(expected)
            assert ("published_one" in rows[0]) == (name == "accuracy")
            assert dict(traces(made.sections[1], place))[cell] == pytest.approx(expected)
            assert made.says("At the end", f"{100 * expected[-1]:.1f} % ({cell})", section=1) or "accuracy" not in name
            chart = made.sections[1].drawings[place].chart
            assert isinstance(chart, Plot)
            assert [at for at, _ in chart.x.labels] == [1, 2]
    assert traces(made.sections[6]) == [(f"rank {n}", [5 + n]) for size in RANKS.values() for n in range(size)]
    users = [("cpu_user_percent", [7.0 + n for n in range(size)]) for size in RANKS.values()]
    systems = [("cpu_system_percent", [9.0] * size) for size in RANKS.values()]
    assert traces(made.sections[7]) == [each for pair in zip(users, systems, strict=True) for each in pair]
    blocks = {(row["cell"], row["first_step"], row["last_step"]): row for row in made.rows(2)}
    by_part = [
        (part, [row[f"{part}_seconds"] for row in blocks.values() if row["cell"] == cell])
        for cell in RANKS
        for part in BLOCKS
    ]
    assert traces(made.sections[2]) == [
        (part, [each for each in values if each is not None]) for part, values in by_part
    ]
    assert [*blocks] == [(cell, *place) for cell in RANKS for place in ((2, 5), (6, 10), (11, 12))]
    for (cell, first_step, last_step), row in blocks.items():
        steps = [[s for rank in run.ranks for s in rank.steps[first_step - 1 : last_step]] for run in runs[cell]]
        for part, phases in PARTS.items():
            if cell == "one" and part == "communication":
                assert row["communication_seconds"] is None
                continue
            means = (fmean(sum(each[f"{phase}_seconds"] for phase in phases) for each in own) for own in steps)
            assert row[f"{part}_seconds"] == pytest.approx(median(means))
    for section, reference in ((3, "one"), (4, "tree on 4")):
        rows = made.rows(section)
        assert [row["cell"] for row in rows] == (["all_reduce on 4"] if section == 4 else [*RANKS][1:])
        for row in rows:
            both = made.runs(row["cell"]), made.runs(reference)
            apart = [
                [abs(a - b) / b for a, b in zip(*(each[n].parties[None].losses for each in both), strict=True)]
                for n in sorted({*both[0]} & {*both[1]})
            ]
            worst = [max(each[place] for each in apart) for place in (0, 5, -1)]
            shown = [row[f"distance_{name}"] for name in ("first", "after_5", "last", "largest")]
            assert shown == pytest.approx([*worst, max(map(max, apart))], rel=1e-9, abs=1e-15)
            alike = None if row["cell"] == "one" else row["cell"] != TREE
            assert (row["rounds"], row["replicas_identical"]) == (len(apart), alike)
            distances = [each for each in apart[0] if each]
            assert dict(traces(made.sections[section]))[row["cell"]] == pytest.approx(distances)


def drawn(made: Experiment, section: int = 0) -> set[str]:
    """The words in its drawing."""
    chart = made.sections[section].drawings[0].chart
    return {each.partition("<")[0] for each in as_file(chart).split(">")} if chart else set()


# Verdicts


MODES, SPEEDS = ["gather_scatter", "all_reduce", "ddp"], ("100mbit", "1gbit", "unshaped")


def at_rates(lines: Mapping[str, Sequence[float | None]], rates: Sequence[str] = SPEEDS) -> dict[str, float | None]:
    return {f"{line}, {rate}": each for line, own in lines.items() for rate, each in zip(rates, own, strict=True)}


def test_an_order_is_told_as_far_as_it_is_beyond_the_noise_and_where_it_changes() -> None:
    text = block(label="{SYNC_MODE}, unshaped", WORKERS=1, SYNC_MODE=MODES)
    text += block(label="{SYNC_MODE}, {LINK_RATE}", WORKERS=1, SYNC_MODE=MODES, LINK_RATE=["1gbit", "100mbit"])
    text += view("line", "seconds", by="rate", series="mode", watch="gather_scatter")
    text += view("line", "seconds", by="rate", series="mode", against="ddp", watch="all_reduce")
    lines: dict[str, Sequence[float | None]] = {
        "gather_scatter": (9.0, 2.0, 1.001),
        "all_reduce": (4.0, 1.0, 1.0),
        "ddp": (3.0, 1.001, 2.0),
    }
    made = Experiment(text).steady(at_rates(lines))
    assert made.says("100mbit: gather_scatter > all_reduce > ddp", "1gbit: gather_scatter >", " = ", "unshaped: ddp > ")
    assert made.says("100mbit", "unshaped", "all_reduce", "slower", "ddp", "faster")
    assert made.says("1gbit", "unshaped", "gather_scatter", "slower", "ddp", "faster")
    assert made.says("gather_scatter", "100mbit, 1gbit", "unshaped"), "where it is the slowest, and where not"
    assert [row["x"] for row in made.rows()] == [each for each in SPEEDS for _ in MODES]
    assert {"LINK_RATE", *SPEEDS, *MODES} <= drawn(made)
    chart = made.sections[0].drawings[0].chart
    assert isinstance(chart, Plot)
    assert (chart.y.log, chart.x.labels) == (True, [(8, "100mbit"), (9, "1gbit"), (10, "unshaped")])
    first, second, *others = [each.partition(" ")[0] for each in made.sections[1].findings]
    assert (first, second) == ("all_reduce", "gather_scatter")
    assert not {*MODES} & {*others}, "no mode is compared with itself"
    once = Experiment(text, rounds=1).steady(at_rates(lines | {"all_reduce": (4.0, 1.0, None), "ddp": (3.0, 1, None)}))
    assert (once.sections[0].findings[0].count(" ? "), once.says(" > "), once.says("unshaped:")) == (4, False, False)


def test_more_of_a_setting_helps_up_to_where_nothing_is_faster() -> None:
    numbers = (1, 2, 3, 10)
    text = block(label="threads {THREADS_PER_RANK}", WORKERS=0, SYNC_MODE="none", THREADS_PER_RANK=[*numbers])
    text += view("line", "seconds", by="THREADS_PER_RANK")
    for enough, *seconds in ((2, 2, 1, 1, 1.1), (1, 1, 1, 1, 1.5), (10, 4, 3, 2, 1), (None, 2, None, None, None)):
        made = Experiment(text).steady({f"threads {n}": each for n, each in zip(numbers, seconds, strict=True)})
        told = [number for number in numbers if made.says(f"THREADS_PER_RANK {number}:")]
        assert told == ([enough] if enough else [])
        assert [row["x"] for row in made.rows()] == [str(n) for n, each in zip(numbers, seconds, strict=True) if each]


def test_speedups_end_where_they_do_and_need_one_rank() -> None:
    text = CELLS + view(**SPEEDUP, measure="seconds")
    made = Experiment(text).steady(SECONDS | {"all_reduce on 4": 4.0})
    assert made.says("all_reduce", "on 4", NO_DIFFERENCE, "tree", "on 4")
    assert made.says("tree: ranks 4:")
    assert made.says("all_reduce: ranks 2:")
    without = Experiment(text).steady(SECONDS | {"one": 0.0})
    assert ({*without.column("speedup").values()}, drawn(without)) == ({None}, set())


def test_a_break_even_has_an_interval_and_is_told_only_where_there_is_one() -> None:
    rates = ["25mbit", "100mbit", "1gbit"]
    text = block(label="plain, {LINK_RATE}", WORKERS=1, SYNC_MODE="flat_all_reduce", LINK_RATE=rates)
    compressors = ["random_k", "sign", "power_sgd"]
    text += block(label="{COMPRESSION}, {LINK_RATE}", WORKERS=1, COMPRESSION=compressors, LINK_RATE=rates)
    text += view("line", "seconds", by="rate", series="label", against="plain")
    text += view("line", "bytes_sent_per_step", by="rate", series="label", against="plain")
    lines: dict[str, Sequence[float | None]] = {"plain": (16.0, 4.0, 1.0), "random_k": (2.0, 2.0, 2.0)}
    own = lines | {"sign": (20.0, 6.0, 3.0), "power_sgd": (8.0, 2.0, 0.5)}
    made = Experiment(text).steady(at_rates(own, rates))
    value, low, high = ends(made.rows(table=0)[0], "break_even_bits_per_second")
    ratios = [repeats(made, "seconds").compared(f"random_k, {rate}", f"plain, {rate}")[0] for rate in rates[1:]]
    below, above = map(math.log, ratios)
    assert value == pytest.approx(1e8 * 10 ** (-below / (above - below)))
    assert low < value < high
    broken = made.column("break_even_bits_per_second", table=0)
    assert [line for line, rate in broken.items() if rate is None] == ["sign", "power_sgd"]
    assert ([*broken], len(made.sections[1].tables)) == (compressors, 1)
    assert not made.says(" > "), "lines that are not settings have no order"
    chart = made.sections[0].drawings[0].chart
    assert isinstance(chart, Plot)
    assert chart.panels[0].levels == [(1.0, "plain")]
    assert made.says("random_k", "faster", "plain", "31")
    assert made.says("sign", "slower", "plain", "25 Mbit/s")
    assert made.says("power_sgd", "faster", "plain", "1000 Mbit/s")
    assert {*rates, "plain", "random_k", "power_sgd"} <= drawn(made)
    own |= {"plain": (16.0, 4.0, None), "sign": (None, None, 1.0), "power_sgd": (20.0, None, 1.0)}
    few = Experiment(text).steady(at_rates(own, rates))
    assert few.says("random_k", "faster", "100 Mbit/s")
    assert few.says("power_sgd", "slower", "25 Mbit/s")
    assert not few.says("sign", "plain", "rates")
    once = Experiment(text, rounds=1).steady(at_rates(lines, rates))
    assert ends(once.rows(table=0)[0], "break_even_bits_per_second")[1:] == (None, None)


def test_two_exchanges_are_told_apart_on_each_number_of_ranks_beside_the_least_time() -> None:
    one, other = "halving_doubling", "ring_all_reduce"
    text = block(label="{SYNC_MODE} on {ranks}", WORKERS=[1, 2, 3], SYNC_MODE=[one, other])
    options = {"series": "mode", "against": other, "bound": "forward_seconds"}
    text += view(**LINE, measure="bandwidth.sync_seconds", **options)
    seconds = {f"{one} on 2": 1.0, f"{one} on 3": 2.0, f"{one} on 4": 0.5}
    seconds |= {f"{other} on 2": 1.001, f"{other} on 3": 1.0, f"{other} on 4": 1.0}
    forward = {f"{other} on 2": 4, f"{other} on 4": 0.5}
    made = Experiment(text).steady(seconds, scaled("forward_seconds", forward))
    assert made.says(one, other, NO_DIFFERENCE, "2 ranks", "slower", "3 ranks", "2 times", "faster", "4 ranks")
    assert made.says(f"3 ranks: {one} > {other}", f"4 ranks: {other} > {one}")
    for row in made.rows():
        assert row["times_the_least"] == pytest.approx(row["bandwidth_sync_seconds"] / row["forward_seconds"])
    for name, values in traces(made.sections[0]):
        column = "forward_seconds" if name.endswith("at least") else "bandwidth_sync_seconds"
        own = [row[column] for row in made.rows() if row["series"] == name.removesuffix(", at least")]
        assert values == pytest.approx(own)
    assert not made.sections[0].findings[1].startswith(other), "no cell is compared with itself"
    assert {*"234", one, other, f"{one}, at least", f"{other}, at least"} <= drawn(made)


def scaled(name: str, factors: Mapping[str, float]) -> Change:
    def change(cell: str, number: int, record: Json) -> Json:
        return record | {name: factors.get(cell, 1) * record[name]} if name in record else record

    return change


def test_a_view_is_about_the_cells_that_match_and_compares_among_them() -> None:
    text = block(label="every step") + block(label="every 4", SYNC_EVERY=4) + block(label="sign", COMPRESSION="sign")
    own = {"kind": "line", "measure": "seconds", "by": "SYNC_EVERY"}
    text += view(**own, where={"COMPRESSION": ""}) + view(**own, where={"COMPRESSION": "*"})
    text += view("line", "seconds", by="mode")
    made = Experiment(text).steady({"every step": 1.0, "every 4": 2.0, "sign": 3.0})
    assert made.column("x") == {"every 4": "4", "every step": "not set"}
    assert made.column("ratio", 1) == {"sign": pytest.approx(1)}
    assert [len(section.findings) for section in made.sections[:2]] == [2, 1], "one number has nothing to exceed"
    assert {*made.column("x", 2).values()} == {"all_reduce"}, "the mode of a run that no setting names"


TREE, RING = "tree on 2", "all_reduce on 2"


def odd(cell: str, number: int, record: Json) -> Json:
    """Of a tree, rank 1 scores otherwise, and losses part in round 2."""
    own: Json = {}
    if record["kind"] == "step":
        own["loss"] = record["loss"] * (1.5 if (cell, number) == (TREE, 2) and record["step"] >= 3 else 1)
    if record["kind"] == "evaluation" and (cell, record["rank"], record["epoch"]) == (TREE, 1, 1):
        own |= {"accuracy": record["accuracy"] + 0.125 / number}
    return record | own


def published(measure: str, **options: Any) -> str:
    return view("bar", measure, published={"source": "a report", "values": options})


def test_who_differs_is_named_and_only_who_does() -> None:
    views = [view("bar", "phases"), view("table", "accuracy", by="rank")]
    views += [view("curve", "loss", reference=RING, **each) for each in ({}, {"rounding": 0.6})]
    views += [view("bar", "seconds_to_loss(2.4)"), view("bar", "seconds_to_loss(1e-9)")]
    made = Experiment(CELLS + "".join(views)).steady(SECONDS, odd, "one-1")
    assert made.says("one", "30 % forward", "35 % backward", TREE, "15 % sync")
    assert "30 % forward" in made.sections[0].findings[0].partition(";")[0], "of both its rounds"
    differ, alike = made.sections[1].findings[1:3]
    assert [cell for cell in RANKS if cell in differ] == [TREE]
    assert "12.5 %" in differ
    assert [cell for cell in RANKS if cell in alike] == [RING, "all_reduce on 4", "tree on 4"]
    assert made.says(TREE, RING, "step 3 ", section=2)
    assert not made.says("step 3", section=3), "all of it is rounding"
    chart = made.sections[3].drawings[0].chart
    assert isinstance(chart, Plot)
    assert [level for level, _ in chart.panels[0].levels] == [0.6]
    # A median over the lucky rounds would make it look fast.
    assert [cell for cell, value in made.column("seconds_to_loss_2_4", 4).items() if value is None] == [TREE]
    left_out = [made.sections[number].remarks[0] for number in (4, 5)]
    assert [[cell for cell in RANKS if cell in each] for each in left_out] == [[TREE], [*RANKS]]
    assert drawn(made, 5) == set()


def test_differences_within_the_noise_are_called_none_and_published_orders_and_values_are_looked_for() -> None:
    accuracies = {"one": (0.5, 0.52, 0.54), TREE: (0.51, 0.51, 0.55), RING: (0.2, 0.23, 0.24)}
    losses = {"one": 1.0, TREE: 2.0, RING: 4.0}

    def change(cell: str, number: int, record: Json) -> Json:
        own = {"accuracy": accuracies[cell][number - 1]} if "accuracy" in record else {"loss": losses[cell]}
        return record | {name: value for name, value in own.items() if name in record}

    views = [view("bar", "accuracy", baseline="one"), published("seconds", **{"one": 9.0, RING: 5.0, TREE: 4.0})]
    views += [published("training_loss", **{TREE: value}) for value in (1.09, 0.5, 2.1)]
    views += [view("bar", "seconds", baseline="one"), view("bar", "training_loss", baseline=RING)]
    ratios = {"source": "a report", "ratio": True, "values": {"one": 1.5, RING: 1.0, TREE: 1.25}}
    views += [view("bar", each, baseline=RING, published=ratios) for each in ("seconds", "training_loss")]
    made = Experiment(CELLS + "".join(views)).steady({"one": 4.0, TREE: 2.6, RING: 2.5}, change)
    assert made.says(f"{RING} -29.7", NO_DIFFERENCE, TREE)
    assert made.says("0.9 percentage points"), "repeats differ by that"
    assert made.says(f"{RING} is the fastest", section=1)
    assert made.says("1.04 times", TREE, section=1)
    assert made.says(f"found here as well: {TREE} before one, {RING} before one", section=1)
    assert made.says(f"the other way round here: {TREE} before {RING}", section=1)
    assert made.says("10 %", f"1.09 of {TREE}", "one (", section=2)
    assert made.says("10 %", f"0.5 of {TREE}", "nearest", "one (", section=3)
    assert not made.says("10 %", section=4), "it is near ours"
    assert made.says(f"{TREE} 1.5", "as fast", section=5)
    assert made.says("one 4 times", " less", f"{TREE} 2 times", " less", section=6)
    assert made.says(f"{TREE} is the fastest", section=7), "of those that are compared with the baseline"
    assert not any(made.says("ublished", section=section) for section in (7, 8)), (
        "a ratio is not a published value of the measure"
    )


# What is missing


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (["one-1"], ["1 of 2", "one."]),
        (["all_reduce_on_2-1", "tree_on_4-2"], ["1 of 2", "all_reduce on 2; tree on 4."]),
        (["one-1", "one-2"], ["0 of 2", "for a reason: one."]),
        ([], ["0 of 2", "; ".join([*RANKS][1:])]),
    ],
)
def test_what_is_missing_is_said_in_every_kind_of_view_and_the_page_is_made(lost: list[str], said: list[str]) -> None:
    views = [view("table", "sent_in_gradients"), view("table", ["accuracy", "loss"], by="rank"), view("bar", "phases")]
    views += [view("curve", each, by=by) for each, by in (("loss", "step"), ("phases", "step"), ("accuracy", "epoch"))]
    views += [view("curve", "loss", reference="one"), view("curve", "cpu_user_percent", by="time")]
    views += [view("bar", ["seconds", "sync_seconds"], stacked=True, baseline="one")]
    views += [view(**options) for options, *_ in COMPARED]
    text = CELLS.replace('label = "one"', 'label = "one"\nmay_fail = "for a reason"') + "".join(views)
    made = Experiment(text, rounds=2)
    made.steady(SECONDS if lost else {}, lambda _, __, each: None if "accuracy" in each else each, *lost)
    assert page.write(made.grid, made.plan).is_file()
    never = {(row["accuracy"], row["loss"] is None) for row in made.rows(1)}, drawn(made, 5)
    assert never == ({(None, False)} if lost else set(), set()), "nothing was evaluated"
    for number, section in enumerate(made.sections):
        assert made.says(*said, section=number), section.title
        if not lost:
            assert section.findings or section.remarks
            assert not any(table.rows for table in section.tables)
            assert not any(drawing.chart for drawing in section.drawings)


REFUSED = [
    *({"measure": each} for each in ("sync_second", "straggler.rank_", "seconds_to_loss", "shares.sync(1)")),
    *({"measure": f"seconds_to_loss({each})"} for each in ("0", "-1", "1e999")),
    *({"series": "SYNC_MODE"}, {"series": "SYNC_MOD"}, {"against": "ddp"}, {"bound": "second"}),
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_what_there_is_not_is_refused(options: Json) -> None:
    with pytest.raises(SettingError) as caught:
        page.views_of(Experiment(CELLS + view(**{"kind": "line", "by": "mode", "measure": "seconds"} | options)).grid)
    assert (caught.value.exit_code, caught.value.name in ("invalid-grid", "unknown-name")) == (2, True)


def test_more_cells_than_a_figure_can_keep_apart_are_said_to_be_left_out() -> None:
    cells = "".join(block(label=f"cell {number}", WORKERS=0, SYNC_MODE="none") for number in range(12))
    made = Experiment(cells + view("curve", "loss") + view("curve", "accuracy", by="epoch"), rounds=1)
    made.steady({f"cell {number}": 1.0 for number in range(12)})
    assert all("10 of 12" in section.drawings[0].caption for section in made.sections)
