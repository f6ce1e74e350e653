"""The rank whose link carries most is named, and drawn in the full colour."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.analysis import busiest
from app.analysis.run import Run
from app.pages import drawings
from app.pages.rows import Bars
from app.records.journal import Recorder
from tests import runs
from tests.unit.test_records import STEP

Carried = list[tuple[int, int]]  # what each rank sends and receives
SIZE = 1_000_000


def run(folder: Path, carried: Carried, least: float | None = None, speeds: list[float] | None = None) -> Run:
    folder.mkdir()
    ranks = [runs.participant(rank, speed=speeds[rank] if speeds else None) for rank in range(len(carried))]
    changes: dict[str, Any] = {"world_size": len(carried), "ranks": ranks, "sync_seconds_at_least": least}
    (folder / "manifest.json").write_text(json.dumps(runs.MANIFEST | {"run": folder.name} | changes))
    for rank, (sent, received) in enumerate(carried):
        with Recorder(folder, rank) as recorder:
            recorder.write(replace(STEP, rank=rank, bytes_sent=sent, bytes_received=received))
    return Run(folder)


STAR: Carried = [(3 * SIZE, 3 * SIZE), *[(SIZE, SIZE)] * 3]
RING: Carried = [(SIZE, SIZE + 8)] * 4


@pytest.mark.parametrize(
    ("carried", "speeds", "least", "rank", "every", "in_turn"),
    [
        (STAR, None, None, 0, False, None),
        (STAR, [1e6] * 4, 6.0, 0, False, True),
        (RING, [1e6] * 4, 1.0, 0, True, False),
        (RING, [1e6, 1e6, 1e5, 1e6], 10.0, 2, True, False),
        ([(SIZE, 0), (0, SIZE), (0, 0)], None, None, 0, False, None),
    ],
)
def test_the_busiest_rank_follows_from_bytes_and_links(
    carried: Carried, speeds: list[float] | None, least: float | None, rank: int, every: bool, in_turn: bool | None,
    tmp_path: Path,
) -> None:  # fmt: skip
    own = run(tmp_path / "run", carried, least, speeds)
    found = busiest.of(own.summary, own.manifest)
    assert found is not None
    assert (found.rank, found.every_rank, found.one_after_the_other) == (rank, every, in_turn)
    assert found.speed == (speeds[rank] if speeds else None)


def test_in_the_figure_the_busiest_rank_alone_has_the_full_colour(tmp_path: Path) -> None:
    star, ring = run(tmp_path / "star", STAR), run(tmp_path / "ring", RING)
    nothing = run(tmp_path / "nothing", [(0, 0), (0, 0)])
    (chart,) = (each.chart for each in drawings.of_runs([star, nothing, ring]) if each.name == "compared-links")
    assert isinstance(chart, Bars)
    found = {row.name: (row.value, {span.role for span in row.spans}) for row in chart.rows}
    assert found == {
        "star, rank 0": (6 * SIZE, {"sync"}),
        "star, ranks 1, 2, 3": (2 * SIZE, {"hidden"}),
        "ring, every rank": (2 * SIZE + 8, {"sync"}),
    }
    (alone,) = (each for each in drawings.of_run(nothing) if each.name == "links")
    assert alone.chart is None
