"""A benchmark, as each rank runs it: join, measure the links, time, leave."""

from argparse import Namespace

import torch

from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.link.measurement import describe, insist_on, measure_links
from app.cluster.wire.communicator import Communicator
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.settings.settings import Settings
from app.tools.benchmark.choice import Choice, StepChoice
from app.tools.benchmark.collectives import compare_collectives
from app.tools.benchmark.overhead import compare_measuring
from app.tools.benchmark.step import compare_steps
from app.tools.benchmark.sync import compare_modes


def benchmark(name: str, options: Namespace, settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    """Take part in a benchmark, as one of the cluster's ranks."""
    cluster = join(settings, identify(settings.place), say, clean_ups)
    torch.set_num_threads(cluster.me.threads)
    with cluster.until_the_end():
        links = measure_links(settings.links, cluster, Communicator(cluster, "while the links were measured"))
        if links and cluster.rank == 0:
            say(describe(links))
        insist_on(links, settings.links, cluster)
        match name:
            case "step":
                compare_steps(settings, cluster, links, StepChoice.of(options), say, clean_ups)
            case "sync":
                compare_modes(settings, cluster, say)
            case "collectives":
                compare_collectives(settings, cluster, Choice.of(options), say)
            case "overhead":
                compare_measuring(settings, cluster, say)
