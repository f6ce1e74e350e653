"""Imports PyTorch in half the time: without its compiler, and without garbage collection during the import.

No rank compiles, and the compiler costs each rank 1.5 s of CPU time and 80 MB. PyTorch loads one half of it, the rules
for shape inference, on import, and the other half when the first optimiser or DistributedDataParallel checks whether it
is being compiled. A stand-in module answers that check.
"""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

COMPILER, SHAPES = "torch._dynamo", "torch._meta_registrations"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import in the body. If the compiler is needed later, it is loaded then."""
    if "torch" not in sys.modules:
        sys.modules[SHAPES] = ModuleType(SHAPES)
        sys.modules[COMPILER] = _StandIn(COMPILER)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # these objects live until exit, so later collections skip them
        gc.enable()


class _StandIn(ModuleType):
    """The part of the compiler that PyTorch uses in a program that compiles nothing."""

    config = SimpleNamespace(_get_optimize_ddp_mode=lambda: "no_optimization")
    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def disable(function: Callable[..., Any], recursive: bool = True) -> Callable[..., Any]:
        return function

    @staticmethod
    def graph_break() -> None:
        """Without a compiler there is no graph to break."""

    def __getattr__(self, name: str) -> Any:
        """Load the real compiler on access to any other attribute."""
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)  # requested by code that inspects all modules
        for each in (SHAPES, COMPILER):
            sys.modules.pop(each, None)
            importlib.import_module(each)
        return getattr(sys.modules[COMPILER], name)
