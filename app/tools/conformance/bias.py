"""A statistical test of the mean of random draws, which stays right for rare and large values."""

import numpy as np
import numpy.typing as npt

UNLUCKY = 1e-12  # chance that an element of an unbiased mode breaks the law; a check has fewer than 100,000 of them
STAKES = (0.9, 0.5, 0.2, 0.05, 0.01)  # large ones show a large bias soon, and small ones a small bias later

Array = npt.NDArray[np.floating]


def is_biased(draws: Array, mean: Array, most: float, tolerance: float) -> npt.NDArray[np.bool_]:
    """Whether draws (rows) of an element (column), none of them beyond `most`, have another mean.

    A gambler bets a fixed share of a fortune, 1 at first, on each draw to be above the mean, or below. If the mean is
    right, all bets are fair, and the fortune reaches F with a probability of at most 1/F, whatever the distribution
    (Ville's inequality).
    """
    away = draws - mean
    away[np.abs(away) <= tolerance * (1 + np.abs(mean))] = 0  # rounding
    shares = [sign * stake for stake in STAKES for sign in (1, -1)]
    fortunes = np.log1p(np.multiply.outer(shares, away / (most + np.abs(mean)))).sum(axis=1)
    return np.asarray(fortunes.max(axis=0) > np.log(len(shares) / UNLUCKY))
