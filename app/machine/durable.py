"""Files that survive a crash of the machine: a file under its final name is complete."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from app.errors import DamagedError
from app.machine.folders import file_to_replace


def write_durably(path: Path, *pieces: bytes | memoryview) -> str:
    """Write or replace a file durably: content and name are on disk on return. Returns the content's SHA-256."""
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
    """Flush a folder's list of names to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(content: object) -> bytes:
    """A JSON file that reveals damage: the content, preceded by its checksum."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return f"{sha256(text.encode())}\n{text}\n".encode()


def unseal(path: Path) -> Any:
    """The content of a sealed file; raises DamagedError on a checksum mismatch, OSError if it cannot be read."""
    checksum, _, text = path.read_bytes().partition(b"\n")
    if not text.endswith(b"\n") or checksum != sha256(text[:-1]).encode():
        raise DamagedError(f"checksum mismatch in {path}.", "checksum-mismatch")
    return json.loads(text)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
