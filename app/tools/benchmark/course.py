"""The script of a student of the course, the baseline of `benchmark step`. It trains with PyTorch alone.

It runs by itself, in a process of its own: python3 -m app.tools.benchmark.course --help
"""

import argparse
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.models import resnet18

from app.tools.benchmark.plain import all_reduce, gather_scatter
from app.tools.benchmark.turns import in_turns

Sample = tuple[torch.Tensor, int]
Batch = tuple[torch.Tensor, torch.Tensor]

AVERAGES = {"gather_scatter": gather_scatter, "all_reduce": all_reduce}
STATISTICS = {  # mean and deviation of each channel
    3: ([x / 255.0 for x in (125.3, 123.0, 113.9)], [x / 255.0 for x in (63.0, 62.1, 66.7)]),
    1: ([59.6 / 255.0], [79.6 / 255.0]),
}


class Images(Dataset[Sample]):
    """Images in memory, each transformed when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.images = np.load(folder / "images.npy")
        self.labels = np.load(folder / "labels.npy")
        channels = self.images.shape[3]
        crop_and_flip = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose(
            [
                *(crop_and_flip if channels == 3 else []),
                transforms.ToTensor(),
                transforms.Normalize(*STATISTICS[channels]),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        return self.transform(Image.fromarray(image.squeeze())), int(self.labels[index])


def vgg11() -> nn.Module:
    """VGG-11 with batch normalisation and one linear layer."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if width == 0:
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        else:
            layers.append(nn.Conv2d(channels, width, kernel_size=3, stride=1, padding=1))
            layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
            channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def lenet5() -> nn.Module:
    """LeNet-5 with Tanh and average pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 6, kernel_size=5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(16, 120, kernel_size=5),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, 10),
    )


def small_resnet18() -> nn.Module:
    """Torchvision's, with a stem for small images."""
    model: nn.Module = resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {"vgg11": vgg11, "lenet5": lenet5, "resnet18": small_resnet18}


def epochs(loader: DataLoader[Sample], sampler: DistributedSampler[Sample] | None) -> Iterator[Batch]:
    for epoch in count():
        if sampler is not None:
            sampler.set_epoch(epoch)
        yield from loader


def train(model: nn.Module, batches: Iterator[Batch], average: Callable[[list[nn.Parameter]], None] | None) -> None:
    loss_function = nn.CrossEntropyLoss()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
    running_loss = 0.0
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        if average is not None:
            average(parameters)
        optimizer.step()
        running_loss += loss.item()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("one_node", *AVERAGES, "ddp"), required=True)
    parser.add_argument("--model", choices=MODELS, default="vgg11")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--master-ip", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=6585)
    parser.add_argument("--threads", type=int, default=4)
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    np.random.seed(1)
    dataset = Images(arguments.data)
    sampler = None
    if arguments.mode != "one_node":
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{arguments.master_ip}:{arguments.port}",
            rank=arguments.rank,
            world_size=arguments.num_nodes,
        )
        sampler = DistributedSampler(dataset, arguments.num_nodes, arguments.rank)
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size // arguments.num_nodes,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=2,
    )
    model = MODELS[arguments.model]()
    if arguments.mode == "ddp":
        model = DistributedDataParallel(model)
    train(model, in_turns(epochs(loader, sampler)), AVERAGES.get(arguments.mode))


if __name__ == "__main__":
    main()
