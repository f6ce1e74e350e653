"""Gathers the manifest of a run before its first step."""

import platform
import time
from collections.abc import Sequence

import numpy
import torch

import app
from app.cluster.link.measured import speed_of
from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import LinkSpeed
from app.extensions import files
from app.machine import process
from app.machine.cpus import fair_share
from app.machine.interfaces import Carried
from app.machine.source import git_revision, package_versions, packages_sha256, source_sha256
from app.modes import MODES
from app.records.manifest import Image, Link, Manifest, ModeCost, Participant, PlannedMessage, Versions
from app.settings.averaging import AveragingSettings
from app.settings.concern import Mark
from app.settings.settings import marked
from app.sync.contract import size_of
from app.sync.exchange import Exchange
from app.sync.modes import mode_class
from app.sync.schedules.costs import NOTHING, Cost, Size
from app.sync.schedules.drawing import MOST_DRAWN_RANKS
from app.training.loop import Job


def gather(
    run: str, job: Job, links: Sequence[Link] | None, carried: Sequence[Sequence[Carried]], warnings: Sequence[str]
) -> Manifest:
    """Collect settings, ranks, links and versions; `links` and `carried` are by rank."""
    settings, cluster, dataset = job.settings, job.cluster, job.dataset
    averaging = settings.averaging
    parameters = list(job.model.parameters())
    size = size_of(parameters, averaging.wire_precision)
    speeds = [speed_of(link) for link in links or []]
    cost = job.sync.cost_for(parameters)
    plain = averaging.compression == "none" and averaging.sync_every is None
    return Manifest(
        run=run,
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        world_size=cluster.world_size,
        settings=settings.values()
        | {
            "train_samples": len(dataset.train),
            "test_samples": len(dataset.test),
            "memory_format": job.numerics.memory_format,
            "global_batch_size": job.plan.global_batch_size,
            "world_size": cluster.world_size,
            "network": settings.place.network if settings.place.all_nodes else None,  # Compose creates its own
            "rank": None,
            "run_name": run,
        },
        plan=job.plan,
        dataset=dataset.source.title,
        parameters=sum(map(torch.numel, parameters)),
        gradient_bytes=size.bytes,
        sync_seconds_at_least=cost.seconds_at_least(size, speeds) if speeds else None,
        ranks=_participants(cluster, cost, size, links, carried),
        warnings=list(warnings),
        versions=Versions(
            lockstep=app.__version__,
            python=platform.python_version(),
            torch=torch.__version__,
            numpy=numpy.__version__,
            kernel=platform.release(),
            blas=process.blas(),
        ),
        image=Image(
            git_revision=git_revision(),
            source_sha256=source_sha256(files.sources(settings.own)),
            system=_system(),
            packages_sha256=packages_sha256(),
            package_versions=package_versions(),
        ),
        given=settings.values(only=settings.given - marked(Mark.OF_ONE_START)),
        modes=_modes(averaging, size, speeds) if speeds and plain else None,
        dataset_sha256=dataset.sha256,
        messages=_messages(averaging, size, cluster.world_size) if plain else None,
    )


def _messages(averaging: AveragingSettings, size: Size, ranks: int) -> list[PlannedMessage] | None:
    mode = mode_class(averaging.sync_mode)
    if not issubclass(mode, Exchange) or not 1 < ranks <= MOST_DRAWN_RANKS:
        return None
    schedule = mode.schedule(size.elements, ranks, averaging)
    if schedule is None:
        return None
    return [
        PlannedMessage(number, each.sender, each.receiver, round(len(each.piece) * size.element_bytes))
        for number, messages in enumerate(schedule.rounds)
        for each in messages
    ]


def _modes(averaging: AveragingSettings, size: Size, speeds: Sequence[LinkSpeed]) -> dict[str, ModeCost]:
    """The least synchronisation time of every mode that synchronises, for these gradients on these links."""
    classes = {name: mode_class(name) for name in dict.fromkeys([*MODES, averaging.sync_mode])}
    return {
        name: ModeCost(cost.seconds_at_least(size, speeds), hides=not mode.explicit)
        for name, mode in classes.items()
        if (cost := mode.cost_of(averaging)) is not NOTHING
    }


def _participants(
    cluster: Cluster,
    cost: Cost,
    size: Size,
    links: Sequence[Link] | None,
    carried: Sequence[Sequence[Carried]],
) -> list[Participant]:
    machines = [member.machine for member in cluster.members]
    return [
        Participant(
            rank=member.rank,
            name=member.name,
            address=member.address,
            threads=member.threads,
            cores=len(member.machine.cores),
            quota_cpus=member.machine.quota_cpus,
            fair_share_cpus=fair_share(member.machine, machines),
            memory_bytes=member.machine.memory_bytes,
            cpu_model=member.machine.cpu_model,
            host_boot_id=member.machine.boot_id,
            interface=member.interface,
            formula_bytes_sent_per_step=cost.bytes_sent(size, member.rank, cluster.world_size),
            link=links[member.rank] if links else None,
            kernel=member.machine.kernel,
            congestion_control=member.machine.congestion_control,
            interfaces=list(carried[member.rank]),
        )
        for member in cluster.members
    ]


def _system() -> str | None:
    return platform.freedesktop_os_release().get("PRETTY_NAME")
