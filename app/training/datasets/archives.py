"""Archives of published data sets: found in data/ or downloaded to it, and verified before use."""

import gzip
import os
import shutil
import time
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from app.errors import LockstepError, SettingError
from app.machine.folders import DATA, scratch_in, why_not_writable
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.training.datasets import faults, lookup

SILENCE_SECONDS = 30.0  # then the next server is tried
LEAST_BYTES, LEAST_SECONDS = 600_000, 60.0  # a slower server is also abandoned
CHUNK_BYTES = 2**20
PROGRESS_BYTES = 20_000_000
PUBLISHED_BYTES = {  # by MD5; a file of another size need not be read
    "c58f30108f718f92721af3b95e74349a": 170_498_071,  # cifar-10-python.tar.gz
    "f68b3c2dcbeaaa9fbdd348bbdeb94873": 9_912_422,  # train-images-idx3-ubyte.gz
    "d53e105ee54ea40749a09fcbcd1e9432": 28_881,  # train-labels-idx1-ubyte.gz
    "9fb629c4189551a2d022fa330f9573f3": 1_648_877,  # t10k-images-idx3-ubyte.gz
    "ec29112dd5afa0611ce80d1b7f02629c": 4_542,  # t10k-labels-idx1-ubyte.gz
}


@dataclass(frozen=True)
class Archive:
    """A file as released by its publisher."""

    name: str
    md5: str
    urls: tuple[str, ...]
    place: str = "."  # the folder in which its reader expects the content

    @property
    def bytes(self) -> int | None:
        """The published size, or None if it is unknown."""
        return PUBLISHED_BYTES.get(self.md5)

    @property
    def remedy(self) -> str:
        return (
            f"Let this machine download it from {' or '.join(self.urls)}, or put the published {self.name} "
            f"(MD5 {self.md5}) into data/ yourself. If DATA_FOLDER is set, data/ means that folder."
        )


def obtain(archive: Archive, say: Say, clean_ups: CleanUps) -> Path:
    """Find the archive in data/ or download it, and verify it."""
    if own := lookup.find(archive.name, say):
        _check_own(own, archive, say)
        return own
    if reason := why_not_writable(DATA):
        raise SettingError(
            f"{archive.name} is not in {DATA}/ and cannot be downloaded, because {DATA}/ is not writable: {reason}. "
            f"Make {DATA}/ writable for the owner of results/ (user ID {os.geteuid()}). {archive.remedy}",
            "cannot-write",
        )
    with scratch_in(DATA, clean_ups) as scratch:
        _download(archive, scratch / "download", say)
        return (scratch / "download").rename(DATA / archive.name)


def _check_own(path: Path, archive: Archive, say: Say) -> None:
    """Refuse a user's file that differs from the published one."""
    if reason := faults.why_unreadable(path):
        raise SettingError(reason, "invalid-file")
    size = path.stat().st_size
    if size > PROGRESS_BYTES and size == archive.bytes:
        say(f"checking {path}, {size / 1e6:.0f} MB")
    if fault := faults.find_fault(path, archive.md5, archive.bytes):
        raise SettingError(f"{path} {fault}. Remove it first. {archive.remedy}", "invalid-file")


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into a folder, and write nothing outside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if path.suffixes[-2:] == [".tar", ".gz"]:
        with faults.open_tar(path) as archive:
            if fault := faults.find_unsafe_member(archive):
                raise SettingError(f"{path} {fault}. It was not unpacked.", "invalid-file")
            archive.extractall(folder, filter="data")
    else:
        with gzip.open(path) as packed, (folder / path.stem).open("wb") as file:
            shutil.copyfileobj(packed, file)


def _download(archive: Archive, target: Path, say: Say) -> None:
    """Try one URL after another until the published file has arrived."""
    reasons = []
    for url in archive.urls:
        say(f"downloading {url}")
        try:
            _fetch(url, target, say)
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {error}")
            continue
        fault = faults.find_fault(target, archive.md5, archive.bytes)
        if fault is None:
            return
        reasons.append(f"{url}: the received file {fault}")
    tried = "\n".join(f"  {reason}" for reason in reasons)
    raise LockstepError(f"cannot download {archive.name}:\n{tried}\n{archive.remedy}", "download-failed")


def _fetch(url: str, target: Path, say: Say) -> None:
    with _open(url) as answer, target.open("wb") as file:
        whole = f" of {int(answer.headers['Content-Length']) / 1e6:.0f}" if answer.headers["Content-Length"] else ""
        shown = counted = 0
        began = time.monotonic()
        while chunk := answer.read1(CHUNK_BYTES):  # read() would wait for a whole chunk
            file.write(chunk)
            if time.monotonic() - began > LEAST_SECONDS:
                if file.tell() - counted < LEAST_BYTES:
                    raise TimeoutError(f"sent fewer than {LEAST_BYTES:,} bytes in {LEAST_SECONDS:g} s")
                counted, began = file.tell(), time.monotonic()
            if file.tell() >= shown + PROGRESS_BYTES:
                shown = file.tell()
                say(f"  {shown / 1e6:.0f}{whole} MB")


def _open(url: str) -> HTTPResponse:
    """Open the URL within LEAST_SECONDS: the socket's timeout limits each read, but not their sum."""
    answers = Queue[HTTPResponse | Exception]()

    def request() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=SILENCE_SECONDS))  # noqa: S310
        except Exception as error:
            answers.put(error)

    Thread(target=request, daemon=True).start()
    try:
        answer = answers.get(timeout=LEAST_SECONDS)
    except Empty:
        raise TimeoutError(f"sent no headers in {LEAST_SECONDS:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
