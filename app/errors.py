"""The failures that a user can act on; every other exception is a defect of the program."""


class LockstepError(Exception):
    """A failure whose message says what was found, what is allowed and what to do next."""

    exit_code = 1
    name = "failed"  # in brackets before the message; docs/troubleshooting.md explains each
    comes_again = False  # whether another attempt at the same run would end in the same way

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name or self.name

    @property
    def line(self) -> str:
        """The message as it is printed, with the name of its kind."""
        return f"error: [{self.name}] {self}"


class SettingError(LockstepError):
    """Bad input, found before any work has started."""

    exit_code = 2
    name = "invalid-setting"
    comes_again = True


class ConflictError(SettingError):
    """Settings that contradict each other, or of which one has no effect."""

    name = "conflicting-settings"


class DamagedError(LockstepError):
    """A file of a run that was damaged, or that another program made."""

    exit_code = 2
    name = "damaged-file"
    comes_again = True


class ExtensionError(LockstepError):
    """A failure in a user's own mode, model or data set. The same code fails each time."""

    name = "extension-failed"
    comes_again = True


class DivergedError(LockstepError):
    """Training diverged: a loss or parameter is NaN or infinite. The same run diverges each time."""

    name = "diverged"
    comes_again = True


class WriteError(LockstepError):
    """A disk that is full, or that may not be written."""

    name = "cannot-write"


class JoinError(LockstepError):
    """The group could not be formed."""

    name = "join-incomplete"


class MissingError(JoinError):
    """A rank that was asked for is not running, and has not been restarted in time: nothing will start it."""

    name = "rank-missing"
    comes_again = True


class UnequalRanksError(LockstepError):
    """Ranks that would not train the same model on the same data."""

    name = "ranks-differ"
    comes_again = True


class NetworkLostError(LockstepError):
    """This rank has lost its network, and with it every other rank."""

    name = "network-lost"


class StoppedError(LockstepError):
    """A run that was asked to stop, and has saved where it can resume."""

    exit_code = 143  # as a shell has it for SIGTERM
    name = "stopped"


class PeerLostError(LockstepError):
    """Other ranks went away, or went silent, in the middle of an operation."""

    name = "rank-lost"


class LinkError(LockstepError):
    """The network misses what the LINK_ settings request."""

    name = "link-missed"
