"""A convolution computes the same in every layout, whatever its shape."""

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from app.settings.training import MemoryFormat, ModelName
from app.training import models
from app.training.convolution import LAYOUTS, Convolution, arrange

CONVOLUTIONS = st.builds(
    nn.Conv2d,
    in_channels=st.just(4),
    out_channels=st.sampled_from([2, 6]),
    kernel_size=st.sampled_from([1, 3]),
    stride=st.sampled_from([1, 1, 2]),
    padding=st.sampled_from([0, 1, 1]),
    dilation=st.sampled_from([1, 1, 2]),
    groups=st.sampled_from([1, 1, 2]),
    bias=st.booleans(),
    dtype=st.just(torch.float64),
)


def outcome(layer: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    """The layer's output, and all gradients of a sum of it with different weights."""
    images = images.clone().requires_grad_()
    output = layer(images)
    weights = torch.arange(output.numel(), dtype=output.dtype).view_as(output).sin()
    layer.zero_grad()
    (output * weights).sum().backward()
    assert images.grad is not None
    gradients = [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
    assert all(gradient.is_contiguous() for gradient in gradients)
    return [output.detach(), images.grad, *gradients]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=settings().max_examples // 2)
@given(
    plain=CONVOLUTIONS,
    samples=st.integers(0, 3),
    height=st.integers(3, 6),
    width=st.integers(3, 6),
    seed=st.integers(0, 9),
)
def test_every_layout_computes_what_pytorch_s_own_does(
    layout: MemoryFormat, plain: nn.Conv2d, samples: int, height: int, width: int, seed: int
) -> None:
    shape = (samples, 4, height + 2, width + 2) if plain.dilation == (2, 2) else (samples, 4, height, width)
    images = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    ours = Convolution.of(copy.deepcopy(plain), LAYOUTS[layout])
    for one, other in zip(outcome(ours, images), outcome(plain, images), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("side", [1, 2, 4])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_products_are_as_exact_as_the_primitive(side: int, bfloat16: bool) -> None:
    """Beside fp64: no further from it than PyTorch's own convolution in the same numbers, or hardly."""
    torch.manual_seed(side)
    exact = nn.Conv2d(64, 32, 3, padding=1, dtype=torch.float64)
    images = torch.randn(16, 64, side, side, dtype=torch.float64)
    plain = copy.deepcopy(exact).float()
    ours = Convolution.of(copy.deepcopy(plain), LAYOUTS["mixed"])
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        found, usual = (outcome(layer, images.float()) for layer in (ours, plain))
    assert [each.dtype for each in found] == [each.dtype for each in usual]
    for one, other, true in zip(found, usual, outcome(exact, images), strict=True):
        assert (one - true).norm() <= 1.5 * (other - true).norm() + 1e-6 * true.norm()


def test_a_frozen_convolution_gets_no_gradient() -> None:
    layer = Convolution.of(nn.Conv2d(4, 4, 3, padding=1).requires_grad_(requires_grad=False), LAYOUTS["mixed"])
    images = torch.randn(2, 4, 2, 2, requires_grad=True)
    layer(images).sum().backward()
    assert images.grad is not None
    assert layer.weight.grad is None


@pytest.mark.parametrize("name", models.MODELS)
def test_arranging_a_model_keeps_its_parameters(name: ModelName) -> None:
    model = models.build(name, seed=1)
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    arrange(model, LAYOUTS["mixed"])
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before
    assert not [each for each in model.modules() if type(each) is nn.Conv2d]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.zeros(2, 1 if name == "lenet5" else 3, 32, 32))
