"""Which networks a run used: what each interface of each rank's machine carried from its first step to its last."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.analysis.run_records import RankRecords, RunRecords
from app.machine.interfaces import Carried
from app.records.manifest import Participant

WORTH_A_WARNING = 0.05  # of what the ranks' own interface carried: less is what machines say to each other anyway
LEAST_BYTES = 1_000_000


@dataclass(frozen=True)
class Use:
    """One interface of a rank's machine, and the bytes that passed it both ways, for all programs."""

    rank: int
    name: str
    address: str
    mtu_bytes: int
    own: bool  # the one that the ranks use
    before_bytes: int  # before the first step, since the interface was created
    after_bytes: int
    own_bytes: int  # that the rank's own interface carried meanwhile

    @property
    def bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    @property
    def share(self) -> float | None:
        """Of what the rank's own interface carried; None where that carried nothing."""
        return self.bytes / self.own_bytes if self.own_bytes else None


def of(run: RunRecords) -> list[Use]:
    return [
        use for participant, rank in zip(run.manifest.ranks, run.ranks, strict=False) for use in _of(participant, rank)
    ]


def _of(participant: Participant, rank: RankRecords) -> Iterator[Use]:
    after = {each.name: each for each in (rank.finished and rank.finished.interfaces) or []}
    both = [(each, after[each.name]) for each in participant.interfaces or [] if each.name in after]
    carried = {before.name: (_bytes(before), _bytes(now)) for before, now in both}
    first, last = carried.get(participant.interface, (0, 0))
    for before, _ in both:
        yield Use(
            rank=participant.rank,
            name=before.name,
            address=before.address,
            mtu_bytes=before.mtu_bytes,
            own=before.name == participant.interface,
            before_bytes=carried[before.name][0],
            after_bytes=carried[before.name][1],
            own_bytes=last - first,
        )


def _bytes(interface: Carried) -> int:
    return interface.sent_bytes + interface.received_bytes


def warnings(run: RunRecords) -> Iterator[str]:
    """In capitals, because clusters forbid it: traffic of a run on a network that is not the experiment's."""
    for use in of(run):
        if not use.own and use.bytes >= max(LEAST_BYTES, WORTH_A_WARNING * use.own_bytes):
            yield (
                f"ANOTHER NETWORK WAS USED: {use.name} ({use.address}) of rank {use.rank} carried "
                f"{use.bytes / 1e6:.1f} MB during the run, compared with {use.own_bytes / 1e6:.1f} MB on the ranks' "
                "own interface. Unless another program caused this, give addresses in the experiment's network, "
                "not full names"
            )
