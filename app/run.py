"""One rank's life: join, build, train, leave; and what rank 0 does for all."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from app import folders, gradient_sync, manifest, models, summary
from app.cluster import Cluster
from app.communicator import Communicator
from app.datasets import prepared
from app.errors import LockstepError, PeerLostError
from app.interrupt import CleanUps
from app.join import join
from app.records import Recorder
from app.settings import Settings
from app.training import Job, Plan, make_plan, train


def run(settings: Settings, say: Callable[[str], None], clean_ups: CleanUps) -> None:
    """Take part in a run, as the rank that this process turns out to be."""
    prepared.check_fit(settings.model, settings.dataset_name)
    dataset = prepared.load(settings.dataset_name)
    run_folder = folders.RESULTS / (settings.run_name or folders.handed_over())
    cluster = join(settings, say)
    torch.set_num_threads(cluster.me.threads)

    model = models.build(settings.model, settings.seed)
    _check_same_start(cluster, model)
    plan = make_plan(settings, len(dataset.train), cluster.world_size)
    run_folder.mkdir(parents=True, exist_ok=True)
    if cluster.rank == 0:
        _open_books(settings, cluster, plan, model, run_folder)
        clean_ups.append(partial(summary.write, run_folder))

    communicator = Communicator(cluster)
    sync = gradient_sync.create(settings.sync_mode, communicator)
    try:
        with Recorder(run_folder, cluster.rank) as recorder, communicator.watching("a step"):
            job = Job(settings, plan, cluster, communicator, sync, model, dataset, recorder, say)
            finished = train(job)
            recorder.write(finished)
        cluster.leave()
    except PeerLostError:
        cluster.linger()
        raise
    finally:
        if cluster.rank == 0:
            summary.write(run_folder)
    if cluster.rank == 0:
        say(
            f"{finished.steps} steps on {cluster.world_size} rank(s) in {finished.seconds:.1f} s. Results: {run_folder}"
        )


def _check_same_start(cluster: Cluster, model: nn.Module) -> None:
    hashes = cluster.exchange("first-parameters", models.parameters_sha256(model))
    if different := [rank for rank, each in enumerate(hashes) if each != hashes[0]]:
        raise LockstepError(
            f"rank {cluster.rank}: ranks {different} start from other parameters than rank 0, with the same seed. "
            "Do all run the same image on the same kind of CPU?"
        )


def _open_books(settings: Settings, cluster: Cluster, plan: Plan, model: nn.Module, run_folder: Path) -> None:
    gradient_bytes = [parameter.nbytes for parameter in model.parameters()]
    formula = gradient_sync.mode_class(settings.sync_mode).bytes_sent_per_step(gradient_bytes, cluster.world_size)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    manifest.write(run_folder, settings, cluster, plan, parameters, formula)
