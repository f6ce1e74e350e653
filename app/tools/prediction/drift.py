"""How fast the machine was while a run was made: by the anchors around it, and by the run itself."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from app.errors import SettingError
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.trials import ExperimentPlan, Trial
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.observed import Observed, finished

ANCHOR = {  # as a run of every calibration: its computation says how fast the machine is at the moment
    "MODEL": "vgg11",
    "SYNC_MODE": "none",
    "WORKERS": "3",
    "RANK_CPUS": "0.5",
    "GLOBAL_BATCH_SIZE": "64",
    "MAX_STEPS": "9",
    "WARMUP_STEPS": "0",
    "EVALUATE": "never",
    "LINK_RATE": "1gbit",
}
ANCHOR_NAME = "anchor"
AROUND = 3  # so many anchors before a run and after it tell the drift: their middle, as single ones are disturbed too
MOST_APART = 1.15  # a run's own drift and that of its anchors, one by the other: beyond, it was disturbed
FEW = 3  # runs of which the middle says how long a run takes that nothing disturbs
ASIDE = "disturbed"  # the folder of such runs, in that of the plan


@dataclass(frozen=True)
class Timed:
    """A run, and how slow the machine was."""

    run: Observed
    drift: float  # seconds of the anchors' computation around it, by the calibration's
    own_drift: float  # CPU time of its own data and forward passes, by the calibration's

    @property
    def disturbed(self) -> bool:
        """Whether the machine was much slower or faster during this run than before and after it."""
        return _apart(self.own_drift, self.drift) > MOST_APART


def anchor(number: int) -> Cell:
    return Cell(f"{ANCHOR_NAME} {number}", dict(ANCHOR))


def is_anchor(trial: Trial) -> bool:
    return trial.cell.startswith(f"{ANCHOR_NAME} ")


def reference(calibration: Calibration) -> float:
    """Seconds that the anchor's computation took in the calibration."""
    found = [
        fit.measured["computing"] for fit in calibration.fits if fit.asked.averaging.sync_mode == ANCHOR["SYNC_MODE"]
    ]
    if not found:
        message = f"calibration '{calibration.name}' lacks the reference run. Run scripts/calibrate again."
        raise SettingError(message, "not-calibrated")
    return found[0]


def timed(plan: ExperimentPlan, calibration: Calibration) -> dict[str, Timed]:
    """Every finished run that has an anchor before it and one after it, by the name of its trial."""
    runs, usual = finished(plan), reference(calibration)
    anchors = {each.name for each in plan.trials if is_anchor(each)}
    own = sorted((run for name, run in runs.items() if name in anchors), key=_began)
    found = {}
    for name, run in runs.items():
        before = [each for each in own if _began(each) < _began(run)][-AROUND:]
        after = [each for each in own if _began(each) > _began(run)][:AROUND]
        if name not in anchors and before and after:
            drift = median(each.seconds["computing"] for each in [*before, *after]) / usual
            forward, *_ = calibration.computing[run.settings.training.model].work(run.setup)
            found[name] = Timed(run, drift, _forward_cpu(run) / forward)
    return found


def _began(run: Observed) -> str:
    return run.run.manifest.started_at


def _forward_cpu(run: Observed) -> float:
    return float(run.cpu("data", "forward").mean())


def _apart(one: float, other: float) -> float:
    return max(one / other, other / one)


def unlike_the_others(plan: ExperimentPlan) -> list[str]:
    """The names of a calibration's runs that differ from those of as many images of the same model.

    Of few, nobody can tell which one was disturbed.
    """
    alike: dict[tuple[str, float], dict[str, float]] = {}
    for name, run in finished(plan).items():
        alike.setdefault((run.settings.training.model, run.setup.images), {})[name] = _forward_cpu(run)
    return [
        name
        for seconds in alike.values()
        for name, own in seconds.items()
        if len(seconds) >= FEW and _apart(own, median(seconds.values())) > MOST_APART
    ]


def put_aside(plan: ExperimentPlan, disturbed: Sequence[str]) -> list[str]:
    """Move disturbed runs out of the plan's way, each once, so that they are open again; return their names.

    They will be made after all others. So that there is an anchor after each then, that of before goes with it.
    """
    aside = plan.folder / ASIDE
    moved = [each for each in disturbed if not (aside / each).exists()]
    anchors = [after.name for run, after in pairwise(plan.trials) if run.name in moved and is_anchor(after)]
    for name in [*anchors, *moved]:  # a run last, so that what is cut off is gone on with
        if (plan.folder / name).is_dir():
            aside.mkdir(exist_ok=True)
            shutil.rmtree(aside / name, ignore_errors=True)
            (plan.folder / name).rename(aside / name)
    if moved:
        plan.write(fresh=False)
    return moved


def made_again(plan: ExperimentPlan) -> list[str]:
    return [each.name for each in plan.trials if not is_anchor(each) and (plan.folder / ASIDE / each.name).is_dir()]
