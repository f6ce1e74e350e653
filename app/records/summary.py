"""summary.json: the results of a run, written at its end."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from app.machine.folders import replace_file
from app.records.lines import PhaseSeconds

FILE = "summary.json"

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")  # they add up to the step


@dataclass(frozen=True)
class Spread:
    """Statistics of a figure over steps."""

    mean: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True)
class Shares:
    """Each phase's share of the step time. The shares add up to 1."""

    data: float
    forward: float
    backward: float
    wait: float | None
    sync: float | None
    optimiser: float

    def of(self, *phases: str) -> float:
        """The sum of these phases' shares. A phase that is null counts as 0."""
        return float(sum(getattr(self, phase) or 0.0 for phase in phases))


@dataclass(frozen=True)
class EpochScores:
    """Scores on an epoch's training images, each classified at its own step, and on the test set afterwards."""

    training_samples: int
    training_loss: float | None
    training_accuracy: float | None
    test_loss: float | None
    accuracy: float | None


@dataclass(frozen=True)
class _Numbered:
    epoch: int


@dataclass(frozen=True)
class Epoch(EpochScores, _Numbered):
    """The scores of a numbered epoch."""


@dataclass(frozen=True)
class Processor:
    """CPU time and scheduling delay by phase: means over all steps but the first. The delays are part of the phases."""

    cpu_seconds: PhaseSeconds
    no_core_seconds: PhaseSeconds | None  # others had the cores
    quota_seconds: PhaseSeconds | None  # the rank's CPU quota was used up
    no_core: float | None  # share of the step
    quota: float | None


@dataclass(frozen=True)
class Figures:
    """Figures of one rank or of all ranks together. Times are per step, without the first step."""

    seconds: Spread | None
    data_seconds: Spread | None
    forward_seconds: Spread | None
    backward_seconds: Spread | None
    wait_seconds: Spread | None
    sync_seconds: Spread | None
    hidden_sync_seconds: Spread | None
    exposed_sync_seconds: Spread | None
    optimiser_seconds: Spread | None
    communication_seconds: Spread | None
    batch_norm_seconds: Spread | None
    throttled_seconds: Spread | None
    processor: Processor | None  # null in older records
    shares: Shares | None
    images_per_second: float | None
    bytes_sent_per_step: float | None
    bytes_received_per_step: float | None
    batch_norm_bytes_sent_per_step: float | None
    interface_bytes_sent_per_step: float | None
    interface_bytes_received_per_step: float | None
    formula_bytes_sent_per_step: float
    loss: float | None
    training_samples: int
    training_loss: float | None
    training_accuracy: float | None
    test_loss: float | None
    accuracy: float | None
    epochs: list[Epoch]

    def seconds_of(self, phase: str) -> Spread | None:
        """The figure of a phase, or of `hidden_sync` or `exposed_sync`."""
        spread: Spread | None = getattr(self, f"{phase}_seconds")
        return spread


@dataclass(frozen=True)
class Straggler:
    """The rank that delays the others."""

    rank: int
    last_in: float  # share of the steps
    work_ratio: float
    work_ratio_low: float | None  # confidence interval of the ratio
    work_ratio_high: float | None
    wait_seconds: float | None
    others_wait_seconds: float | None


@dataclass(frozen=True)
class Bandwidth:
    """Algorithm bandwidth (gradient size divided by synchronisation time) and the bandwidths derived from it."""

    sync_seconds: float
    sync_seconds_at_least: float | None
    algorithm_bytes_per_second: float
    bus_bytes_per_second: float
    link_bytes_per_second: float | None
    utilisation: float | None


@dataclass(frozen=True)
class GroupFigures(Figures):
    """Figures of all ranks together."""

    straggler: Straggler | None  # null if no rank is consistently slow
    straggler_undecided: bool  # whether there are too few steps to decide
    clock_uncertainty_seconds: float | None
    bandwidth: Bandwidth | None  # null if nothing was sent
    buckets_per_step: float | None  # null in a mode without overlap
    wire_rounding_error: float | None = None  # null if nothing was rounded for the wire


@dataclass(frozen=True)
class FirstStep:
    """The first step, which is excluded from the other times because it includes initialisation."""

    seconds: float
    data_seconds: float
    forward_seconds: float
    backward_seconds: float
    wait_seconds: float | None
    sync_seconds: float | None
    optimiser_seconds: float


@dataclass(frozen=True)
class UsageFigures:
    """Mean resource usage over the run, and peak memory."""

    seconds: float
    cpu_user_percent: float
    cpu_system_percent: float
    throttled_seconds: float | None
    most_memory_bytes: int
    network_sent_bytes_per_second: float | None
    network_received_bytes_per_second: float | None


@dataclass(frozen=True)
class LinkUse:
    """The fraction of a rank's measured link speed that its gradients used."""

    sent_utilisation: float | None
    received_utilisation: float | None

    def direction(self, way: str) -> float | None:
        return self.sent_utilisation if way == "sent" else self.received_utilisation


@dataclass(frozen=True)
class _RankState:
    rank: int
    steps: int
    finished: bool
    parameters_sha256: str | None
    first_step: FirstStep | None
    work_seconds: float | None
    peak_memory_bytes: int | None
    usage: UsageFigures | None
    link: LinkUse


@dataclass(frozen=True)
class RankFigures(Figures, _RankState):
    """Figures of one rank."""


@dataclass(frozen=True)
class WallClock:
    """The time of the whole run, all ranks on one clock. The eight parts add up to `seconds` exactly.

    Null values were not recorded by an earlier version.
    """

    seconds: float | None  # from the start of the first process to the end of the last rank
    start_seconds: float | None  # before the first step, without measuring the links
    links_seconds: float | None  # measuring the links
    training_seconds: float  # with at least one rank in a step
    gaps_seconds: float | None  # between steps, in none of the other parts
    evaluation_seconds: float | None  # with at least one rank evaluating and none in a step
    saving_seconds: float  # with at least one rank saving its state and none in a step or evaluating
    lost_seconds: float  # between attempts, and the repeated steps
    end_seconds: float | None  # after the last step and evaluation


@dataclass(frozen=True)
class Advice:
    """A recommendation for the next run."""

    sentence: str
    command: str | None  # null if no setting helps


@dataclass(frozen=True)
class Verdict:
    """The interpretation of the figures, most important sentence first."""

    bound: str | None
    sentences: list[str]
    advice: Advice | None


@dataclass(frozen=True)
class Summary:
    """The figures and the verdict of a run."""

    run_name: str
    sync_mode: str
    model: str
    dataset: str
    world_size: int
    global_batch_size: int
    steps_planned: int
    steps: int
    complete: bool
    attempts: int
    repeated_steps: int  # steps recorded by one attempt and repeated by a later one
    replicas_identical: bool | None  # null if a rank did not finish
    run: GroupFigures
    ranks: list[RankFigures]
    losses: list[float]  # of each step that all ranks recorded
    warnings: list[str]
    verdict: Verdict
    wall_clock: WallClock | None = None  # null if no rank has records

    def write(self, run_folder: Path) -> None:
        replace_file(run_folder / FILE, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")


def is_complete(run_folder: Path) -> bool:
    """Whether a run's summary is readable and marks the run as complete."""
    try:
        return json.loads((run_folder / FILE).read_text())["complete"] is True
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
