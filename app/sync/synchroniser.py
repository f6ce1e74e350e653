"""Makes a mode usable in any training loop."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.sync.contract import GradientSync
from app.sync.periodic import Periodic

STEP, MODE = "step", "mode/"


class Synchroniser:
    """Counts steps and gives all ranks the same start, which the program's own loop does elsewhere.

    All ranks call the same methods in the same order: `attach` once, then `synchronise` in every step.
    """

    def __init__(self, mode: GradientSync, communicator: Communicator) -> None:
        """The mode must send through this communicator."""
        self.mode, self._communicator, self._is_attached = mode, communicator, False
        self.bytes_sent = 0.0
        """Payload that this rank sent in the last step, as counted by the communicator."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Broadcast the parameters and buffers of rank 0, and return the module to call."""
        start = self._communicator.apart()
        with torch.no_grad():
            for tensor in (each for each in [*model.parameters(), *model.buffers()] if each.numel()):
                own = tensor.detach().contiguous()
                start.broadcast(own.view(-1).view(torch.uint8))  # bytes, because backends lack some types
                tensor.copy_(own)
        self._is_attached = True
        return self.mode.attach(model)

    def synchronise(self, parameters: Iterable[nn.Parameter], *, last: bool = False) -> None:
        """Replace every `.grad` by the mean over all ranks. Call this after each backward.

        With `sync_every`, call it after each update instead: it averages the parameters every `sync_every` steps and
        in the `last` step.
        """
        if not self._is_attached:
            raise RuntimeError("call `attach(model)` before the first `synchronise`: ranks must start equal")
        step = self._communicator.step
        if not isinstance(self.mode, Periodic):
            self.mode.synchronise(list(parameters))
        elif self.mode.is_due(step, last):
            self.mode.move_parameters()
        self.bytes_sent = self._communicator.traffic.sent
        self._communicator.begin_step(step + 1)

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors to save with a checkpoint, on every rank."""
        own = {f"{MODE}{name}": tensor for name, tensor in self.mode.state().items()}
        return {STEP: torch.tensor(self._communicator.step), **own}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Resume from a saved state. Call this after `attach`."""
        self._communicator.begin_step(int(state[STEP]))
        self.mode.load_state({name.removeprefix(MODE): each for name, each in state.items() if name.startswith(MODE)})
