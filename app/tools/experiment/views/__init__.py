"""The parts of an experiment's page: four kinds of views."""

from app.tools.experiment.views.bar import BarView, TableView
from app.tools.experiment.views.curve import CurveView
from app.tools.experiment.views.line import LineView
from app.tools.experiment.views.view import View

VIEWS: dict[str, type[View]] = {"line": LineView, "bar": BarView, "curve": CurveView, "table": TableView}
