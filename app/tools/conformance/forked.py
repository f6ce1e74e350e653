"""The process of a rank in a trial: it confines itself, joins the others, tries cases and reports the outcomes."""

import errno
import faulthandler
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

import torch

from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.errors import LockstepError, PeerLostError
from app.settings.settings import Settings
from app.sync.contract import GradientSync
from app.tools.conformance.cases import Model
from app.tools.conformance.confinement import MOST_FILES, MOST_MEMORY, confine
from app.tools.conformance.outcomes import pack
from app.tools.conformance.trial import synchronise

JOIN_SECONDS = 60.0
CASE_SECONDS = 10.0

NOTE, ANSWER, FAILURE = b"N", b"A", b"F"  # the first byte of a rank's messages to the checker

Load = Callable[[], type[GradientSync]]


@dataclass(frozen=True)
class Request:
    """The checker's request to one rank to try a case."""

    model: Model
    seed: int
    thorough: bool
    draws: int


def form(rank: int, world_size: int, port: int) -> Cluster:
    """Join the other ranks over the loopback device, and limit this one to a single compute thread."""
    settings = Settings.of(
        rank=rank,
        world_size=world_size,
        master_addr="127.0.0.1",
        master_port=port,
        join_timeout=JOIN_SECONDS,
        peer_timeout=JOIN_SECONDS,
    )
    cluster = join(settings, identify(settings.place), lambda _: None, [])
    torch.set_num_threads(1)
    return cluster


def be_rank(
    channel: Connection, output: int, number: int, world_size: int, load: Load, file: str, port: int
) -> NoReturn:
    """Run a rank in the forked process, which always exits here and never returns into the checker's code."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for standard in (1, 2):
            os.dup2(output, standard)
        own = os.dup2(channel.fileno(), 3)
        os.closerange(4, 65_536)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        confine()
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        _serve(Connection(own), number, world_size, load, file, port)
    finally:
        os._exit(0)


def _serve(channel: Connection, number: int, world_size: int, load: Load, file: str, port: int) -> None:
    def tell(kind: bytes, payload: bytes) -> None:
        channel.send_bytes(kind + payload)

    try:
        cluster = form(number, world_size, port)
        tell(ANSWER, b"")
        mode: type[GradientSync] | None = None
        while True:
            request: Request = channel.recv()
            if mode is None:
                tell(NOTE, b"the file's top-level code")
                mode = load()
            outcome = synchronise(
                cluster,
                mode,
                request.model,
                request.seed,
                thorough=request.thorough,
                draws=request.draws,
                note=lambda where: tell(NOTE, where.encode()),
            )
            tell(ANSWER, pack(outcome))
    except Exception as error:
        was_left = isinstance(error, PeerLostError)
        tell(FAILURE, json.dumps({"words": _words(error, file), "was_left": was_left}).encode())
        # Until the checker kills it. An earlier exit could be mistaken for the cause of others.
        time.sleep(CASE_SECONDS)


def _words(error: BaseException, file: str) -> str:
    """An error as one line, with the innermost line of the submission in its stack trace."""
    said = (str(error).strip() or "no message").partition("\n")[0]
    cause: BaseException | None = error
    while cause:
        frames = traceback.extract_tb(cause.__traceback__)
        if lines := [each for each in frames if each.filename == file]:
            return f"line {lines[-1].lineno}, in {lines[-1].name}: {_kind(cause, said)}"
        cause = cause.__cause__
    return said if isinstance(error, LockstepError) else _kind(error, said)


def _kind(error: BaseException, said: str) -> str:
    if isinstance(error, MemoryError) or "can't allocate memory" in said:
        return f"out of memory (a rank has {MOST_MEMORY >> 20} MiB)"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return f"out of file descriptors (a rank has {MOST_FILES})"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "printed or wrote more than 1 MiB"
    if isinstance(error, BlockingIOError) or "can't start new thread" in said:
        return "started more processes or threads than allowed"
    return said if isinstance(error, LockstepError | NotImplementedError) else f"{type(error).__name__}: {said}"
