"""What tables and lines show of the values in them: rounded to one number of decimals, and never to another value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis import measures
from app.analysis.figures import Measure
from app.analysis.units import DIGITS, MEGABYTES, MISSING, PERCENT, SECONDS, TEXT, Unit
from app.machine.say import as_csv, say
from app.pages.series import MOST_POINTS, series, thinned
from app.pages.table import Column, Table

SCALES = {"": 1.0, "s": 1.0, "ms": 1e-3, "MB": 1e6, "GB": 1e9}
MEASURED = st.one_of(st.none(), st.just(0.0), st.floats(1e-7, 1e12))


def table(*columns: list[float | None], unit: Unit = DIGITS) -> Table:
    """One of these columns, all in the same unit."""
    made = [Column[int](f"column {n}", f"column_{n}", unit, columns[n].__getitem__) for n in range(len(columns))]
    return Table.of("example", "An example", made, range(len(columns[0])))


def words(of: Table) -> list[list[str]]:
    """By column."""
    return [list(column) for column in zip(*([text for _, text in row] for row in of.cells()), strict=True)]


@given(st.lists(MEASURED, min_size=1, max_size=8), st.sampled_from([DIGITS, SECONDS, MEGABYTES]))
def test_a_rounded_number_is_still_the_same(values: list[float | None], unit: Unit) -> None:
    made = table(values, unit=unit)
    scale = SCALES[made.labels()[0]]
    for value, shown in zip(values, words(made)[0], strict=True):
        if value is None:
            assert shown == MISSING
        else:
            assert float(shown) * scale == pytest.approx(value, rel=0.0501)
            assert float(shown) == pytest.approx(value / scale, rel=0.005, abs=0.00501)


@given(st.lists(st.floats(0.2, 100), min_size=1, max_size=8))
def test_decimals_align_within_a_column(values: list[float]) -> None:
    shown = words(table([*values], unit=DIGITS))[0]
    assert len({len(each.partition(".")[2]) for each in shown}) == 1


@pytest.mark.parametrize(
    ("unit", "values", "label", "shown"),
    [
        (SECONDS, [0.0571, 0.0041], "ms", ["57.10", "4.10"]),
        (SECONDS, [1.25, 0.31], "s", ["1.250", "0.310"]),
        (SECONDS, [None, 0.0], "ms", [MISSING, "0"]),
        (MEGABYTES, [25_276_510_000.0, 999_000_000.0], "GB", ["25.277", "0.999"]),
        (MEGABYTES, [999_000_000.0, 246_824.0], "MB", ["999.00", "0.25"]),
        (DIGITS, [3339.4, 834.2], "", ["3339", "834"]),
        (DIGITS, [float("nan"), 2.5], "", ["nan", "2.50"]),
        (DIGITS, [1.5, 1e-9], "", ["1.5000", "1e-09"]),
        (PERCENT, [0.5, 0.123], "", ["50.0%", "12.3%"]),
        (TEXT, [True, None], "", ["yes", MISSING]),
    ],
)
def test_a_column_has_the_unit_that_fits_it(
    unit: Unit, values: list[float | None], label: str, shown: list[str]
) -> None:
    made = table(values, unit=unit)
    assert (made.labels(), words(made)) == ([label], [shown])


def test_all_columns_of_a_table_share_a_unit_because_they_are_compared() -> None:
    made = table([0.5, 0.6], [2.0, 3.0], unit=SECONDS)
    assert made.labels() == ["s", "s"]
    assert words(made) == [["0.500", "0.600"], ["2.00", "3.00"]]


def test_the_file_keeps_all_digits() -> None:
    value = 0.1 + 0.2
    assert table([value, 25e9], unit=SECONDS).csv().splitlines() == ["column_0", repr(value), "25000000000.0"]


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@sum"])
def test_a_text_in_the_file_is_no_formula_and_a_number_stays_one(formula: str) -> None:
    assert as_csv([(formula, -1.5, None, "a\n\x1b")]) == f"'{formula},-1.5,,a\\n\\x1b\n"


def test_what_a_command_prints_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2J\nb\r")
    assert capsys.readouterr().out == "a\\x1b[2J\nb\\r\n"


@given(st.integers(1, 3000))
def test_a_thinned_line_hides_no_spike_and_says_that_it_is_a_mean(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count)
    line = series("rank 0", range(count), [float(value) for value in values])
    assert 0 < len(line.values) <= MOST_POINTS
    if count <= MOST_POINTS:
        assert (line.band, thinned([line])) == (None, "")
        return
    assert line.band
    assert line.band.most.max() == values.max()
    assert line.band.least.min() == values.min()
    assert np.all((line.band.least <= line.values + 1e-12) & (line.values <= line.band.most + 1e-12))
    first = values[: line.band.neighbours]
    assert line.values[0] == pytest.approx(first.mean())
    assert thinned([line]).startswith(f" A line is the mean of {line.band.neighbours} neighbouring steps")


def test_every_figure_that_a_page_can_name_is_worked_out() -> None:
    defined = [
        each for value in vars(measures).values() for each in (value.values() if isinstance(value, dict) else [value])
    ]
    names = {each.name for each in defined if isinstance(each, Measure) and each is not measures.EPOCH}
    assert len(names) > 60
    assert names <= {each.name for each in (*measures.OF_RUN, *measures.OF_ONE_RANK)}
