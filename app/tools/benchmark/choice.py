"""The options of the benchmarks: imports neither torch nor the settings."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.machine.say import shown

SMALLEST, LARGEST = 1 << 10, 256 << 20
SIZE_STEP = 4
FEWEST_BYTES, MOST_BYTES = 64, 4 << 30
GRADIENTS = 36_924_456  # bytes of VGG-11's gradients, synchronised in each step of the main job
MOST_TURNS = 1000

OPERATION_NAMES = ("send_receive", "gather", "scatter", "all_gather", "all_reduce", "ring_all_reduce")


@dataclass(frozen=True)
class StepChoice:
    """The options of `step`."""

    only: Sequence[str] = ()  # empty: the usual configurations
    rounds: int = 8
    steps: int = 2  # of each configuration in each round

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        read = _whole_number(1, MOST_TURNS)
        parser.add_argument("--rounds", type=read, default=cls.rounds, metavar="N", help=f"[{cls.rounds}]")
        parser.add_argument("--steps", type=read, default=cls.steps, metavar="N", help=f"[{cls.steps}]")
        meaning = "configurations, such as course_ddp ddp ddp+PRECISION=bf16 [all]"
        parser.add_argument("--only", nargs="+", type=_setup, default=(), metavar="NAME", help=meaning)


@dataclass(frozen=True)
class CollectivesChoice:
    """The options of `collectives`."""

    operations: Sequence[str] = OPERATION_NAMES
    smallest: int = SMALLEST  # bytes
    largest: int = LARGEST
    ranks: Sequence[int] = ()  # empty: 2, 4, 8 and so on, and all

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        names, default = OPERATION_NAMES, f"[all]: {', '.join(OPERATION_NAMES)}"
        parser.add_argument("--operations", nargs="+", choices=names, default=names, metavar="NAME", help=default)
        parser.add_argument("--smallest", type=_message_size, default=SMALLEST, metavar="SIZE", help="[1k]")
        parser.add_argument("--largest", type=_message_size, default=LARGEST, metavar="SIZE", help="[256M]")
        powers = "[2, 4, 8 and so on, all]"
        parser.add_argument("--ranks", nargs="+", type=_number_of_ranks, default=(), metavar="N", help=powers)

    def sizes(self) -> list[int]:
        """Each four times the previous one, and the size of VGG-11's gradients."""
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


def _message_size(text: str) -> int:
    """Bytes, from a number that may end in k, M or G, each 1024 times the unit before."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)(i?b)?", text, re.ASCII | re.IGNORECASE)
    size = int(float(match[1]) * 1024 ** " kmg".index(match[2].lower() or " ")) if match else 0
    if not FEWEST_BYTES <= size <= MOST_BYTES:
        raise ArgumentTypeError(f"invalid size '{shown(text)}'. Give bytes, 64 to 4G, such as 64k or 16M")
    return size


def _whole_number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,6}", text, re.ASCII) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"invalid number '{shown(text)}'. Give a whole number, {least} to {most}")
        return int(text)

    return read


def _number_of_ranks(text: str) -> int:
    from app.settings.concern import MOST_RANKS

    return _whole_number(2, MOST_RANKS)(text)


def _setup(text: str) -> str:
    from app.tools.benchmark.setups import setup

    return setup(text).name
