"""A ring all-reduce by hand: a reduce-scatter and an all-gather, with messages from each rank to the next one.

All gradients are in one vector, which is cut into N chunks. In the N - 1 steps of the reduce-scatter, every rank sends
one chunk to the next rank and adds the one received from the previous rank to its own. Then every rank has one chunk of
the sum over all ranks. In the N - 1 steps of the all-gather, those chunks circulate and replace the others.

All communication goes through self._communicator:

    .rank, .world_size                  this rank's number, 0 to N - 1, and N
    .start_send(tensor, to)             starts to send; `tensor` must not change before .wait() on the result
    .start_receive(tensor, source)      starts to receive into `tensor`, which holds the message after .wait()

Start to receive before you wait for your send. Otherwise the ranks may deadlock.
"""

import torch

from app.sync import RING, Exchange, cut


class Ring(Exchange):
    """Every rank sends to the next one and receives from the previous one."""

    cost = RING  # checked: every rank sends all chunks twice, except one chunk in each phase

    def average(self, values: torch.Tensor) -> None:
        """Replace the vector of all gradients by its mean over all ranks: in place, the same bits on all of them."""
        ranks, rank = self._communicator.world_size, self._communicator.rank
        following, before = (rank + 1) % ranks, (rank - 1) % ranks
        chunks = [values[piece.start : piece.stop] for piece in cut(range(len(values)), ranks)]  # some may be empty

        for step in range(ranks - 1):
            # TODO 1: send chunk rank - step - 1 to the next rank, and add the chunk from the previous one to your own.
            raise NotImplementedError(
                f"TODO 1: step {step} of the reduce-scatter: send a chunk to rank {following}, add one from {before}."
            )

        # TODO 2: this rank now has the complete sum of one chunk. Turn it into the mean.
        raise NotImplementedError(
            f"TODO 2: divide the one of the {len(chunks)} chunks that is complete by the number of ranks."
        )

        for step in range(ranks - 1):
            # TODO 3: send the finished chunk to the next rank, and replace your own by the one received.
            raise NotImplementedError(
                f"TODO 3: step {step} of the all-gather: send a finished chunk to rank {following}, take one."
            )
