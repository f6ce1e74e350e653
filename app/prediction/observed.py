"""What a run of a calibration has shown: seconds and CPU seconds of its steps, by phase."""

from dataclasses import dataclass
from functools import cached_property
from statistics import mean

import numpy as np

from app.prediction.network import Links
from app.prediction.processor import Cpus
from app.prediction.setup import Setup, setup_of
from app.prediction.waves import Figures
from app.records.lines import Step
from app.settings import environment
from app.settings.fields import Settings
from app.summary.run import Run
from app.summary.run_records import together

COMPUTING = ("data", "forward", "backward")


@dataclass(frozen=True)
class Observed:
    """A run, as far as a calibration looks at it."""

    run: Run
    settings: Settings

    @classmethod
    def of(cls, run: Run, given: dict[str, str]) -> "Observed":
        """With the settings that it was given."""
        return cls(run, environment.of(given))

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
    def setup(self) -> Setup:
        """What its simulation starts from: the links as they were measured, and this host."""
        asked = setup_of(self.settings, self.ranks, cores=self.run.manifest.ranks[0].cores, one_host=True)
        links = [rank.link for rank in self.run.manifest.ranks]
        measured = asked.links
        if all(links):
            rates = [(e.sent.measured_bytes_per_second, e.received.measured_bytes_per_second) for e in links if e]
            measured = Links.of(rates, list(asked.links.burst))
        cpus = Cpus(self.run.manifest.ranks[0].quota_cpus, asked.cpus.shared_cores)
        return Setup(self.settings, self.ranks, measured, cpus)

    def cpu(self, *phases: str) -> Figures:
        """CPU seconds of these phases together, ranks x steps."""
        return np.array(
            [[step.cpu_seconds.of(*phases) if step.cpu_seconds else 0.0 for step in steps] for steps in self.steps]
        ).T

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
    def least_wait(self) -> float:
        """The mean over steps of the shortest wait of a rank: that of the one that came last."""
        return mean(min(step.wait_seconds or 0.0 for step in steps) for steps in self.steps)

    @property
    def background(self) -> float:
        """CPUs that a rank uses beside what its steps use: by the samples of its usage, and by its steps."""
        found = []
        for rank in self.run.ranks:
            warm = [step for step in rank.steps if step.step > 0]
            begin, end = warm[0].at_seconds, warm[-1].at_seconds + warm[-1].seconds
            usage = [each for each in rank.usage if begin <= each.at_seconds - each.seconds and each.at_seconds <= end]
            if usage:
                used = sum((each.cpu_user_percent + each.cpu_system_percent) / 100 * each.seconds for each in usage)
                own = sum(
                    step.cpu_seconds.of(*COMPUTING, "wait", "sync", "optimiser") for step in warm if step.cpu_seconds
                )
                found.append(used / sum(each.seconds for each in usage) - own / (end - begin))
        return max(0.0, mean(found)) if found else 0.0
