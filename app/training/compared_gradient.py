"""One parameter's gradient after averaging, compared with the mean, and the likely mistake if it differs."""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ComparedGradient:
    """A parameter's gradient after averaging, with this rank's own gradient and the mean over all ranks."""

    name: str
    got: torch.Tensor
    local: torch.Tensor
    expected: torch.Tensor
    allowed: float  # deviation from the mean by rounding
    world_size: int

    @property
    def deviation(self) -> float:
        """The largest deviation from the mean, in units of `allowed`."""
        if not math.isfinite(self.allowed):
            return 0.0  # NaN and infinity are reported as divergence
        return float(self._deviations(self.expected).max()) if self.got.shape == self.expected.shape else math.inf

    @property
    def is_wrong(self) -> bool:
        return self.deviation > 1

    def described(self) -> str:
        if self.got.shape != self.expected.shape:
            return f"the gradient of {self.name} has shape {tuple(self.got.shape)}, not {tuple(self.expected.shape)}"
        at = int(self._deviations(self.expected).argmax())
        got, expected = (float(each.reshape(-1)[at]) for each in (self.got, self.expected))
        return f"the gradient of {self.name} deviates most: expected {expected:.6g}, got {got:.6g}"

    def diagnosis(self) -> str:
        """The likely mistake, if the result matches that of a common one."""
        ranks = self.world_size
        suspects = (
            (self.local, " This is the rank's own gradient: it was not exchanged."),
            (self.local / ranks, " This is the rank's own gradient divided by N: it was not exchanged."),
            (self.expected * ranks, " This is the sum over the ranks: is the division by N missing?"),
            (self.expected / ranks, " This is the mean divided by N again: is it divided twice?"),
        )
        alike = (sentence for suspect, sentence in suspects if self._matches(suspect))
        return next(alike, "")

    def _matches(self, suspect: torch.Tensor) -> bool:
        # A sum's rounding is N times that of the mean.
        return self.got.shape == suspect.shape and float(self._deviations(suspect).max()) <= self.world_size

    def _deviations(self, other: torch.Tensor) -> torch.Tensor:
        return ((self.got - other).abs() / self.allowed).nan_to_num(nan=math.inf)
