"""What a run was, known at its end: summary.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from app.machine.folders import replace_file
from app.records.lines import PhaseSeconds

FILE = "summary.json"

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")  # they add up to the step


@dataclass(frozen=True)
class Spread:
    """A figure over steps."""

    mean: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True)
class Shares:
    """Each phase's share of the steps' time; the shares add up to 1."""

    data: float
    forward: float
    backward: float
    wait: float | None
    sync: float | None
    optimiser: float

    def of(self, *phases: str) -> float:
        """The share of these phases together; one that was not measured adds nothing."""
        return float(sum(getattr(self, phase) or 0.0 for phase in phases))


@dataclass(frozen=True)
class EpochScores:
    """How well a model did on an epoch's images, each as it classified it then, and on the test set afterwards."""

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
    """The scores of an epoch."""


@dataclass(frozen=True)
class Processor:
    """CPU time by phase, and the time without a CPU in which a rank was ready to run; means over steps but the first.

    Its own part of the step: it lies within the phases.
    """

    cpu_seconds: PhaseSeconds
    no_core_seconds: PhaseSeconds | None  # others had the cores
    quota_seconds: PhaseSeconds | None  # the rank's CPU quota had run out
    no_core: float | None  # share of the step
    quota: float | None


@dataclass(frozen=True)
class Figures:
    """The figures that one rank and all ranks together have in common; times are per step, without the first step."""

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
    processor: Processor | None  # null where the records have no account of it
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
        """A phase of the step, or `hidden_sync`."""
        spread: Spread | None = getattr(self, f"{phase}_seconds")
        return spread


@dataclass(frozen=True)
class Straggler:
    """The rank that the others have to wait for."""

    rank: int
    last_in: float  # share of the steps
    work_ratio: float
    work_ratio_low: float | None  # where the true ratio lies, as far as the steps can tell
    work_ratio_high: float | None
    wait_seconds: float | None
    others_wait_seconds: float | None


@dataclass(frozen=True)
class Bandwidth:
    """The size of a step's gradients divided by the time of their synchronisation, as the field counts it."""

    sync_seconds: float
    sync_seconds_at_least: float | None
    algorithm_bytes_per_second: float
    bus_bytes_per_second: float
    link_bytes_per_second: float | None
    utilisation: float | None


@dataclass(frozen=True)
class GroupFigures(Figures):
    """All ranks together."""

    straggler: Straggler | None  # null where no rank is slower than the others beyond the noise
    straggler_undecided: bool  # whether there are too few steps to say
    clock_uncertainty_seconds: float | None
    bandwidth: Bandwidth | None  # null where nothing was sent
    buckets_per_step: float | None  # null in a mode that hides nothing
    wire_rounding_error: float | None = None  # null where nothing was rounded for the wire


@dataclass(frozen=True)
class FirstStep:
    """The step that is left out of the times, because it sets everything up."""

    seconds: float
    data_seconds: float
    forward_seconds: float
    backward_seconds: float
    wait_seconds: float | None
    sync_seconds: float | None
    optimiser_seconds: float


@dataclass(frozen=True)
class UsageFigures:
    """Means over the run, and the most memory."""

    seconds: float
    cpu_user_percent: float
    cpu_system_percent: float
    throttled_seconds: float | None
    most_memory_bytes: int
    network_sent_bytes_per_second: float | None
    network_received_bytes_per_second: float | None


@dataclass(frozen=True)
class LinkUse:
    """The share of a rank's measured link speed that its gradients used."""

    sent_utilisation: float | None
    received_utilisation: float | None

    def direction(self, way: str) -> float | None:
        """`sent` or `received`."""
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
    """One rank."""


@dataclass(frozen=True)
class WallClock:
    """Where the time of the whole run went, all ranks on one clock: the eight parts add up to `seconds` exactly.

    Null is what an earlier version did not record.
    """

    seconds: float | None  # from the start of the first process to the end of the last rank
    start_seconds: float | None  # before the first step, without the links
    links_seconds: float | None  # their measurement
    training_seconds: float  # in which at least one rank was within a step
    gaps_seconds: float | None  # between steps, and none of the other parts
    evaluation_seconds: float | None  # in which at least one rank evaluated, and none was within a step
    saving_seconds: float  # in which at least one rank saved its state, and none did any of these
    lost_seconds: float  # between attempts, with the steps that were taken again
    end_seconds: float | None  # after the last step and evaluation


@dataclass(frozen=True)
class Advice:
    """What to try next."""

    sentence: str
    command: str | None  # null where no setting helps


@dataclass(frozen=True)
class Verdict:
    """What the figures mean, the main point first."""

    bound: str | None
    sentences: list[str]
    advice: Advice | None


@dataclass(frozen=True)
class Summary:
    """A run in figures and sentences."""

    run_name: str
    sync_mode: str
    model: str
    dataset: str
    world_size: int
    global_batch_size: int
    steps_planned: int
    steps: int
    complete: bool
    attempts: int  # how often its ranks were started for it
    repeated_steps: int  # steps that one attempt recorded and a later one took again
    replicas_identical: bool | None  # null where a rank did not finish
    run: GroupFigures
    ranks: list[RankFigures]
    losses: list[float]  # of each step that all ranks have
    warnings: list[str]
    verdict: Verdict
    wall_clock: WallClock | None = None  # null where no rank left a record

    def write(self, run_folder: Path) -> None:
        replace_file(run_folder / FILE, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")


def is_complete(run_folder: Path) -> bool:
    """Whether a run's summary says that it is complete; a summary that was cut off says nothing."""
    try:
        return json.loads((run_folder / FILE).read_text())["complete"] is True
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
