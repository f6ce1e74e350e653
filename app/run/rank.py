"""One rank's life: join, build, train, leave; and what rank 0 does for all."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from signal import SIGTERM

import torch

from app.cluster.identity import Identity, identify
from app.cluster.join import join
from app.cluster.link.measured import deviations
from app.cluster.link.measurement import describe, insist_on, measure_links
from app.cluster.members import Cluster
from app.cluster.sharing import oversubscription, unlike
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator
from app.errors import JoinError, LockstepError, StoppedError, UnequalRanksError, WriteError
from app.extensions.loading import blamed
from app.machine import folders, interfaces, process
from app.machine.interfaces import Carried
from app.machine.interrupt import CleanUps, stopping_on_signal, take_the_end
from app.machine.say import Say
from app.pages.conclusion import conclude
from app.records import lines
from app.records.lines import Finished, Recorder, Step
from app.records.manifest import FILE, Link, Plan
from app.records.places import ATTEMPTS
from app.records.summary import Summary, is_complete
from app.run import attempts, health, manifest, resume
from app.run.attempts import Begun
from app.run.homecoming import bring_home
from app.run.prepare import find_or_open_run
from app.settings.fields import Settings
from app.training import models
from app.training.checkpoint.keeper import Found, Keeper
from app.training.datasets import prepared
from app.training.datasets.prepared import DataSet
from app.training.loop import MEMORY_FORMAT, THREADS, GoingOn, Job, make_job, too_few_epochs, train
from app.training.numerics import slow_bfloat16
from app.training.saving import Saving
from app.training.straggler import slowed_on_purpose
from app.training.usage import UsageSampler


def run(settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    """Take part in a run, as one of its ranks; or find that it is over."""
    begun = attempts.begun_before() if settings.restarts else None
    try:
        if not (begun and is_complete(begun.folder)):
            if begun:
                attempts.refuse_what_comes_again(begun)
            _take_part_or_finish(settings, begun, say, clean_ups)
            return
    except JoinError:
        # Whoever was killed in the very end, and started again, finds nobody.
        if not (begun and is_complete(begun.folder)):
            raise
    say(f"{begun.folder} has finished")


def _take_part_or_finish(settings: Settings, begun: Begun | None, say: Say, clean_ups: CleanUps) -> None:
    prepared.check_fit(settings.model, settings.dataset_name)
    prepared.make_if_missing(settings.dataset_name, say, clean_ups)
    dataset = prepared.load_for(settings)
    identity = identify(settings, begun.seats, lambda: is_complete(begun.folder)) if begun else identify(settings)
    if identity.rank != 0:
        _go_through(settings, identity, dataset, say, clean_ups)
        return
    # Where rank 0 was killed after the last farewell, only the report is missing.
    if begun and attempts.everyone_has_finished(begun.folder):
        summary = conclude(begun.folder)
        if summary and summary.complete:
            _tell_the_end(begun.folder, summary, say)
            return
    run = begun.run if begun else find_or_open_run(settings, say)
    is_last = (len(begun.attempts) if begun else 0) >= settings.restarts
    with _at_the_head(settings, run, identity, clean_ups) as attempt:
        try:
            _go_through(settings, identity, dataset, say, clean_ups, Opened(run, attempt, is_last))
        except LockstepError as error:
            attempts.end(folders.RESULTS / run, attempt, error)
            if begun and is_last and not isinstance(error, StoppedError):
                error.add_note(
                    f"MAX_RESTARTS={settings.restarts} is used up. What became of each attempt:\n"
                    f"{attempts.diagnosis(begun.folder)}"
                )
            raise


@dataclass(frozen=True)
class Opened:
    """The run and the attempt that rank 0 has opened for all."""

    run: str
    attempt: int
    is_last: bool  # whether no other follows if it fails


@contextmanager
def _at_the_head(settings: Settings, run: str, identity: Identity, clean_ups: CleanUps) -> Iterator[int]:
    """Rank 0: while it holds the run's folder, no other command goes on with this run. Gives the attempt's number."""
    folder = folders.RESULTS / run
    with ExitStack() as until_the_end:
        if not settings.restarts:
            # Only rank 0 removes the folder of a run that did not begin: others may fail while it writes a file.
            until_the_end.enter_context(folders.gone_if_empty(folder, clean_ups, ATTEMPTS))
        with _saying_what_cannot_be_written(0):
            if not until_the_end.enter_context(folders.held(folder)):
                raise LockstepError(f"rank 0: {folder} is in use by another cluster that has resumed the same run.")
            attempt = attempts.begin(folder, identity.seats)
        yield attempt


def _go_through(
    settings: Settings,
    identity: Identity,
    dataset: DataSet,
    say: Say,
    clean_ups: CleanUps,
    opened: Opened | None = None,
) -> None:
    """Join, train, bring the records home and, as rank 0, make the report."""
    cluster = join(settings, identity, say, clean_ups, opened.attempt if opened else 0)
    run_folder = folders.RESULTS / _agreed_name(cluster, opened)
    if opened:
        clean_ups.append(lambda: _leave_records(cluster, run_folder, opened))
    finished: Finished | None = None
    stopped: StoppedError | None = None
    try:
        own = blamed(*settings.own.values(), who=f"rank {cluster.rank}: ")
        with cluster.until_the_end(), _saying_what_cannot_be_written(cluster.rank), own:
            try:
                finished = take_part(settings, cluster, dataset, run_folder, say)
            except StoppedError as error:
                stopped = error
            bring_home(cluster, run_folder)
    except BaseException as error:
        # Another attempt would have to wait for the report.
        if opened and (opened.is_last or getattr(error, "comes_again", False)):
            _try_to_conclude(run_folder)
        raise
    take_the_end()
    with _saying_what_cannot_be_written(cluster.rank):
        summary = conclude(run_folder) if cluster.rank == 0 else None
    if cluster.rank == 0 and summary is None:
        raise WriteError(
            f"rank 0: {run_folder} is not there any more, and with it the records of this run. "
            "Was it removed or renamed? Start the run again, or move it back: scripts/report makes the report."
        )
    if stopped:
        raise stopped
    if summary and finished:
        took = f"in {cluster.attempt + 1} attempts, the last one of" if cluster.attempt else "in"
        _tell_the_end(run_folder, summary, say, f"{took} {finished.seconds:.1f} s")


def _leave_records(cluster: Cluster, run_folder: Path, opened: Opened) -> None:
    """Where another thread ends the process: on a signal, or after a loss that the training did not notice."""
    if loss := cluster.roll_call.loss:
        attempts.end(run_folder, opened.attempt, cluster.failure(loss))
    if not loss or loss.comes_again or opened.is_last:
        conclude(run_folder)


def _tell_the_end(run_folder: Path, summary: Summary, say: Say, took: str = "") -> None:
    say(summary.verdict.sentences[0])
    if (advice := summary.verdict.advice) and advice.command:
        say(f"To try next: {advice.command}")
    steps = f"{summary.steps} steps on {summary.world_size} rank(s)"
    say(f"{steps}{f' {took}' if took else ''}. Results: {run_folder}")
    say(f"Report: {run_folder / folders.REPORT}")


def _agreed_name(cluster: Cluster, opened: Opened | None) -> str:
    """The run's name, from rank 0: other machines' folders may hold other runs."""
    name = cluster.exchange("run", opened.run if opened else None)[0]
    if name is None or not folders.RUN_NAME.fullmatch(name):
        raise LockstepError(f"rank {cluster.rank}: rank 0 has given the run no name that a folder can have.")
    return name


@contextmanager
def _saying_what_cannot_be_written(rank: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"rank {rank}: {folders.unwritten(error)}") from None


def _try_to_conclude(run_folder: Path) -> None:
    """Make the report of a run that failed; where that fails too, a line says so, and the first error stays first."""
    try:
        conclude(run_folder)
    except (LockstepError, OSError) as error:
        reason = folders.unwritten(error) if isinstance(error, OSError) else str(error)
        print(f"the report of what was recorded could not be made: {reason}", file=sys.stderr, flush=True)


def take_part(settings: Settings, cluster: Cluster, dataset: DataSet, run_folder: Path, say: Say) -> Finished:
    """Train as one rank of a formed group, and leave the records in the run's folder."""
    attempt = cluster.attempt
    torch.set_num_threads(cluster.me.threads)
    began = time.monotonic()
    _check_same(cluster, "data set", dataset.sha256, "A make() that draws numbers needs a seed of its own.")
    links = measure_links(settings, cluster, Communicator(cluster, "while the links were measured"))
    measured = time.monotonic()
    run_folder.mkdir(parents=True, exist_ok=True)
    keeper = Keeper(cluster, run_folder, attempt)
    found = _find(cluster, keeper, say) if attempt else None
    numbers = found.state.numbers if found else {}
    torch.set_num_threads(numbers.get(THREADS, cluster.me.threads))
    job = make_job(settings, cluster, dataset, say, numbers.get(MEMORY_FORMAT))
    _check_same(
        cluster,
        "first parameters, despite the same seed",
        models.parameters_sha256(job.model),
        "Check that all run the same image on the same kind of CPU.",
    )
    everyones = cluster.exchange("interfaces", [asdict(each) for each in interfaces.carried()])
    if cluster.rank == 0:
        _open_books(job, run_folder, links, [[Carried(**each) for each in own] for own in everyones])
    insist_on(links, settings, cluster)

    epoch_so_far = _epoch_so_far(run_folder, cluster.rank, found.step if found else 0, job.plan)
    # This watches what a mode sends past the communicator, such as DistributedDataParallel's first broadcast.
    own = f"training with {settings.sync_mode}"
    with Recorder(run_folder, cluster.rank, attempt) as recorder, job.communicator.watching(own):
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
        if settings.checkpoint_every:
            saving = Saving(cluster, keeper, settings.checkpoint_every, job.plan.steps, recorder, clock)
        usage = UsageSampler(cluster, clock, recorder, settings.usage_interval)
        with health.told(cluster, recorder), _stopping_on_signal(cluster, saving), usage:
            finished = train(job, recorder, clock, saving, GoingOn(found, epoch_so_far))
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
    """A signal lets all ranks save and stop after the same step; where nothing is saved, it ends the process."""
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        cluster.roll_call.stopping.ask()

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
    """Where the run goes on: at the newest state that every rank has, or at its beginning."""

    def warn(what: str) -> None:
        print(f"warning: {what}", file=sys.stderr, flush=True)

    found = keeper.find(warn)
    if cluster.rank == 0:
        say(
            f"attempt {cluster.attempt} goes on at step {found.step}"
            if found
            else f"attempt {cluster.attempt} begins at step 0: there is no step that every rank has saved"
        )
    return found


def _epoch_so_far(run_folder: Path, rank: int, step: int, plan: Plan) -> list[Step]:
    """This rank's records of the steps before this one, in the same epoch."""
    if not step or not lines.path_of(run_folder, rank).is_file():
        return []
    missing = set(range(step - step % plan.steps_per_epoch, step))
    newest: dict[int, Step] = {}
    records = lines.read_backwards(run_folder, rank)
    while missing and (record := next(records, None)):
        if isinstance(record, Step) and record.step in missing:
            newest[record.step] = record
            missing.remove(record.step)
    return [newest[number] for number in sorted(newest)]


def _open_books(job: Job, run_folder: Path, links: Sequence[Link] | None, carried: Sequence[Sequence[Carried]]) -> None:
    """Write the manifest, and say what readers of the figures must know."""
    said = [warning] if (warning := oversubscription(job.cluster.members)) else []  # printed at the join
    warnings = [
        *_warnings(job),
        *_neighbours(run_folder.name),
        *(f"a link misses what was requested: {each}" for each in deviations(links or [])),
    ]
    every = [*said, *warnings]
    run = run_folder.name
    if (run_folder / FILE).is_file():  # an attempt before this one has written it
        cpu_models = [member.machine.cpu_model for member in job.cluster.members]
        warnings += resume.warn_of_another_platform(run_folder, cpu_models, job.dataset.sha256)
    else:
        manifest.gather(run, job, links, carried, every).write(run_folder)
    if run_folder.parent == folders.RESULTS:
        folders.point_latest_at(run)
    for line in [*([describe(links)] if links else []), *(f"warning: {warning}" for warning in warnings)]:
        job.say(line)


def _check_same(cluster: Cluster, what: str, sha256: str | None, remedy: str) -> None:
    """Refuse ranks that would not train the same model on the same data."""
    everyones = cluster.exchange(f"checksum of the {what}", sha256)
    if different := [rank for rank, each in enumerate(everyones) if each != everyones[0]]:
        raise UnequalRanksError(f"rank {cluster.rank}: ranks {different} differ from rank 0 in their {what}. {remedy}")


def _neighbours(run: str) -> Sequence[str]:
    """What `prepare` has said of other clusters; nothing where something else started the ranks."""
    told = folders.handed_over() if folders.RUN_FILE.is_file() else None
    return [told.neighbours] if told and told.run == run and told.neighbours else []


def _warnings(job: Job) -> list[str]:
    """What readers of the figures must know, besides what the join has said."""
    members = job.cluster.members
    possible = (
        too_few_epochs(job.settings, job.plan),
        slow_bfloat16(job.settings.precision, members),
        slowed_on_purpose(job.settings),
        unlike(members),
    )
    return [each for each in possible if each]
