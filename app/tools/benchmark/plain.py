"""The plainest correct code of each pattern, directly on torch.distributed: the yardsticks of the modes."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn


def gather_scatter(parameters: Sequence[nn.Parameter]) -> None:
    """As a student would write it: stack, mean, scatter."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for parameter in parameters:
        gradient = _gradient(parameter)
        if rank == 0:
            everyones = [torch.zeros_like(gradient) for _ in range(world_size)]
            dist.gather(gradient, everyones)
            mean = torch.stack(everyones).mean(0)
            dist.scatter(gradient, [mean] * world_size)
        else:
            dist.gather(gradient)
            dist.scatter(gradient)


def send_recv(parameters: Sequence[nn.Parameter]) -> None:
    """One blocking message after another."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for parameter in parameters:
        gradient = _gradient(parameter)
        if rank == 0:
            other = torch.empty_like(gradient)
            for worker in range(1, world_size):
                dist.recv(other, worker)
                gradient += other
            gradient /= world_size
            for worker in range(1, world_size):
                dist.send(gradient, worker)
        else:
            dist.send(gradient, 0)
            dist.recv(gradient, 0)


def all_reduce(parameters: Sequence[nn.Parameter]) -> None:
    """One all-reduce per parameter."""
    for parameter in parameters:
        dist.all_reduce(_gradient(parameter))
        _gradient(parameter).div_(dist.get_world_size())


def packed_all_reduce(parameters: Sequence[nn.Parameter]) -> None:
    """Everything packed into one buffer, averaged by one all-reduce, and unpacked."""
    buffer = torch.cat([_gradient(parameter).view(-1) for parameter in parameters])
    dist.all_reduce(buffer)
    buffer /= dist.get_world_size()
    means = torch.split(buffer, [parameter.numel() for parameter in parameters])
    for parameter, mean in zip(parameters, means, strict=True):
        _gradient(parameter).copy_(mean.view_as(parameter))


def packed_ring(parameters: Sequence[nn.Parameter]) -> None:
    """The ring with whole chunks, each step after the one before."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    buffer = torch.cat([_gradient(parameter).view(-1) for parameter in parameters])
    chunks = torch.tensor_split(buffer, world_size)
    for step in range(2 * (world_size - 1)):
        chunk = chunks[(rank - 1 - step) % world_size]
        arriving = torch.empty_like(chunk)
        sending = dist.isend(chunks[(rank - step) % world_size], (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        if sending is not None:
            sending.wait()
        if step < world_size - 1:
            chunk += arriving
        else:
            chunk.copy_(arriving)
    buffer /= world_size
    means = torch.split(buffer, [parameter.numel() for parameter in parameters])
    for parameter, mean in zip(parameters, means, strict=True):
        _gradient(parameter).copy_(mean.view_as(parameter))


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        raise ValueError("all parameters of a benchmark have gradients")
    return parameter.grad
