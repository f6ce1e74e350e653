"""A fingerprint of the program as it runs, even if its revision is unknown or had uncommitted edits."""

import hashlib
from pathlib import Path


def source_sha256() -> str:
    """The hash of all source files of this package, with their names."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
