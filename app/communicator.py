"""The only door to the wire: what passes is counted, limited in time, and fails with an error that names ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from app.cluster import Cluster
from app.errors import PeerLostError


def all_reduce_share(size: int, world_size: int) -> float:
    """Bytes that a rank sends, and receives, in a ring all-reduce of `size` bytes: no algorithm needs fewer."""
    return 2 * (world_size - 1) / world_size * size


@dataclass
class Traffic:
    """Payload since the step began."""

    sent: float = 0.0
    received: float = 0.0


class Communicator:
    """The process group of a formed cluster. Its limit on every wait is PEER_TIMEOUT."""

    def __init__(self, cluster: Cluster) -> None:
        """Count from zero."""
        self._cluster = cluster
        self._step: int | None = None
        self.traffic = Traffic()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self._cluster.world_size

    def begin_step(self, step: int) -> None:
        """Count anew, and name this step in errors."""
        self._step = step
        self.traffic = Traffic()

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replace the tensor, on every rank, by the sum over all ranks."""
        with self.watching(f"all-reduce of {tensor.nbytes} bytes"):
            dist.all_reduce(tensor)
        self._count_all_reduce(tensor)

    def start_all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Begin to replace the tensor by the sum over all ranks; the future gives the tensor back."""
        work = dist.all_reduce(tensor, async_op=True)
        self._count_all_reduce(tensor)
        reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
        return reduced

    def wait_for_peers(self) -> None:
        """Return when every rank has arrived here; its few bytes are not payload."""
        with self.watching("barrier"):
            dist.barrier()

    @contextmanager
    def watching(self, operation: str) -> Iterator[None]:
        """Turn the backend's failure into an error that says which rank was lost, and when."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and "gloo" not in str(error):
                raise
            raise self._lost(operation, error) from error

    def _lost(self, operation: str, error: RuntimeError) -> PeerLostError:
        lost = self._cluster.find_lost()
        names = ", ".join(member.title for member in lost) or "a peer"
        when = "before the first step" if self._step is None else f"at step {self._step}"
        cause = str(error).splitlines()[0]
        return PeerLostError(
            f"rank {self._cluster.rank}: lost {names} during {operation} {when}: {cause}\n"
            "What that rank printed last says why it went: docker compose logs"
        )

    def _count_all_reduce(self, tensor: torch.Tensor) -> None:
        share = all_reduce_share(tensor.nbytes, self.world_size)
        self.traffic.sent += share
        self.traffic.received += share
