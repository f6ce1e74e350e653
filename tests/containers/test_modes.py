"""Every mode on four containers: the same training, and on the wire what its formula says."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from app.modes import MODES
from tests.containers.cluster import PATIENCE_SECONDS, ROOT, Clone

PROOFS = ROOT / "docs/proofs.md"
RANKS = 4
LENET5_PARAMETERS = 10

# What a message costs beside its payload: TCP/IP and Gloo headers, the answers of TCP, Gloo's own announcements.
BYTES_PER_MESSAGE = 600
BARRIER_MESSAGES = 8
# A full packet carries 1448 bytes in 1514, and is answered with 66.
BYTES_PER_PAYLOAD = 1 + 2 * 66 / 1448


# The others run their rounds as ring_all_reduce does.
DISTINCT = (
    "none",
    "gather_scatter",
    "send_recv",
    "all_reduce",
    "flat_all_reduce",
    "ring_all_reduce",
    "ddp",
    "bucketed_all_reduce",
)


def messages_per_step(mode: str, rank: int) -> int | None:
    """Messages that a rank sends to synchronise LeNet-5 once; None for a mode that is not known here."""
    star = LENET5_PARAMETERS * (RANKS - 1 if rank == 0 else 1)
    all_reduce = 2 * 2 * (RANKS - 1)  # Gloo cuts what travels in a round in two
    return {
        "gather_scatter": star,
        "send_recv": star,
        "all_reduce": LENET5_PARAMETERS * all_reduce,
        "flat_all_reduce": all_reduce,
        "ring_all_reduce": 2 * (RANKS - 1),
        "halving_doubling": 4,
        "ddp": all_reduce,
        "bucketed_all_reduce": all_reduce,
    }.get(mode)


def check_wire(rank: dict[str, Any], most: float, waiting: float = 0.0) -> None:
    """The payload is the formula's, and the kernel saw it pass with no more around it than that."""
    assert rank["bytes_sent_per_step"] == pytest.approx(rank["formula_bytes_sent_per_step"], abs=1)
    for direction in ("sent", "received"):
        seen = rank[f"interface_bytes_{direction}_per_step"]
        print(f"rank {rank['rank']}: {direction} {seen:.0f} for {rank[f'bytes_{direction}_per_step']:.0f}")
        assert rank[f"bytes_{direction}_per_step"] * 0.999 - waiting <= seen <= most + waiting


VGG_11 = {
    "MODEL": "vgg11",
    "WORKERS": "3",
    "MEMORY_FORMAT": "mixed",
    "GLOBAL_BATCH_SIZE": "8",
    "MAX_STEPS": "4",
    "EVALUATE": "never",
}
GRID = """\
title = "Modes"
question = "Do all train the same model?"
[settings]
EVALUATE = "never"
[[view]]
kind = "bar"
measure = "seconds"
title = "Time per step"
"""
LENET_5 = {"MODEL": "lenet5", "DATASET": "digits", "MAX_STEPS": "8", "LINK_CHECK": "off"}
LENET_5_MODES = {mode: LENET_5 | {"SYNC_MODE": mode} for mode in (*DISTINCT, "halving_doubling")}
VGG_11_WAYS = {
    "uncompressed": {"SYNC_MODE": "all_reduce"},  # ddp: test_full_epoch.py; the star and the ring: a long test below
    "bf16": {"SYNC_MODE": "flat_all_reduce", "WIRE_PRECISION": "bf16"},
    "power_sgd": {"COMPRESSION": "power_sgd", "SYNC_MODE": "halving_doubling", "COMPRESSION_RANK": "2"},
    "sign": {"COMPRESSION": "sign"},
}


@pytest.fixture(scope="module")
def runs(used_clone: Clone) -> dict[str, dict[str, Any]]:
    """The summaries of runs that share their containers, by name."""
    ways = LENET_5_MODES | {name: VGG_11 | own for name, own in VGG_11_WAYS.items()}
    grid = GRID + "".join(
        f'[[grid]]\nlabel = "{name}"\n' + "".join(f'{setting} = "{value}"\n' for setting, value in own.items())
        for name, own in ways.items()
    )
    (used_clone.folder / "scripts/experiments/all_modes.toml").write_text(grid)
    process = used_clone.start("scripts/experiment", "all_modes")
    output, _ = process.communicate(timeout=3 * PATIENCE_SECONDS)
    assert process.returncode == 0, output
    folder = used_clone.folder / "results/experiments/all_modes/full"
    found = {name: json.loads((folder / f"{name}-1/summary.json").read_text()) for name in ways}
    for name, run in found.items():
        assert run["complete"]
        assert run["world_size"] == RANKS
        assert run["replicas_identical"] is (name != "none")
    return found


def test_all_modes_train_the_same_model(runs: dict[str, dict[str, Any]], used_clone: Clone) -> None:
    modes = {mode: runs[mode] for mode in LENET_5_MODES}
    for mode, run in modes.items():
        assert run["sync_mode"] == mode
        for rank in run["ranks"]:
            messages = messages_per_step(mode, rank["rank"])
            if messages is not None:
                extra = (messages + BARRIER_MESSAGES) * BYTES_PER_MESSAGE
                check_wire(rank, rank["formula_bytes_sent_per_step"] * BYTES_PER_PAYLOAD + extra)
    used_clone.up(SYNC_MODE="ddp", BACKEND="mpi", WORKERS="3", MAX_STEPS="8", EVALUATE="never")
    over_mpi = used_clone.summary()
    assert used_clone.manifest()["settings"]["backend"] == "mpi"
    assert over_mpi["replicas_identical"]
    assert over_mpi["losses"] == pytest.approx(modes["ddp"]["losses"], rel=1e-4)
    for one, other in pairwise([mode for mode in modes if mode != "none"]):
        assert modes[other]["losses"] == pytest.approx(modes[one]["losses"], rel=1e-4)
    assert modes["none"]["losses"] != pytest.approx(modes["ddp"]["losses"], rel=1e-4)
    assert modes["none"]["run"]["bytes_sent_per_step"] == 0


# No more wait in a socket: a step can end before its last bytes have left, and count those of the one before it.
SEND_BUFFER_BYTES = 4 * 2**20


def run_of_vgg_11(clone: Clone, **settings: str) -> dict[str, Any]:
    """With the bytes of the formula on the wire, and little more: 36.9 MB of gradients."""
    clone.up(**{**VGG_11, **settings})
    run = clone.summary()
    assert run["sync_mode"] == settings["SYNC_MODE"]
    assert run["replicas_identical"]
    check_wire_of_vgg_11(run)
    return run


def check_wire_of_vgg_11(run: dict[str, Any]) -> None:
    for rank in run["ranks"]:
        check_wire(rank, rank["formula_bytes_sent_per_step"] * 1.02, SEND_BUFFER_BYTES / (run["steps"] - 1))


@pytest.mark.parametrize(("way", "megabytes"), [("uncompressed", 55.39), ("bf16", 27.69)])
def test_vgg_11_puts_the_bytes_of_the_formula_on_the_wire(
    runs: dict[str, dict[str, Any]], way: str, megabytes: float
) -> None:
    run = runs[way]
    check_wire_of_vgg_11(run)
    assert run["run"]["bytes_sent_per_step"] == pytest.approx(megabytes * 1e6, rel=0.001)
    said = [each for each in run["verdict"]["sentences"] if "WIRE_PRECISION=bf16" in each]
    assert (run["run"]["wire_rounding_error"] is None) is (not said) is (way != "bf16")


@pytest.mark.long
@pytest.mark.parametrize("workers", ["2", "3", "5"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in DISTINCT])
def test_every_topology_puts_the_bytes_of_its_schedule_on_the_wire(used_clone: Clone, mode: str, workers: str) -> None:
    run_of_vgg_11(used_clone, SYNC_MODE=mode, WORKERS=workers)


@pytest.mark.parametrize(("way", "megabytes"), [("power_sgd", 0.331), ("sign", 1.731)])
def test_what_is_compressed_is_what_passes_the_wire(
    runs: dict[str, dict[str, Any]], way: str, megabytes: float
) -> None:
    """Of 36.9 MB; packed bits are sent as packed bits."""
    run = runs[way]
    assert run["run"]["bytes_sent_per_step"] == pytest.approx(megabytes * 1e6, rel=0.01)
    for rank in run["ranks"]:
        check_wire(rank, rank["formula_bytes_sent_per_step"] * BYTES_PER_PAYLOAD + 60 * BYTES_PER_MESSAGE)


def sync_seconds(run: dict[str, Any]) -> float:
    return float(run["run"]["sync_seconds"]["median"])


@pytest.mark.long
def test_on_thin_links_the_star_takes_as_long_as_its_bytes_say_and_the_ring_much_less(used_clone: Clone) -> None:
    """36.9 MB of gradients at 250 Mbit/s, where the theory makes the star four times as slow as the ring.

    A busy machine makes a mode slower and never quicker than its links, so a mode is held to least times alone: the
    star to its own, which the ring must beat by far.
    """
    runs = {
        mode: run_of_vgg_11(used_clone, SYNC_MODE=mode, LINK_RATE="250mbit", LINK_CHECK="strict", MAX_STEPS=steps)
        for mode, steps in (("ring_all_reduce", "4"), ("gather_scatter", "2"))
    }
    least = {mode: run["run"]["bandwidth"]["sync_seconds_at_least"] for mode, run in runs.items()}
    assert least["gather_scatter"] == pytest.approx(4 * least["ring_all_reduce"], rel=0.2)
    assert sync_seconds(runs["gather_scatter"]) >= 0.9 * least["gather_scatter"]
    assert 0.9 * least["ring_all_reduce"] <= sync_seconds(runs["ring_all_reduce"]) < least["gather_scatter"] / 2


def test_the_two_commands_of_the_proof_show_that_four_ranks_are_one_process(used_clone: Clone) -> None:
    """VGG-11 with synchronised batch normalisation in fp64."""
    commands = re.findall(r"^(scripts/up .*PRECISION=fp64.*?)(?: +#.*)?$", PROOFS.read_text(), re.MULTILINE)
    losses = {}
    for command in commands:
        code, output = used_clone.run(*command.split(), EVALUATE="never")
        assert code == 0, output
        run = used_clone.summary()
        losses[run["world_size"]] = run["losses"]
    assert losses.keys() == {1, 4}
    assert len(losses[1]) == 6
    assert losses[4] == pytest.approx(losses[1], rel=1e-9)
