"""Runs the program as this container's rank, with the environment variables that MPI needs."""

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
    """Waits for the stand-in process that mpirun starts here, then runs the program with its MPI variables."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._place: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._start = asyncio.current_task()
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Listen for the stand-in, without authentication: nobody else in this container runs as this user."""
        SOCKET.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._take_place, SOCKET)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        self._server.close()

    async def has_place(self, deadline: float) -> bool:
        """Wait for the stand-in's variables, and return whether they arrived by the deadline on the loop's clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(self._place)
        return self._place.done()

    async def run(self) -> int:
        """Run the program and return its exit code in the shell's convention: 128 + N after signal N."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", *self._command, env=others | self._place.result()
        )
        code = await self._process.wait()
        self._ended.set()
        return code if code >= 0 else 128 - code

    def _stop(self, number: signal.Signals) -> None:
        """Pass the signal to the program, which cleans up and exits. Before the program starts, cancel the start."""
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
