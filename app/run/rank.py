"""The life of one rank: join, train, leave; and rank 0's work for the run."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.analysis.summary import Summary
from app.cluster.identity import Identity, identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.errors import JoinError, LockstepError, StoppedError, WriteError
from app.extensions.loading import blamed
from app.machine import folders
from app.machine.interrupt import CleanUps, ignore_further_signals
from app.machine.say import Say, counted
from app.pages.conclusion import conclude
from app.records.lines import Finished
from app.records.manifest import Manifest
from app.records.places import ATTEMPTS
from app.records.summary import is_complete
from app.run import attempts
from app.run.attempts import StartedRun
from app.run.collect import collect_records
from app.run.prepare import find_or_open_run
from app.run.take_part import take_part
from app.settings.settings import Settings
from app.training.datasets import prepared
from app.training.datasets.prepared import DataSet


def run(settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    """Train as one rank of a run, unless the run has already finished."""
    prior = attempts.started_run() if settings.recovery.restarts else None
    try:
        if not (prior and is_complete(prior.folder)):
            if prior:
                attempts.refuse_deterministic_failure(prior)
            _take_part_or_finish(settings, prior, say, clean_ups)
            return
    except JoinError:
        # A rank that was killed at the very end and restarted finds no other rank.
        if not (prior and is_complete(prior.folder)):
            raise
    say(f"{prior.folder} has finished")


def _take_part_or_finish(settings: Settings, prior: StartedRun | None, say: Say, clean_ups: CleanUps) -> None:
    prepared.check_fit(settings.training.model, settings.training.dataset)
    prepared.make_if_missing(settings.training.dataset, say, clean_ups)
    dataset = prepared.load_for(settings.training)
    identity = (
        identify(settings.place, prior.seats, lambda: is_complete(prior.folder)) if prior else identify(settings.place)
    )
    if identity.rank != 0:
        _train_and_report(settings, identity, dataset, say, clean_ups)
        return
    # If rank 0 was killed after all ranks had left, only the report is missing.
    if prior and attempts.everyone_has_finished(prior.folder):
        summary = conclude(prior.folder)
        if summary and summary.complete:
            _print_outcome(prior.folder, summary, say)
            return
    run = prior.run if prior else find_or_open_run(settings, say)
    is_last = (len(prior.attempts) if prior else 0) >= settings.recovery.restarts
    with _open_attempt(settings, run, identity, clean_ups) as attempt:
        try:
            _train_and_report(settings, identity, dataset, say, clean_ups, Opened(run, attempt, is_last))
        except LockstepError as error:
            attempts.end(folders.RESULTS / run, attempt, error)
            if prior and is_last and not isinstance(error, StoppedError):
                error.add_note(
                    f"MAX_RESTARTS={settings.recovery.restarts} is exhausted. The attempts of this run:\n"
                    f"{attempts.diagnosis(prior.folder)}"
                )
            raise


@dataclass(frozen=True)
class Opened:
    """The run and the attempt that rank 0 has opened for the group."""

    run: str
    attempt: int
    is_last: bool  # whether a failure is final


@contextmanager
def _open_attempt(settings: Settings, run: str, identity: Identity, clean_ups: CleanUps) -> Iterator[int]:
    """Start an attempt as rank 0, and lock the run's folder so that no other command resumes it; yields the number."""
    folder = folders.RESULTS / run
    with ExitStack() as until_the_end:
        if not settings.recovery.restarts:
            # Only rank 0 removes the folder of a run that never started: others may fail while rank 0 writes to it.
            until_the_end.enter_context(folders.gone_if_empty(folder, clean_ups, ATTEMPTS))
        with _naming_unwritten_files(0):
            if not until_the_end.enter_context(folders.held(folder)):
                message = f"rank 0: {folder} is in use: another cluster resumed it. Start a new run."
                raise LockstepError(message, "run-in-progress")
            attempt = attempts.begin(folder, identity.seats)
        yield attempt


def _train_and_report(
    settings: Settings,
    identity: Identity,
    dataset: DataSet,
    say: Say,
    clean_ups: CleanUps,
    opened: Opened | None = None,
) -> None:
    """Join, train, collect the records and, as rank 0, write the report."""
    cluster = join(settings, identity, say, clean_ups, opened.attempt if opened else 0)
    run_folder = folders.RESULTS / _agreed_name(cluster, opened)
    if opened:
        clean_ups.append(lambda: _leave_records(cluster, run_folder, opened))
    finished: Finished | None = None
    stopped: StoppedError | None = None
    try:
        own = blamed(*settings.own.values(), who=f"rank {cluster.rank}: ")
        with cluster.until_the_end(), _naming_unwritten_files(cluster.rank), own:
            try:
                finished = take_part(settings, cluster, dataset, run_folder, say)
            except StoppedError as error:
                stopped = error
            collect_records(cluster, run_folder)
    except BaseException as error:
        # No report before a retry, which would have to wait for it.
        if opened and (opened.is_last or getattr(error, "deterministic", False)):
            _try_to_conclude(run_folder)
        raise
    ignore_further_signals()
    with _naming_unwritten_files(cluster.rank):
        summary = conclude(run_folder) if cluster.rank == 0 else None
    if cluster.rank == 0 and summary is None:
        raise WriteError(
            f"rank 0: {run_folder} and its records were removed or renamed during the run. "
            "If you renamed it, move it back and run scripts/report. Otherwise start the run again."
        )
    if stopped:
        raise stopped
    if summary and finished:
        took = f"in {cluster.attempt + 1} attempts, the last one in" if cluster.attempt else "in"
        _print_outcome(run_folder, summary, say, f"{took} {finished.seconds:.1f} s")


def _leave_records(cluster: Cluster, run_folder: Path, opened: Opened) -> None:
    """Runs when another thread ends the process: on a signal, or after the loss of a rank that training missed."""
    if loss := cluster.detector.loss:
        attempts.end(run_folder, opened.attempt, cluster.failure(loss))
    if not loss or loss.deterministic or opened.is_last:
        conclude(run_folder)


def _print_outcome(run_folder: Path, summary: Summary, say: Say, took: str = "") -> None:
    for warning in summary.warnings[len(Manifest.read(run_folder).warnings) :]:  # the others were printed at the start
        say(f"warning: {warning}")
    say(summary.verdict.sentences[0])
    if (advice := summary.verdict.advice) and advice.command:
        say(f"To try next: {advice.command}")
    steps = f"{summary.steps} steps on {counted(summary.world_size, 'rank')}"
    say(f"{steps}{f' {took}' if took else ''}. Results: {run_folder}")
    say(f"Report: {run_folder / folders.REPORT}")


def _agreed_name(cluster: Cluster, opened: Opened | None) -> str:
    """The run's name, from rank 0: results/ on another machine may hold other runs."""
    name = cluster.exchange("run", opened.run if opened else None)[0]
    if name is None or not folders.RUN_NAME.fullmatch(name):
        message = f"internal error, please report: rank {cluster.rank} received an invalid run name from rank 0."
        raise LockstepError(message, "internal-error")
    return name


@contextmanager
def _naming_unwritten_files(rank: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"rank {rank}: {folders.unwritten(error)}") from None


def _try_to_conclude(run_folder: Path) -> None:
    """Write the report of a failed run. If that fails too, warn, so that the first error stays the exit cause."""
    try:
        conclude(run_folder)
    except (LockstepError, OSError) as error:
        reason = folders.unwritten(error) if isinstance(error, OSError) else str(error)
        print(f"warning: no report was written: {reason}", file=sys.stderr, flush=True)
