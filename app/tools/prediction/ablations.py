"""The simulation with one of its parts left out, held against the same runs: what each part is worth."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.machine.parallel import on_all_cores
from app.tools.prediction.calibration import Passing
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.network import Links
from app.tools.prediction.processor import Cpus
from app.tools.prediction.rivals import Rated
from app.tools.prediction.verification import Checked, judged

NO_COSTS = Passing(call=0.0, message=0.0, byte=0.0, latency=0.0)

Seconds = Callable[[Forecast], float]  # of a step


def without_messages(own: Forecast) -> float:
    """Exchanges, messages and bytes take no CPU time and wait for nothing but links."""
    model = own.calibration
    free = replace(model, passing=dict.fromkeys(model.passing, NO_COSTS), hidden_byte=0.0)
    return replace(own, calibration=free).seconds


def without_a_limit_of_cpu(own: Forecast) -> float:
    """Each rank has a core to itself."""
    return replace(own, setup=replace(own.setup, cpus=Cpus())).seconds


def without_a_burst(own: Forecast) -> float:
    """Links that have rested carry nothing faster than at their rate."""
    links = own.setup.links
    return replace(own, setup=replace(own.setup, links=Links(links.sends, links.receives, 0 * links.burst))).seconds


def with_the_mean_in_place_of_the_slowest(own: Forecast) -> float:
    """Exchanges begin when ranks have computed for as long as they do in the mean."""
    return own.seconds - own.simulated.mean("wait")


LEFT_OUT: dict[str, Seconds] = {
    "costs of messages": without_messages,
    "the limit of processors": without_a_limit_of_cpu,
    "the burst of links": without_a_burst,
    "the wait for the slowest rank": with_the_mean_in_place_of_the_slowest,
}


def rated(checked: Sequence[Checked]) -> list[Rated]:
    """How far predictions are off without each part."""
    checked = judged(checked)
    pairs = [(lacking, each.forecast) for lacking in LEFT_OUT.values() for each in checked]
    seconds = list(on_all_cores(_seconds, pairs))
    each_time = [seconds[start : start + len(checked)] for start in range(0, len(seconds), len(checked))]
    return [Rated.of(name, checked, found) for name, found in zip(LEFT_OUT, each_time, strict=True)]


def _seconds(pair: tuple[Seconds, Forecast]) -> float:
    lacking, forecast = pair
    return lacking(forecast)
