"""What ends a training that has diverged."""

import pytest

from app.errors import LockstepError
from app.training.meter import check_finite


@pytest.mark.parametrize(
    ("loss", "norm", "told"),
    [
        (float("nan"), None, "loss is nan"),
        (float("inf"), 1.0, "loss is inf"),
        (1.0, float("inf"), "gradient norm is inf"),
    ],
)
def test_a_number_that_is_none_ends_the_run_with_what_to_do(loss: float, norm: float | None, told: str) -> None:
    with pytest.raises(LockstepError, match=rf"rank 2: .*step 7.*{told}.*LEARNING_RATE.*WARMUP_STEPS"):
        check_finite(2, 7, loss, norm)


@pytest.mark.parametrize("norm", [None, 0.0, 5.0])
def test_every_other_one_does_not(norm: float | None) -> None:
    check_finite(0, 0, 2.3, norm)
