"""One rank's life: join, take part, leave; and what rank 0 does for all."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.cluster.identity import Identity, identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.errors import JoinError, LockstepError, StoppedError, WriteError
from app.extensions.loading import blamed
from app.machine import folders
from app.machine.interrupt import CleanUps, ignore_further_signals
from app.machine.say import Say
from app.pages.conclusion import conclude
from app.records.lines import Finished
from app.records.places import ATTEMPTS
from app.records.summary import Summary, is_complete
from app.run import attempts
from app.run.attempts import Begun
from app.run.homecoming import bring_home
from app.run.prepare import find_or_open_run
from app.run.take_part import take_part
from app.settings.settings import Settings
from app.training.datasets import prepared
from app.training.datasets.prepared import DataSet


def run(settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    """Take part in a run, as one of its ranks; or find that it is over."""
    begun = attempts.begun_before() if settings.recovery.restarts else None
    try:
        if not (begun and is_complete(begun.folder)):
            if begun:
                attempts.refuse_deterministic_failure(begun)
            _take_part_or_finish(settings, begun, say, clean_ups)
            return
    except JoinError:
        # Whoever was killed in the very end, and started again, finds nobody.
        if not (begun and is_complete(begun.folder)):
            raise
    say(f"{begun.folder} has finished")


def _take_part_or_finish(settings: Settings, begun: Begun | None, say: Say, clean_ups: CleanUps) -> None:
    prepared.check_fit(settings.training.model, settings.training.dataset_name)
    prepared.make_if_missing(settings.training.dataset_name, say, clean_ups)
    dataset = prepared.load_for(settings.training)
    identity = (
        identify(settings.place, begun.seats, lambda: is_complete(begun.folder)) if begun else identify(settings.place)
    )
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
    is_last = (len(begun.attempts) if begun else 0) >= settings.recovery.restarts
    with _at_the_head(settings, run, identity, clean_ups) as attempt:
        try:
            _go_through(settings, identity, dataset, say, clean_ups, Opened(run, attempt, is_last))
        except LockstepError as error:
            attempts.end(folders.RESULTS / run, attempt, error)
            if begun and is_last and not isinstance(error, StoppedError):
                error.add_note(
                    f"MAX_RESTARTS={settings.recovery.restarts} is used up. What became of each attempt:\n"
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
        if not settings.recovery.restarts:
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
        if opened and (opened.is_last or getattr(error, "deterministic", False)):
            _try_to_conclude(run_folder)
        raise
    ignore_further_signals()
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
    if loss := cluster.detector.loss:
        attempts.end(run_folder, opened.attempt, cluster.failure(loss))
    if not loss or loss.deterministic or opened.is_last:
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
