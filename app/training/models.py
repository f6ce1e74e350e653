"""The networks: VGG-11 as the course defines it, LeNet-5 with Tanh and average pooling, ResNet-18 for small images."""

import hashlib
from collections.abc import Callable, Iterable
from inspect import signature
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

from app.errors import ExtensionError, SettingError
from app.extensions.files import path_of
from app.extensions.loading import blamed, load
from app.settings.training import ModelName
from app.training.batch_norm import BatchNorm, LocalBatchNorm2d
from app.training.datasets import CLASSES
from app.training.datasets.prepared import needs_classes

VGG11_LAYERS = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")


class Vgg11(nn.Module):
    """Eight 3x3 convolutions, each with batch normalisation, a linear layer; 9,231,114 parameters with ten classes."""

    def __init__(self, batch_norm: BatchNorm, classes: int = CLASSES) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, following in pairwise((*VGG11_LAYERS, None)):
            if isinstance(width, int):
                layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), batch_norm(width)]
                if following == "M":  # before ReLU, which gives the same bits with a quarter of the work
                    layers.append(nn.MaxPool2d(2))
                layers.append(nn.ReLU(inplace=True))
                channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 3, 32, 32) to logits (n, classes)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


class LeNet5(nn.Module):
    """Three 5x5 convolutions with Tanh, average pooling between them, two linear layers, no batch normalisation.

    It has 61,706 parameters for ten classes.
    """

    def __init__(self, batch_norm: BatchNorm, classes: int = CLASSES) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, kernel_size=5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 120, kernel_size=5),
            nn.Tanh(),
        )
        self.classifier = nn.Sequential(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, 32, 32) to logits (n, classes)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


def resnet18(batch_norm: BatchNorm, classes: int = CLASSES) -> nn.Module:
    """Torchvision's ResNet-18 with a stem for 32x32 images: a 3x3 convolution and no pooling.

    It has 11,173,962 parameters for ten classes.
    """
    from torchvision.models.resnet import BasicBlock, ResNet  # here, because the import is slow

    model: nn.Module = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=classes, norm_layer=batch_norm)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # like its other convolutions
    model.maxpool = nn.Identity()
    return model


MODELS: dict[ModelName, Callable[..., nn.Module]] = {"vgg11": Vgg11, "lenet5": LeNet5, "resnet18": resnet18}


def build(
    name: ModelName,
    seed: int,
    dtype: torch.dtype = torch.float32,
    batch_norm: BatchNorm = LocalBatchNorm2d,
    classes: int = CLASSES,
) -> nn.Module:
    """Build the model. The same seed gives the same parameters on every rank and in every type."""
    make = MODELS[name] if name in MODELS else load(name).build
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    try:
        chosen = {"classes": classes} if "classes" in signature(make).parameters else {}
        signature(make).bind(batch_norm, **chosen)
    except (TypeError, ValueError) as error:
        raise ExtensionError(f"{path_of(name)}: build must take batch_norm: {error}.", "invalid-extension") from None
    if classes != CLASSES and not chosen:
        raise SettingError(needs_classes(name, classes), "conflicting-settings")
    with blamed(name):
        model = make(batch_norm, **chosen)
    if not isinstance(model, nn.Module):
        message = f"{path_of(name)}: build(batch_norm) returned {type(model).__name__}, not an nn.Module."
        raise ExtensionError(message, "invalid-extension")
    _check_tensors(model, path_of(name))
    return model.to(dtype)


def _check_tensors(model: nn.Module, path: Path) -> None:
    for name, parameter in model.named_parameters():
        if torch.empty_like(parameter, device="meta").stride() != parameter.stride():
            raise ExtensionError(
                f"{path}: parameter {name} of shape {tuple(parameter.shape)} has strides {parameter.stride()}: its "
                "elements overlap or have gaps in memory. Call clone() on the tensor before nn.Parameter(...).",
                "invalid-extension",
            )
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_complex():  # PyTorch would discard the imaginary part
            raise ExtensionError(
                f"{path}: {name} is {tensor.dtype}. Use real numbers, in the type that PRECISION sets. Separate the "
                "real and the imaginary part with torch.view_as_real(...).",
                "invalid-extension",
            )


def parameters_sha256(model: nn.Module) -> str:
    return _sha256(model.parameters())


def buffers_sha256(model: nn.Module) -> str | None:
    """Checksum of the running statistics of batch normalisation and all other buffers; None without any."""
    buffers = list(model.buffers())
    return _sha256(buffers) if buffers else None


def _sha256(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        values = tensor.detach().to_dense().contiguous()  # a buffer may be sparse
        digest.update(values.view(-1).view(torch.uint8).numpy())  # as bytes, because numpy lacks some types
    return digest.hexdigest()
