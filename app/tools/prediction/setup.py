"""A cell, as the simulation sees it: ranks, links, processors, and what they have to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from app.cluster.link.measured import payload_rate
from app.cluster.link.shaping import burst_bytes
from app.settings.settings import Settings
from app.settings.training import ModelName
from app.sync.contract import learned_of
from app.tools.prediction.network import Links
from app.tools.prediction.processor import PERIOD_SECONDS, Cpus
from app.training import models
from app.training.datasets import CLASSES, source_of

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
    def classes(self) -> int:
        return source_of(self.settings.training.dataset).classes

    @property
    def shapes(self) -> Sequence[torch.Size]:
        """Of the gradients, in the order of the parameters."""
        return shapes_of(self.settings.training.model, self.classes)

    def alone(self, settings: Settings) -> "CellSetup":
        """One such rank by itself."""
        return CellSetup(settings, 1, Links(*(each[:1] for each in vars(self.links).values())), Cpus(self.cpus.quota))


@cache
def parameters_of(model: ModelName, classes: int = CLASSES) -> Sequence[torch.nn.Parameter]:
    return list(learned_of(models.build(model, seed=1, classes=classes).parameters()))


def shapes_of(model: ModelName, classes: int = CLASSES) -> Sequence[torch.Size]:
    return [parameter.shape for parameter in parameters_of(model, classes)]


def setup_of(settings: Settings, ranks: int, *, cores: int, one_host: bool | None) -> CellSetup:
    """From the settings alone. Unless told, ranks share a host as long as its cores suffice for their quotas."""
    quota = settings.place.rank_cpus
    together = ranks * (quota or 1.0) <= cores if one_host is None else one_host
    asked = [settings.links.of(rank).bits_per_second for rank in range(ranks)]
    links = Links.of(
        [(payload_rate(bits, MTU_BYTES) or UNSHAPED_BYTES_PER_SECOND,) * 2 for bits in asked],
        [float(burst_bytes(bits)) if bits else 0.0 for bits in asked],
    )
    setup = CellSetup(settings, ranks, links, Cpus(quota, cores if together else None))
    parameters_of(settings.training.model, setup.classes)  # kept for the processes that simulate: copies of this one
    return setup
