"""The course script with DDP, tuned by hand as a good engineer would: a second baseline.

It has the threads that the quota pays for, no process beside it, images augmented as one tensor, the layout that is
faster here, gradients as views of DDP's buckets, and a fused SGD. It computes the same as the course script.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import pad
from torch.nn.parallel import DistributedDataParallel

from app.tools.benchmark.course import MODELS, STATISTICS, Batch, read_arguments
from app.tools.benchmark.turns import in_turns

PADDING = 4
TRIALS = 2


class Batches:
    """Batches without end, of all images in random order; each is made from one piece of the images."""

    def __init__(self, folder: Path, batch_size: int, rank: int, world_size: int) -> None:
        self.images = torch.from_numpy(np.load(folder / "images.npy")).permute(0, 3, 1, 2).contiguous()
        self.labels = torch.from_numpy(np.load(folder / "labels.npy"))
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        mean, deviation = (torch.tensor(each).view(1, -1, 1, 1) * 255 for each in STATISTICS[self.images.shape[1]])
        self.scale, self.shift = 1 / deviation, -mean / deviation
        self.layout = torch.contiguous_format

    def __iter__(self) -> Iterator[Batch]:
        random = torch.Generator().manual_seed(1)  # the same on all ranks
        while True:
            order = torch.randperm(len(self.labels), generator=random)[self.rank :: self.world_size]
            for samples in torch.split(order, self.batch_size):
                if len(samples) == self.batch_size:
                    yield self.load(samples), self.labels[samples]

    def load(self, samples: torch.Tensor) -> torch.Tensor:
        images = self.images[samples]
        if images.shape[1] == 3:
            images = crop_and_flip(images)
        return torch.addcmul(self.shift, images.to(torch.float32), self.scale).contiguous(memory_format=self.layout)


def crop_and_flip(images: torch.Tensor) -> torch.Tensor:
    """A random 32x32 of each image with a border of 4, and half of them mirrored."""
    number, channels, side, _ = images.shape
    top, left = torch.randint(0, 2 * PADDING + 1, (2, number, 1))
    offsets = torch.arange(side)
    mirrored = torch.rand(number, 1) < 0.5
    rows = (top + offsets)[:, None, :, None]
    columns = (left + torch.where(mirrored, offsets.flip(0), offsets))[:, None, None, :]
    which, channel = torch.arange(number)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return pad(images, (PADDING,) * 4)[which, channel, rows, columns]


def faster_layout(model: nn.Module, batches: Batches) -> torch.memory_format:
    """The layout in which a forward and a backward take less CPU time, as rank 0 finds; each is tried in turn."""
    taken = {torch.contiguous_format: 0.0, torch.channels_last: 0.0}
    loss_function = nn.CrossEntropyLoss()
    for trial in range(1 + TRIALS):
        for batches.layout in taken:
            images, labels = next(iter(batches))
            began = time.process_time()
            loss_function(model(images), labels).backward()
            taken[batches.layout] += (time.process_time() - began) * (trial > 0)
    model.zero_grad()
    print(f"CPU seconds by layout: {taken}", file=sys.stderr)
    last = torch.tensor(taken[torch.channels_last] < taken[torch.contiguous_format])
    dist.broadcast(last, 0)
    return torch.channels_last if last else torch.contiguous_format


def train(model: nn.Module, batches: Iterator[Batch]) -> None:
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    running_loss = 0.0
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=False)  # the gradients stay where they are: in the buckets
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    rank, nodes = arguments.rank, arguments.num_nodes
    dist.init_process_group(
        "gloo", init_method=f"tcp://{arguments.master_ip}:{arguments.port}", rank=rank, world_size=nodes
    )
    batches = Batches(arguments.data, arguments.batch_size // nodes, rank, nodes)
    model = MODELS[arguments.model]().train()
    if batches.images.shape[1] == 3:
        batches.layout = faster_layout(model, batches)
    train(DistributedDataParallel(model, gradient_as_bucket_view=True), in_turns(iter(batches)))


if __name__ == "__main__":
    main()
