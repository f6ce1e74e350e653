"""What some benchmarks are to time, or have timed, as options: imports neither torch nor the settings."""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from app.machine.say import shown

SMALLEST, LARGEST = 1 << 10, 256 << 20
SIZE_STEP = 4
FEWEST_BYTES, MOST_BYTES = 64, 4 << 30
GRADIENTS = 36_924_456  # bytes of VGG-11's gradients, synchronised in each step of the main job

OPERATION_NAMES = ("send_receive", "gather", "scatter", "all_gather", "all_reduce", "ring_all_reduce")


def message_size(text: str) -> int:
    """Bytes, from a number that may end in k, M or G, each 1024 times the unit before."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)(i?b)?", text, re.ASCII | re.IGNORECASE)
    size = int(float(match[1]) * 1024 ** " kmg".index(match[2].lower() or " ")) if match else 0
    if not FEWEST_BYTES <= size <= MOST_BYTES:
        raise ArgumentTypeError(f"invalid size '{shown(text)}'. Give bytes, 64 to 4G, such as 64k or 16M")
    return size


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Reads one within these bounds."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,6}", text, re.ASCII) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"invalid number '{shown(text)}'. Give a whole number, {least} to {most}")
        return int(text)

    return read


def _number_of_ranks(text: str) -> int:
    from app.settings.concern import MOST_RANKS

    return whole_number(2, MOST_RANKS)(text)


def _setup(text: str) -> str:
    from app.tools.benchmark.setups import setup

    return setup(text).name


class BenchmarkOptions:
    """A choice whose fields are options; those that are plain numbers go from 1 to `MOST`."""

    MOST: ClassVar[dict[str, int]] = {}

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        for name, most in cls.MOST.items():
            default = getattr(cls, name)
            read = whole_number(1, most)
            parser.add_argument(f"--{name}", type=read, default=default, metavar="N", help=f"[{default}]")

    @classmethod
    def of(cls, options: Namespace) -> Self:
        """The choice that a command line makes; the defaults if it has no such options."""
        return cls(**{name: value for name, value in vars(options).items() if name in cls.__annotations__})


@dataclass(frozen=True)
class Choice(BenchmarkOptions):
    """Operations, message sizes in bytes, numbers of ranks."""

    operations: Sequence[str] = OPERATION_NAMES
    smallest: int = SMALLEST
    largest: int = LARGEST
    ranks: Sequence[int] = ()  # empty: 2, 4, 8 and so on, and all

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        names, default = OPERATION_NAMES, f"[all]: {', '.join(OPERATION_NAMES)}"
        parser.add_argument("--operations", nargs="+", choices=names, default=names, metavar="NAME", help=default)
        parser.add_argument("--smallest", type=message_size, default=SMALLEST, metavar="SIZE", help="[1k]")
        parser.add_argument("--largest", type=message_size, default=LARGEST, metavar="SIZE", help="[256M]")
        default = "[2, 4, 8 and so on, all]"
        parser.add_argument("--ranks", nargs="+", type=_number_of_ranks, default=(), metavar="N", help=default)

    def sizes(self) -> list[int]:
        """Each four times the one before, and the size of VGG-11's gradients."""
        steps = [SMALLEST]
        while steps[-1] < LARGEST:
            steps.append(steps[-1] * SIZE_STEP)
        return sorted(
            {size for size in (*steps, GRADIENTS) if self.smallest <= size <= self.largest}
            | {self.smallest, self.largest}
        )

    def numbers_of_ranks(self, world_size: int) -> list[int]:
        """How many of the cluster's first ranks take part, in turn."""
        if self.ranks:
            return sorted({ranks for ranks in self.ranks if ranks <= world_size})
        powers = [1 << power for power in range(1, world_size.bit_length())]
        return sorted({*(power for power in powers if power < world_size), world_size} - {1})


@dataclass(frozen=True)
class StepChoice(BenchmarkOptions):
    """Which set-ups, for how many rounds, and how many steps in each."""

    MOST: ClassVar = {"rounds": 1000, "steps": 1000}
    only: Sequence[str] = ()  # empty: the usual ones
    rounds: int = 8
    steps: int = 2

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        super().add_options(parser)
        meaning = "configurations, such as course_ddp ddp ddp+PRECISION=bf16 [all]"
        parser.add_argument("--only", nargs="+", type=_setup, default=(), metavar="NAME", help=meaning)


class Change(StrEnum):
    """What a variant of a step does otherwise inside its process."""

    NONE = "none"
    FOREACH_SGD = "foreach-sgd"
    LOOP_SGD = "loop-sgd"
    NO_PRODUCTS = "no-products"
    FLUSH_DENORMALS = "flush-denormals"


@dataclass(frozen=True)
class ComputeChoice(BenchmarkOptions):
    """How often each variant of a step has its turn, and how many steps it takes in it."""

    MOST: ClassVar = {"rounds": 1000, "steps": 1000}
    rounds: int = 8
    steps: int = 2


@dataclass(frozen=True)
class ReportChoice(BenchmarkOptions):
    """How long a run's report is to be made, and how often."""

    MOST: ClassVar = {"ranks": 100, "steps": 100_000, "rounds": 1000}
    ranks: int = 8
    steps: int = 10_000
    rounds: int = 5


@dataclass(frozen=True)
class Noted(BenchmarkOptions):
    """What scripts/benchmark has noted of one start: its run's folder, and when lines of it came."""

    folder: str
    ranks: int
    prepared: float
    joined: float
    first_step: float
    end: float

    @classmethod
    def read(cls, word: str) -> Self:
        """From an argument, FOLDER:RANKS:PREPARED:JOINED:FIRST_STEP:END."""
        try:
            folder, ranks, *seconds = word.split(":")
            prepared, joined, first_step, end = map(float, seconds)
            return cls(folder, int(ranks), prepared, joined, first_step, end)
        except ValueError:
            raise ArgumentTypeError("invalid start. Give one as scripts/benchmark startup does") from None

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        parser.add_argument("starts", nargs="+", type=cls.read, metavar="START", help="FOLDER:RANKS:SECONDS:...")
