"""What `benchmark collectives` is asked for, and what it makes of it."""

from argparse import ArgumentParser

import pytest

from app.tools.benchmark.choice import GRADIENTS, OPERATION_NAMES, CollectivesChoice
from app.tools.benchmark.operations import OPERATIONS


def chosen(*words: str) -> CollectivesChoice:
    parser = ArgumentParser()
    CollectivesChoice.add_options(parser)
    return CollectivesChoice(**vars(parser.parse_args(words)))


def test_every_operation_that_can_be_chosen_is_there() -> None:
    assert tuple(OPERATIONS) == OPERATION_NAMES


def test_by_default_sizes_go_from_1_kb_to_256_mb_and_have_the_main_jobs_own() -> None:
    sizes = chosen().sizes()
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1024, 256 * 2**20)
    assert GRADIENTS in sizes
    assert chosen() == CollectivesChoice()


def test_sizes_are_limited_as_asked() -> None:
    assert chosen("--smallest", "3k", "--largest", "20KiB").sizes() == [3072, 4096, 16384, 20480]
    assert chosen("--smallest", "1.5M", "--largest", "1.5MB").sizes() == [1572864]


@pytest.mark.parametrize(
    ("ranks", "numbers"), [(1, []), (2, [2]), (3, [2, 3]), (4, [2, 4]), (7, [2, 4, 7]), (8, [2, 4, 8])]
)
def test_numbers_of_ranks_are_powers_of_two_and_all(ranks: int, numbers: list[int]) -> None:
    assert chosen().numbers_of_ranks(ranks) == numbers


def test_numbers_of_ranks_are_those_asked_for_as_far_as_there_are_so_many() -> None:
    assert chosen("--ranks", "3", "2", "9").numbers_of_ranks(4) == [2, 3]


@pytest.mark.parametrize(
    "words", [["--operations", "reduce"], ["--largest", "5X"], ["--smallest", "0"], ["--ranks", "1"], ["--ranks", "x"]]
)
def test_nonsense_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        chosen(*words)
    assert caught.value.code == 2
