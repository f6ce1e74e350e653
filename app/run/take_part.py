"""The work of one rank once the group has formed: measure the links, build the job, train, record."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from signal import SIGTERM

import torch

from app.cluster.link.measured import deviations
from app.cluster.link.measurement import describe, insist_on, measure_links
from app.cluster.members import Cluster
from app.cluster.sharing import oversubscription, unlike
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator
from app.errors import StoppedError, UnequalRanksError
from app.machine import folders, interfaces, process
from app.machine.interfaces import Carried
from app.machine.interrupt import stopping_on_signal
from app.machine.say import Say
from app.records import journal
from app.records.journal import Recorder
from app.records.lines import Finished, Step
from app.records.manifest import FILE, Link, TrainingPlan
from app.run import attempts, health, manifest, resume
from app.settings.settings import Settings
from app.training import models
from app.training.checkpoint.keeper import Found, Keeper
from app.training.datasets.prepared import DataSet
from app.training.loop import MEMORY_FORMAT, THREADS, Job, ResumePoint, make_job, too_few_epochs, train
from app.training.mean_check import warn_if_not_checked
from app.training.numerics import slow_bfloat16
from app.training.saving import Saving
from app.training.straggler import slowed_on_purpose
from app.training.usage import UsageSampler


def take_part(settings: Settings, cluster: Cluster, dataset: DataSet, run_folder: Path, say: Say) -> Finished:
    """Train as one rank of a formed group, and write the records to the run's folder."""
    attempt = cluster.attempt
    torch.set_num_threads(cluster.me.threads)
    began = time.monotonic()
    _check_same(cluster, "data set", dataset.sha256, "If make() draws random numbers, use a fixed seed.")
    links = measure_links(settings.links, cluster, Communicator(cluster, "while the links were measured"))
    measured = time.monotonic()
    run_folder.mkdir(parents=True, exist_ok=True)
    keeper = Keeper(cluster, run_folder, attempt)
    found = _find(cluster, keeper, say) if attempt else None
    numbers = found.state.numbers if found else {}
    torch.set_num_threads(numbers.get(THREADS, cluster.me.threads))
    job = make_job(settings, cluster, dataset, say, numbers.get(MEMORY_FORMAT))
    _check_same(
        cluster,
        "initial parameters, despite the same seed",
        models.parameters_sha256(job.model),
        "Run the same image on the same CPU model everywhere.",
    )
    everyones = cluster.exchange("interfaces", [asdict(each) for each in interfaces.carried()])
    if cluster.rank == 0:
        _record_run(job, run_folder, links, [[Carried(**each) for each in own] for own in everyones])
    insist_on(links, settings.links, cluster)

    steps_of_epoch = _steps_of_epoch(run_folder, cluster.rank, found.step if found else 0, job.plan)
    # This also watches messages that bypass the communicator, such as DistributedDataParallel's first broadcast.
    own = f"training with {settings.averaging.sync_mode}"
    with Recorder(run_folder, cluster.rank, attempt) as recorder, job.communicator.watching(own, waits=False):
        comparing = Communicator(cluster, "while clocks were compared")
        zero = attempts.clock_began(run_folder) if cluster.rank == 0 and attempt else None
        clock = RunClock(cluster, comparing, zero)
        if cluster.rank == 0 and zero is None:
            attempts.keep_clock(run_folder, clock.began)
        recorder.write(
            replace(
                clock.start,
                process_at_seconds=clock.since(process.began()),
                links_at_seconds=clock.since(began),
                links_seconds=measured - began,
            )
        )
        saving = None
        if settings.recovery.checkpoint_every:
            saving = Saving(cluster, keeper, settings.recovery.checkpoint_every, job.plan.steps, recorder, clock)
        usage = UsageSampler(cluster, clock, recorder, settings.measuring.usage_interval)
        with health.reported(cluster, recorder), _stopping_on_signal(cluster, saving), usage:
            finished = train(job, recorder, clock, saving, ResumePoint(found, steps_of_epoch))
        recorder.write(clock.compare(comparing))
        ended = clock.since(time.monotonic())
        peak = process.peak_memory_bytes()
        recorder.write(
            replace(
                finished, restarts=attempt, at_seconds=ended, interfaces=interfaces.carried(), peak_memory_bytes=peak
            )
        )
    return finished


@contextmanager
def _stopping_on_signal(cluster: Cluster, saving: Saving | None) -> Iterator[None]:
    """On a signal, all ranks save and stop after the same step. Without checkpoints, the signal ends the process."""
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        cluster.detector.stopping.ask()

    if saving is None:
        yield
        return
    try:
        with stopping_on_signal(stop):
            yield
    except StoppedError as stopped:
        stopped.exit_code = 128 + (signals or [SIGTERM])[0]
        raise


def _find(cluster: Cluster, keeper: Keeper, say: Say) -> Found | None:
    """The newest checkpoint that every rank holds; None if the run starts at step 0."""

    def warn(message: str) -> None:
        print(f"warning: {message}", file=sys.stderr, flush=True)

    found = keeper.find(warn)
    if cluster.rank == 0:
        say(
            f"attempt {cluster.attempt} resumes at step {found.step}"
            if found
            else f"attempt {cluster.attempt} starts at step 0: no checkpoint is complete on every rank"
        )
    return found


def _steps_of_epoch(run_folder: Path, rank: int, step: int, plan: TrainingPlan) -> list[Step]:
    """This rank's records of the steps before `step` in the same epoch."""
    if not step or not journal.path_of(run_folder, rank).is_file():
        return []
    missing = set(range(step - step % plan.steps_per_epoch, step))
    newest: dict[int, Step] = {}
    records = journal.read_backwards(run_folder, rank)
    while missing and (record := next(records, None)):
        if isinstance(record, Step) and record.step in missing:
            newest[record.step] = record
            missing.remove(record.step)
    return [newest[number] for number in sorted(newest)]


def _record_run(job: Job, run_folder: Path, links: Sequence[Link] | None, carried: Sequence[Sequence[Carried]]) -> None:
    """Write the manifest, and print the warnings that readers of the figures need."""
    printed = [warning] if (warning := oversubscription(job.cluster.members)) else []  # printed at the join
    warnings = [
        *_warnings(job),
        *_neighbours(run_folder.name),
        *(f"a link misses the requested value: {each}" for each in deviations(links or [])),
    ]
    every = [*printed, *warnings]
    run = run_folder.name
    if (run_folder / FILE).is_file():  # written by an earlier attempt
        cpu_models = [member.machine.cpu_model for member in job.cluster.members]
        warnings += resume.warn_about_platform(run_folder, cpu_models, job.dataset.sha256)
    else:
        manifest.gather(run, job, links, carried, every).write(run_folder)
    if run_folder.parent == folders.RESULTS:
        folders.point_latest_at(run)
    for line in [*([describe(links)] if links else []), *(f"warning: {warning}" for warning in warnings)]:
        job.say(line)


def _check_same(cluster: Cluster, what: str, sha256: str | None, remedy: str) -> None:
    """Refuse to train if the ranks differ in their model or data."""
    everyones = cluster.exchange(f"checksum of the {what}", sha256)
    if different := [rank for rank, each in enumerate(everyones) if each != everyones[0]]:
        raise UnequalRanksError(f"rank {cluster.rank}: ranks {different} differ from rank 0 in their {what}. {remedy}")


def _neighbours(run: str) -> Sequence[str]:
    """The warning of `prepare` about other clusters; none under other launchers."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    return [ticket.neighbours] if ticket and ticket.run == run and ticket.neighbours else []


def _warnings(job: Job) -> list[str]:
    """Warnings for readers of the figures, other than those of the join."""
    members = job.cluster.members
    possible = (
        too_few_epochs(job.settings.training, job.plan),
        slow_bfloat16(job.settings.training.precision, members),
        slowed_on_purpose(job.settings.place),
        unlike(members),
        warn_if_not_checked(job.sync, job.settings.averaging, job.cluster.world_size),
    )
    return [each for each in possible if each]
