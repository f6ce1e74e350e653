"""Diagnoses a file with the name of a published archive by its kind, size and content."""

import errno
import gzip
import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from app.machine.say import shown

CHUNK_BYTES = 2**20
MOST_UNPACKED_BYTES = 2**30  # enough for a diagnosis
MOST_MEMBERS = 10_000  # of an archive; the published ones have ten
MOST_READ_BYTES = 2**20
DIFFERENT = "has different content"
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def why_unreadable(path: Path) -> str | None:
    """Why a file cannot be read, and the remedy; None if it can."""
    try:
        path.stat()
        if path.is_file():
            path.open("rb").close()
    except PermissionError as error:
        return (
            f"cannot read {path}: {error.strerror}. Make it readable, and its parent folders accessible, for the "
            f"owner of results/ (user ID {os.geteuid()})."
        )
    except OSError as error:
        if not path.is_symlink():
            return f"cannot read {path}: {error.strerror}. Remove it, or copy it again."
        if error.errno == errno.ELOOP:
            return f"{path} is a circular link. Remove it."
        link = f"{path} is a link to {path.readlink()}, which is not mounted here"
        return f"{link}. Copy it, or set DATA_FOLDER to its folder."
    return None


def find_fault(path: Path, md5: str, size: int | None) -> str | None:
    """How a file differs from the published one, as a predicate; None if it does not."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            published = f" of {size:,} bytes" if size else ""
            return f"is {KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}, not a file{published}"
        if size is not None and found.st_size > size:
            return f"is not the published file: it has {found.st_size:,} bytes, expected {size:,}"
        if size is not None and found.st_size < size:
            return f"is not the published file: it {_diagnose(path)} ({found.st_size:,} bytes, expected {size:,})"
        with path.open("rb") as file:
            got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        return None if got == md5 else f"is not the published file: it {_diagnose(path)} (MD5 {got}, expected {md5})"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


class _Packed(gzip.GzipFile):
    """A gzipped tar that limits each read, whatever length its headers declare."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MOST_READ_BYTES:
            raise tarfile.ReadError(f"a header declares a name of {size} bytes")
        return super().read(size)


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    with _Packed(path) as packed, tarfile.TarFile(fileobj=packed) as archive:
        yield archive


def find_unsafe_member(archive: tarfile.TarFile) -> str | None:
    """The first member that is not a plain file or folder within the target folder, as a predicate."""
    for number, member in enumerate(archive):
        if number == MOST_MEMBERS:
            return f"contains more than {MOST_MEMBERS:,} files and folders"
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            return f"contains {member.name!r}, a path outside the archive"
        if not (member.isfile() or member.isdir()):
            return f"contains {member.name!r}, which is neither a file nor a folder"
    return None


def _diagnose(path: Path) -> str:
    """The likely reason why a file is not the published one, as a predicate."""
    if path.stat().st_size == 0:
        return "is empty"
    try:
        with gzip.open(path) as packed:
            while packed.read(CHUNK_BYTES):
                if packed.tell() > MOST_UNPACKED_BYTES:
                    return DIFFERENT
        if path.suffixes[-2:] == [".tar", ".gz"]:
            with open_tar(path) as archive:
                return find_unsafe_member(archive) or DIFFERENT
    except EOFError:
        return f"is truncated after {path.stat().st_size} bytes"
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        return f"is damaged and cannot be unpacked: {shown(str(error))}"
    return DIFFERENT
