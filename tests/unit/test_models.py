"""The networks are the documents', to the parameter."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from app.settings.training import ModelName
from app.training import models


@pytest.mark.parametrize(
    ("name", "channels", "parameters"), [("vgg11", 3, 9_231_114), ("lenet5", 1, 61_706), ("resnet18", 3, 11_173_962)]
)
def test_parameter_counts_and_shapes(name: ModelName, channels: int, parameters: int) -> None:
    model = models.build(name, seed=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    for samples in (2, 0):
        logits = model(torch.zeros(samples, channels, 32, 32))
        assert logits.shape == (samples, 10)


@pytest.mark.parametrize("name", models.MODELS)
def test_the_seed_and_nothing_else_decides_the_first_parameters(name: ModelName) -> None:
    first = models.parameters_sha256(models.build(name, seed=1))
    torch.rand(1)
    assert models.parameters_sha256(models.build(name, seed=1)) == first
    assert models.parameters_sha256(models.build(name, seed=2)) != first


class OwnBatchNorm(nn.BatchNorm2d):
    pass


@pytest.mark.parametrize(("name", "layers"), [("vgg11", 8), ("lenet5", 0), ("resnet18", 20)])
def test_every_batch_normalisation_is_of_the_kind_that_is_asked_for(name: ModelName, layers: int) -> None:
    """That VGG-11 with one that is synchronised trains as in one process: test_equivalence.py."""
    found = [type(each) for each in models.build(name, 1, torch.float32, OwnBatchNorm).modules()]
    assert [kind for kind in found if issubclass(kind, nn.BatchNorm2d)] == [OwnBatchNorm] * layers


def test_the_fingerprint_sees_a_single_bit() -> None:
    model = models.build("lenet5", seed=1)
    first = models.parameters_sha256(model)
    with torch.no_grad():
        list(model.parameters())[-1].view(torch.int32)[0] ^= 1
    assert models.parameters_sha256(model) != first


def test_resnet_18_keeps_small_images_large() -> None:
    """Without the stem for large photographs: the four stages see 32, 16, 8 and 4 pixels a side."""
    sides = []
    model = models.build("resnet18", seed=1)
    for name in ("layer1", "layer2", "layer3", "layer4"):
        model.get_submodule(name).register_forward_hook(lambda _, __, output: sides.append(output.shape[-1]))
    model(torch.zeros(1, 3, 32, 32))
    assert sides == [32, 16, 8, 4]


def test_pooling_before_relu_is_the_course_s_order_to_the_bit() -> None:
    """The course has ReLU first. Outputs and gradients are the same, signs of zero included."""
    ours = models.build("vgg11", seed=1)
    assert isinstance(ours, models.Vgg11)
    course = copy.deepcopy(ours)
    layers = list(course.features)
    for place, (layer, following) in enumerate(pairwise(layers)):
        if isinstance(layer, nn.MaxPool2d) and isinstance(following, nn.ReLU):
            layers[place : place + 2] = [nn.ReLU(), layer]
    course.features = nn.Sequential(*layers)
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    images[0] = 0  # whole windows alike
    assert torch.equal(ours(images), course(images))
    for model in (ours, course):
        cross_entropy(model(images), torch.arange(6)).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(ours.parameters(), course.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
