"""Deprecated module names that users' files may import, with a warning that gives the new name."""

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

from app.modes import MODES

# Old module: new module. `app.sync` exports what most files need.
MOVED = {
    "app.gradient_sync": "app.sync",
    "app.gradient_sync.contract": "app.sync.contract",
    "app.gradient_sync.exchange": "app.sync.exchange",
    "app.gradient_sync.gradient_buffer": "app.sync.exchange",
    "app.gradient_sync.rounds": "app.sync.rounds",
    "app.gradient_sync.scheduled": "app.sync.rounds",
    "app.gradient_sync.wire_precision": "app.sync.wire_precision",
    **{f"app.gradient_sync.{mode}": f"app.sync.modes.{mode}" for mode in MODES},
    "app.costs": "app.sync",
    "app.costs.bandwidth": "app.cluster.wire.bandwidth",
    "app.costs.patterns": "app.sync",
    "app.costs.schedules": "app.sync.schedules.schedule",
    "app.costs.scheduled": "app.sync.schedules.costs",
    "app.costs.sizes": "app.sync",
    "app.datasets": "app.training.datasets",
    "app.datasets.archives": "app.training.datasets.archives",
    "app.wire": "app.cluster.wire",
    "app.wire.communicator": "app.cluster.wire.communicator",
}


class OldNames(MetaPathFinder, Loader):
    """Resolves an old name to the new module itself, not to a copy, so that classes keep their identity."""

    def __init__(self) -> None:
        self._own_specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(MOVED[spec.name])
        for old, new in MOVED.items():  # for `from app.costs import patterns`
            package, _, name = old.rpartition(".")
            if package == spec.name and not hasattr(module, name):
                setattr(module, name, import_module(new))
        self._own_specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's spec, which the import system has just replaced. Its code has already run."""
        spec = module.__spec__
        module.__spec__ = self._own_specs.pop(spec.name if spec else "", spec)


def accept_old_names() -> None:
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldNames())  # first, or modules would be loaded again under their old names


def notices(path: Path, shown: Path) -> Iterator[str]:
    """Yield a warning for each import of a deprecated name."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in MOVED:
                    yield _notice(shown, node.lineno, alias.name, f"import {MOVED[alias.name]}")
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                old = f"{node.module}.{alias.name}"
                if old in MOVED:
                    package, _, name = MOVED[old].rpartition(".")
                    known_as = alias.asname or alias.name
                    renamed = f" as {known_as}" if known_as != name else ""
                    yield _notice(shown, node.lineno, old, f"from {package} import {name}{renamed}")
                elif node.module in MOVED:
                    yield _notice(shown, node.lineno, old, f"from {MOVED[node.module]} import {alias.name}")


def _notice(shown: Path, line: int, old: str, new: str) -> str:
    return f"warning: {shown}, line {line}: {old} is deprecated and works in this release only. Write: {new}"
