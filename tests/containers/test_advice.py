"""Whoever follows a run's advice gets a faster run: tried in situations put in on purpose."""

import shlex
from statistics import median

import pytest

from tests.containers.cluster import Clone

ROUNDS = 3
LENET = {
    "MODEL": "lenet5",
    "DATASET": "digits",
    "WORKERS": "3",
    "EPOCHS": "12",
    "EVALUATE": "never",
    "LINK_CHECK": "warn",
}
VGG = {**LENET, "MODEL": "vgg11", "MEMORY_FORMAT": "mixed", "GLOBAL_BATCH_SIZE": "64", "TRAIN_SAMPLES": "1000"}

SITUATIONS = {
    "a slow link": LENET | {"SYNC_MODE": "all_reduce", "LINK_RATE_BY_RANK": "2=20mbit"},
    "a star": LENET | {"SYNC_MODE": "gather_scatter", "LINK_RATE": "50mbit"},
    "a straggler": LENET
    | {"SYNC_MODE": "all_reduce", "SLOW_RANK": "2", "SLOW_FACTOR": "6", "GLOBAL_BATCH_SIZE": "512"},
    "too many threads": VGG | {"SYNC_MODE": "ddp", "THREADS_PER_RANK": "4"},
    "too many ranks": LENET | {"SYNC_MODE": "ddp", "WORKERS": "7"},
    "tiny buckets": LENET | {"SYNC_MODE": "ddp", "BUCKET_BYTES": "1000"},
    "a tiny batch": LENET | {"SYNC_MODE": "ddp", "GLOBAL_BATCH_SIZE": "8", "EPOCHS": "1"},
}


@pytest.mark.long
@pytest.mark.parametrize("situation", SITUATIONS)
def test_who_follows_the_advice_is_faster(clone: Clone, situation: str) -> None:
    """In turn, round after round, because the machine is not the same from one minute to the next."""
    before, after = [], []
    steps = {"MAX_STEPS": "8" if SITUATIONS[situation]["MODEL"] == "vgg11" else "48"}
    for _ in range(ROUNDS):
        clone.up(**SITUATIONS[situation], **steps)
        run = clone.summary()
        advice = run["verdict"]["advice"]
        before.append(run["run"]["images_per_second"])
        clone.up(*shlex.split(advice["command"])[1:])
        after.append(clone.summary()["run"]["images_per_second"])
        print(f"{situation}: {run['verdict']['sentences'][0]} {advice['command']}: {after[-1] / before[-1]:.2f} times")
    assert median(late / early for early, late in zip(before, after, strict=True)) > 1
