"""A script in a process of its own, as `python3 script.py` would run it: it works in turns and sleeps in between."""

import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from app.errors import LockstepError
from app.settings.settings import FIELDS

# Beginnings of the variables that the image or the program sets for itself. A plain script starts without them.
OF_MEMORY = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_", "MIMALLOC_")
OF_LIBRARIES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "TORCH_", "PYTHON")
LAST_LINES = 12  # of a script that failed
LOOK_SECONDS = 0.5  # between two checks whether the script is still alive
NEEDED = {
    "PYTHONPATH": str(Path(__file__).parents[3]),
    "USE_LIBUV": "0",  # Debian's PyTorch has none, and does not find a tcp:// address with it
}


def plain_environment() -> dict[str, str]:
    others = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in FIELDS and not name.startswith(OF_MEMORY + OF_LIBRARIES)
    }
    return others | NEEDED


class Child:
    """A script that answers each order with a line. Its processes form one group, which stops and wakes as a whole.

    If this process is killed, the group ends with the container, or at its next order.
    """

    def __init__(
        self,
        title: str,
        module: str,
        arguments: Sequence[str],
        log: Path,
        patience: float,
        environment: Mapping[str, str],
    ) -> None:
        """Start the script. Its errors go into the log. `patience` limits each wait, in seconds."""
        self._title, self._log, self._patience = title, log, patience
        reads_orders, self._orders = os.pipe()
        self._answers, writes_answers = os.pipe()
        errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # With no signal blocked, as a shell starts programs: this process blocks some of them.
        self._pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", module, *arguments],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reads_orders, 0),
                (os.POSIX_SPAWN_DUP2, writes_answers, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
            ],
            setpgroup=0,
            setsigmask=(),
        )
        for end in (reads_orders, writes_answers, errors):
            os.close(end)
        self._ending = os.pidfd_open(self._pid)
        self._selector = selectors.DefaultSelector()
        for each in (self._answers, self._ending):
            self._selector.register(each, selectors.EVENT_READ)
        self._came = b""
        self._code: int | None = None

    def run(self, steps: int) -> None:
        with suppress(BrokenPipeError):  # its end is told below
            os.write(self._orders, f"{steps}\n".encode())
        self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            _, end, rest = self._came.partition(b"\n")  # an answer may come in pieces
            if end:
                self._came = rest
                return
            readable = [key.fd for key, _ in self._selector.select(LOOK_SECONDS)]
            if self._answers in readable and (came := os.read(self._answers, 4096)):
                self._came += came
            elif readable:
                raise LockstepError(f"{self._title} {self._how_it_ended()}. Its last lines:\n{self._last_lines()}")
        raise LockstepError(
            f"{self._title} did not answer within PEER_TIMEOUT={self._patience:g} s. If it is only slow, raise it. "
            f"Its last lines:\n{self._last_lines()}"
        )

    @property
    def killed(self) -> bool:
        """Whether a signal has ended it, and no failure of its own."""
        return self._code is not None and self._code < 0

    def rest(self) -> None:
        """Stop all its processes, which then use no CPU."""
        os.killpg(self._pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self._pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """CPU time of its processes so far, those that have ended included."""
        total = 0.0
        with suppress(psutil.NoSuchProcess):
            script = psutil.Process(self._pid)
            for process in (script, *script.children(recursive=True)):
                times = process.cpu_times()
                total += _cpu_seconds(process.pid) + times.children_user + times.children_system
        return total

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self._how_it_ended()

    def _how_it_ended(self) -> str:
        if self._code is None:
            with suppress(ChildProcessError):
                self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if self._code is not None and self._code < 0:
            return f"was killed by {signal.Signals(-self._code).name}"
        return f"exited with code {self._code}"

    def _last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (it printed nothing)"


def _cpu_seconds(pid: int) -> float:
    """By the process's own clock, as clock_getcpuclockid(3) names it; what `ps` shows is counted in hundredths."""
    with suppress(OSError):  # it has ended
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0
