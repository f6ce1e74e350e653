"""`shapes`: ten classes of geometric figures, drawn from a seed, as many and as large as CIFAR-10's images."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.floating]  # a value per image, or per image and pixel; single precision is enough
Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

SIDE = 32
CHUNK = 500  # images at once; more would leave the processor's cache

# In pixels:
RADIUS = (6.0, 11.0)
MARK_LENGTH = (0.5, 4.0)
MARK_WIDTH = (0.5, 1.2)
# In steps of brightness, out of 255:
BACKGROUND = (70.0, 185.0)
GRADIENT = (-40.0, 40.0)
CLEAR_CONTRAST = (60.0, 160.0)
FAINT_CONTRAST = (15.0, 40.0)
NOISE = (4.0, 24.0)

TILT = 0.2  # radians; more would turn a square into a diamond
MARKS = 3  # lines across each image that belong to no class
FAINT_SHARE = 0.15  # of the images are hard to see, which keeps the best possible accuracy well below 1


def make() -> dict[str, tuple[Images, Labels]]:
    """50,000 images to train on and 10,000 to test with."""
    return {"train": draw(50_000, seed=0), "test": draw(10_000, seed=1)}


def draw(count: int, seed: int) -> tuple[Images, Labels]:
    """Images (count, 32, 32, 3) and their labels, the same for the same seed."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count, dtype=np.int64) % len(FIGURES))
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for start in range(0, count, CHUNK):
        chunk = slice(start, start + CHUNK)
        images[chunk] = _draw_chunk(random, labels[chunk])
    return images, labels


def _draw_chunk(random: np.random.Generator, labels: Labels) -> Images:
    count = len(labels)
    canvas = _background(random, count)
    for _ in range(MARKS):
        _paint(canvas, _mark(random, count), _colour_shift(random, CLEAR_CONTRAST, count))
    faint = random.random((count, 1, 1, 1)) < FAINT_SHARE
    clear_shift, faint_shift = (_colour_shift(random, each, count) for each in (CLEAR_CONTRAST, FAINT_CONTRAST))
    _paint(canvas, _figure(random, labels), np.where(faint, faint_shift, clear_shift))
    canvas += random.standard_normal(canvas.shape, np.float32) * _uniform(random, NOISE, count, 1, 1, 1)
    return np.clip(canvas, 0, 255).astype(np.uint8)


def _background(random: np.random.Generator, count: int) -> Field:
    """A plain colour with a slope in it."""
    slope = np.linspace(-0.5, 0.5, SIDE, dtype=np.float32)[:, np.newaxis]
    down, across = (_uniform(random, GRADIENT, count, 1, 1, 3) for _ in range(2))
    background: Field = _uniform(random, BACKGROUND, count, 1, 1, 3) + down * slope[:, np.newaxis] + across * slope
    return background


def _mark(random: np.random.Generator, count: int) -> Field:
    """Distance to a short line, anywhere and in any direction."""
    x, y = _place(random, count, reach=np.float32(14), tilt=np.pi)
    beyond = np.maximum(np.abs(x) - _uniform(random, MARK_LENGTH, count, 1, 1), 0)
    return _length(beyond, y) - _uniform(random, MARK_WIDTH, count, 1, 1)


def _figure(random: np.random.Generator, labels: Labels) -> Field:
    """Distance to the edge of each image's figure, negative inside."""
    radius = _uniform(random, RADIUS, len(labels), 1, 1)
    x, y = (each / radius for each in _place(random, len(labels), reach=13 - radius, tilt=TILT))
    distance = np.empty_like(x)
    for label, figure in enumerate(FIGURES.values()):
        chosen = labels == label
        distance[chosen] = figure(x[chosen], y[chosen])
    return distance * radius


def _place(random: np.random.Generator, count: int, reach: Field | np.float32, tilt: float) -> tuple[Field, Field]:
    """Every pixel's coordinates, from a centre within reach of the image's and along tilted axes."""
    pixels = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    x = pixels - _uniform(random, (-1, 1), count, 1, 1) * reach
    y = pixels[:, np.newaxis] - _uniform(random, (-1, 1), count, 1, 1) * reach
    angle = _uniform(random, (-tilt, tilt), count, 1, 1)
    return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x


def _colour_shift(random: np.random.Generator, contrast: tuple[float, float], count: int) -> Field:
    """A step of the given size from the background's colour, in any direction."""
    direction = random.standard_normal((count, 1, 1, 3), np.float32)
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    return direction * _uniform(random, contrast, count, 1, 1, 1)


def _paint(canvas: Field, distance: Field, shift: Field) -> None:
    """Colour what is inside, with edges that are one pixel soft."""
    canvas += np.clip(0.5 - distance, 0, 1)[..., np.newaxis] * shift


def _uniform(random: np.random.Generator, bounds: tuple[float, float], *shape: int) -> Field:
    low, high = bounds
    values: Field = random.random(shape, np.float32) * np.float32(high - low) + np.float32(low)
    return values


def _length(x: Field, y: Field) -> Field:
    length: Field = np.sqrt(x * x + y * y)  # np.hypot takes several times as long
    return length


def _plus(x: Field, y: Field) -> Field:
    nearer, farther = np.minimum(np.abs(x), np.abs(y)), np.maximum(np.abs(x), np.abs(y))
    arms: Field = np.maximum(nearer - 0.28, farther - 1)
    return arms


def _cross(x: Field, y: Field) -> Field:
    return _plus((x + y) * 0.71, (x - y) * 0.71)


def _bars(x: Field, y: Field) -> Field:
    middle, outer = np.abs(y) - 0.22, np.abs(np.abs(y) - 0.7) - 0.22
    bars: Field = np.maximum(np.minimum(middle, outer), np.abs(x) - 0.92)
    return bars


def _checkers(x: Field, y: Field) -> Field:
    turns = 1.5 * np.pi
    cells = np.sin(x * turns) * np.sin(y * turns) / turns
    board: Field = np.maximum(cells, np.maximum(np.abs(x), np.abs(y)) - 1)
    return board


# By class: the signed distance to the edge, where the figure reaches from about -1 to 1.
# A mirror changes none of them into another one.
FIGURES: dict[str, Callable[[Field, Field], Field]] = {
    "disc": lambda x, y: _length(x, y) - 1,
    "ring": lambda x, y: np.abs(_length(x, y) - 0.8) - 0.2,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) - 0.85,
    "frame": lambda x, y: np.abs(np.maximum(np.abs(x), np.abs(y)) - 0.7) - 0.2,
    "diamond": lambda x, y: (np.abs(x) + np.abs(y)) * 0.71 - 0.8,
    "triangle": lambda x, y: np.maximum(y - 0.7, np.abs(x) * 0.87 - y * 0.5 - 0.5),
    "plus": _plus,
    "cross": _cross,
    "bars": _bars,
    "checkers": _checkers,
}
