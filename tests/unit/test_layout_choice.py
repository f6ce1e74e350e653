"""The memory layout is measured once for a machine, and kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.machine.folders import PREPARED
from app.settings.fields import MemoryFormat, ModelName, Precision, Settings
from app.training import layout_choice, layout_measurement
from app.training.layout_choice import candidates

VGG11 = Settings()
KEPT = PREPARED / "layout-vgg11-fp32.json"


@pytest.mark.parametrize(
    ("model", "precision", "asked", "among"),
    [
        ("vgg11", "fp32", None, ("mixed", "contiguous", "channels_last")),
        ("resnet18", "bf16", None, ("mixed", "contiguous", "channels_last")),
        ("vgg11", "fp64", None, ("contiguous",)),
        ("lenet5", "fp32", None, ("contiguous",)),
        ("vgg11", "fp32", "channels_last", ("channels_last",)),
        ("vgg11", "fp64", "mixed", ("mixed",)),
    ],
)
def test_only_what_can_differ_is_measured(
    model: ModelName, precision: Precision, asked: MemoryFormat | None, among: tuple[MemoryFormat, ...]
) -> None:
    assert candidates(Settings(model=model, precision=precision, memory_format=asked)) == among


@pytest.mark.parametrize(
    ("contiguous", "channels_last", "chosen"),
    [
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], "mixed"),
        ([0.96, 0.96, 0.96], [1.1, 1.1, 1.1], "mixed"),  # a gain, and too small a one
        ([0.9, 0.9, 0.9], [1.0, 1.0, 1.0], "contiguous"),
        ([0.9, 0.9, 0.9], [0.8, 0.8, 0.8], "channels_last"),
        ([0.5, 1.0, 1.0], [1.0, 1.0, 0.5], "mixed"),  # the median over the rounds, not the best of them
    ],
)
def test_the_usual_layout_is_left_for_a_clear_gain_only(
    contiguous: list[float], channels_last: list[float], chosen: MemoryFormat
) -> None:
    machine = [3.0, 2.0, 5.0]  # its speed differs from round to round
    seconds: layout_choice.Seconds = {"mixed": machine}
    seconds["contiguous"] = [a * b for a, b in zip(machine, contiguous, strict=True)]
    seconds["channels_last"] = [a * b for a, b in zip(machine, channels_last, strict=True)]
    assert layout_measurement.fastest(seconds) == chosen


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """In an empty folder, where a real measurement would take seconds; how many there were."""
    monkeypatch.chdir(tmp_path)
    PREPARED.mkdir()
    count = 0

    def measure(settings: Settings) -> layout_choice.Seconds:
        nonlocal count
        count += 1
        return {"mixed": [2.0, 2.0], "contiguous": [1.0, 1.0], "channels_last": [3.0, 3.0]}

    monkeypatch.setattr(layout_measurement, "measure", measure)
    return lambda: count


def test_the_choice_is_kept(measured: Callable[[], int]) -> None:
    said: list[str] = []
    assert layout_choice.memory_format(VGG11) == "mixed"
    assert layout_choice.measured(VGG11) is None
    for _ in range(2):
        layout_choice.make(VGG11, said.append)
        assert measured() == 1
        assert "memory layout: contiguous" in said[-1]
        assert "mixed 2000 ms, contiguous 1000 ms" in said[-1]
    assert layout_choice.memory_format(VGG11) == "contiguous"
    assert layout_choice.measured(VGG11) == {"mixed": 2.0, "contiguous": 1.0, "channels_last": 3.0}
    assert layout_choice.memory_format(Settings(memory_format="channels_last")) == "channels_last"
    assert layout_choice.measured(Settings(memory_format="channels_last")) is None
    layout_choice.make(Settings(model="lenet5"), said.append)
    layout_choice.make(Settings(precision="bf16"), said.append)
    assert measured() == 2


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_model": "another"},
        {"torch": "0.1"},
        {"memory_format": "none such"},
        {"seconds": {"mixed": [1.0]}},
        {"seconds": {"mixed": ["a"], "contiguous": [], "channels_last": None}},
        {"seconds": 3},
        {"more": 1},
    ],
)
def test_what_was_measured_elsewhere_or_damaged_is_measured_again(
    measured: Callable[[], int], change: dict[str, object]
) -> None:
    layout_choice.make(VGG11, lambda _: None)
    KEPT.write_text(json.dumps(json.loads(KEPT.read_text()) | change))
    assert layout_choice.memory_format(VGG11) == "mixed"
    layout_choice.make(VGG11, lambda _: None)
    assert measured() == 2


@pytest.mark.parametrize("rubbish", ["", "[]", "null", "{", "[" * 100_000, '"x"'])
def test_rubbish_is_measured_again(measured: Callable[[], int], rubbish: str) -> None:
    KEPT.write_text(rubbish)
    assert layout_choice.measured(VGG11) is None
    layout_choice.make(VGG11, lambda _: None)
    assert measured() == 1
