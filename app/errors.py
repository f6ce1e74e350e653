"""The failures that a user can act on; every other exception is a defect of the program."""


class LockstepError(Exception):
    """A failure whose message says what was found, what is allowed and what to do next."""

    exit_code = 1
    comes_again = False  # whether another attempt at the same run would end in the same way


class SettingError(LockstepError):
    """Bad input, found before any work has started."""

    exit_code = 2
    comes_again = True


class DamagedError(LockstepError):
    """A file of a run that was damaged, or that another program made."""

    exit_code = 2
    comes_again = True


class ExtensionError(LockstepError):
    """A failure in a user's own mode, model or data set. The same code does so each time."""

    comes_again = True


class DivergedError(LockstepError):
    """A training whose numbers are none any more. The same run does so each time."""

    comes_again = True


class WriteError(LockstepError):
    """A disk that is full, or that may not be written."""


class JoinError(LockstepError):
    """The group could not be formed."""


class MissingError(JoinError):
    """A rank that was asked for is not running, and has not been restarted in time: nothing will start it."""

    comes_again = True


class UnequalRanksError(LockstepError):
    """Ranks that would not train the same model on the same data."""

    comes_again = True


class NetworkLostError(LockstepError):
    """This rank has lost its network, and with it every other rank."""


class StoppedError(LockstepError):
    """A run that was asked to stop, and has saved where it can go on."""

    exit_code = 143  # as a shell has it for SIGTERM


class PeerLostError(LockstepError):
    """Other ranks went away, or went silent, in the middle of an operation."""
