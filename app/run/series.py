"""Several runs in turn on the same ranks, each in processes of its own, because containers take longest to start.

After a failure the series ends, so that the next run starts in new containers.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from tempfile import TemporaryFile
from typing import BinaryIO

from app.analysis.units import digits
from app.analysis.words import duration
from app.cluster.identity import place_of
from app.errors import JoinError
from app.machine.folders import RESULTS
from app.machine.interrupt import SIGNALS, STOP_SECONDS, CleanUps
from app.machine.say import Say
from app.records import series, summary
from app.records.series import EndedRun, PlannedRun
from app.settings.settings import Settings

LOOK_SECONDS = 0.05
STOPPED = [128 + number for number in SIGNALS]


def run_series(settings: Settings, say: Say, clean_ups: CleanUps) -> int:
    """Take part in all runs of the series that have not ended; returns the exit code of the last one."""
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
    rank = subprocess.Popen(  # noqa: S603  # the program itself
        [sys.executable, "-m", "app", "train"],
        env=os.environ | planned.settings,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )

    def stop() -> None:
        rank.terminate()
        with suppress(subprocess.TimeoutExpired):
            rank.wait(STOP_SECONDS)

    clean_ups.append(stop)
    code = rank.wait()
    clean_ups.remove(stop)
    return code if code >= 0 else 128 - code


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
