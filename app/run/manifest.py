"""What a run was: its settings, its ranks, and the software and hardware under it."""

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

import app
from app import gradient_sync
from app.cluster.members import Cluster
from app.datasets.prepared import DataSet
from app.gradient_sync.contract import size_of
from app.link.measured import Link
from app.machine.cpus import fair_share
from app.machine.source import source_sha256
from app.settings.fields import Settings
from app.training.loop import Plan
from app.training.numerics import layout

REVISION = Path("REVISION")  # put into the image when it is built


def write(
    run_folder: Path,
    settings: Settings,
    cluster: Cluster,
    plan: Plan,
    dataset: DataSet,
    model: nn.Module,
    links: Sequence[Link] | None,
    warnings: Sequence[str],
) -> None:
    """Write manifest.json; rank 0 does, before the first step."""
    mode = gradient_sync.mode_class(settings.sync_mode)
    parameters = list(model.parameters())
    speeds = [link.speed for link in links or []]
    machines = [member.machine for member in cluster.members]
    content: dict[str, Any] = {
        "run": run_folder.name,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "world_size": cluster.world_size,
        "settings": settings.model_dump(mode="json")
        | {
            "dataset": settings.dataset_name,
            "train_samples": len(dataset.train),
            "test_samples": len(dataset.test),
            "memory_format": layout(settings),
            "global_batch_size": plan.global_batch_size,
            "world_size": cluster.world_size,
            "rank": None,
            "run_name": run_folder.name,
        },
        "plan": asdict(plan),
        "dataset": dataset.source.title,
        "parameters": sum(map(torch.numel, parameters)),
        "gradient_bytes": size_of(parameters).bytes,
        "sync_seconds_at_least": mode.seconds_at_least(parameters, speeds) if speeds else None,
        "ranks": [
            {
                "rank": member.rank,
                "name": member.name,
                "address": member.address,
                "threads": member.threads,
                "cores": len(member.machine.cores),
                "quota_cpus": member.machine.quota_cpus,
                "fair_share_cpus": fair_share(member.machine, machines),
                "memory_bytes": member.machine.memory_bytes,
                "cpu_model": member.machine.cpu_model,
                "host_boot_id": member.machine.boot_id,
                "interface": member.interface,
                "formula_bytes_sent_per_step": mode.bytes_sent_per_step(parameters, member.rank, cluster.world_size),
                "link": asdict(links[member.rank]) if links else None,
            }
            for member in cluster.members
        ],
        "warnings": list(warnings),
        "versions": {
            "lockstep": app.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "kernel": platform.release(),
        },
        "image": {"git_revision": _revision(), "source_sha256": source_sha256(), "system": _system()},
    }
    (run_folder / "manifest.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def _revision() -> str | None:
    return (REVISION.read_text().strip() or None) if REVISION.is_file() else None


def _system() -> str | None:
    return platform.freedesktop_os_release().get("PRETTY_NAME")
