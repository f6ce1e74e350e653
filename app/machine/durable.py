"""Files that survive a crash of the machine: once they have their name, they are whole."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from app.errors import DamagedError
from app.machine.folders import file_to_replace


def write_durably(path: Path, *pieces: bytes | memoryview) -> str:
    """Write or replace a file: when this returns, content and name are on the disk. Returns the content's checksum."""
    digest = hashlib.sha256()
    with file_to_replace(path) as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    keep_names(path.parent)
    return digest.hexdigest()


def keep_names(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(content: object) -> bytes:
    """A JSON file that shows whether it is damaged: the content, and before it the content's checksum."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return f"{sha256(text.encode())}\n{text}\n".encode()


def unseal(path: Path) -> Any:
    """The content of a sealed file; raises DamagedError if a bit of it has changed, and OSError if it is not there."""
    checksum, _, text = path.read_bytes().partition(b"\n")
    if not text.endswith(b"\n") or checksum != sha256(text[:-1]).encode():
        raise DamagedError(f"{path} is damaged: its checksum is another one.")
    return json.loads(text)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
