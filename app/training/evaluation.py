"""Evaluates the test set after an epoch, sharded over the ranks or completely on each."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.records.lines import Evaluation
from app.training.batches import Indices, load_batch
from app.training.datasets.prepared import DataSet
from app.training.numerics import Numerics

BATCH_PER_RANK = 250


def evaluate_sharded(
    model: nn.Module, numerics: Numerics, dataset: DataSet, cluster: Cluster, communicator: Communicator, epoch: int
) -> Evaluation:
    """Each rank evaluates its part, and an all-reduce gives all ranks the same result."""
    parts = (batch[cluster.rank :: cluster.world_size] for batch in _batches(dataset, cluster.world_size))
    sums = _sums(model, numerics, dataset, parts)
    communicator.all_reduce(sums)
    return _record(sums, cluster.rank, epoch)


def evaluate_every_rank(
    model: nn.Module, numerics: Numerics, dataset: DataSet, cluster: Cluster, communicator: Communicator, epoch: int
) -> Evaluation:
    """Each rank evaluates the whole test set with its own replica, as the course's scripts do."""
    return _record(_sums(model, numerics, dataset, _batches(dataset, 1)), cluster.rank, epoch)


EVALUATIONS = {"sharded": evaluate_sharded, "every_rank": evaluate_every_rank, "never": None}


def _batches(dataset: DataSet, ranks: int) -> Iterator[Indices]:
    """The same number of batches on every rank, because DDP's forward pass is a collective operation."""
    size = BATCH_PER_RANK * ranks
    return (np.arange(start, min(start + size, len(dataset.test))) for start in range(0, len(dataset.test), size))


@torch.no_grad()
def _sums(model: nn.Module, numerics: Numerics, dataset: DataSet, parts: Iterator[Indices]) -> torch.Tensor:
    """The sum of the losses, the number of correct predictions, and the number of samples."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    for samples in parts:
        images, labels = load_batch(dataset, dataset.test, samples, numerics=numerics)
        logits = numerics.forward(model, images)
        sums[0] += cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(1) == labels).sum()
        sums[2] += len(labels)
    return sums


def _record(sums: torch.Tensor, rank: int, epoch: int) -> Evaluation:
    loss, correct, samples = sums.tolist()
    return Evaluation(rank, epoch, loss / samples, int(correct), int(samples), correct / samples)
