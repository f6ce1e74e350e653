"""The join on rank 0: it collects registrations, answers all ranks at once, and stores Gloo's addresses."""

import asyncio
import base64
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from app.cluster import compose
from app.cluster.lines import LONGEST_REQUEST, InvalidMessageError, pack, unpack
from app.cluster.registration import Registration
from app.machine.say import Say

HELLO_SECONDS = 20.0  # from the connection to the complete registration
REJECTIONS_REPORTED = 5  # at most, however many addresses send invalid data
SPARE_CONNECTIONS = 64  # per address, without those that have registered


class Registrar:
    """Serves the join's port in a thread.

    A peer that does not send the registration of an expected rank is rejected without delaying the others, because
    every connection has its own coroutine, its own deadline and its own memory limit.
    """

    def __init__(self, address: str, port: int, seats: Sequence[str], say: Say) -> None:
        """Listen on the ranks' network only. `seats` are those of all other ranks."""
        listening = socket.create_server((address, port), backlog=128)
        self.port = int(listening.getsockname()[1])
        self._seats, self._say = seats, say
        self.registrations: dict[str, Registration] = {}
        self.left: list[str] = []  # seats whose process has disconnected
        self._answer: bytes | None = None
        self._connections: dict[str, asyncio.StreamWriter] = {}
        self._rejected: list[str] = []
        self._unregistered: defaultdict[str, list[asyncio.StreamWriter]] = defaultdict(list)  # by address, oldest first
        self._values: dict[str, asyncio.Future[str]] = {}
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        threading.Thread(target=self._loop.run_forever, name="registrar", daemon=True).start()
        self._server = self._call(asyncio.start_server(self._serve, sock=listening, limit=LONGEST_REQUEST)).result()

    def await_registrations(self, deadline: float) -> list[str]:
        """Wait until all ranks have registered or one has left; returns the missing seats."""
        return self._await(lambda: bool(self.left), deadline)

    def await_everyone(self, seconds: float) -> None:
        """After a refusal, wait until all ranks have registered and received it, or until the time is up."""
        self._await(lambda: False, time.monotonic() + seconds)

    def _await(self, is_enough: Callable[[], bool], deadline: float) -> list[str]:
        async def wait() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    while len(self.registrations) < len(self._seats) and not is_enough():
                        self._news.clear()
                        await self._news.wait()

        self._call(wait()).result()
        return [seat for seat in self._seats if seat not in self.registrations]

    def answer(self, message: dict[str, Any]) -> None:
        """Send this to every registered rank. A rank that registers later receives it at once."""

        async def send() -> None:
            self._answer = pack(message)
            for connection in self._connections.values():
                connection.write(self._answer)

        self._call(send()).result()

    def close(self) -> None:
        """Accept no more connections, and keep the existing ones."""

        async def close() -> None:
            self._server.close()

        self._call(close()).result()

    def put(self, key: str, value: bytes, deadline: float) -> None:
        async def put() -> None:
            self._keep(key, base64.b64encode(value).decode())

        self._call(put()).result(max(0.0, deadline - time.monotonic()))

    def get(self, key: str, deadline: float) -> bytes:
        """Wait for a value that any rank stores; raises TimeoutError at the deadline."""

        async def get() -> str:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await asyncio.shield(self._value(key))

        return base64.b64decode(self._call(get()).result())

    def _call[Result](self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, *_ = writer.get_extra_info("peername") or [""]  # None if it has already disconnected
        unregistered = self._unregistered[address]
        unregistered.append(writer)
        if len(unregistered) > SPARE_CONNECTIONS:
            # The oldest, because the newest may be a rank, which registers at once.
            unregistered.pop(0).transport.abort()
        try:
            await self._attend_to(address, reader, writer)
        except (OSError, InvalidMessageError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it has disconnected, or sent invalid data
        finally:
            self._forget(address, writer)
            writer.close()

    def _forget(self, address: str, writer: asyncio.StreamWriter) -> None:
        if writer in (unregistered := self._unregistered[address]):
            unregistered.remove(writer)

    async def _attend_to(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = unpack(await reader.readuntil(b"\n"))
            seat, registration = str(hello.get("seat")), Registration.read(hello.get("registration"))
            if registration.address != address:
                raise InvalidMessageError("a registration with another's address")
        except (ValueError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self._report_rejection(address)
            return
        if refusal := await self._why_not(seat, address):
            writer.write(pack(refusal))
            await writer.drain()
            return
        self._forget(address, writer)
        self.registrations[seat], self._connections[seat] = registration, writer
        self._news.set()
        if self._answer:
            writer.write(self._answer)
        try:
            await self._serve_values(reader, writer)
        finally:
            del self._connections[seat]
            self.left.append(seat)
            self._news.set()

    async def _serve_values(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            message = unpack(await reader.readuntil(b"\n"))
            match message:
                case {"put": str(key), "value": str(value)}:
                    self._keep(key, value)
                case {"want": str(key)}:
                    writer.write(pack({"key": key, "value": await asyncio.shield(self._value(key))}))
                case _:
                    raise InvalidMessageError("neither a value nor a request")

    async def _why_not(self, seat: str, address: str) -> dict[str, Any] | None:
        if seat not in self._seats or not await self._is_at(seat, address):
            return {"refused": "this rank is not one of those that rank 0 counted. Start all ranks again."}
        if seat in self._connections:
            return {"taken": True}
        return None

    async def _is_at(self, seat: str, address: str) -> bool:
        """Whether a seat that is an address or a container's name belongs to this address."""
        if compose.CONTAINER.fullmatch(seat):
            return await asyncio.to_thread(compose.is_at, seat, address)
        return "." not in seat or seat == address

    def _report_rejection(self, address: str) -> None:
        if address not in self._rejected and len(self._rejected) < REJECTIONS_REPORTED:
            self._rejected.append(address)
            self._say(f"rejected a connection from {address} during the join: it sent no valid registration")

    def _keep(self, key: str, value: str) -> None:
        if not (stored := self._value(key)).done():
            stored.set_result(value)

    def _value(self, key: str) -> asyncio.Future[str]:
        return self._values.setdefault(key, self._loop.create_future())
