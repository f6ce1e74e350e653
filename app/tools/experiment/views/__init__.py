"""The parts of an experiment's page: one file per view."""

from app.tools.experiment.views.accuracy import Accuracy
from app.tools.experiment.views.break_even import BreakEven
from app.tools.experiment.views.curves import Curves
from app.tools.experiment.views.distance import Distance
from app.tools.experiment.views.epochs import Epochs
from app.tools.experiment.views.exchanges import Exchanges
from app.tools.experiment.views.lines import Lines
from app.tools.experiment.views.losses import Losses
from app.tools.experiment.views.periods import Periods
from app.tools.experiment.views.phases import Phases
from app.tools.experiment.views.savings import Savings
from app.tools.experiment.views.scaling import Scaling
from app.tools.experiment.views.scores import Scores
from app.tools.experiment.views.times import Times
from app.tools.experiment.views.usage import UsageByRank
from app.tools.experiment.views.view import View

VIEWS: dict[str, type[View]] = {
    "times": Times,
    "phases": Phases,
    "lines": Lines,
    "usage": UsageByRank,
    "scaling": Scaling,
    "epochs": Epochs,
    "scores": Scores,
    "losses": Losses,
    "curves": Curves,
    "accuracy": Accuracy,
    "distance": Distance,
    "exchanges": Exchanges,
    "break_even": BreakEven,
    "savings": Savings,
    "periods": Periods,
}
