"""The join's port among strangers: whatever they send and however slowly, ranks get in, and nothing else does."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster import registrant
from app.cluster.identity import Identity
from app.cluster.lines import LONGEST_REQUEST, InvalidMessageError, LineConnection, unpack
from app.cluster.registrant import Registrant
from app.cluster.registrar import SPARE_CONNECTIONS, Registrar
from app.cluster.registration import RankTable, Registration, check_agreement, members_of, read_table
from app.errors import JoinError, LockstepError, SettingError
from app.machine.cpus import Machine
from app.settings import environment
from app.settings.concern import Mark
from app.settings.settings import marked

LOCAL = "127.0.0.1"
PATIENCE = 20.0


def registration(rank: int = 1, **settings: str) -> Registration:
    given = environment.of({"MODEL": "lenet5", **settings})
    shared = given.values(but=marked(Mark.RANKS_MAY_DIFFER))
    return Registration.of(
        given.place, shared, Identity(rank, (), str(rank), f"node-{rank}", LOCAL, LOCAL, LOCAL, 0.0), 7000 + rank
    )


@pytest.fixture
def registrar() -> Iterator[Registrar]:
    said: list[str] = []
    opened = Registrar(LOCAL, 0, ["1", "2"], said.append)
    opened.said = said  # type: ignore[attr-defined]
    yield opened
    opened.close()


def connect(registrar: Registrar) -> socket.socket:
    connection = socket.create_connection((LOCAL, registrar.port), PATIENCE)
    connection.settimeout(PATIENCE)
    return connection


def send(connection: socket.socket, rank: int) -> None:
    message = {"seat": str(rank), "registration": registration(rank).content()}
    LineConnection(connection).send(message, time.monotonic() + PATIENCE)


def join(registrar: Registrar, own: Registration, rank: int = 1) -> RankTable:
    deadline = time.monotonic() + PATIENCE
    with closing(Registrant(own.name, LOCAL, registrar.port, PATIENCE, deadline)) as desk:
        return desk.register(str(rank), own, deadline)


def everybody_joins(registrar: Registrar) -> None:
    """Two ranks join, put a value there, and read each other's."""
    read: dict[int, bytes] = {}
    both_have_read = Barrier(2)

    def be(rank: int) -> None:
        deadline = time.monotonic() + PATIENCE
        with closing(Registrant(f"rank {rank}", LOCAL, registrar.port, PATIENCE, deadline)) as desk:
            assert len(desk.register(str(rank), registration(rank), deadline).members) == 3
            desk.put(f"place/{rank}", bytes([0, 10, 255, rank]), deadline)
            read[rank] = desk.get(f"place/{3 - rank}", deadline)
            both_have_read.wait(PATIENCE)

    ranks = [Thread(target=be, args=(rank,)) for rank in (1, 2)]
    for rank in ranks:
        rank.start()
    assert registrar.await_registrations(time.monotonic() + PATIENCE) == []
    members = members_of([registration(0), registrar.registrations["1"], registrar.registrations["2"]])
    registrar.answer({"table": RankTable(members, "word", 0).content()})
    for rank in ranks:
        rank.join(PATIENCE)
    assert read == {1: bytes([0, 10, 255, 2]), 2: bytes([0, 10, 255, 1])}
    assert registrar.get("place/1", time.monotonic() + PATIENCE) == read[2]


HUGE = b'{"seat": "' + b"x" * (4 * LONGEST_REQUEST)
STRANGE = {
    "nothing": b"",
    "a NUL byte": b"\0",
    "a key of 8 GB, as PyTorch's store would announce it": b"\0" + (2**33).to_bytes(8, "little"),
    "half a line": b'{"seat": "1"',
    "a line without an end": HUGE,
    "HTTP": b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
    "deep nesting": b"[" * 200_000 + b"\n",
    "a long number": b'{"seat": ' + b"9" * 20_000 + b"}\n",
    "no UTF-8": b'{"seat": "\xff"}\n',
}


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
def test_a_stranger_who_stays_holds_nobody_up(registrar: Registrar, said: bytes) -> None:
    with connect(registrar) as stranger:
        with suppress(OSError):  # it is shown the door while it speaks
            stranger.sendall(said)
        everybody_joins(registrar)


@pytest.mark.parametrize("address", ["127.0.0.2", LOCAL], ids=["another", "the ranks' own"])
def test_a_crowd_of_connections_from_one_address_holds_nobody_up(registrar: Registrar, address: str) -> None:
    with ExitStack() as crowd:
        for _ in range(3 * SPARE_CONNECTIONS):
            stranger = socket.create_connection((LOCAL, registrar.port), PATIENCE, (address, 0))
            with suppress(OSError):
                crowd.enter_context(stranger).sendall(b"\0")
        everybody_joins(registrar)


def test_those_who_slam_the_door_leave_no_trace(registrar: Registrar, capfd: pytest.CaptureFixture[str]) -> None:
    for said in [b"", b"\0", b"{}\n"] * 30:
        stranger = connect(registrar)
        stranger.sendall(said)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stranger.close()  # with a reset
    everybody_joins(registrar)
    assert capfd.readouterr() == ("", "")


@given(said=st.binary(max_size=500))
def test_rubbish_is_turned_away(said: bytes) -> None:
    registrar = opened_once()
    with connect(registrar) as stranger:
        stranger.sendall(said + b"\n")
        assert stranger.recv(100) == b""
    assert registrar.registrations == {}


def opened_once(made: list[Registrar] = []) -> Registrar:  # noqa: B006  # one for all examples
    if not made:
        made.append(Registrar(LOCAL, 0, ["1"], lambda _: None))
    return made[0]


def changed(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (content | changes).items() if value is not ...}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(...),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from([*asdict(registration()), "other"]), ANYTHING, max_size=3)
MACHINE = st.dictionaries(st.sampled_from([*asdict(registration().machine), "other"]), ANYTHING, max_size=2)
SETTINGS = st.dictionaries(st.sampled_from([*registration().settings, "other"]), ANYTHING, max_size=3)


def read_as_sent(content: object) -> Registration | None:
    try:
        return Registration.read(json.loads(json.dumps(content, default=str)))
    except InvalidMessageError:
        return None


@given(fields=FIELDS, machine=MACHINE, settings=SETTINGS)
def test_a_card_is_refused_or_can_be_computed_with(
    fields: dict[str, Any], machine: dict[str, Any], settings: dict[str, Any]
) -> None:
    content = registration().content()
    for name, changes in (("machine", machine), ("settings", settings)):
        content[name] = changed(content[name], changes)
    theirs = read_as_sent(changed(content, fields))
    if theirs is None:
        return
    registrations = [registration(0), theirs]
    with suppress(SettingError):
        check_agreement(registrations)
    members = members_of(registrations)
    again = read_table(json.loads(json.dumps(RankTable(members, "word", 0).content())))
    assert again.members == members
    assert all(1 <= member.threads <= 65_536 for member in members)


@given(content=ANYTHING)
def test_what_is_no_table_is_no_rank_0(content: object) -> None:
    with pytest.raises(InvalidMessageError):
        read_table(json.loads(json.dumps(content, default=str)))


@given(line=st.binary(max_size=200))
def test_a_line_is_an_object_or_refused(line: bytes) -> None:
    with suppress(InvalidMessageError):
        assert isinstance(unpack(line), dict)


def test_ranks_may_differ_in_their_limits_and_addresses_alone() -> None:
    own = {
        "THREADS_PER_RANK": "2",
        "RANK_CPUS": "0.5",
        "RUN_NAME": "own",
        "MASTER_PORT": "30000",
        "MASTER_ADDR": "here",
    }
    check_agreement([registration(0), registration(1, **own)])
    for name, value in {"SEED": "2", "LINK_RATE": "1gbit", "CHECKPOINT_EVERY": "7", "RESUME": "never"}.items():
        with pytest.raises(SettingError, match=f"rank 1 has {name}={value}"):
            check_agreement([registration(0), registration(1, **{name: value})])


def test_cards_of_other_seats_addresses_and_versions_get_no_place(registrar: Registrar) -> None:
    with pytest.raises(JoinError, match="rank 0 counted"):
        join(registrar, registration(3), 3)
    with pytest.raises(JoinError, match="rank 0 disconnected"):  # an untrusted peer gets no reason
        join(registrar, replace(registration(1), address="10.1.2.3"))
    other = replace(registration(1), settings=registration(1).settings | {"another": 1})
    with pytest.raises(SettingError, match=r"ranks 0 and 1\b.*\bANOTHER\b"):
        check_agreement([registration(0), other])
    assert registrar.registrations == {}
    everybody_joins(registrar)


def test_a_second_rank_of_the_same_number_is_refused(registrar: Registrar) -> None:
    with connect(registrar) as first:
        send(first, 1)
        while "1" not in registrar.registrations:
            registrar.await_registrations(time.monotonic() + 0.1)
        with pytest.raises(SettingError, match="another process has joined as this rank"):
            join(registrar, registration(1))


def test_a_rank_that_leaves_again_is_noticed_at_once(registrar: Registrar) -> None:
    with connect(registrar) as connection:
        send(connection, 2)
    began = time.monotonic()
    assert registrar.await_registrations(began + 10 * PATIENCE) != []
    assert registrar.left == ["2"]


def test_those_who_come_after_a_refusal_hear_of_it(registrar: Registrar) -> None:
    registrar.answer({"refused": "rank 1 has SEED=5"})
    with pytest.raises(JoinError, match="rank 0 ended the join: rank 1 has SEED=5"):
        join(registrar, registration(1))


def answering(said: bytes) -> int:
    """The port of a server that says this to the first who comes, and then nothing more."""
    server = socket.create_server((LOCAL, 0))
    kept.append(server)

    def serve() -> None:
        connection, _ = server.accept()
        kept.append(connection)
        connection.sendall(said)

    Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


kept: list[socket.socket] = []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "rank 0 assigned no ranks within JOIN_TIMEOUT=1 s"),
        (b'{"table"', "rank 0 assigned no ranks within JOIN_TIMEOUT=1 s"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not rank 0 of this version of Lockstep"),
        (b"[]\n", "is not rank 0 of this version of Lockstep"),
        (b"{}\n", "is not rank 0 of this version of Lockstep"),
        (b'{"table": {"members": [], "password": 3}}\n', "is not rank 0 of this version of Lockstep"),
        (b'{"refused": "no"}\n', "rank 0 ended the join: no"),
    ],
)
def test_whatever_answers_in_rank_0_s_place_a_rank_ends_in_time_and_says_so(
    said: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrant, "COURTESY_SECONDS", 0)
    deadline = time.monotonic() + 1
    with (
        closing(Registrant("rank 1", LOCAL, answering(said), 1, deadline)) as desk,
        pytest.raises(LockstepError, match=told),
    ):
        desk.register("1", registration(1), deadline)


def test_a_machine_that_shares_no_core_is_still_a_machine() -> None:
    nowhere = replace(
        registration(1), machine=Machine("other", (), None, 0, "", bfloat16=False, kernel="6", congestion_control=None)
    )
    assert [member.threads for member in members_of([registration(0), nowhere])][1] == 1
