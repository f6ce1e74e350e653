"""The published archives of a real data set: found in data/ or downloaded into it, and checked before they are used."""

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
LEAST_BYTES, LEAST_SECONDS = 600_000, 60.0  # a server that sends fewer bytes in this time is given up as well
CHUNK_BYTES = 2**20
PROGRESS_BYTES = 20_000_000
PUBLISHED_BYTES = {  # of each archive, by its MD5: a file of another size need not be read
    "c58f30108f718f92721af3b95e74349a": 170_498_071,  # cifar-10-python.tar.gz
    "f68b3c2dcbeaaa9fbdd348bbdeb94873": 9_912_422,  # train-images-idx3-ubyte.gz
    "d53e105ee54ea40749a09fcbcd1e9432": 28_881,  # train-labels-idx1-ubyte.gz
    "9fb629c4189551a2d022fa330f9573f3": 1_648_877,  # t10k-images-idx3-ubyte.gz
    "ec29112dd5afa0611ce80d1b7f02629c": 4_542,  # t10k-labels-idx1-ubyte.gz
}


@dataclass(frozen=True)
class Archive:
    """One file as its publisher released it."""

    name: str
    md5: str
    urls: tuple[str, ...]
    place: str = "."  # where its reader expects the content

    @property
    def bytes(self) -> int | None:
        """Its published size, if known."""
        return PUBLISHED_BYTES.get(self.md5)

    @property
    def ways_out(self) -> str:
        """What to do if the file is missing or wrong."""
        return (
            f"Two ways out: let this machine download it from {' or '.join(self.urls)}, or put the published "
            f"{self.name} (MD5 {self.md5}) into data/ yourself. Where DATA_FOLDER is set, data/ is that folder."
        )


def obtain(archive: Archive, say: Say, clean_ups: CleanUps) -> Path:
    """The archive in data/, whole and unaltered; downloaded if the user put none there."""
    if own := lookup.find(archive.name, say):
        _check_own(own, archive, say)
        return own
    if reason := why_not_writable(DATA):
        raise SettingError(
            f"{DATA}/ holds no {archive.name} and cannot be written: {reason}. "
            f"Make it writable for the owner of results/ (user ID {os.geteuid()}). {archive.ways_out}"
        )
    with scratch_in(DATA, clean_ups) as scratch:
        _download(archive, scratch / "download", say)
        return (scratch / "download").rename(DATA / archive.name)


def _check_own(path: Path, archive: Archive, say: Say) -> None:
    """Refuse a file of the user's that is not the published one."""
    if reason := faults.find_barrier(path):
        raise SettingError(f"{path} {reason}")
    size = path.stat().st_size
    if size > PROGRESS_BYTES and size == archive.bytes:
        say(f"checking {path}, {size / 1e6:.0f} MB")
    if fault := faults.find_fault(path, archive.md5, archive.bytes):
        raise SettingError(f"{path} {fault}. Remove it first. {archive.ways_out}")


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into a folder, and write nothing outside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if path.suffixes[-2:] == [".tar", ".gz"]:
        with faults.open_tar(path) as archive:
            if astray := faults.find_astray(archive):
                raise SettingError(f"{path} {astray}. It has not been unpacked.")
            archive.extractall(folder, filter="data")
    else:
        with gzip.open(path) as packed, (folder / path.stem).open("wb") as file:
            shutil.copyfileobj(packed, file)


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
        fault = faults.find_fault(target, archive.md5, archive.bytes)
        if fault is None:
            return
        reasons.append(f"{url}: the file received {fault}")
    tried = "\n".join(f"  {reason}" for reason in reasons)
    raise LockstepError(f"{archive.name} could not be downloaded:\n{tried}\n{archive.ways_out}")


def _fetch(url: str, target: Path, say: Say) -> None:
    with _ask(url) as answer, target.open("wb") as file:
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


def _ask(url: str) -> HTTPResponse:
    """Open the URL and read its headers in time: the socket's timeout limits each read, not their sum."""
    answers = Queue[HTTPResponse | Exception]()

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=SILENCE_SECONDS))  # noqa: S310
        except Exception as error:
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=LEAST_SECONDS)
    except Empty:
        raise TimeoutError(f"sent no headers in {LEAST_SECONDS:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
