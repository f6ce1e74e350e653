"""How the ranks find each other: all connect to rank 0's store, rank 0 assigns ranks, and the group forms."""

import os
import time
from datetime import timedelta

import torch.distributed as dist

from app.cluster.card import Card, check_agreement, read_table, seat, table_text
from app.cluster.identity import Identity
from app.cluster.members import Cluster, Member
from app.cluster.roll_call import RollCall, await_keys
from app.cluster.sharing import who_is_who
from app.errors import JoinError, LockstepError, SettingError
from app.machine.say import Say
from app.settings.fields import Settings

REMINDER_SECONDS = 10.0
FAREWELL_SECONDS = 5.0


def join(settings: Settings, identity: Identity, say: Say) -> Cluster:
    """Form the group within JOIN_TIMEOUT. Rank 0 prints the table of members."""
    deadline = time.monotonic() + settings.join_timeout
    card = Card.of(settings, identity)
    os.environ["GLOO_SOCKET_IFNAME"] = card.interface  # the only place where Gloo looks for it
    if identity.rank == 0:
        store = _open_store(settings, identity)
        members = _seat_all(store, settings, identity, card, deadline, say)
        say(who_is_who(members))
        rank = 0
    else:
        store = _reach_store(settings, identity, deadline)
        members, rank = _take_seat(store, settings, identity, card, deadline)
    try:
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore("gloo", store),
            rank=rank,
            world_size=len(members),
            timeout=timedelta(seconds=settings.peer_timeout),
        )
        listener = dist.TCPStore(
            identity.master_address, store.port, is_master=False, timeout=_until(deadline), use_libuv=False
        )
    except RuntimeError as error:
        addresses = ", ".join(f"{member.name} {member.address}" for member in members if member.rank != rank)
        raise JoinError(
            f"{members[rank].title}: all ranks joined, but this one could not connect to all others ({addresses}): "
            f"{str(error).splitlines()[0]}\n"
            "Every rank must reach every other on any port above 1023. Look for a rank that has ended, or a firewall."
        ) from None
    roll_call = RollCall(store, listener, rank, len(members))
    return Cluster(rank, members, store, roll_call, settings.peer_timeout)


def _open_store(settings: Settings, identity: Identity) -> dist.TCPStore:
    """Rank 0's store; a single rank takes any free port, because nobody else connects."""
    port = settings.master_port if len(identity.seats) > 1 else 0
    try:
        return dist.TCPStore(identity.address, port, is_master=True, wait_for_workers=False, use_libuv=False)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise JoinError(f"rank 0: cannot listen on port {port}: {reason} Choose another MASTER_PORT.") from None


def _until(deadline: float) -> timedelta:
    return timedelta(seconds=max(1.0, deadline - time.monotonic()))


def _reach_store(settings: Settings, identity: Identity, deadline: float) -> dist.TCPStore:
    try:
        return dist.TCPStore(
            identity.master_address, settings.master_port, is_master=False, timeout=_until(deadline), use_libuv=False
        )
    except RuntimeError:
        raise JoinError(
            f"{_label(identity)}: rank 0 did not answer at {identity.master_address}:{settings.master_port} within "
            f"JOIN_TIMEOUT={settings.join_timeout:g} s. See what rank 0 printed."
        ) from None


def _seat_all(
    store: dist.Store, settings: Settings, identity: Identity, card: Card, deadline: float, say: Say
) -> tuple[Member, ...]:
    """Rank 0: wait until all ranks have joined, check that all want the same run, publish the table."""
    try:
        cards = [card, *_await_others(store, settings, identity, deadline, say)]
        settings.check_ranks(len(cards))
        check_agreement(cards)
    except LockstepError as error:
        _refuse(store, identity, str(error))
        raise
    members = seat(cards)
    store.set("table", table_text(members))
    return members


def _await_others(store: dist.Store, settings: Settings, identity: Identity, deadline: float, say: Say) -> list[Card]:
    keys = [f"card/{seat}" for seat in identity.seats[1:]]
    while missing := await_keys(store, keys, min(deadline, time.monotonic() + REMINDER_SECONDS)):
        absent = [_seat_label(rank, seat) for rank, seat in enumerate(identity.seats) if f"card/{seat}" in missing]
        if time.monotonic() < deadline:
            say(f"waiting for {', '.join(absent)}")
            continue
        came = [_seat_label(rank, seat) for rank, seat in enumerate(identity.seats) if f"card/{seat}" not in missing]
        raise JoinError(
            f"the group is not complete after JOIN_TIMEOUT={settings.join_timeout:g} s. "
            f"Joined: {', '.join(came)}. Missing: {', '.join(absent)}. The output of the missing ranks says why."
        )
    return [Card.read(store.get(key)) for key in keys]


def _refuse(store: dist.Store, identity: Identity, reason: str) -> None:
    """Tell the ranks that joined why there is no run, and stay until they have read it."""
    store.set("refused", reason)
    store.set("table", "")
    absent = await_keys(store, [f"card/{seat}" for seat in identity.seats[1:]], time.monotonic())
    readers = [f"read/{seat}" for seat in identity.seats[1:] if f"card/{seat}" not in absent]
    await_keys(store, readers, time.monotonic() + FAREWELL_SECONDS)


def _take_seat(
    store: dist.Store, settings: Settings, identity: Identity, card: Card, deadline: float
) -> tuple[tuple[Member, ...], int]:
    """A worker: hand in its card, wait for the table, find its own rank in it."""
    if store.add(f"taken/{identity.seat}", 1) > 1:
        raise SettingError(f"{_label(identity)}: another process has joined as this rank. Give each its own RANK.")
    try:
        store.set(f"card/{identity.seat}", card.text())
        if await_keys(store, ["table"], time.monotonic() + settings.join_timeout):
            raise JoinError(
                f"{_label(identity)}: rank 0 assigned no ranks within JOIN_TIMEOUT={settings.join_timeout:g} s."
            )
        table = store.get("table")
        if not table:
            reason = store.get("refused").decode()
            store.set(f"read/{identity.seat}", "")
            raise JoinError(f"{_label(identity)}: rank 0 ended the join: {reason}")
    except RuntimeError as error:
        raise JoinError(f"{_label(identity)}: rank 0 went away during the join: {error}") from None
    members = read_table(table)
    if identity.rank is not None:
        return members, identity.rank
    mine = [member.rank for member in members if member.address == identity.address]
    if not mine:
        raise JoinError(f"{_label(identity)}: joined after rank 0 had counted the workers. Start the cluster again.")
    return members, mine[0]


def _seat_label(rank: int, seat: str) -> str:
    return f"rank {rank}" if seat == str(rank) else f"rank {rank} ({seat})"


def _label(identity: Identity) -> str:
    return identity.name if identity.rank is None else f"rank {identity.rank} ({identity.name})"
