"""What ends a training that has diverged."""

import pytest

from app.errors import LockstepError
from app.training.meter import check_finite


@pytest.mark.parametrize(
    ("loss", "norm", "told"),
    [
        (float("nan"), None, "rank 2: the loss at step 7 is nan"),
        (float("inf"), 1.0, "rank 2: the loss at step 7 is inf"),
        (1.0, float("inf"), "rank 2: the norm of the gradient at step 7 is inf"),
    ],
)
def test_a_number_that_is_none_ends_the_run_with_what_to_do(loss: float, norm: float | None, told: str) -> None:
    with pytest.raises(LockstepError, match=rf"{told}: .*Lower LEARNING_RATE"):
        check_finite(2, 7, loss, norm)


@pytest.mark.parametrize("norm", [None, 0.0, 5.0])
def test_every_other_one_does_not(norm: float | None) -> None:
    check_finite(0, 0, 2.3, norm)
