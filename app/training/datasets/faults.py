"""Takes the published files out of what a user has, packed or unpacked, and says how it differs."""

import errno
import gzip
import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, cast

from app.machine.say import escaped, shown

CHUNK_BYTES = 2**20
MOST_BYTES = 2**26  # of one file; the largest published one has 47 MB
MOST_MEMBERS = 10_000  # of an archive; the published one has ten
MOST_UNPACKED_BYTES = 2**30  # of an archive
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Found = Iterator[tuple[str, IO[bytes]]]


class _OtherError(Exception):
    """How a file differs from the published one, as a predicate."""


def why_unreadable(path: Path) -> str | None:
    """Why a file cannot be read, and the remedy; None if it can."""
    named = escaped(str(path))
    try:
        path.stat()
        if path.is_file():
            path.open("rb").close()
        elif path.is_dir():
            os.scandir(path).close()
    except PermissionError as error:
        return (
            f"cannot read {named}: {error.strerror}. Make it readable, and its parent folders accessible, for the "
            f"owner of results/ (user ID {os.geteuid()})."
        )
    except OSError as error:
        if not path.is_symlink():
            return f"cannot read {named}: {error.strerror}. Remove it, or copy it again."
        if error.errno == errno.ELOOP:
            return f"{named} is a circular link. Remove it."
        link = f"{named} is a link to {escaped(str(path.readlink()))}, which is not mounted here"
        return f"{link}. Copy it, or set DATA_FOLDER to its folder."
    return None


def take_out(path: Path, contents: Mapping[str, str], folder: Path) -> str | None:
    """Write files with these checksums into a folder, and nothing else; or say, as a predicate, what is wrong.

    What is read is a copy that has been checked, so a change of the original meanwhile has no effect.
    """
    missing = dict(contents)
    try:
        for name, stream in _files_in(path, contents):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(name, stream, folder / name, missing.pop(name, contents[name]))
    except _OtherError as error:
        return str(error)
    except EOFError:
        return f"is truncated after {path.stat().st_size:,} bytes"
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        return f"is damaged and cannot be unpacked: {shown(str(error))}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"lacks {next(iter(missing))}" if missing else None


def _files_in(path: Path, contents: Mapping[str, str]) -> Found:
    """The published files in an archive, in a folder, or as the file itself."""
    kind = path.stat().st_mode
    if stat.S_ISDIR(kind) and all("/" in name for name in contents):
        yield from ((name, (path.parent / name).open("rb")) for name in contents if (path.parent / name).is_file())
    elif not stat.S_ISREG(kind):
        raise _OtherError(f"is {KINDS.get(stat.S_IFMT(kind), 'something else')}, not a file")
    elif path.stat().st_size == 0:
        raise _OtherError("is empty")
    elif path.suffixes[-2:] == [".tar", ".gz"]:
        yield from _members(path, contents)
    else:
        (name,) = contents
        opened = gzip.open if path.suffix == ".gz" else Path.open
        yield name, cast("IO[bytes]", opened(path, "rb"))


def _members(path: Path, contents: Mapping[str, str]) -> Found:
    with _Packed(path) as packed, tarfile.TarFile(fileobj=packed) as archive:
        for number, member in enumerate(archive):
            if number == MOST_MEMBERS:
                raise _OtherError(f"contains more than {MOST_MEMBERS:,} files and folders")
            stream = archive.extractfile(member) if member.isreg() and member.name in contents else None
            if stream:
                yield member.name, stream


class _Packed(gzip.GzipFile):
    """A gzipped tar that limits each read, whatever length its headers declare, and all of them together."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= CHUNK_BYTES:
            raise tarfile.ReadError(f"a header declares a name of {size} bytes")
        if self.tell() > MOST_UNPACKED_BYTES:
            raise _OtherError(f"contains more than {MOST_UNPACKED_BYTES:,} bytes")
        return super().read(size)


def _copy(name: str, stream: IO[bytes], target: Path, checksum: str) -> None:
    kind = "SHA-256" if len(checksum) == hashlib.sha256().digest_size * 2 else "MD5"
    digest = hashlib.sha256() if kind == "SHA-256" else hashlib.md5(usedforsecurity=False)
    with stream, target.open("wb") as copy:
        while chunk := stream.read(CHUNK_BYTES):
            if copy.tell() > MOST_BYTES:
                break
            digest.update(chunk)
            copy.write(chunk)
        size = f"{copy.tell():,}" if copy.tell() <= MOST_BYTES else f"more than {MOST_BYTES:,}"
    if digest.hexdigest() != checksum:
        got = f"{size} bytes with {kind} {digest.hexdigest()}, expected {checksum}"
        raise _OtherError(f"has different content than the published file: {name} has {got}")
