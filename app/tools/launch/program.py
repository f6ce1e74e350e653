"""The program as this container's rank, once mpirun has given it a place in MPI."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from app.tools.launch.stand_in import PREFIXES

SOCKET = Path(tempfile.gettempdir()) / "place_in_mpi.socket"  # the same path in every container


class Program:
    """Waits for the stand-in that mpirun starts here, and then runs the program in its place."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._place: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._start = asyncio.current_task()
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Let the stand-in come; nobody else in this container is this user."""
        SOCKET.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._take_place, SOCKET)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        self._server.close()

    async def has_place(self, deadline: float) -> bool:
        """Whether the stand-in has come by the deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(self._place)
        return self._place.done()

    async def run(self) -> int:
        """Run the program to its end; its exit code, as a shell gives it."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", *self._command, env=others | self._place.result()
        )
        code = await self._process.wait()
        self._ended.set()
        return code if code >= 0 else 128 - code

    def _stop(self, number: signal.Signals) -> None:
        """The program ends by itself, with its clean-ups; before it has begun, the start ends."""
        if self._process is None:
            if self._start:
                self._start.cancel(number.name)
        elif self._process.returncode is None:
            self._process.send_signal(number)

    async def _take_place(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = json.loads(await reader.readline())
        if not self._place.done():
            self._place.set_result(place)
        await self._ended.wait()
        writer.close()
