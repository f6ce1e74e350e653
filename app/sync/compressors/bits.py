"""Messages of one number followed by one bit per element."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from app.cluster.wire.communicator import Communicator
from app.sync.schedules.schedule import Message, Round

Bits = npt.NDArray[np.bool_]
NUMBER = np.dtype("<f4")


def bytes_of(bits: int) -> int:
    """Size of a message of this many bits, including its number."""
    return NUMBER.itemsize + -(-bits // 8)


def pack(number: float, bits: Bits) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([np.array([number], NUMBER).view(np.uint8), np.packbits(bits)]))


def unpack(message: torch.Tensor, bits: int) -> tuple[float, Bits]:
    array = message.numpy()
    number = array[: NUMBER.itemsize].copy().view(NUMBER)[0]
    return float(number), np.unpackbits(array[NUMBER.itemsize :], count=bits).astype(np.bool_)


def exchanged(
    communicator: Communicator, messages: Round, own: Mapping[Message, torch.Tensor]
) -> dict[Message, torch.Tensor]:
    """Send this rank's messages of a round, and return those that it receives."""
    arriving = {
        each: torch.empty(bytes_of(len(each.piece)), dtype=torch.uint8)
        for each in messages
        if each.receiver == communicator.rank
    }
    transfers = [communicator.start_receive(place, each.sender) for each, place in arriving.items()]
    transfers += [communicator.start_send(message, each.receiver) for each, message in own.items()]
    for transfer in transfers:
        transfer.wait()
    return arriving


def place_of(message: Message) -> slice:
    return slice(message.piece.start, message.piece.stop)
