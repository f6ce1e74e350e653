"""A statistical test for the mean of random draws, valid for any distribution, even with rare large values."""

import numpy as np
import numpy.typing as npt

UNLUCKY = 1e-12  # probability that an element of an unbiased mode fails; a check has fewer than 100,000 elements
STAKES = (0.9, 0.5, 0.2, 0.05, 0.01)  # large stakes detect a large bias early, small ones a small bias later

Array = npt.NDArray[np.floating]


def is_biased(draws: Array, mean: Array, most: float, tolerance: float) -> npt.NDArray[np.bool_]:
    """Whether the draws (rows) of each element (column), bounded by `most`, have a mean other than `mean`.

    A gambler starts with a fortune of 1 and bets a fixed share of it on each draw being above the mean, or below it. If
    the mean is right, all bets are fair, and the fortune reaches F with a probability of at most 1/F, for any
    distribution (Ville's inequality).
    """
    away = draws - mean
    away[np.abs(away) <= tolerance * (1 + np.abs(mean))] = 0  # rounding
    shares = [sign * stake for stake in STAKES for sign in (1, -1)]
    fortunes = np.log1p(np.multiply.outer(shares, away / (most + np.abs(mean)))).sum(axis=1)
    return np.asarray(fortunes.max(axis=0) > np.log(len(shares) / UNLUCKY))
