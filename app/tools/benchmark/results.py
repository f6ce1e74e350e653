"""What a benchmark leaves behind: a file in results/benchmarks/ with all samples, and where they were taken."""

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import app
from app.cluster.members import Cluster
from app.cluster.sharing import oversubscription
from app.machine import cpus, folders, source
from app.machine.folders import RESULTS, replace_file
from app.machine.say import Say
from app.settings.settings import Value

FOLDER = RESULTS / "benchmarks"


def environment() -> dict[str, Any]:
    """This machine and this program, as far as they decide on speed."""
    machine = cpus.look()
    return {
        "cpu_model": machine.cpu_model,
        "instructions": cpus.instructions(),
        "cores": len(machine.cores),
        "quota_cpus": machine.quota_cpus,
        "memory_bytes": machine.memory_bytes,
        "kernel": machine.kernel,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lockstep": app.__version__,
        "git_revision": source.git_revision(),
        "source_sha256": source.source_sha256(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME"),
    }


def write(
    name: str,
    content: dict[str, Any],
    say: Say,
    settings: Mapping[str, Value] | None = None,
    cluster: Cluster | None = None,
) -> Path:
    """Write a file of its own, named after the time and the benchmark."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    folders.check_writable(FOLDER)
    whole: dict[str, Any] = {
        "benchmark": name,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": environment(),
    }
    if settings is not None:
        whole["settings"] = dict(settings)
    if cluster is not None:
        whole["ranks"] = [asdict(member) for member in cluster.members]
        whole["shared_cores"] = oversubscription(cluster.members)
    path = FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}.json"
    replace_file(path, json.dumps(whole | content, indent=1) + "\n")
    say(f"\nAll samples: {path}")
    return path
