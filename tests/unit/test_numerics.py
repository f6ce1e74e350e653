"""What each precision computes in, and what it keeps its parameters and gradients in."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from app.cluster.members import Member
from app.machine.cpus import Machine, has_bfloat16
from app.settings.training import MemoryFormat, ModelName, Precision, TrainingSettings
from app.training import models
from app.training.convolution import arrange
from app.training.numerics import Numerics, slow_bfloat16


@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize(
    ("precision", "kept"), [("fp32", torch.float32), ("bf16", torch.float32), ("fp64", torch.float64)]
)
def test_parameters_gradients_and_losses_have_one_type(
    name: ModelName, precision: Precision, kept: torch.dtype
) -> None:
    numerics = Numerics.of(TrainingSettings(model=name, precision=precision))
    model = models.build(name, 1, numerics.dtype)
    arrange(model, numerics.layout)
    inside = set()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(lambda _, __, output: inside.add(output.dtype))
    channels = 1 if name == "lenet5" else 3
    images = torch.zeros(2, channels, 32, 32, dtype=kept).contiguous(memory_format=numerics.layout.large)
    loss = cross_entropy(numerics.forward(model, images), torch.arange(2))
    loss.backward()  # type: ignore[no-untyped-call]
    assert inside == {torch.bfloat16 if precision == "bf16" else kept}
    assert loss.dtype == kept
    for parameter in model.parameters():
        assert parameter.dtype == kept
        assert parameter.grad is not None
        assert parameter.grad.dtype == kept
        assert parameter.grad.is_contiguous()


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("fpu avx2 avx512f avx512_bf16 sse", True),
        ("fpu amx_bf16", True),
        ("fp asimd bf16 i8mm", True),
        ("fpu avx2 avx512f avx512_vnni", False),
        ("", False),
    ],
)
def test_what_a_cpu_says_of_bfloat16(flags: str, has: bool) -> None:
    assert has_bfloat16(flags) is has


def members(*bfloat16: bool) -> list[Member]:
    machines = [
        Machine("a", (0,), None, 2**30, "Old CPU", bfloat16=each, kernel="6", congestion_control=None)
        for each in bfloat16
    ]
    return [Member(rank, f"worker-{rank}", "10.0.0.1", 7000, "eth0", 1, each) for rank, each in enumerate(machines)]


def test_bfloat16_without_instructions_for_it_is_warned_of_with_the_ranks() -> None:
    warning = slow_bfloat16("bf16", members(True, False, False))
    assert warning is not None
    assert all(fact in warning for fact in ("rank 1, 2", "Old CPU", "bfloat16", "PRECISION=fp32"))
    assert slow_bfloat16("bf16", members(True, True)) is None
    assert slow_bfloat16("fp32", members(False)) is None


@pytest.mark.parametrize(
    ("model", "precision", "asked", "layout"),
    [
        ("vgg11", "fp32", None, "mixed"),
        ("resnet18", "bf16", None, "mixed"),
        ("vgg11", "fp64", None, "contiguous"),
        ("lenet5", "fp32", None, "contiguous"),
        ("vgg11", "fp32", "channels_last", "channels_last"),
        ("vgg11", "fp64", "mixed", "mixed"),
    ],
)
def test_the_layout_follows_from_the_settings_alone(
    model: ModelName, precision: Precision, asked: MemoryFormat | None, layout: MemoryFormat
) -> None:
    assert Numerics.of(TrainingSettings(model=model, precision=precision, memory_format=asked)).memory_format == layout
