"""The other ranks' side of the join: their connection to rank 0."""

import base64
import socket
import time
from collections.abc import Callable

from app.cluster.identity import OVER, address_of, never
from app.cluster.lines import LineConnection, NoSuchMessageError
from app.cluster.registration import RankTable, Registration, read_table
from app.errors import JoinError, SettingError

KNOCK_SECONDS = 5.0  # for one attempt to connect
PAUSE_SECONDS = 0.1  # before the next one
COURTESY_SECONDS = 5.0  # rank 0 has begun later, and knows better who is missing when the time is over


class Registrant:
    """One rank's connection to rank 0. Nothing that rank 0 does, or ceases to do, lengthens a wait beyond its limit."""

    def __init__(
        self,
        title: str,
        master: str,
        port: int,
        join_timeout: float,
        deadline: float,
        is_over: Callable[[], bool] = never,
    ) -> None:
        """Retry until rank 0 accepts; `title` is this rank's name in messages, `master` rank 0's name or address."""
        self._title, self._limit = title, f"JOIN_TIMEOUT={join_timeout:g} s"
        self._where = f"{master}:{port}"
        while True:
            left = deadline - time.monotonic()
            try:
                # Resolved again on each attempt: if rank 0 restarts, its address may change.
                self._where = f"{(address := address_of(master))}:{port}"
                connection = socket.create_connection((address, port), max(0.01, min(KNOCK_SECONDS, left)))
                break
            except OSError as error:
                if is_over():
                    raise JoinError(OVER) from None
                if time.monotonic() + PAUSE_SECONDS > deadline:
                    raise JoinError(
                        f"{title}: rank 0 did not answer at {self._where} within {self._limit} ({error}). "
                        "See what rank 0 printed."
                    ) from None
            time.sleep(PAUSE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._lines = connection, LineConnection(connection)

    def register(self, seat: str, registration: Registration, deadline: float) -> RankTable:
        """Register this rank and wait for the table of all ranks."""
        deadline += COURTESY_SECONDS

        def ask() -> dict[str, object]:
            self._lines.send({"seat": seat, "registration": registration.content()}, deadline)
            return self._lines.receive(deadline)

        answer = self._asking(ask)
        if "taken" in answer:
            raise SettingError(f"{self._title}: another process has joined as this rank. Give each its own RANK.")
        if "refused" in answer:
            raise JoinError(f"{self._title}: rank 0 ended the join: {answer['refused']}")
        return self._asking(lambda: read_table(answer.get("table")))

    def put(self, key: str, value: bytes, deadline: float) -> None:
        """Give rank 0 a value for all ranks."""
        self._lines.send({"put": key, "value": base64.b64encode(value).decode()}, deadline)

    def get(self, key: str, deadline: float) -> bytes:
        """A value, once a rank has put it there; TimeoutError at the deadline."""
        self._lines.send({"want": key}, deadline)
        while (answer := self._lines.receive(deadline)).get("key") != key:
            pass  # the answer to a question that was given up
        return base64.b64decode(str(answer.get("value")))

    def close(self) -> None:
        self._connection.close()

    def _asking[Answer](self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except TimeoutError:
            raise JoinError(
                f"{self._title}: rank 0 assigned no ranks within {self._limit}. See what rank 0 printed."
            ) from None
        except OSError as error:
            raise JoinError(f"{self._title}: rank 0 went away during the join: {error}") from None
        except NoSuchMessageError:
            raise JoinError(
                f"{self._title}: what answers at {self._where} is not rank 0 of this version of Lockstep. "
                "Choose another MASTER_PORT, or start all ranks from one image."
            ) from None
