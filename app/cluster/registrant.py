"""The join on all ranks but rank 0: their connection to rank 0."""

import base64
import socket
import time
from collections.abc import Callable

from app.cluster.identity import OVER, address_of, never
from app.cluster.lines import InvalidMessageError, LineConnection
from app.cluster.registration import RankTable, Registration, read_table
from app.errors import JoinError, SettingError

CONNECT_SECONDS = 5.0  # per attempt to connect
PAUSE_SECONDS = 0.1  # between two attempts
COURTESY_SECONDS = 5.0  # beyond the deadline: rank 0 started later, and its error names the missing ranks


class Registrant:
    """One rank's connection to rank 0. Every wait has a deadline, even if rank 0 stops responding."""

    def __init__(
        self,
        title: str,
        master: str,
        port: int,
        join_timeout: float,
        deadline: float,
        is_over: Callable[[], bool] = never,
    ) -> None:
        """Retry until rank 0 accepts. `title` is this rank's name in messages, `master` is rank 0's name or address."""
        self._title, self._limit = title, f"JOIN_TIMEOUT={join_timeout:g} s"
        self._where = f"{master}:{port}"
        while True:
            left = deadline - time.monotonic()
            try:
                # Resolved again on each attempt: if rank 0 restarts, its address may change.
                self._where = f"{(address := address_of(master))}:{port}"
                connection = socket.create_connection((address, port), max(0.01, min(CONNECT_SECONDS, left)))
                break
            except OSError as error:
                if is_over():
                    raise JoinError(OVER) from None
                if time.monotonic() + PAUSE_SECONDS > deadline:
                    raise JoinError(
                        f"{title}: rank 0 did not answer at {self._where} within {self._limit} ({error}). "
                        "See rank 0's output."
                    ) from None
            time.sleep(PAUSE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._lines = connection, LineConnection(connection)

    def register(self, seat: str, registration: Registration, deadline: float) -> RankTable:
        """Register this rank and wait for the table of all ranks."""
        deadline += COURTESY_SECONDS

        def request() -> dict[str, object]:
            self._lines.send({"seat": seat, "registration": registration.content()}, deadline)
            return self._lines.receive(deadline)

        answer = self._explaining(request)
        if "taken" in answer:
            raise SettingError(
                f"{self._title}: another process has joined as this rank. Give each its own RANK.",
                "conflicting-settings",
            )
        if "refused" in answer:
            raise JoinError(f"{self._title}: rank 0 ended the join: {answer['refused']}")
        return self._explaining(lambda: read_table(answer.get("table")))

    def put(self, key: str, value: bytes, deadline: float) -> None:
        """Store a value on rank 0 for all ranks."""
        self._lines.send({"put": key, "value": base64.b64encode(value).decode()}, deadline)

    def get(self, key: str, deadline: float) -> bytes:
        """Wait for a value that any rank stores; raises TimeoutError at the deadline."""
        self._lines.send({"want": key}, deadline)
        while (answer := self._lines.receive(deadline)).get("key") != key:
            pass  # the answer to a request that timed out
        return base64.b64decode(str(answer.get("value")))

    def close(self) -> None:
        self._connection.close()

    def _explaining[Answer](self, request: Callable[[], Answer]) -> Answer:
        try:
            return request()
        except TimeoutError:
            raise JoinError(
                f"{self._title}: rank 0 assigned no ranks within {self._limit}. See rank 0's output."
            ) from None
        except OSError as error:
            raise JoinError(
                f"{self._title}: rank 0 disconnected during the join: {error}. See rank 0's output."
            ) from None
        except InvalidMessageError:
            raise JoinError(
                f"{self._title}: the process at {self._where} is not rank 0 of this version of Lockstep. "
                "Choose another MASTER_PORT, or start all ranks from one image."
            ) from None
