"""The key of one start: `prepare` makes it, all ranks read it, and rank 0 removes it once all have been reached.

It proves rank 0 to the workers and the workers to rank 0, because nobody else can read it.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import JoinError, SettingError
from app.settings.place import PlaceSettings

if TYPE_CHECKING:  # its import takes a second, which only ranks of mpirun need to wait for
    import asyncssh

FOLDER = Path("key")  # a volume of docker/compose.mpi.yaml
FILE = FOLDER / "of_this_start"


def make_for(place: PlaceSettings) -> None:
    """Make the key if mpirun will start these ranks; refuse a Compose that does not start them so."""
    if place.backend != "mpi" or place.rank is not None or place.master_addr is None:
        return
    if not os.access(FOLDER, os.W_OK):
        raise SettingError(
            "BACKEND=mpi: this command line starts the ranks without mpirun. Allowed: BACKEND=mpi scripts/up, or "
            "docker compose -f compose.yaml -f docker/compose.mpi.yaml up."
        )
    import asyncssh

    remove()
    content = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    with os.fdopen(os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def read() -> "asyncssh.SSHKey":
    """This start's key."""
    import asyncssh

    try:
        return asyncssh.read_private_key(FILE)
    except (OSError, asyncssh.KeyImportError) as error:
        raise JoinError(f"there is no key for this start ({error}). Start all ranks again.") from None


def remove() -> None:
    """Nobody else can be reached with it any more."""
    with suppress(FileNotFoundError):
        FILE.unlink()
