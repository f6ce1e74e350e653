"""`sign`: one bit per element and a majority vote over the ranks (signSGD)."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from app.settings.averaging import AveragingSettings
from app.sync.compressors.bits import Bits, bytes_of, exchanged, pack, place_of, unpack
from app.sync.compressors.contract import Aggregate, Compressor
from app.sync.contract import GradientSync
from app.sync.exchange import Exchange
from app.sync.modes.parameter_server import ParameterServer
from app.sync.schedules import costs
from app.sync.schedules.costs import Cost
from app.sync.schedules.schedule import Message

RANK_COIN, SERVER_COIN = 0, 1  # streams of the random tie-breaks


class Sign(Compressor):
    """Each server of `parameter_server` counts the votes for its shard and sends the outcome to all, also in bits.

    A rank also sends the mean magnitude of its elements, and the outcome has the mean of these magnitudes. The result
    therefore scales with the gradients, and is zero if they are. Zeros on a rank and ties on a server are decided by a
    coin toss that depends on seed and step.

    Formula: sign(sum over the ranks of sign(grad)) * mean over ranks and elements of |grad|.
    Bytes per rank and step, for d elements and SHARDS = N: 2(N-1)/N * d/8, and 8(N-1) for the magnitudes; the bits of a
    message are rounded up to bytes.
    Rounds: 2. It always saves bytes: a ring sends 32 times as many.
    Law: vote. The result is not a mean: if few ranks have large elements of one sign, it may point the other way.
    """

    law = "vote"

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The mean magnitude of the elements, and their signs."""
        return pack(float(values.abs().mean()), self._signs_of(values))

    def decode(self, message: torch.Tensor) -> torch.Tensor:
        size, signs = unpack(message, (len(message) - bytes_of(0)) * 8)
        return torch.from_numpy(np.where(signs, size, -size)).to(self._dtype)

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        if not isinstance(exchange, ParameterServer):
            raise TypeError(f"sign requires a subclass of ParameterServer, not {type(exchange).__name__}")
        mean, rank = torch.empty_like(values), self._communicator.rank
        if not len(values):
            return Aggregate(mean, mean)
        size, signs = float(values.abs().mean()), self._signs_of(values)
        given, taken = exchange.schedule(len(values), self._communicator.world_size, self._settings).rounds
        own = {each: pack(size, signs[place_of(each)]) for each in given if each.sender == rank}
        ballots = {each.sender: ballot for each, ballot in exchanged(self._communicator, given, own).items()}
        answers = [each for each in taken if each.sender == rank]
        outcomes: dict[Message, torch.Tensor] = {}
        if answers:
            ballots[rank] = pack(size, signs[place_of(answers[0])])
            outcomes = dict.fromkeys(answers, self._count(ballots, len(answers[0].piece)))
        for each, outcome in [*exchanged(self._communicator, taken, outcomes).items(), *list(outcomes.items())[:1]]:
            mean[place_of(each)] = self.decode(outcome)[: len(each.piece)]
        return Aggregate(mean, mean)

    @classmethod
    def cost_with(
        cls, mode: type[GradientSync], shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings
    ) -> Cost:
        """The cost of the exchange's messages, packed as bits."""
        elements = sum(map(torch.Size.numel, shapes))
        return costs.messages_cost(
            lambda ranks: ParameterServer.schedule(elements, ranks, settings), lambda each: bytes_of(len(each.piece))
        )

    def _signs_of(self, values: torch.Tensor) -> Bits:
        return self._decided(values.numpy() > 0, values.numpy() == 0, RANK_COIN)

    def _count(self, ballots: Mapping[int, torch.Tensor], length: int) -> torch.Tensor:
        sizes, votes = zip(*(unpack(ballots[rank], length) for rank in sorted(ballots)), strict=True)
        twice = 2 * np.stack(votes).sum(axis=0, dtype=np.int32)
        return pack(sum(sizes) / len(sizes), self._decided(twice > len(votes), twice == len(votes), SERVER_COIN))

    def _decided(self, bits: Bits, undecided: Bits, coin: int) -> Bits:
        if count := int(undecided.sum()):
            seed = self._settings.seed, self._communicator.step, self._communicator.rank, coin
            bits[undecided] = np.random.default_rng(seed).integers(0, 2, count, dtype=np.bool_)
        return bits
