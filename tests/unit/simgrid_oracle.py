"""What SimGrid says that an exchange takes: reads a case from stdin, and prints when each rank is done.

A process of its own for each case, because a process can have one SimGrid engine only.
"""

import json
import os
import sys
from collections import deque
from heapq import heappop, heappush
from typing import Any, NamedTuple

from simgrid import ActivitySet, Comm, Engine, LinkInRoute

# Bytes over rate and nothing else: SimGrid would otherwise take off what TCP's headers, windows and answers cost.
PLAIN = ("model:CM02", "bandwidth-factor:1", "latency-factor:1", "weight-S:0", "TCP-gamma:0", "crosstraffic:0")


class Message(NamedTuple):
    """As the rank's program has it: it may leave when its sender is done with so many receives."""

    sender: int
    receiver: int
    size: int  # in bytes
    after: int


class Hop(NamedTuple):
    """What carries one flow after another: the earliest message of the schedule first."""

    line: tuple[str, int, int]
    start: Any  # SimGrid's hosts
    end: Any


class Cluster:
    """One host for each rank, with a link in each direction, and a middle that is never full."""

    def __init__(self, rates: list[tuple[float, float]]) -> None:
        self.engine = Engine(["oracle", "--log=root.thresh:warning", *(f"--cfg=network/{each}" for each in PLAIN)])
        zone = self.engine.netzone_root
        self.ranks = [zone.add_host(f"rank{rank}", 1e9) for rank in range(len(rates))]
        self.middle = zone.add_host("middle", 1e9)
        up = [LinkInRoute(zone.add_link(f"up{rank}", rate)) for rank, (rate, _) in enumerate(rates)]
        down = [LinkInRoute(zone.add_link(f"down{rank}", rate)) for rank, (_, rate) in enumerate(rates)]
        for sender, host in enumerate(self.ranks):
            zone.add_route(host, self.middle, [up[sender]], False)
            zone.add_route(self.middle, host, [down[sender]], False)
            for receiver, other in enumerate(self.ranks):
                if receiver != sender:
                    zone.add_route(host, other, [up[sender], down[receiver]], False)
        zone.seal()


class Exchange:
    """Messages on their way, each in so many packets. A rank is done with its receives in the schedule's order."""

    def __init__(self, cluster: Cluster, messages: list[Message], packets: int, shared: bool) -> None:
        self._cluster, self._messages, self._packets, self._shared = cluster, messages, packets, shared
        self.done = [0.0] * len(cluster.ranks)
        self._to_take: list[deque[int]] = [deque() for _ in cluster.ranks]
        self._taken = [0] * len(cluster.ranks)
        self._waiting: list[dict[int, list[int]]] = [{} for _ in cluster.ranks]
        for at, message in enumerate(messages):
            self._to_take[message.receiver].append(at)
            self._waiting[message.sender].setdefault(message.after, []).append(at)
        self._missing = [packets] * len(messages)
        self._queues: dict[tuple[str, int, int], list[tuple[int, int, int]]] = {}  # message, packet, hop
        self._busy: set[tuple[str, int, int]] = set()
        self._flows: dict[int, tuple[Any, tuple[int, int, int]]] = {}
        self._active = ActivitySet()

    def run(self) -> None:
        """The only actor: it starts flows, and goes on when one has ended."""
        for rank in range(len(self.done)):
            self._send(rank)
        while self._flows:
            _, (at, packet, number) = self._flows.pop(id(self._active.wait_any()))
            hops = self._hops(self._messages[at])
            self._busy.remove(hops[number].line)
            if number == 0:
                self._note(self._messages[at].sender)
            if number + 1 < len(hops):
                self._offer(hops[number + 1], (at, packet, number + 1))
            else:
                self._arrive(at)
            self._start_next(hops[number])
        if any(self._missing):
            raise RuntimeError("some messages have never left")

    def _hops(self, message: Message) -> list[Hop]:
        """Shared: one flow for each pair of ranks, at the speed that SimGrid gives it. Else one flow for each link."""
        sender, receiver = self._cluster.ranks[message.sender], self._cluster.ranks[message.receiver]
        if self._shared:
            return [Hop(("pair", message.sender, message.receiver), sender, receiver)]
        middle = self._cluster.middle
        return [Hop(("up", message.sender, 0), sender, middle), Hop(("down", message.receiver, 0), middle, receiver)]

    def _send(self, rank: int) -> None:
        for at in self._waiting[rank].pop(self._taken[rank], ()):
            for packet in range(self._packets):
                self._offer(self._hops(self._messages[at])[0], (at, packet, 0))

    def _offer(self, hop: Hop, flow: tuple[int, int, int]) -> None:
        heappush(self._queues.setdefault(hop.line, []), flow)
        self._start_next(hop)

    def _start_next(self, hop: Hop) -> None:
        if hop.line in self._busy or not self._queues[hop.line]:
            return
        at, packet, number = heappop(self._queues[hop.line])
        own = self._hops(self._messages[at])[number]
        size = self._messages[at].size
        part = size * (packet + 1) // self._packets - size * packet // self._packets
        flow = Comm.sendto_async(own.start, own.end, part)
        self._flows[id(flow)] = flow, (at, packet, number)
        self._active.push(flow)
        self._busy.add(hop.line)

    def _arrive(self, at: int) -> None:
        self._missing[at] -= 1
        rank = self._messages[at].receiver
        self._note(rank)
        while self._to_take[rank] and not self._missing[self._to_take[rank][0]]:
            self._to_take[rank].popleft()
            self._taken[rank] += 1
            self._send(rank)

    def _note(self, rank: int) -> None:
        self.done[rank] = self._cluster.engine.clock


def main() -> None:
    # SimGrid and its actor are two threads that take turns: on one core, the turn passes in a fraction of the time.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    case = json.load(sys.stdin)
    cluster = Cluster(case["rates"])
    exchange = Exchange(cluster, [Message(*each) for each in case["messages"]], case["packets"], case["shared"])
    cluster.engine.add_actor("all", cluster.middle, exchange.run)
    cluster.engine.run()
    json.dump(exchange.done, sys.stdout)


if __name__ == "__main__":
    main()
