"""Runs that never were: whole manifests and summaries, for laws about what is read off them."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from app.analysis.figures import Figures
from app.analysis.summary import Summary, Verdict
from app.records.manifest import Manifest

MANIFEST: dict[str, Any] = {
    "run": "example",
    "started_at": "2026-01-01T00:00:00Z",
    "world_size": 2,
    "settings": {"sync_mode": "all_reduce", "model": "lenet5", "dataset": "digits", "rank_cpus": None},
    "plan": {"epochs": 1, "steps": 3, "steps_per_epoch": 3, "global_batch_size": 128},
    "dataset": "digits, in words",
    "parameters": 25,
    "gradient_bytes": 100,
    "sync_seconds_at_least": None,
    "ranks": [],
    "warnings": [],
    "versions": dict.fromkeys(("lockstep", "python", "torch", "numpy", "kernel"), "1"),
    "image": {"git_revision": None, "source_sha256": "abc", "system": None},
}
UNMEASURED: dict[str, Any] = {"formula_bytes_sent_per_step": 100.0, "training_samples": 0}


def spread(value: float) -> dict[str, float]:
    """Of steps that all are alike."""
    return dict.fromkeys(("mean", "median", "p95", "most"), value)


def participant(rank: int, formula: float = 100.0, speed: float | None = None) -> dict[str, Any]:
    """A rank of a manifest, with a link that carries `speed` bytes per second in both directions, or none."""
    way = {
        "asked_bits_per_second": None,
        "expected_bytes_per_second": None,
        "measured_bytes_per_second": speed,
        "error": None,
    }
    trip = {"asked_seconds": None, "measured_seconds": 0.0002, "error": None}
    return {
        "rank": rank,
        "name": f"rank{rank}",
        "address": f"10.77.1.{rank + 1}",
        "threads": 1,
        "cores": 2,
        "quota_cpus": None,
        "fair_share_cpus": 1.0,
        "memory_bytes": 1 << 30,
        "cpu_model": "a CPU",
        "host_boot_id": "boot",
        "interface": "eth0",
        "formula_bytes_sent_per_step": formula,
        "link": None if speed is None else {"sent": way, "received": way, "round_trip": trip, "asked_loss": None},
    }


def manifest(**changes: Any) -> Manifest:
    """A manifest, with some of it otherwise."""
    return TypeAdapter(Manifest).validate_python(MANIFEST | changes)


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Figures by their full names."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        leaves |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return leaves


def rank_figures(rank: int, **changes: Any) -> Figures:
    """A rank that finished, with some of its figures otherwise."""
    return Figures(UNMEASURED | {"rank": rank, "steps": 3, "finished": True} | flat(changes))


def group_figures(**changes: Any) -> Figures:
    """All ranks together, with some of their figures otherwise."""
    return Figures(UNMEASURED | {"straggler_undecided": False} | flat(changes))


def summary(run: Figures, ranks: list[Figures], changes: Mapping[str, Any] | None = None) -> Summary:
    """A summary of them, with some of it otherwise."""
    whole: dict[str, Any] = {
        "run_name": "example",
        "sync_mode": "all_reduce",
        "model": "lenet5",
        "dataset": "cifar10",
        "world_size": len(ranks),
        "global_batch_size": 128,
        "steps_planned": 3,
        "steps": 3,
        "complete": True,
        "attempts": 1,
        "repeated_steps": 0,
        "replicas_identical": None,
        "buffers_identical": None,
        "run": run,
        "ranks": ranks,
        "losses": [],
        "warnings": [],
        "verdict": Verdict(None, [], None),
    }
    return Summary(**whole | dict(changes or {}))
