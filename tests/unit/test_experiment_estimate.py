"""How long runs are expected to take: what is sent, and how often, counts for as much as its cost says."""

from pathlib import Path

import pytest

from app.tools.experiment.plan.estimate import expected_seconds
from app.tools.experiment.plan.trials import Trial
from app.training import models

STEPS, RATE = 100, 1e6 / 8


def expected(**settings: str) -> float:
    own = {"MODEL": "lenet5", "WORKERS": "3", "MAX_STEPS": str(STEPS), "EPOCHS": "100", "EVALUATE": "never"}
    return expected_seconds(Trial("one", "one", 1, own | settings))


@pytest.fixture(scope="module")
def unshaped() -> float:
    return expected(SYNC_MODE="flat_all_reduce")


def sending(unshaped: float, **settings: str) -> float:
    """Seconds a step in which links of 1 Mbit/s are all that matters."""
    return (expected(LINK_RATE="1mbit", **settings) - unshaped) / STEPS


def test_whole_gradients_take_what_a_ring_takes(unshaped: float) -> None:
    elements = sum(parameter.numel() for parameter in models.build("lenet5", 1).parameters())
    assert sending(unshaped, SYNC_MODE="flat_all_reduce") == pytest.approx(1.5 * 4 * elements / RATE, rel=0.01)


def test_what_is_averaged_every_eight_steps_takes_an_eighth(unshaped: float) -> None:
    whole = sending(unshaped, SYNC_MODE="flat_all_reduce")
    assert sending(unshaped, SYNC_EVERY="8") == pytest.approx(whole / 8)


def test_compressed_gradients_take_what_is_sent_of_them(unshaped: float) -> None:
    whole = sending(unshaped, SYNC_MODE="flat_all_reduce")
    assert sending(unshaped, COMPRESSION="random_k") == pytest.approx(whole / 100, rel=0.01)
    assert sending(unshaped, COMPRESSION="sign") == pytest.approx(whole / 32, rel=0.01)
    assert sending(unshaped, COMPRESSION="top_k") == pytest.approx(3 * 2 * 0.01 * whole / 1.5, rel=0.01)
    every = sending(unshaped, COMPRESSION="power_sgd", SYNC_EVERY="4")
    assert every == pytest.approx(sending(unshaped, COMPRESSION="power_sgd") / 4)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
