"""`schedule`: the messages between ranks, their bytes, and the least time that they take on given links."""

from collections.abc import Iterator

from app import sync
from app.cluster.wire.bandwidth import LinkSpeed
from app.errors import SettingError
from app.machine.say import Say, counted
from app.settings.settings import Settings
from app.sync.contract import size_of
from app.sync.exchange import Exchange
from app.sync.modes import mode_class
from app.sync.schedules import drawing
from app.training import models
from app.training.datasets import source_of
from app.training.numerics import DTYPES

DRAWN_ELEMENTS = 840  # divisible by every number of ranks up to 8
MEGA = 1e6


def show(settings: Settings, say: Say) -> None:
    for line in _lines(settings):
        say(line)


def _lines(settings: Settings) -> Iterator[str]:
    ranks = settings.place.world_size or settings.place.workers + 1
    if ranks > drawing.MOST_DRAWN_RANKS:
        raise SettingError(
            f"WORKERS={settings.place.workers}: too many to draw. Give at most {drawing.MOST_DRAWN_RANKS - 1}."
        )
    settings.check_ranks(ranks)
    averaging = settings.averaging
    mode = mode_class(averaging.sync_mode)
    schedule = mode.schedule(DRAWN_ELEMENTS, ranks, averaging) if issubclass(mode, Exchange) else None
    yield f"{averaging.sync_mode} on {counted(ranks, 'rank')}"
    if schedule is None:
        yield (
            "No drawing: the backend chooses this mode's messages." if averaging.sync_mode != "none" else "No messages."
        )
    elif ranks > 1:
        yield from drawing.draw(schedule, ranks)
        yield drawing.legend(schedule)
    yield from _costs(settings, ranks)


def _costs(settings: Settings, ranks: int) -> Iterator[str]:
    averaging, training = settings.averaging, settings.training
    dtype, classes = DTYPES[training.precision], source_of(training.dataset).classes
    parameters = list(models.build(training.model, averaging.seed, dtype, classes=classes).parameters())
    size, cost = size_of(parameters, averaging.wire_precision), sync.cost_of(averaging, parameters)
    sent = [cost.bytes_sent(size, rank, ranks) for rank in range(ranks)]
    when = f"every {averaging.sync_every} steps" if averaging.sync_every else "per step"
    compressed = f", {averaging.compression}" if averaging.compression != "none" else ""
    megabytes = ", ".join(f"{each / MEGA:.3f}" for each in sent)
    yield f"{training.model}{compressed}, {size.bytes / MEGA:.3f} MB of gradients. MB sent {when}, by rank: {megabytes}"
    if settings.links.link_rate is not None and ranks > 1:
        rates = [(settings.links.of(rank).bits_per_second or 0.0) / 8 for rank in range(ranks)]
        links = [LinkSpeed(rate, rate) for rate in rates]
        yield f"At {settings.links.link_rate}, they take at least {1e3 * cost.seconds_at_least(size, links):.3g} ms."
