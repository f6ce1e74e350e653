"""The benchmark of the modes runs, and tells of each mode; its figures are for reading, and no test asserts them."""

import re
from pathlib import Path

from app.gradient_sync import MODES
from tests.processes import group
from tests.processes.group import Ranks

ROW = re.compile(r"^(?P<mode>\w+).* +(?P<seconds>[\d.]+) +.+ +[\d.]+ +(?P<ratio>[\d.]+) +\([\d.]+ to [\d.]+\)$")


def test_every_mode_is_timed_beside_plain_code(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark sync")
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    rows = [row for row in map(ROW.match, outcomes[0][1].splitlines()) if row]
    assert {row["mode"] for row in rows} == set(MODES) - {"none"}
    assert all(float(row["seconds"]) > 0 and float(row["ratio"]) > 0 for row in rows)


def test_a_wrong_name_is_refused(tmp_path: Path) -> None:
    code, output = group.wait(group.start("benchmark synk", tmp_path))
    assert code == 2
    assert "invalid choice: 'synk' (choose from sync)" in output
