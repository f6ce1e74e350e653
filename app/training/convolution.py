"""Convolutions in the chosen memory layout, with weight gradients of small images as matrix products."""

from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d

from app.settings.training import MemoryFormat

# oneDNN's convolutions are fastest in channels_last on large images with few channels, and in contiguous on small
# images with many. Small images occur in the last layers of VGG-11 and ResNet-18.
SMALL_SIDE = 4  # pixels


class Layout(NamedTuple):
    """The memory formats of images, by image size."""

    large: torch.memory_format
    small: torch.memory_format
    products: bool = False  # whether small images' weight gradients are computed as matrix products

    def of(self, images: torch.Tensor) -> torch.memory_format:
        return self.small if _are_small(images) else self.large


LAYOUTS: dict[MemoryFormat, Layout] = {
    "mixed": Layout(torch.channels_last, torch.contiguous_format, products=True),
    "contiguous": Layout(torch.contiguous_format, torch.contiguous_format),
    "channels_last": Layout(torch.channels_last, torch.channels_last),
}


def arrange(model: nn.Module, layout: Layout) -> None:
    """Make all convolutions of a model compute in this layout, with unchanged parameters."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d) and type(child) in (nn.Conv2d, Convolution):
                setattr(parent, name, Convolution.of(child, layout))


class Convolution(nn.Conv2d):
    """Equivalent to PyTorch's Conv2d, within rounding."""

    @classmethod
    def of(cls, given: nn.Conv2d, layout: Layout) -> Self:
        """Convert a convolution, sharing its parameters."""
        made = cls(
            given.in_channels,
            given.out_channels,
            given.kernel_size,  # type: ignore[arg-type]
            given.stride,  # type: ignore[arg-type]
            given.padding,  # type: ignore[arg-type]
            given.dilation,  # type: ignore[arg-type]
            given.groups,
            given.bias is not None,
            given.padding_mode,
            device="meta",  # so that no random numbers are drawn
        )
        made.weight, made.bias = given.weight, given.bias
        made._layout = layout
        made._keeps_size = (
            made.kernel_size == (3, 3)
            and made.stride == made.padding == made.dilation == (1, 1)
            and made.groups == 1
            and made.padding_mode == "zeros"
        )
        return made

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = images.contiguous(memory_format=self._layout.of(images))
        if not (self._layout.products and self._keeps_size and _are_small(images)):
            return super().forward(images)
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled("cpu"):  # autocast does not apply inside custom autograd functions
            dtype = torch.get_autocast_dtype("cpu")
            images, weight = images.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        convolved: torch.Tensor = _ByProducts.apply(images, weight, bias)  # type: ignore[no-untyped-call]
        return convolved

    _layout: Layout
    _keeps_size: bool


class _ByProducts(torch.autograd.Function):
    """A zero-padded 3x3 convolution whose weight gradient is nine matrix products.

    The weights at one kernel position see the images shifted by at most a pixel, so their gradient is the product of
    two matrices: the output gradients and the shifted pixels. Products with the padding are skipped. At 2x2 pixels that
    is five ninths of the work, and oneDNN's own primitive does all of it, at half the speed of a matrix product.
    """

    @staticmethod
    def forward(context: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        context.save_for_backward(images, weight)
        return conv2d(images, weight, bias, padding=1)

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        images, weight = context.saved_tensors
        wants_images, wants_weight, wants_bias = context.needs_input_grad
        from_images = _gradient_of_images(gradient, images, weight) if wants_images else None
        from_weight = _gradient_of_weight(gradient, images) if wants_weight else None
        return from_images, from_weight, gradient.sum((0, 2, 3)) if wants_bias else None


def _gradient_of_images(gradient: torch.Tensor, images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    one, none = [1, 1], [0, 0]
    wanted = [True, False, False]
    from_images: torch.Tensor = torch.ops.aten.convolution_backward(
        gradient, images, weight, None, one, one, one, False, none, 1, wanted
    )[0]
    return from_images


def _gradient_of_weight(gradient: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    gradients, pixels = (each.permute(2, 3, 0, 1).contiguous() for each in (gradient, images))  # (height, width, n, c)
    height, width, _, outputs = gradients.shape
    by_place = gradients.new_empty(3, 3, outputs, pixels.shape[-1])
    for row in (-1, 0, 1):
        for column in (-1, 0, 1):
            shifted_gradients = gradients[_met(height, row), _met(width, column)].reshape(-1, outputs)
            shifted_pixels = pixels[_met(height, -row), _met(width, -column)].reshape(-1, pixels.shape[-1])
            torch.mm(shifted_gradients.t(), shifted_pixels, out=by_place[row + 1, column + 1])
    return by_place.permute(2, 3, 0, 1).contiguous()


def _met(length: int, move: int) -> slice:
    """The pixels along one side that still overlap the image after the shift."""
    return slice(max(0, -move), length - max(0, move))


def _are_small(images: torch.Tensor) -> bool:
    return max(images.shape[-2:]) <= SMALL_SIDE
