"""Gradient compressors: one file per compressor, named as its COMPRESSION value."""

from importlib import import_module

from app.modes import COMPRESSORS
from app.sync.compressors.contract import Compressor


def compressor_class(name: str) -> type[Compressor]:
    """Import a compressor's file, and no other."""
    loaded: type[Compressor] = getattr(import_module(f"{__name__}.{name}"), COMPRESSORS[name])
    return loaded
