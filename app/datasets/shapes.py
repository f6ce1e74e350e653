"""Shapes, an embedded synthetic stand-in for CIFAR-10: ten classes of drawn shapes, made on the spot from a seed."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.float32]  # one value per image, or per image and pixel

SIDE = 32
CHUNK = 500
MARKS = 3
FAINT_SHARE = 0.15
FAINT_CONTRAST = (15.0, 40.0)
CLEAR_CONTRAST = (60.0, 160.0)
NOISE = (4.0, 24.0)
RADIUS = (6.0, 11.0)
TILT = 0.2


def _disc(x: Field, y: Field) -> Field:
    return np.sqrt(x * x + y * y) - 1.0


def _ring(x: Field, y: Field) -> Field:
    return np.abs(np.sqrt(x * x + y * y) - 0.8) - 0.2


def _square(x: Field, y: Field) -> Field:
    return np.maximum(np.abs(x), np.abs(y)) - 0.85


def _frame(x: Field, y: Field) -> Field:
    return np.abs(np.maximum(np.abs(x), np.abs(y)) - 0.7) - 0.2


def _diamond(x: Field, y: Field) -> Field:
    return (np.abs(x) + np.abs(y)) * np.float32(0.5**0.5) - 0.8


def _triangle(x: Field, y: Field) -> Field:
    return np.maximum(y - 0.7, np.abs(x) * 0.87 - y * 0.5 - 0.5)


def _plus(x: Field, y: Field) -> Field:
    across, along = np.abs(x), np.abs(y)
    return np.maximum(np.minimum(across, along) - 0.28, np.maximum(across, along) - 1.0)


def _cross(x: Field, y: Field) -> Field:
    half = np.float32(0.5**0.5)
    return _plus((x + y) * half, (x - y) * half)


def _bars(x: Field, y: Field) -> Field:
    stripe = np.abs(np.abs(y) - 0.7) - 0.22
    return np.maximum(np.minimum(stripe, np.abs(y) - 0.22), np.abs(x) - 0.92)


def _checkers(x: Field, y: Field) -> Field:
    cell = np.sin(x * np.float32(np.pi * 1.5)) * np.sin(y * np.float32(np.pi * 1.5)) / np.float32(np.pi * 1.5)
    return np.maximum(cell, np.maximum(np.abs(x), np.abs(y)) - 1.0)


SHAPES: dict[str, Callable[[Field, Field], Field]] = {
    "disc": _disc,
    "ring": _ring,
    "square": _square,
    "frame": _frame,
    "diamond": _diamond,
    "triangle": _triangle,
    "plus": _plus,
    "cross": _cross,
    "bars": _bars,
    "checkers": _checkers,
}
CLASSES = tuple(SHAPES)


def draw(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (count, 32, 32, 3) and their labels, the same for the same seed."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % len(CLASSES))
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for start in range(0, count, CHUNK):
        chunk = slice(start, start + CHUNK)
        images[chunk] = _draw_chunk(rng, labels[chunk])
    return images, labels


def _uniform(rng: np.random.Generator, low: float, high: float, *shape: int) -> Field:
    return rng.random(shape, np.float32) * np.float32(high - low) + np.float32(low)


def _draw_chunk(rng: np.random.Generator, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    count = len(labels)
    canvas = _background(rng, count)
    for _ in range(MARKS):
        u, v = _pose(rng, count, 14.0, np.pi)
        length = _uniform(rng, 0.5, 4.0, count, 1, 1)
        gap = np.maximum(np.abs(u) - length, 0.0)
        distance = np.sqrt(gap * gap + v * v) - _uniform(rng, 0.5, 1.2, count, 1, 1)
        _paint(canvas, distance, _shift(rng, CLEAR_CONTRAST[0], CLEAR_CONTRAST[1], count))
    radius = _uniform(rng, *RADIUS, count, 1, 1)
    u, v = _pose(rng, count, 13.0 - radius, TILT)
    u /= radius
    v /= radius
    distance = np.empty_like(u)
    for label, shape in enumerate(SHAPES.values()):
        chosen = labels == label
        distance[chosen] = shape(u[chosen], v[chosen])
    faint = _uniform(rng, 0.0, 1.0, count) < FAINT_SHARE
    contrast = np.where(
        faint[:, None, None, None], _shift(rng, *FAINT_CONTRAST, count), _shift(rng, *CLEAR_CONTRAST, count)
    )
    _paint(canvas, distance * radius, contrast)
    noise = rng.standard_normal(canvas.shape, np.float32)
    noise *= _uniform(rng, *NOISE, count, 1, 1, 1)
    canvas += noise
    return np.clip(canvas, 0.0, 255.0, out=canvas).astype(np.uint8)


def _background(rng, count):
    grid = np.arange(SIDE, dtype=np.float32) / (SIDE - 1) - 0.5
    base = _uniform(rng, 70, 185, count, 1, 1, 3)
    a = _uniform(rng, -40, 40, count, 1, 1, 3)
    b = _uniform(rng, -40, 40, count, 1, 1, 3)
    return base + a * grid[:, None, None] + b * grid[None, :, None]


def _pose(rng, count, reach, tilt):
    grid = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    x = grid[None, None, :] - _uniform(rng, -1, 1, count, 1, 1) * reach
    y = grid[None, :, None] - _uniform(rng, -1, 1, count, 1, 1) * reach
    angle = _uniform(rng, -tilt, tilt, count, 1, 1)
    c, s = np.cos(angle), np.sin(angle)
    return c * x + s * y, c * y - s * x


def _shift(rng, low, high, count):
    d = rng.standard_normal((count, 1, 1, 3), np.float32)
    d /= np.sqrt((d * d).sum(axis=-1, keepdims=True))
    return d * _uniform(rng, low, high, count, 1, 1, 1)


def _paint(canvas, distance, shift):
    coverage = np.clip(0.5 - distance, 0, 1)
    canvas += coverage[..., None] * shift


def make() -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """The sizes of CIFAR-10: 50,000 images to train on and 10,000 to test with."""
    return {"train": draw(50_000, seed=0), "test": draw(10_000, seed=1)}
