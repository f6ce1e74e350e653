"""PyTorch without its compiler: no rank compiles, and the compiler costs each a second of CPU time and 80 MiB.

PyTorch loads one half of it, the rules by which it infers shapes, at its own import, and the other half when the first
optimiser or DistributedDataParallel asks whether it is being compiled. Here a stand-in answers that question.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

COMPILER, SHAPES = "torch._dynamo", "torch._meta_registrations"


def leave_out() -> None:
    """Let this process start without them. Whatever needs them later finds them: they are loaded then."""
    if "torch" not in sys.modules:
        sys.modules[SHAPES] = ModuleType(SHAPES)
        sys.modules[COMPILER] = _StandIn(COMPILER)


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
