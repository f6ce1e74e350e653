"""The simulation with one of its parts left out, held against the same runs: what each part is worth."""

from collections.abc import Sequence
from dataclasses import replace

from app.machine.parallel import on_all_cores
from app.prediction.calibration import Passing
from app.prediction.forecast import Forecast
from app.prediction.network import Links
from app.prediction.processor import Cpus
from app.prediction.rivals import Rated
from app.prediction.verification import Checked, judged

NO_COSTS = Passing(call=0.0, message=0.0, byte=0.0, latency=0.0)


def without_messages(own: Forecast) -> Forecast:
    """Exchanges, messages and bytes take no CPU time and wait for nothing but links."""
    model = own.calibration
    return replace(own, calibration=replace(model, passing=dict.fromkeys(model.passing, NO_COSTS), hidden_byte=0.0))


def without_a_limit_of_cpu(own: Forecast) -> Forecast:
    """Each rank has a core to itself."""
    return replace(own, setup=replace(own.setup, cpus=Cpus()))


def without_a_burst(own: Forecast) -> Forecast:
    """Links that have rested carry nothing faster than at their rate."""
    links = own.setup.links
    return replace(own, setup=replace(own.setup, links=Links(links.sends, links.receives, 0 * links.burst)))


def with_the_mean_in_place_of_the_slowest(own: Forecast) -> Forecast:
    """All ranks compute as long as each other in a step."""
    computing = own.calibration.computing
    alike = {name: replace(each, own_spread=[1.0]) for name, each in computing.items()}
    return replace(own, calibration=replace(own.calibration, computing=alike))


LEFT_OUT = {
    "costs of messages": without_messages,
    "the limit of processors": without_a_limit_of_cpu,
    "the burst of links": without_a_burst,
    "differences between ranks": with_the_mean_in_place_of_the_slowest,
}


def rated(checked: Sequence[Checked]) -> list[Rated]:
    """How far predictions are off without each part."""
    checked = judged(checked)
    changed = [leave_out(each.forecast) for leave_out in LEFT_OUT.values() for each in checked]
    seconds = list(on_all_cores(_seconds, changed))
    each_time = [seconds[start : start + len(checked)] for start in range(0, len(seconds), len(checked))]
    return [Rated.of(name, checked, found) for name, found in zip(LEFT_OUT, each_time, strict=True)]


def _seconds(forecast: Forecast) -> float:
    return forecast.seconds
