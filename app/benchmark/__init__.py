"""Benchmarks: what the program's own parts cost, as ratios within one run, because times differ between machines."""

from collections.abc import Callable

import torch

from app.benchmark.sync import compare_modes
from app.join import join
from app.settings import Settings

Say = Callable[[str], None]


def benchmark(name: str, settings: Settings, say: Say) -> None:
    """Take part in a benchmark, as the rank that this process turns out to be."""
    cluster = join(settings, say)
    torch.set_num_threads(cluster.me.threads)
    with cluster.until_the_end():
        {"sync": compare_modes}[name](settings, cluster, say)
