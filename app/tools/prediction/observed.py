"""What a run of a calibration has shown: seconds and CPU seconds of its steps, by phase."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from app.analysis.run import Run
from app.analysis.statistics import median
from app.settings import environment
from app.settings.settings import Settings
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.prediction.network import Links
from app.tools.prediction.processor import Cpus
from app.tools.prediction.setup import CellSetup, setup_of
from app.tools.prediction.waves import Figures

COMPUTING = ("data", "forward", "backward")


@dataclass(frozen=True)
class Observed:
    """A run, as far as a calibration looks at it, with the settings that it was given."""

    run: Run
    given: dict[str, str]

    @cached_property
    def settings(self) -> Settings:
        return environment.of(self.given)

    @property
    def ranks(self) -> int:
        return self.run.manifest.world_size

    @cached_property
    def setup(self) -> CellSetup:
        """What its simulation starts from: the links as they were measured, and this host."""
        asked = setup_of(self.settings, self.ranks, cores=self.run.manifest.ranks[0].cores, one_host=True)
        links = [rank.link for rank in self.run.manifest.ranks]
        measured = asked.links
        if all(links):
            rates = [(e.sent.measured_bytes_per_second, e.received.measured_bytes_per_second) for e in links if e]
            measured = Links.of(rates, list(asked.links.burst))
        cpus = Cpus(self.run.manifest.ranks[0].quota_cpus, asked.cpus.shared_cores)
        return CellSetup(self.settings, self.ranks, measured, cpus)

    def cpu(self, *phases: str) -> Figures:
        """CPU seconds of these phases together, ranks x steps."""
        ranks = self.run.table.ranks
        return np.nan_to_num([sum(rows.warm(f"cpu_seconds.{phase}") for phase in phases) for rows in ranks])

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Means over ranks and steps, by phase; computing has what no phase of its own has."""

        def of(phase: str) -> float:
            return float(np.nan_to_num(self.run.table.all.warm(phase)).mean())

        found = {name: of(f"{name}_seconds") for name in ("wait", "sync", "optimiser", "hidden_sync")}
        step = of("seconds")
        return found | {"step": step, "computing": step - found["wait"] - found["sync"] - found["optimiser"]}

    @property
    def between(self) -> float:
        """The median time from the end of a step to the begin of the next one, in which a rank writes its record."""
        ranks = self.run.table.ranks
        gaps = [np.diff(rows.column("at_seconds")) - rows.column("seconds")[:-1] for rows in ranks]
        return max(0.0, median(np.concatenate(gaps)) or 0.0)


def finished(plan: ExperimentPlan) -> dict[str, Observed]:
    """A plan's finished runs, by name."""
    return {trial.name: Observed(Run(plan.folder / trial.name), trial.settings) for trial in plan.finished()}
