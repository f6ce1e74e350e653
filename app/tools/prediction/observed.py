"""What a run of a calibration has shown: seconds and CPU seconds of its steps, by phase."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import mean, median

import numpy as np

from app.analysis.run import Run
from app.analysis.run_records import together
from app.records.lines import Step
from app.settings import environment
from app.settings.settings import Settings
from app.tools.prediction.network import Links
from app.tools.prediction.processor import Cpus
from app.tools.prediction.setup import CellSetup, setup_of
from app.tools.prediction.waves import Figures

COMPUTING = ("data", "forward", "backward")


@dataclass(frozen=True)
class Observed:
    """A run, as far as a calibration looks at it."""

    run: Run
    given: dict[str, str]
    settings: Settings

    @classmethod
    def of(cls, run: Run, given: dict[str, str]) -> "Observed":
        """With the settings that it was given."""
        return cls(run, given, environment.of(given))

    @property
    def name(self) -> str:
        """Of the run."""
        return self.run.name

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.run.manifest.world_size

    @cached_property
    def steps(self) -> list[tuple[Step, ...]]:
        """All ranks' records of each step but the first."""
        return [steps for steps in together([rank.steps for rank in self.run.ranks]) if steps[0].step > 0]

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
        return np.array(
            [[step.cpu_seconds.of(*phases) if step.cpu_seconds else 0.0 for step in steps] for steps in self.steps]
        ).T

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Means over ranks and steps, by phase; computing has what no phase of its own has."""
        every = [step for steps in self.steps for step in steps]
        wait, sync = (mean(getattr(step, f"{name}_seconds") or 0.0 for step in every) for name in ("wait", "sync"))
        optimiser, whole = mean(step.optimiser_seconds for step in every), mean(step.seconds for step in every)
        return {
            "computing": whole - wait - sync - optimiser,
            "wait": wait,
            "sync": sync,
            "optimiser": optimiser,
            "step": whole,
        }

    @property
    def hidden(self) -> float:
        """Mean seconds of synchronisation behind backward."""
        return mean(step.hidden_sync_seconds or 0.0 for steps in self.steps for step in steps)

    @property
    def between(self) -> float:
        """The median time from the end of a step to the begin of the next one, in which a rank writes its record."""
        gaps = [
            after.at_seconds - before.at_seconds - before.seconds
            for rank in self.run.ranks
            for before, after in pairwise(rank.steps)
        ]
        return max(0.0, median(gaps)) if gaps else 0.0
