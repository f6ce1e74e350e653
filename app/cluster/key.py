"""The SSH key of one start: `prepare` creates it, all ranks read it, and rank 0 removes it once connected to all.

It authenticates rank 0 and the workers to each other, because nobody else can read it.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import JoinError, SettingError
from app.settings.place import PlaceSettings

if TYPE_CHECKING:  # importing it takes a second, which only ranks under mpirun need
    import asyncssh

FOLDER = Path("key")  # a volume of docker/compose.mpi.yaml
FILE = FOLDER / "of_this_start"


def make_for(place: PlaceSettings) -> None:
    """Create the key if mpirun will start these ranks; refuse a Compose command that starts them without mpirun."""
    if place.backend != "mpi" or place.rank is not None or place.master_addr is None:
        return
    if not os.access(FOLDER, os.W_OK):
        raise SettingError(
            "BACKEND=mpi: this command starts the ranks without mpirun. Run BACKEND=mpi scripts/up, or "
            "docker compose -f compose.yaml -f docker/compose.mpi.yaml up."
        )
    import asyncssh

    remove()
    content = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    with os.fdopen(os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def read() -> "asyncssh.SSHKey":
    import asyncssh

    try:
        return asyncssh.read_private_key(FILE)
    except (OSError, asyncssh.KeyImportError) as error:
        raise JoinError(f"cannot read this start's SSH key: {error}. Start all ranks again.", "cannot-read") from None


def remove() -> None:
    with suppress(FileNotFoundError):
        FILE.unlink()
