"""The program as it runs: its revision, and a fingerprint even if that is unknown or had uncommitted edits."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

REVISION = Path("REVISION")  # put into the image when it is built


def source_sha256(further: Sequence[Path] = ()) -> str:
    """The hash of all source files of this package, and of the user's own that a run uses, with their names."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    for path in further:
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def git_revision() -> str | None:
    """The revision that the image was built from; None where it is not known."""
    return (REVISION.read_text().strip() or None) if REVISION.is_file() else None
