"""Imports PyTorch in half the time: without its compiler, and without a search for garbage among what is imported.

No rank compiles, and the compiler costs each 1.5 s of CPU time and 80 MB. PyTorch loads one half of it, the rules by
which it infers shapes, at its own import, and the other half when the first optimiser or DistributedDataParallel asks
whether it is being compiled. Here a stand-in answers that question.
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
    """Import inside. Whatever needs the compiler later finds it: it is loaded then."""
    if "torch" not in sys.modules:
        sys.modules[SHAPES] = ModuleType(SHAPES)
        sys.modules[COMPILER] = _StandIn(COMPILER)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # what is there now stays to the end: later searches pass it by
        gc.enable()


class _StandIn(ModuleType):
    """What PyTorch asks of its compiler in a program that compiles nothing, with the answers."""

    config = SimpleNamespace(_get_optimize_ddp_mode=lambda: "no_optimization")
    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def disable(function: Callable[..., Any], recursive: bool = True) -> Callable[..., Any]:
        """Without a compiler a function is as it is."""
        return function

    @staticmethod
    def graph_break() -> None:
        """There is no graph."""

    def __getattr__(self, name: str) -> Any:
        """Make way for the compiler when anything else is asked of it."""
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)  # asked of every module by those who look through them all
        for each in (SHAPES, COMPILER):
            sys.modules.pop(each, None)
            importlib.import_module(each)
        return getattr(sys.modules[COMPILER], name)
