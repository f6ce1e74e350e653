"""The join: every rank registers with rank 0, rank 0 sends the table of ranks, and the group forms."""

import secrets
import socket
import time
from collections.abc import Sequence

import torch.distributed as dist

from app.cluster import failure_detector
from app.cluster.backends import BACKENDS
from app.cluster.compose import not_running, where_to_read
from app.cluster.failure_detector import FailureDetector
from app.cluster.identity import LOOPBACK, Identity, missing_error
from app.cluster.members import Cluster, Member
from app.cluster.registrant import Registrant
from app.cluster.registrar import Registrar
from app.cluster.registration import RankTable, Registration, check_agreement, members_of
from app.cluster.rendezvous import Rendezvous, Values, within
from app.cluster.sharing import members_table
from app.errors import JoinError, LockstepError
from app.machine.interrupt import CleanUps, ask_on_signal, end_now
from app.machine.say import Say
from app.settings.concern import Mark
from app.settings.place import PlaceSettings
from app.settings.settings import Settings, marked

REMINDER_SECONDS = 10.0
CONNECTING_SECONDS = 4.0  # at least, even if the last rank registered at the deadline
ONLY_HERE = (
    f" Rank 0 listens at {LOOPBACK}, which only its own machine can reach, because MASTER_ADDR resolves to it there. "
    "For ranks on other machines, set MASTER_ADDR to rank 0's address on their network."
)
FAREWELL_SECONDS = 10.0  # after a refusal, for ranks that have not registered yet


def join(settings: Settings, identity: Identity, say: Say, clean_ups: CleanUps, attempt: int = 0) -> Cluster:
    """Form the group by the identity's deadline. Rank 0 prints the table of members and sends the attempt's number.

    The clean-ups run if the failure detector ends the process because the training does not notice a loss.
    """
    BACKENDS[settings.place.backend].check()
    try:
        datagrams = failure_detector.listen(identity.address)
    except OSError as error:
        raise JoinError(
            f"{title_of(identity)}: cannot listen at {identity.address}: {error.strerror}. "
            "Was the container disconnected from its network? Start all ranks again."
        ) from None
    shared = settings.values(but=marked(Mark.RANKS_MAY_DIFFER))
    registration = Registration.of(settings.place, shared, identity, datagrams.getsockname()[1])
    values: Values | None = None
    if identity.rank != 0:
        values = registrant = Registrant(
            title_of(identity),
            identity.master,
            settings.place.master_port,
            settings.place.join_timeout,
            identity.deadline,
            identity.is_over,
        )
        table = registrant.register(identity.seat, registration, identity.deadline)
        if identity.rank >= len(table.members):
            raise JoinError(
                f"{title_of(identity)}: missing from rank 0's table. Start all ranks again.", "ranks-differ"
            )
    elif len(identity.seats) == 1:
        table = _assign(settings, [registration], attempt)
    else:
        values = registrar = _open(settings.place, identity, say)
        table = _seat_all(registrar, settings, identity, registration, attempt, say)
    if identity.rank == 0:
        say(members_table(table.members))
    return _form(settings.place, identity, table, datagrams, values, clean_ups)


def _form(
    place: PlaceSettings,
    identity: Identity,
    table: RankTable,
    datagrams: socket.socket,
    values: Values | None,
    clean_ups: CleanUps,
) -> Cluster:
    """Connect to all other ranks: through the backend for training, through datagrams for the failure detector."""
    rank, members = identity.rank, table.members
    addresses = [(member.address, member.port) for member in members]
    detector = FailureDetector(datagrams, rank, addresses, table.password, place.peer_timeout)
    store = Rendezvous(values, table.attempt) if values else dist.HashStore()
    backend = BACKENDS[place.backend]
    cluster = Cluster(rank, members, detector, place.peer_timeout, store, backend, table.attempt)
    detector.start(lambda loss: end_now(cluster.failure(loss), clean_ups), cluster.activity)
    ask_on_signal(lambda: cluster.failure(detector.loss) if detector.loss else None)
    clean_ups.insert(0, lambda: detector.give_up("stopped by a signal"))
    deadline = max(identity.deadline, time.monotonic() + CONNECTING_SECONDS)
    try:
        within(
            deadline - time.monotonic(),
            lambda: backend.connect(store, rank, len(members), place.peer_timeout, cluster.me.interface),
        )
    except (RuntimeError, OSError) as error:
        unreached = _named(members, detector.find_lost().lost or range(len(members)), rank)
        detector.give_up("it could not connect to all others")
        raise JoinError(
            f"{members[rank].title}: all ranks joined, but this one could not connect to all others "
            f"({unreached}): {str(error).splitlines()[0]}\n"
            "Every rank must reach every other on any port above 1023. Check for a rank that has exited, or a firewall."
        ) from None
    if unheard := detector.unheard(deadline):
        detector.give_up("it received no heartbeat from some ranks")
        raise JoinError(
            f"{members[rank].title}: all ranks joined, but no UDP datagram has arrived from "
            f"{_named(members, unheard, rank)}. "
            "Every rank must reach every other on any port above 1023. Check for a rank that has exited, or a firewall."
        )
    return cluster


def _named(members: Sequence[Member], ranks: Sequence[int], own: int) -> str:
    return ", ".join(members[rank].title for rank in ranks if rank != own)


def _open(place: PlaceSettings, identity: Identity, say: Say) -> Registrar:
    port = place.master_port
    try:
        return Registrar(identity.address, port, identity.seats[1:], say)
    except OSError as error:
        raise JoinError(
            f"rank 0: cannot listen on port {port}: {error.strerror}. Choose another MASTER_PORT."
        ) from None


def _seat_all(
    registrar: Registrar, settings: Settings, identity: Identity, registration: Registration, attempt: int, say: Say
) -> RankTable:
    """Rank 0: wait for all registrations, check that they agree, and send the table of ranks."""
    try:
        _await_others(registrar, settings, identity, attempt, say)
        others = [registrar.registrations[seat] for seat in identity.seats[1:]]
        table = _assign(settings, [registration, *others], attempt)
    except LockstepError as error:
        registrar.answer({"refused": str(error)})
        registrar.await_everyone(min(FAREWELL_SECONDS, identity.deadline - time.monotonic()))
        raise
    registrar.answer({"table": table.content()})
    registrar.close()
    return table


def _assign(settings: Settings, registrations: Sequence[Registration], attempt: int) -> RankTable:
    settings.check_ranks(len(registrations))
    check_agreement(registrations)
    return RankTable(members_of(registrations), secrets.token_hex(16), attempt)


def _await_others(registrar: Registrar, settings: Settings, identity: Identity, attempt: int, say: Say) -> None:
    stopped = set(identity.absent)
    while missing := registrar.await_registrations(min(identity.deadline, time.monotonic() + REMINDER_SECONDS)):
        _check_nobody_left(registrar, identity)
        # Docker restarts a container within a second at first, but waits longer after every failure.
        stopped_now = not_running(missing) if attempt == 0 else set()
        if gone := stopped & stopped_now:
            raise missing_error(identity, gone)
        stopped = stopped_now
        absent = [identity.title_of_seat(rank) for rank, seat in enumerate(identity.seats) if seat in missing]
        if time.monotonic() < identity.deadline:
            say(f"waiting for {', '.join(absent)}")
            continue
        came = [identity.title_of_seat(rank) for rank, seat in enumerate(identity.seats) if seat not in missing]
        raise JoinError(
            f"the group is not complete after JOIN_TIMEOUT={settings.place.join_timeout:g} s. "
            f"Joined: {', '.join(came)}. Missing: {', '.join(absent)}. See the output of the missing ranks."
            f"{ONLY_HERE if identity.address == LOOPBACK else ''}"
        )
    _check_nobody_left(registrar, identity)


def _check_nobody_left(registrar: Registrar, identity: Identity) -> None:
    if registrar.left:
        names = {identity.seats.index(seat): registrar.registrations[seat].name for seat in registrar.left}
        everyone = ", ".join(f"rank {rank} ({name})" for rank, name in sorted(names.items()))
        raise JoinError(
            f"{everyone} exited during the join, after registration. "
            f"See the last lines of rank {min(names)}'s output{where_to_read(names[min(names)])}"
        )


def title_of(identity: Identity) -> str:
    """A rank's name in messages before the table of members is known."""
    return f"rank {identity.rank} ({identity.name})"
