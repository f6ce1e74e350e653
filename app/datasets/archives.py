"""The published archives of a real data set: found in data/ or downloaded into it, and checked before they are used."""

import gzip
import hashlib
import shutil
import tarfile
import urllib.request
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from app.errors import LockstepError, SettingError
from app.machine.folders import DATA, check_writable, scratch_in
from app.machine.interrupt import CleanUps
from app.machine.say import Say

SILENCE_SECONDS = 30.0  # then the next server is tried
CHUNK_BYTES = 2**20
PROGRESS_BYTES = 20_000_000


@dataclass(frozen=True)
class Archive:
    """One file as its publisher released it."""

    name: str
    md5: str
    urls: tuple[str, ...]
    place: str = "."  # where its reader expects the content

    @property
    def ways_out(self) -> str:
        """What to do if the file is missing or wrong."""
        return (
            f"Two ways out: let this machine download it from {' or '.join(self.urls)}, or put the published "
            f"{self.name} (MD5 {self.md5}) into data/ yourself."
        )


def obtain(archive: Archive, say: Say, clean_ups: CleanUps) -> Path:
    """The archive in data/, whole and unaltered; downloaded if the user put none there."""
    for own in sorted(DATA.rglob(archive.name)):
        if fault := find_fault(own, archive.md5):
            raise SettingError(f"{own} {fault}. Remove it first. {archive.ways_out}")
        return own
    check_writable(DATA)
    with scratch_in(DATA, clean_ups) as scratch:
        _download(archive, scratch / "download", say)
        return (scratch / "download").rename(DATA / archive.name)


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into a folder, and write nothing outside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if path.suffixes[-2:] == [".tar", ".gz"]:
        with tarfile.open(path) as archive:
            if astray := _find_astray(archive):
                raise SettingError(f"{path} {astray}. It has not been unpacked.")
            archive.extractall(folder, filter="data")
    else:
        with gzip.open(path) as packed, (folder / path.stem).open("wb") as file:
            shutil.copyfileobj(packed, file)


def find_fault(path: Path, md5: str) -> str | None:
    """How a file differs from the published one, as the end of a sentence; None if it does not."""
    try:
        with path.open("rb") as file:
            got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        return None if got == md5 else f"is not the published file: it {_diagnose(path)} (MD5 {got}, published {md5})"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _diagnose(path: Path) -> str:
    """Why a file might not be the published one."""
    if path.stat().st_size == 0:
        return "is empty"
    try:
        with gzip.open(path) as packed:
            while packed.read(CHUNK_BYTES):
                pass
        if path.suffixes[-2:] == [".tar", ".gz"]:
            with tarfile.open(path) as archive:
                return _find_astray(archive) or "has other content"
    except (EOFError, tarfile.ReadError):
        return f"has been cut off, it ends after {path.stat().st_size} bytes in the middle of its content"
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
        return f"has been altered or damaged, its content cannot be unpacked: {error}"
    return "has other content"


def _find_astray(archive: tarfile.TarFile) -> str | None:
    """The first member that is not a plain file or folder below the folder where the archive is unpacked."""
    for member in archive:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            return f"holds {member.name!r}, a path that climbs out of the archive"
        if not (member.isfile() or member.isdir()):
            return f"holds {member.name!r}, which is neither a file nor a folder"
    return None


def _download(archive: Archive, target: Path, say: Say) -> None:
    """Try one address after another until the published file has arrived."""
    reasons = []
    for url in archive.urls:
        say(f"downloading {url}")
        try:
            _fetch(url, target, say)
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {error}")
            continue
        fault = find_fault(target, archive.md5)
        if fault is None:
            return
        reasons.append(f"{url}: the file received {fault}")
    tried = "\n".join(f"  {reason}" for reason in reasons)
    raise LockstepError(f"{archive.name} could not be downloaded:\n{tried}\n{archive.ways_out}")


def _fetch(url: str, target: Path, say: Say) -> None:
    with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as answer, target.open("wb") as file:  # noqa: S310
        whole = f" of {int(answer.headers['Content-Length']) / 1e6:.0f}" if answer.headers["Content-Length"] else ""
        shown = 0
        while chunk := answer.read(CHUNK_BYTES):
            file.write(chunk)
            if file.tell() >= shown + PROGRESS_BYTES:
                shown = file.tell()
                say(f"  {shown / 1e6:.0f}{whole} MB")
