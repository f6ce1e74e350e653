"""Forked processes for the ranks, because a submission may hang, crash, kill processes, print or fill memory."""

import json
import multiprocessing
import os
import re
import select
import signal
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import cast

from app.machine.say import counted, escaped, numbered
from app.tools.conformance.cases import Model
from app.tools.conformance.forked import ANSWER, CASE_SECONDS, FAILURE, JOIN_SECONDS, NOTE, Load, Request, be_rank
from app.tools.conformance.outcomes import TrialOutcome, unpack
from app.tools.conformance.trial import DRAWS

GRACE_SECONDS = 0.3  # after a failure, for the rank that caused it to report
TRACE_SECONDS = 1.0
MOST_BYTES = 256 << 20  # of an answer
MOST_NOTES = 100_000  # in a trial, which sends one for each step
MOST_SAID = 400  # characters of a rank's message

FORK = multiprocessing.get_context("fork")


class EndedError(Exception):
    """A trial ended without an answer from every rank. The message is the cause."""

    def __init__(self, words: str, *, hung: bool = False) -> None:
        super().__init__(words)
        self.hung = hung


class Ranks:
    """A group of ranks that tries one case after another. It cannot be used after a failure."""

    def __init__(self, world_size: int, load: Load, file: str, port: int) -> None:
        """`load` runs only in the ranks. `file` is the path of the submission in stack traces."""
        self.world_size = world_size
        self._ranks = [_Rank.start(rank, world_size, load, file, port) for rank in range(world_size)]
        try:
            self._answers("during the join", JOIN_SECONDS)
        except EndedError:
            self.close()
            raise

    def ask(self, model: Model, seeds: Sequence[int], *, thorough: bool, draws: int = DRAWS) -> list[TrialOutcome]:
        """Try a case, and return every rank's outcome; raises EndedError if one is missing or invalid."""
        for each, seed in zip(self._ranks, seeds, strict=True):
            each.ask(Request(model, seed, thorough, draws))
        outcomes = []
        for rank, answer in enumerate(self._answers("at the start", CASE_SECONDS * draws / DRAWS)):
            try:
                outcomes.append(unpack(answer))
            except ValueError:
                raise EndedError(f"rank {rank} of {self.world_size} sent the checker an invalid message") from None
        return outcomes

    def close(self) -> None:
        """Kill all ranks, with the processes that they started and that are still in their process groups."""
        for rank in self._ranks:
            rank.end()

    def _answers(self, where: str, seconds: float) -> list[bytes]:
        answers: dict[int, bytes] = {}
        deadline = time.monotonic() + seconds
        while len(answers) < self.world_size:
            waiting = [each for each in self._ranks if each.number not in answers]
            ready, _, _ = select.select(waiting, [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise EndedError(self._hung(waiting, where, seconds), hung=True)
            troubles = [each for each in ready if each.take()]
            if troubles:
                raise EndedError(self._trouble(troubles, where))
            answers |= {each.number: each.answer for each in ready if each.answer is not None}
        return [answers[rank] for rank in range(self.world_size)]

    def _trouble(self, troubles: list["_Rank"], where: str) -> str:
        """Describe the failure. If all failed ranks merely lost another one, wait for that one to report the cause."""
        deadline = time.monotonic() + GRACE_SECONDS
        while all(each.was_left for each in troubles) and (left := deadline - time.monotonic()) > 0:
            others = [each for each in self._ranks if each not in troubles]
            ready, _, _ = select.select(others, [], [], left)
            troubles += [each for each in ready if each.take()]
        first = min(troubles, key=lambda each: each.was_left)
        place = first.place or where
        return f"rank {first.number} of {self.world_size} {first.trouble} {place}{first.detail}{first.printed()}"

    def _hung(self, waiting: Sequence["_Rank"], where: str, seconds: float) -> str:
        for each in waiting:
            each.ask_where()
        lines = {each.number: line for each in waiting if (line := each.line_of_code())}
        who = numbered("rank", [each.number for each in waiting])
        # The others may merely be waiting for this one.
        behind = min(waiting, key=lambda each: (each.notes, each.number))
        at = f", rank {behind.number} at line {lines[behind.number]}" if behind.number in lines else ""
        ranks = counted(self.world_size, "rank")
        place = behind.place or where
        return f"hung for {seconds:g} s {place} on {ranks}: no answer from {who}{at}{behind.printed()}"


@dataclass(eq=False)
class _Rank:
    """The process of one rank, and the messages that the checker has received from it."""

    number: int
    process: ForkProcess
    channel: Connection
    output: int  # a file in memory that receives everything it prints
    file: str
    place: str = ""  # the last position that it reported
    notes: int = 0  # number of such reports since the last request
    answer: bytes | None = None
    trouble: str = ""  # how it failed, as a predicate
    detail: str = ""  # its error message
    was_left: bool = False  # whether it failed only because it lost another rank

    @classmethod
    def start(cls, number: int, world_size: int, load: Load, file: str, port: int) -> "_Rank":
        ours, theirs = FORK.Pipe()
        with socket.socket(fileno=os.dup(ours.fileno())) as end:  # so that no half message holds up the checker
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(CASE_SECONDS), 0))
        output = os.memfd_create(f"rank {number}")
        process = FORK.Process(target=be_rank, args=(theirs, output, number, world_size, load, file, port))
        process.start()
        theirs.close()
        return cls(number, process, ours, output, file)

    @property
    def pid(self) -> int:
        return cast("int", self.process.pid)

    def fileno(self) -> int:
        return self.channel.fileno()

    def ask(self, request: Request) -> None:
        self.answer, self.place, self.notes = None, "", 0
        with suppress(OSError):  # if it has exited, its answer will be missing
            self.channel.send(request)

    def take(self) -> bool:
        """Read a message that has arrived, and return whether the rank has failed."""
        try:
            message = self.channel.recv_bytes(MOST_BYTES)
            self._note(message[:1], message[1:])
        except (EOFError, ConnectionError):
            self.trouble = self._end_in_words()
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            self.trouble = "sent the checker an invalid message"
        return bool(self.trouble)

    def _note(self, kind: bytes, payload: bytes) -> None:
        if kind == ANSWER:
            self.answer = payload
        elif kind == NOTE and self.notes < MOST_NOTES:
            words = payload[:MOST_SAID].decode(errors="replace")
            self.place, self.notes = f"in {escaped(words)}", self.notes + 1
        elif kind == FAILURE:
            told = json.loads(payload)
            self.was_left = bool(told["was_left"])
            self.trouble, self.detail = "failed", f": {escaped(str(told['words'])[:MOST_SAID])}"
        else:
            raise ValueError(kind)

    def _end_in_words(self) -> str:
        """How the process ended, as a predicate."""
        deadline = time.monotonic() + TRACE_SECONDS
        while (code := self.process.exitcode) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if code is None:
            return "closed its connection to the checker"
        if code >= 0:
            return f"exited with code {code}"
        why = " (by the submission, or by the kernel when out of memory)" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{why}"

    def ask_where(self) -> None:
        """Make the rank print the stack traces of all its threads."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)

    def line_of_code(self) -> str | None:
        """The submission's line that the rank is executing; None if no stack trace names one within TRACE_SECONDS."""
        pattern = re.compile(rf'File "{re.escape(self.file)}", line (\d+) in (\w+)')
        deadline = time.monotonic() + TRACE_SECONDS
        while not (found := pattern.search(self._printed())) and time.monotonic() < deadline:
            time.sleep(0.01)
        return f"{found[1]}, in {found[2]}" if found else None

    def printed(self) -> str:
        """The last line that the rank printed before any stack trace, in brackets; empty if there is none."""
        lines = [line for line in self._printed().partition("Thread 0x")[0].splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("  File", "Current thread", "Fatal Python"))]
        return f" (it printed: {escaped(lines[-1][:120])})" if lines else ""

    def _printed(self) -> str:
        size = os.fstat(self.output).st_size
        return os.pread(self.output, 1 << 16, max(0, size - (1 << 16))).decode(errors="replace")

    def end(self) -> None:
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.channel.close()
        os.close(self.output)
