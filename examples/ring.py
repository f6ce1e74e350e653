"""A ring all-reduce by hand: a reduce-scatter and an all-gather, in messages from each rank to the next one.

All gradients lie in one vector, which is cut into N chunks. In the N - 1 steps of the reduce-scatter, every rank sends
one chunk to the next rank, and adds the one that comes from the rank before to its own. Then every rank has one chunk
of the sum over all ranks. In the N - 1 steps of the all-gather, those chunks go round and replace the others.

self._communicator is the only way to the other ranks:

    .rank, .world_size                  this rank's number, 0 to N - 1, and N
    .start_send(tensor, to)             starts to send; `tensor` must not change before .wait() on what this returns
    .start_receive(tensor, source)      starts to receive into `tensor`, which holds the message after .wait()

A rank that waits for its send before it starts to receive may wait for ever: all others do the same.
"""

import torch

from app.sync import RING, Exchange, cut


class Ring(Exchange):
    """Every rank sends to the next one and receives from the one before."""

    cost = RING  # what you are held to: all chunks twice, but for one chunk in each phase

    def average(self, values: torch.Tensor) -> None:
        """Replace the ranks' values, a vector of all gradients, by their mean: in place, the same bits on all ranks."""
        ranks, rank = self._communicator.world_size, self._communicator.rank
        following, before = (rank + 1) % ranks, (rank - 1) % ranks
        chunks = [values[piece.start : piece.stop] for piece in cut(range(len(values)), ranks)]  # some may be empty

        for step in range(ranks - 1):
            # TODO 1: send chunk rank - step - 1 to the next rank, and add what comes from the one before to its chunk.
            raise NotImplementedError(
                f"TODO 1: step {step} of the reduce-scatter: send a chunk to rank {following}, add one from {before}."
            )

        # TODO 2: this rank now has all of one chunk's sum. Make a mean of it.
        raise NotImplementedError(
            f"TODO 2: divide the one of the {len(chunks)} chunks that is summed up by the number of ranks."
        )

        for step in range(ranks - 1):
            # TODO 3: send the chunk that is finished to the next rank, and let what comes in replace its chunk.
            raise NotImplementedError(
                f"TODO 3: step {step} of the all-gather: send a finished chunk to rank {following}, take one."
            )
