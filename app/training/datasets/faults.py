"""What is wrong with a file that has the name of a published archive: its kind, then its size, then its content."""

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
MOST_UNPACKED_BYTES = 2**30  # more need not be unpacked to say why a file is not the published one
MOST_MEMBERS = 10_000  # of an archive; the published ones have ten
MOST_READ_BYTES = 2**20
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def find_barrier(path: Path) -> str | None:
    """Why a file cannot be reached, and what to do, as the end of a sentence; None if it can."""
    try:
        path.stat()
        if path.is_file():
            path.open("rb").close()
    except PermissionError as error:
        return (
            f"cannot be read: {error.strerror}. Let the owner of results/ (user ID {os.geteuid()}) read it, "
            "and enter the folders that lead to it."
        )
    except OSError as error:
        if not path.is_symlink():
            return f"cannot be read: {error.strerror}. Remove it, or copy it again."
        if error.errno == errno.ELOOP:
            return "is a link that leads back to itself. Remove it."
        return f"is a link to {path.readlink()}, which is not mounted here. Copy it, or name its folder by DATA_FOLDER."
    return None


def find_fault(path: Path, md5: str, size: int | None) -> str | None:
    """How a file differs from the published one, as the end of a sentence; None if it does not."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            published = f"; the published one has {size:,} bytes" if size else ""
            return f"is {KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}, not a file{published}"
        if size is not None and found.st_size > size:
            return f"is not the published file: it has {found.st_size:,} bytes, the published one {size:,}"
        if size is not None and found.st_size < size:
            return f"is not the published file: it {_diagnose(path)} ({found.st_size:,} bytes, published {size:,})"
        with path.open("rb") as file:
            got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        return None if got == md5 else f"is not the published file: it {_diagnose(path)} (MD5 {got}, published {md5})"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


class _Packed(gzip.GzipFile):
    """A packed tar, of which no more is read at once than fits into the memory, whatever length it announces."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MOST_READ_BYTES:
            raise tarfile.ReadError(f"it announces {size} bytes where a name should stand")
        return super().read(size)


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    with _Packed(path) as packed, tarfile.TarFile(fileobj=packed) as archive:
        yield archive


def find_astray(archive: tarfile.TarFile) -> str | None:
    """The first member that is not a plain file or folder below the folder where the archive is unpacked."""
    for number, member in enumerate(archive):
        if number == MOST_MEMBERS:
            return f"holds more than {MOST_MEMBERS:,} files and folders"
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            return f"holds {member.name!r}, a path that climbs out of the archive"
        if not (member.isfile() or member.isdir()):
            return f"holds {member.name!r}, which is neither a file nor a folder"
    return None


def _diagnose(path: Path) -> str:
    """Why a file might not be the published one."""
    if path.stat().st_size == 0:
        return "is empty"
    try:
        with gzip.open(path) as packed:
            while packed.read(CHUNK_BYTES):
                if packed.tell() > MOST_UNPACKED_BYTES:
                    return "has other content"
        if path.suffixes[-2:] == [".tar", ".gz"]:
            with open_tar(path) as archive:
                return find_astray(archive) or "has other content"
    except EOFError:
        return f"has been cut off, it ends after {path.stat().st_size} bytes in the middle of its content"
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        return f"has been altered or damaged, its content cannot be unpacked: {shown(str(error))}"
    return "has other content"
