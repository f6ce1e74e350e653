"""A plain PyTorch training loop whose gradients are averaged by one of Lockstep's modes.

PYTHONPATH=. torchrun --nproc-per-node 4 examples/plain_loop.py ring_all_reduce
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

from app.sync import Communicator, create

STEPS = 20


def main(name: str) -> None:
    """Train a classifier on all ranks that decides whether the sum of a row is positive."""
    dist.init_process_group("gloo")
    mode = create(name, Communicator.over(dist.group.WORLD))
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    replica = mode.attach(model)  # every rank starts with rank 0's parameters
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    own_data = torch.Generator().manual_seed(dist.get_rank())

    for step in range(STEPS):
        rows = torch.randn(32, 20, generator=own_data)
        loss = nn.functional.cross_entropy(replica(rows), (rows.sum(dim=1) > 0).long())
        optimiser.zero_grad()
        loss.backward()
        mode.synchronise(model.parameters())
        optimiser.step()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}, {mode.bytes_sent:,.0f} bytes sent")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["ring_all_reduce"])
