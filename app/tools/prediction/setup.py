"""A cell, as the simulation sees it: ranks, links, processors, and what they have to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from app.cluster.link.measured import payload_rate
from app.cluster.link.shaping import burst_bytes
from app.machine.cpus import look
from app.settings.links import LinkSettings
from app.settings.settings import Settings
from app.settings.training import ModelName
from app.sync.contract import learned_of
from app.tools.prediction.network import Links
from app.tools.prediction.processor import PERIOD_SECONDS, Cpus
from app.training import models

MTU_BYTES = 1500  # of Docker's networks
UNSHAPED_BYTES_PER_SECOND = 1e12  # then only the processors limit what passes


@dataclass(frozen=True)
class CellSetup:
    """Everything about a cell that its prediction depends on."""

    settings: Settings
    ranks: int
    links: Links
    cpus: Cpus

    @property
    def images(self) -> float:
        """Of a rank in a step."""
        return self.settings.training.global_batch(self.ranks) / self.ranks

    @property
    def renewals(self) -> float:
        """How often in a CPU second a rank's quota is renewed after others have used its core."""
        cores, quota = self.cpus.shared_cores, self.cpus.quota
        return 0.0 if quota is None or cores is None or self.ranks <= cores else 1 / (quota * PERIOD_SECONDS)

    @property
    def shapes(self) -> Sequence[torch.Size]:
        """Of the gradients."""
        return shapes_of(self.settings.training.model)

    def alone(self, settings: Settings) -> "CellSetup":
        """One such rank by itself."""
        return CellSetup(settings, 1, Links(*(each[:1] for each in vars(self.links).values())), Cpus(self.cpus.quota))


@cache
def parameters_of(model: ModelName) -> Sequence[torch.nn.Parameter]:
    """Of a model: those that are trained."""
    return list(learned_of(models.build(model, seed=1).parameters()))


@cache
def shapes_of(model: ModelName) -> Sequence[torch.Size]:
    """Of a model's gradients, in the order of its parameters."""
    return [parameter.shape for parameter in parameters_of(model)]


def setup_of(settings: Settings, ranks: int, *, cores: int | None = None, one_host: bool | None = None) -> CellSetup:
    """From the settings alone. Unless told, ranks share this host as long as its cores suffice for their quotas."""
    parameters_of(settings.training.model)  # is kept: processes that simulate are copies of this one, and build none
    cores = len(look().cores) if cores is None else cores
    quota = settings.place.rank_cpus
    together = ranks * (quota or 1.0) <= cores if one_host is None else one_host
    return CellSetup(settings, ranks, _links(settings.links, ranks), Cpus(quota, cores if together else None))


def _links(requested: LinkSettings, ranks: int) -> Links:
    asked = [requested.of(rank).bits_per_second for rank in range(ranks)]
    rates = [payload_rate(bits, MTU_BYTES) if bits else None for bits in asked]
    return Links.of(
        [(rate or UNSHAPED_BYTES_PER_SECOND,) * 2 for rate in rates],
        [float(burst_bytes(bits)) if bits else 0.0 for bits in asked],
    )
