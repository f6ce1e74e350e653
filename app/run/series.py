"""Several runs in turn on the same ranks, because starting containers and importing torch take longer than a small run.

Each run has processes of its own, forked from one that has imported the program and does nothing else. After a failure
the series ends, so that the next run starts in new containers.
"""

import json
import os
import runpy
import signal
import socket
import sys
import time
from contextlib import suppress
from tempfile import TemporaryFile
from typing import BinaryIO, NoReturn

from app.analysis.units import digits
from app.analysis.words import duration
from app.cluster.identity import place_of
from app.errors import JoinError
from app.machine.folders import RESULTS
from app.machine.interrupt import SIGNALS, STOP_SECONDS, CleanUps
from app.machine.quick_imports import quick_imports
from app.machine.say import Say
from app.records import series, summary
from app.records.series import EndedRun, PlannedRun
from app.settings.settings import Settings

LOOK_SECONDS = 0.05
STOPPED = [128 + number for number in SIGNALS]


def run_series(settings: Settings, say: Say, clean_ups: CleanUps) -> int:
    """Take part in all runs of the series that have not ended; returns the exit code of the last one."""
    with quick_imports():
        import app.run.rank  # noqa: F401  # once for all runs
    rank, _ = place_of(settings.place)
    ended = {each.run for each in series.ended(RESULTS)}
    for planned in series.planned(RESULTS):
        if planned.run not in ended:
            code = _lead(planned, say, clean_ups) if rank == 0 else _follow(rank, planned, settings, clean_ups)
            if code:
                return code
    return 0


def _lead(planned: PlannedRun, say: Say, clean_ups: CleanUps) -> int:
    say(planned.title)
    began = time.monotonic()
    path = series.log_of(RESULTS, planned.run)
    path.unlink(missing_ok=True)
    with path.open("ab") as log:  # to which other ranks append
        code = _train(planned, log, clean_ups)
    if code in STOPPED:
        return code  # it has not ended, and is repeated
    seconds = time.monotonic() - began
    if code == 0:
        say(f"    {_figures(planned.run)}{seconds:.0f} s in all")
    series.end(RESULTS, EndedRun(planned.run, code, seconds))
    return code


def _figures(run: str) -> str:
    with suppress(OSError, ValueError, LookupError, TypeError):
        figures = json.loads((RESULTS / run / summary.FILE).read_text())["run"]
        step, loss = figures["seconds"], figures["loss"]
        return f"{f'{duration(step["median"])} a step, ' if step else ''}loss {digits(loss)}, "
    return ""


def _follow(rank: int, planned: PlannedRun, settings: Settings, clean_ups: CleanUps) -> int:
    with TemporaryFile() as output:
        code = _train(planned, output, clean_ups)
        if code:
            output.seek(0)
            with series.log_of(RESULTS, planned.run).open("ab") as log:
                log.write(f"== rank {rank} ({socket.gethostname()}):\n".encode() + output.read())
    return code or _code_of_rank0(rank, planned, settings.place.peer_timeout)


def _train(planned: PlannedRun, output: BinaryIO, clean_ups: CleanUps) -> int:
    rank = os.fork()
    if rank == 0:
        _be_rank(planned, output.fileno())
    code: int | None = None

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.kill(rank, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while code is None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    clean_ups.append(stop)
    code = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
    clean_ups.remove(stop)
    return code if code >= 0 else 128 - code


def _be_rank(planned: PlannedRun, output: int) -> NoReturn:
    """`python -m app train` with the run's settings, which ends this process."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.environ.update(planned.settings)
    sys.argv[1:] = ["train"]
    runpy.run_module("app", run_name="__main__", alter_sys=True)
    os._exit(1)  # not reached, because the program ends itself


def _code_of_rank0(rank: int, planned: PlannedRun, timeout: float) -> int:
    """Rank 0 writes the report after the others have left, and must not be joined before."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for each in series.ended(RESULTS):
            if each.run == planned.run:
                return each.exit_code
        time.sleep(LOOK_SECONDS)
    raise JoinError(
        f"rank {rank}: rank 0 has not ended {planned.run} within PEER_TIMEOUT={timeout:g} s after this rank. "
        f"See {series.log_of(RESULTS, planned.run)}."
    )
