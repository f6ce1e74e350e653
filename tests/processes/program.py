"""Commands of the program in processes of their own: forked from one that has imported everything, or as typed."""

import multiprocessing
import os
import runpy
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL, SIGTERM
from threading import Thread
from typing import IO, Protocol

from app.settings.settings import FIELDS

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 90

Value = str | int | float

# A server that has imported the program once and never computes: its children start within milliseconds, and clean.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "app.run.rank",
        "app.run.prepare",
        "app.sync.modes.ddp",
        "app.tools.doctor.checkup",
        "app.tools.benchmark.take_part",
        "app.pages.on_demand",
        "app.tools.experiment.between_runs",
        "app.tools.conformance.verdicts",
        "torch._dynamo",  # which DistributedDataParallel imports when one is made: 860 modules
        "pytest",
        "tests.processes.group",
    ]
)


class Process(Protocol):
    """A command under way, as `subprocess.Popen` has it."""

    @property
    def stdout(self) -> IO[str] | None: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def pid(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[str, str | None]: ...


class Forked:
    """`python -m app`, without a wait for torch."""

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        environment: dict[str, str],
        errors_apart: bool = False,
        given: Path | None = None,
    ) -> None:
        """`given` is a file for its standard input. Only a program with one starts processes of its own."""
        pipes = [processes.Pipe(duplex=False) for _ in range(1 + errors_apart)]
        writing = [end for _, end in pipes]
        self._process = processes.Process(
            target=_be_the_program,
            args=(arguments, folder, environment, writing[0], writing[-1], given),
            daemon=given is None,
        )
        self._process.start()
        for end in writing:
            end.close()
        self._outputs = [os.fdopen(os.dup(end.fileno())) for end, _ in pipes]

    @property
    def stdout(self) -> IO[str]:
        return self._outputs[0]

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sig: int, /) -> None:
        if self._process.exitcode is None and self._process.pid is not None:
            os.kill(self._process.pid, sig)

    def terminate(self) -> None:
        self.send_signal(SIGTERM)

    def kill(self) -> None:
        self.send_signal(SIGKILL)

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str | None]:
        """What it wrote to the end."""
        told = [""] * len(self._outputs)

        def listen(number: int) -> None:
            told[number] = self._outputs[number].read()
            self._outputs[number].close()

        listeners = [Thread(target=listen, args=(number,), daemon=True) for number in range(len(told))]
        for listener in listeners:
            listener.start()
        for listener in listeners:
            listener.join(timeout)
        self._process.join(timeout)
        if self._process.exitcode is None or any(listener.is_alive() for listener in listeners):
            raise subprocess.TimeoutExpired("python -m app", timeout or 0)
        return told[0], told[1] if len(told) > 1 else None


def _be_the_program(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    output: Connection,
    errors: Connection,
    given: Path | None,
) -> None:
    if given:
        sys.stdin = given.open()
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["app", *arguments]
    runpy.run_module("app", run_name="__main__", alter_sys=True)


def environment_with(settings: dict[str, Value]) -> dict[str, str]:
    """These settings and no others."""
    others = {name: value for name, value in os.environ.items() if name.lower() not in FIELDS}
    return others | {"PYTHONPATH": str(ROOT)} | {name: str(value) for name, value in settings.items()}


def start(command: str, folder: Path, **settings: Value) -> Process:
    """One command in a working directory, with these settings and no others."""
    return Forked(command.split(), folder, environment_with(settings))


def start_as_typed(command: str, folder: Path, **settings: Value) -> Process:
    """The same by a new interpreter, which has imported nothing and hashes strings with another seed."""
    return subprocess.Popen(
        [sys.executable, "-m", "app", *command.split()],
        cwd=folder,
        env=environment_with(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait(process: Process) -> tuple[int, str]:
    """Its exit code and output."""
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode is not None
    return process.returncode, output
