"""How fast the machine was while a run was made: by the anchors around it, and by the run itself."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from app.errors import SettingError
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.trials import ExperimentPlan, Trial
from app.tools.experiment.results import Results
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.observed import Observed

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
    return Cell(f"{ANCHOR_NAME} {number}", dict(ANCHOR), {})


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


def timed(results: Results, calibration: Calibration) -> dict[str, Timed]:
    """Every finished run that has an anchor before it and one after it, by the name of its trial."""
    observed = [
        (trial, Observed.of(found, trial.settings))
        for trial in results.plan.finished()
        if (found := results.run(trial.cell, trial.round))
    ]
    anchors = sorted((run for trial, run in observed if is_anchor(trial)), key=_began)
    usual = reference(calibration)
    timed = {}
    for trial, run in observed:
        before = [each for each in anchors if _began(each) < _began(run)][-AROUND:]
        after = [each for each in anchors if _began(each) > _began(run)][:AROUND]
        if not is_anchor(trial) and before and after:
            drift = median(each.seconds["computing"] for each in [*before, *after]) / usual
            timed[trial.name] = Timed(run, drift, _own_drift(run, calibration))
    return timed


def _began(run: Observed) -> str:
    return run.run.manifest.started_at


def _own_drift(run: Observed, calibration: Calibration) -> float:
    forward, *_ = calibration.computing[run.settings.training.model].work(run.setup)
    return _forward_cpu(run) / forward


def _forward_cpu(run: Observed) -> float:
    return float(run.cpu("data", "forward").mean())


def _apart(one: float, other: float) -> float:
    return max(one / other, other / one)


def put_aside(results: Results, calibration: Calibration) -> list[str]:
    """Move disturbed runs out of the plan's way, each once, so that they are open again; return their names.

    They will be made after all others. So that there is an anchor after each then, that of before goes with it.
    """
    plan = results.plan
    found = timed(results, calibration).items()
    moved = _for_the_first_time(plan, [name for name, run in found if run.disturbed])
    next_ones = {run.name: after.name for run, after in pairwise(plan.trials)}
    _move(plan, [*(next_ones[each] for each in moved), *moved])  # a run last, so that what is cut off is gone on with
    return moved


def put_aside_of_calibration(plan: ExperimentPlan, runs: Sequence[Observed]) -> list[str]:
    """The same for runs of a calibration: they are compared with those of as many images of the same model."""
    alike: dict[tuple[str, float], list[Observed]] = {}
    for each in runs:
        alike.setdefault((each.settings.training.model, each.setup.images), []).append(each)
    disturbed = [each.run.folder.name for those in alike.values() for each in _unlike_the_others(those)]
    moved = _for_the_first_time(plan, disturbed)
    _move(plan, moved)
    return moved


def _unlike_the_others(runs: Sequence[Observed]) -> list[Observed]:
    """Of few, nobody can tell which one was disturbed."""
    seconds = [_forward_cpu(each) for each in runs]
    usual = median(seconds)
    return [
        each for each, own in zip(runs, seconds, strict=True) if len(runs) >= FEW and _apart(own, usual) > MOST_APART
    ]


def _for_the_first_time(plan: ExperimentPlan, names: Sequence[str]) -> list[str]:
    return [each for each in names if not (plan.folder / ASIDE / each).exists()]


def _move(plan: ExperimentPlan, names: Sequence[str]) -> None:
    if not names:
        return
    aside = plan.folder / ASIDE
    aside.mkdir(exist_ok=True)
    for name in dict.fromkeys(names):
        if (plan.folder / name).is_dir():
            shutil.rmtree(aside / name, ignore_errors=True)
            (plan.folder / name).rename(aside / name)
    plan.write(fresh=False)


def made_again(plan: ExperimentPlan) -> list[str]:
    return [each.name for each in plan.trials if not is_anchor(each) and (plan.folder / ASIDE / each.name).is_dir()]
