"""Failures that a user can act on. Every other exception is an internal error."""


class LockstepError(Exception):
    """A failure whose message states the cause, then the allowed values or the remedy."""

    exit_code = 1
    name = "failed"  # in brackets before the message; docs/troubleshooting.md explains each
    deterministic = False  # whether every attempt at the same run would fail in the same way

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name or self.name

    @property
    def line(self) -> str:
        """The message as printed, preceded by its name and followed by its notes."""
        return "\n".join([f"error: [{self.name}] {self}", *getattr(self, "__notes__", [])])


class SettingError(LockstepError):
    """Invalid input, found before any work has started."""

    exit_code = 2
    name = "invalid-setting"
    deterministic = True


class ConflictError(SettingError):
    """Settings that contradict each other, or of which one has no effect."""

    name = "conflicting-settings"


class DamagedError(LockstepError):
    """A file of a run is damaged, or was written by another program."""

    exit_code = 2
    name = "damaged-file"
    deterministic = True


class ExtensionError(LockstepError):
    """A failure in a user's own mode, model or data set. The same code fails every time."""

    name = "extension-failed"
    deterministic = True


class DivergedError(LockstepError):
    """Training diverged: a loss or parameter is NaN or infinite. The same run diverges every time."""

    name = "diverged"
    deterministic = True


class WriteError(LockstepError):
    """A disk is full or not writable."""

    name = "cannot-write"


class JoinError(LockstepError):
    """The group could not be formed."""

    name = "join-incomplete"


class MissingError(JoinError):
    """A requested rank is not running and was not restarted in time, so nothing will start it."""

    name = "rank-missing"
    deterministic = True


class UnequalRanksError(LockstepError):
    """The ranks would not train the same model on the same data."""

    name = "ranks-differ"
    deterministic = True


class NetworkLostError(LockstepError):
    """This rank has lost its network and with it every other rank."""

    name = "network-lost"


class StoppedError(LockstepError):
    """The run was stopped, and has saved its state to resume from."""

    exit_code = 143  # the shell's code for SIGTERM
    name = "stopped"


class PeerLostError(LockstepError):
    """Other ranks exited or stopped responding during an operation."""

    name = "rank-lost"


class DeadlockError(LockstepError):
    """All ranks wait for each other: the order of operations in their code is wrong, and stays so in every attempt."""

    name = "deadlock"
    deterministic = True


class LinkError(LockstepError):
    """The measured links do not meet the LINK_ settings."""

    name = "link-missed"
