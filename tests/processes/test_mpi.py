"""The contract of every mode on the MPI backend: three processes that mpirun has started in one container."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from app.tools.conformance.cases import MODELS
from app.tools.launch.start import TOLERANT
from tests.processes.contract import check
from tests.processes.group import PATIENCE_SECONDS, ROOT, free_port
from tests.processes.mpi_rank import CASES, Case, Seen

WORLD_SIZE = 3
MAIN = "from tests.processes.mpi_rank import main; main()"


@pytest.fixture(scope="module")
def everyones(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    folder = tmp_path_factory.mktemp("mpi")
    done = subprocess.run(
        [
            *("mpirun", "--allow-run-as-root", *TOLERANT, "--oversubscribe", "--bind-to", "none"),
            *("--np", str(WORLD_SIZE), sys.executable, "-c", MAIN, str(folder), str(free_port())),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    files = [folder / str(rank) for rank in range(WORLD_SIZE)]
    assert all(file.is_file() for file in files), done.stdout + done.stderr
    return [pickle.loads(file.read_bytes()) for file in files]  # noqa: S301 - the ranks' own


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_gradients_become_the_mean_at_the_price_of_the_formula(everyones: list[Seen], case: Case) -> None:
    first, again = ([seen.outcomes[case][attempt] for seen in everyones] for attempt in range(2))
    check(first, MODELS[case[1]])
    for one, other in zip(first, again, strict=True):
        for before, after in zip(one.gradients, other.gradients, strict=True):
            assert all(np.array_equal(left, right) for left, right in zip(before, after, strict=True))


def test_small_values_and_groups_of_some_ranks_pass(everyones: list[Seen]) -> None:
    assert all(seen.exchanged == list(range(WORLD_SIZE)) for seen in everyones)
    assert [seen.sums for seen in everyones] == [[2, 3], [2, 3], [1, 3]]
