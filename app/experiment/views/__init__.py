"""What a page can show: one file per view."""

from app.experiment.views.accuracy import Accuracy
from app.experiment.views.break_even import BreakEven
from app.experiment.views.curves import Curves
from app.experiment.views.distance import Distance
from app.experiment.views.epochs import Epochs
from app.experiment.views.exchanges import Exchanges
from app.experiment.views.lines import Lines
from app.experiment.views.losses import Losses
from app.experiment.views.periods import Periods
from app.experiment.views.phases import Phases
from app.experiment.views.savings import Savings
from app.experiment.views.scaling import Scaling
from app.experiment.views.scores import Scores
from app.experiment.views.times import Times
from app.experiment.views.usage import Usage
from app.experiment.views.view import View

VIEWS: dict[str, type[View]] = {
    "times": Times,
    "phases": Phases,
    "lines": Lines,
    "usage": Usage,
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
