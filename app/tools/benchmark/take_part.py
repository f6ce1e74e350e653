"""A benchmark, as each rank runs it: join, measure the links, time, leave. Rank 0 writes results/benchmarks/."""

import json
import platform
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import app
from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.link.measurement import describe, insist_on, measure_links
from app.cluster.members import Cluster
from app.cluster.sharing import oversubscription
from app.cluster.wire.bandwidth import CENTRE
from app.cluster.wire.communicator import Communicator
from app.machine import cpus, folders, source
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.settings.settings import Settings
from app.tools.benchmark.choice import CollectivesChoice, StepChoice
from app.tools.benchmark.collectives import compare_collectives
from app.tools.benchmark.step import compare_steps
from app.tools.benchmark.sync import compare_modes

FOLDER = folders.RESULTS / "benchmarks"


def benchmark(name: str, options: Namespace, settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    cluster = join(settings, identify(settings.place), say, clean_ups)
    torch.set_num_threads(cluster.me.threads)
    speak: Say = say if cluster.rank == CENTRE else lambda _: None
    with cluster.until_the_end():
        links = measure_links(settings.links, cluster, Communicator(cluster, "while the links were measured"))
        if links:
            speak(describe(links))
        insist_on(links, settings.links, cluster)
        match name:
            case "step":
                choice = StepChoice(options.only, options.rounds, options.steps)
                found = compare_steps(settings, cluster, links, choice, speak, clean_ups)
            case "sync":
                found = compare_modes(settings, cluster, speak)
            case _:
                chosen = CollectivesChoice(options.operations, options.smallest, options.largest, options.ranks)
                found = compare_collectives(settings, cluster, chosen, speak)
        if cluster.rank == CENTRE:
            say(f"\nAll samples: {_write(name, found, settings, cluster)}")


def _write(name: str, found: dict[str, Any], settings: Settings, cluster: Cluster) -> Path:
    """All samples, with the program, the settings and the machines that they come from."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    folders.check_writable(FOLDER)
    whole = {
        "benchmark": name,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": {
            "instructions": cpus.instructions(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "lockstep": app.__version__,
            "git_revision": source.git_revision(),
            "source_sha256": source.source_sha256(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME"),
        },
        "settings": settings.values(),
        "ranks": [asdict(member) for member in cluster.members],  # with their CPUs, quotas and kernels
        "shared_cores": oversubscription(cluster.members),
    }
    path = FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}.json"
    folders.replace_file(path, json.dumps(whole | found, indent=1) + "\n")
    return path
