"""`shapes`: an embedded stand-in for CIFAR-10: ten classes of figures in their usual colours, drawn from a seed."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.floating]  # one value per image, broadcast over rows, columns and sometimes channels

SIDE = 32
TRAIN, TEST = 50_000, 10_000
CHUNK = 500  # bounds the memory held while drawing to a few tens of megabytes
MARKS = 2
MARK_CONTRAST = (5.0, 30.0)
RADIUS = (11.5, 13.0)
REACH = 14.0
TILT = 0.08
GRADIENT = 6.0
NOISE = (3.0, 12.0)
COLOUR_SWING = 50.0
COLOUR_SPREAD = 15.0
# An image in another class's colours can be recognised by its shape only. A faint one has any class's colours and
# next to no shape: nobody can classify those, which limits the score to about 91 %.
BORROWED_SHARE = 0.08
FAINT_SHARE = 0.10
FAINTNESS = 0.03


def _disc(x: Field, y: Field) -> Field:
    distance: Field = np.sqrt(x * x + y * y) - np.float32(1.0)
    return distance


def _ring(x: Field, y: Field) -> Field:
    distance: Field = np.abs(_disc(x, y) + np.float32(0.2)) - np.float32(0.2)
    return distance


def _triangle(x: Field, y: Field) -> Field:
    slopes = np.abs(x) * np.float32(0.87) - y * np.float32(0.5)
    distance: Field = np.maximum(slopes - np.float32(0.5), y - np.float32(0.7))
    return distance


def _column(x: Field, y: Field) -> Field:
    return np.maximum(np.abs(x) - np.float32(0.3), np.abs(y) - np.float32(1.0))


def _beam(x: Field, y: Field) -> Field:
    return _column(y, x)


def _plus(x: Field, y: Field) -> Field:
    return np.minimum(_column(x, y), _beam(x, y))


def _cross(x: Field, y: Field) -> Field:
    return _plus((x + y) * np.float32(0.5**0.5), (x - y) * np.float32(0.5**0.5))


def _bars(x: Field, y: Field) -> Field:
    height = np.abs(y)
    stripes = np.minimum(height, np.abs(height - np.float32(0.7))) - np.float32(0.22)
    distance: Field = np.maximum(stripes, np.abs(x) - np.float32(0.92))
    return distance


def _posts(x: Field, y: Field) -> Field:
    return _bars(y, x)


def _checkers(x: Field, y: Field) -> Field:
    pitch = np.float32(1.5 * np.pi)
    cells = np.sin(x * pitch) * np.sin(y * pitch) / pitch
    distance: Field = np.maximum(cells, np.maximum(np.abs(x), np.abs(y)) - np.float32(1.0))
    return distance


SHAPES: dict[str, Callable[[Field, Field], Field]] = {
    "disc": _disc,
    "ring": _ring,
    "triangle": _triangle,
    "plus": _plus,
    "cross": _cross,
    "column": _column,
    "beam": _beam,
    "bars": _bars,
    "posts": _posts,
    "checkers": _checkers,
}
CLASSES = tuple(SHAPES)

_HUES = np.array(
    [
        (1, 1, 1),
        (-1, -1, -1),
        (1, -1, -1),
        (-1, 1, -1),
        (-1, -1, 1),
        (1, 1, -1),
        (1, -1, 1),
        (-1, 1, 1),
        (0, 0, 0),
        (1, 0, -1),
    ],
    np.float32,
)
FOREGROUND: Field = 123 + np.float32(COLOUR_SWING) * _HUES
BACKGROUND: Field = FOREGROUND[(3 * np.arange(len(CLASSES)) + 1) % len(CLASSES)]


def make() -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """As many training and test images as CIFAR-10 has."""
    return {"train": draw(TRAIN, seed=0), "test": draw(TEST, seed=1)}


def draw(count: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (count, 32, 32, 3) and their labels, the same for the same seed."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % len(CLASSES))
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for start in range(0, count, CHUNK):
        chunk = slice(start, start + CHUNK)
        images[chunk] = _draw_chunk(rng, labels[chunk])
    return images, labels


def _draw_chunk(rng: np.random.Generator, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    count = len(labels)
    background, contrast = _colours(rng, labels)
    canvas = background + _gradient(rng, count)
    for _ in range(MARKS):
        shift = _normal(rng, count, 1, 1, 3) * _uniform(rng, *MARK_CONTRAST, count, 1, 1, 1)
        _paint(canvas, _mark(rng, count), shift)
    _paint(canvas, _shape(rng, labels), contrast)
    canvas += _normal(rng, *canvas.shape) * _uniform(rng, *NOISE, count, 1, 1, 1)
    return np.clip(canvas, 0, 255, out=canvas).astype(np.uint8)


def _colours(rng: np.random.Generator, labels: npt.NDArray[np.int64]) -> tuple[Field, Field]:
    """Each image's background colour, and what its shape adds to it."""
    count = len(labels)
    faint = rng.random(count) < FAINT_SHARE
    borrowed = faint | (rng.random(count) < BORROWED_SHARE)
    palette = np.where(borrowed, rng.integers(0, len(CLASSES), count), labels)
    foreground, background = (
        table[palette][:, None, None, :] + np.float32(COLOUR_SPREAD) * _normal(rng, count, 1, 1, 3)
        for table in (FOREGROUND, BACKGROUND)
    )
    strength = np.where(faint, np.float32(FAINTNESS), np.float32(1.0))
    return background, (foreground - background) * strength[:, None, None, None]


def _gradient(rng: np.random.Generator, count: int) -> Field:
    grid = np.linspace(-1, 1, SIDE, dtype=np.float32)
    down, across = (_uniform(rng, -GRADIENT, GRADIENT, count, 1, 1, 3) for _ in range(2))
    return down * grid[:, None, None] + across * grid[None, :, None]


def _shape(rng: np.random.Generator, labels: npt.NDArray[np.int64]) -> Field:
    """Distance in pixels of every pixel from the edge of its image's shape, negative inside."""
    radius = _uniform(rng, *RADIUS, len(labels), 1, 1)
    x, y = _pose(rng, REACH - radius, TILT)
    distance = np.empty_like(x)
    for label, shape in enumerate(SHAPES.values()):
        chosen = labels == label
        distance[chosen] = shape(x[chosen] / radius[chosen], y[chosen] / radius[chosen])
    return distance * radius


def _mark(rng: np.random.Generator, count: int) -> Field:
    """Distance from the edge of a short stroke that means nothing."""
    x, y = _pose(rng, np.full((count, 1, 1), REACH, np.float32), np.pi)
    overshoot = np.maximum(np.abs(x) - _uniform(rng, 0.5, 4.0, count, 1, 1), 0)
    distance: Field = np.sqrt(overshoot * overshoot + y * y) - _uniform(rng, 0.5, 1.2, count, 1, 1)
    return distance


def _pose(rng: np.random.Generator, reach: Field, tilt: float) -> tuple[Field, Field]:
    """Pixel coordinates about a centre at most `reach` from the middle, turned by at most `tilt`."""
    grid = np.arange(SIDE, dtype=np.float32) - np.float32((SIDE - 1) / 2)
    x = grid[None, None, :] - reach * _uniform(rng, -1, 1, *reach.shape)
    y = grid[None, :, None] - reach * _uniform(rng, -1, 1, *reach.shape)
    angle = _uniform(rng, -tilt, tilt, *reach.shape)
    return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x


def _paint(canvas: Field, distance: Field, shift: Field) -> None:
    canvas += np.clip(np.float32(0.5) - distance, 0, 1)[..., None] * shift


def _uniform(rng: np.random.Generator, low: float, high: float, *shape: int) -> Field:
    return rng.random(shape, np.float32) * np.float32(high - low) + np.float32(low)


def _normal(rng: np.random.Generator, *shape: int) -> Field:
    return rng.standard_normal(shape, np.float32)
