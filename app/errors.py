"""The failures that a user can act on; every other exception is a defect of the program."""


class LockstepError(Exception):
    """A failure whose message says what was found, what is allowed and what to do next."""

    exit_code = 1


class SettingError(LockstepError):
    """Bad input, found before any work has started."""

    exit_code = 2


class DamagedError(LockstepError):
    """A file of a run that was damaged, or that another program made."""

    exit_code = 2


class WriteError(LockstepError):
    """A disk that is full, or that may not be written."""


class JoinError(LockstepError):
    """The group could not be formed."""


class NetworkLostError(LockstepError):
    """This rank has lost its network, and with it every other rank."""


class StoppedError(LockstepError):
    """A run that was asked to stop, and has saved where it can go on."""

    exit_code = 143  # as a shell has it for SIGTERM


class PeerLostError(LockstepError):
    """Other ranks went away, or went silent, in the middle of an operation."""
