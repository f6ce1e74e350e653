"""Captures and restores the state of a training between two steps, bit for bit."""

import random
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from app.errors import LockstepError
from app.sync.contract import GradientSync
from app.training.checkpoint import part
from app.training.checkpoint.state import State
from app.training.optimiser import Optimiser

MODEL, BUFFER, MOMENTUM, MODE = "model/", "buffer/", "momentum/", "mode/"
TORCH_RANDOM, NUMPY_RANDOM, PYTHON_RANDOM = "random/torch", "random/numpy", "random/python"


def check(model: nn.Module) -> None:
    """Refuse a model that cannot be saved: already before the first step, instead of at the first checkpoint."""
    part.header_of(_tensors_of(model))


def take(model: nn.Module, optimiser: Optimiser, sync: GradientSync) -> State:
    """Everything that the next step depends on, except the settings. It shares the training's memory."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    tensors = _tensors_of(model)
    tensors |= {f"{MOMENTUM}{names[parameter]}": momentum for parameter, momentum in optimiser.momenta()}
    tensors |= {f"{MODE}{name}": tensor for name, tensor in sync.state().items()}
    algorithm, keys, *place = cast("tuple[Any, ...]", np.random.get_state(legacy=True))
    tensors |= {TORCH_RANDOM: torch.get_rng_state(), NUMPY_RANDOM: torch.from_numpy(keys.astype(np.int64))}
    return State(tensors, {NUMPY_RANDOM: [algorithm, *place], PYTHON_RANDOM: random.getstate()})


def restore(state: State, model: nn.Module, optimiser: Optimiser, sync: GradientSync) -> None:
    """Restore a state that `take` captured with the same settings."""
    own, given = model.state_dict(), _part(state, MODEL)
    buffers = dict(model.named_buffers())
    parameters = dict(model.named_parameters())
    momenta = _part(state, MOMENTUM)
    if {name: tensor.shape for name, tensor in own.items()} != {name: tensor.shape for name, tensor in given.items()}:
        raise LockstepError("the checkpoint is from another model. For a new run, set RESUME=never.", "cannot-resume")
    with torch.no_grad():
        for name, tensor in own.items():
            _fill(tensor, given[name])
        for name, tensor in _part(state, BUFFER).items():
            if (buffer := buffers.get(name)) is not None and buffer.shape == tensor.shape:
                _fill(buffer, tensor)
        for name, momentum in momenta.items():
            optimiser.remember(parameters[name], momentum)
    sync.load_state(_part(state, MODE))
    algorithm, *place = state.numbers[NUMPY_RANDOM]
    np.random.set_state((algorithm, state.tensors[NUMPY_RANDOM].numpy().astype(np.uint32), *place))
    torch.set_rng_state(state.tensors[TORCH_RANDOM])
    random.setstate(_tuples(state.numbers[PYTHON_RANDOM]))


def _tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Includes the buffers that PyTorch omits (persistent=False), because the next step may depend on them."""
    saved, buffers = model.state_dict(), dict(model.named_buffers())
    tensors = {f"{MODEL}{name}": tensor for name, tensor in saved.items()}
    return tensors | {f"{BUFFER}{name}": buffers[name] for name in buffers if name not in saved}


def _fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copy the values, also into an expanded tensor, whose elements share memory."""
    own = tuple(slice(None if stride else 1) for stride in tensor.stride())
    tensor[own].copy_(values[own])


def _part(state: State, beginning: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(beginning): tensor for name, tensor in state.tensors.items() if name.startswith(beginning)
    }


def _tuples(value: Any) -> Any:
    """Convert JSON's lists back to the original tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
