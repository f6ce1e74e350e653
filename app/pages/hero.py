"""The head of a run's page: its title, an average step as one bar, and the main figures."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.analysis import measures
from app.analysis.run import Run
from app.analysis.units import digits
from app.analysis.words import duration, percent
from app.machine.say import counted
from app.records.lines import PHASES

MODELS = {"vgg11": "VGG-11", "lenet5": "LeNet-5", "resnet18": "ResNet-18"}
NAMED = 0.075  # of the step: a narrower part has no room for its name


def title(run: Run) -> str:
    model = run.summary.model
    ranks = counted(run.summary.world_size, "rank")
    return f"{MODELS.get(model, model)}, {run.averaging}, {ranks}"


@dataclass(frozen=True)
class Part:
    """A phase of the step."""

    name: str
    role: str
    share: float

    @property
    def percent(self) -> str:
        return percent(self.share)

    @property
    def narrow(self) -> bool:
        return self.share < NAMED

    @property
    def words(self) -> str:
        return f"{self.name}: {percent(self.share, 1)} of the step"


def step_bar(run: Run) -> tuple[list[Part], str] | None:
    """None if only the first step was recorded."""
    figures = run.summary.run
    seconds = figures[measures.STEP.mean]
    shares = {phase: figures[measures.SHARES[phase]] for phase in PHASES}
    shown = [Part(phase, phase, share) for phase, share in shares.items() if share]
    if seconds is None or not shown:
        return None
    narrow = [f"{part.name} {percent(part.share, 1)}" for part in shown if part.narrow]
    hidden = figures[measures.HIDDEN_SYNC.mean]
    more = [
        *([f"Narrow parts: {', '.join(narrow)}."] if narrow else []),
        *([f"Behind backward, {duration(hidden)} of synchronisation are hidden."] if hidden else []),
    ]
    mean = "mean over all ranks" if run.summary.world_size > 1 else "mean"
    return shown, " ".join([f"An average step: {duration(seconds)} ({mean}).", *more])


def tiles(run: Run) -> Iterator[tuple[str, str, str]]:
    """The main figures, each with its unit and meaning."""
    figures, several = run.summary.run, run.summary.world_size > 1
    step, speed = figures[measures.STEP.median], figures[measures.IMAGES_PER_SECOND]
    value, unit = duration(step).split() if step is not None else ("-", "s")
    yield (value, unit, "per step (median)")
    yield (_counted(speed) if speed else "-", "images/s", "all ranks together" if several else "")
    if run.sends:
        for phase, meaning in (("sync", "of the step is exposed synchronisation"), ("wait", "is waiting for others")):
            share = figures[measures.SHARES[phase]]
            yield ("-" if share is None else f"{100 * share:.0f}", "%", meaning)
        yield (_sent(run), "MB", "sent by a rank in a step")
    if run.manifest.settings.get("evaluate") != "never":
        accuracy = figures[measures.ACCURACY]
        yield ("-" if accuracy is None else f"{100 * accuracy:.1f}", "%", "test accuracy")


def _counted(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else digits(number)


def _sent(run: Run) -> str:
    sizes = [size for rank in run.summary.ranks if (size := rank[measures.BYTES_SENT]) is not None]
    return " to ".join(dict.fromkeys(digits(end(sizes) / 1e6) for end in (min, max))) if sizes else "-"
