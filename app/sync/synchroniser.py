"""A mode in a training loop that is not the program's own."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.sync.contract import GradientSync
from app.sync.periodic import Periodic

STEP, MODE = "step", "mode/"


class Synchroniser:
    """Counts the steps and makes the ranks start equal, which the program's own loop does elsewhere.

    All ranks call the same methods in the same order: `attach` once, then `synchronise` in every step.
    """

    def __init__(self, mode: GradientSync, communicator: Communicator) -> None:
        """A mode that sends everything through this communicator."""
        self.mode, self._communicator, self._is_attached = mode, communicator, False
        self.bytes_sent = 0.0
        """The payload that this rank sent in the step before, by the mode's own count."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Give every rank the parameters and buffers of rank 0, and return the module to call."""
        start = self._communicator.apart()
        with torch.no_grad():
            for tensor in (each for each in [*model.parameters(), *model.buffers()] if each.numel()):
                own = tensor.detach().contiguous()
                start.broadcast(own.view(-1).view(torch.uint8))  # bytes, because backends lack some types
                tensor.copy_(own)
        self._is_attached = True
        return self.mode.attach(model)

    def synchronise(self, parameters: Iterable[nn.Parameter], *, last: bool = False) -> None:
        """After each backward: make every `.grad` the mean over all ranks.

        With `sync_every`, call it after each update instead: it averages the parameters when they are due, and in the
        `last` step in any case.
        """
        if not self._is_attached:
            raise RuntimeError("call `attach(model)` before the first `synchronise`: ranks have to start equal")
        step = self._communicator.step
        if not isinstance(self.mode, Periodic):
            self.mode.synchronise(list(parameters))
        elif self.mode.is_due(step, last):
            self.mode.move_parameters()
        self.bytes_sent = self._communicator.traffic.sent
        self._communicator.begin_step(step + 1)

    def state(self) -> dict[str, torch.Tensor]:
        """What has to be saved with a checkpoint, on every rank."""
        own = {f"{MODE}{name}": tensor for name, tensor in self.mode.state().items()}
        return {STEP: torch.tensor(self._communicator.step), **own}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a saved state, after `attach`."""
        self._communicator.begin_step(int(state[STEP]))
        self.mode.load_state({name.removeprefix(MODE): each for name, each in state.items() if name.startswith(MODE)})
