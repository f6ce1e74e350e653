"""Archives of published data sets: found in data/ or downloaded to it, and verified before use."""

import os
import time
import urllib.request
from collections.abc import Mapping
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


@dataclass(frozen=True)
class Archive:
    """A file as released by its publisher, and the checksums of what it holds."""

    name: str
    urls: tuple[str, ...]
    contents: Mapping[str, str]  # by path: MD5 or SHA-256, because the archive itself may have been packed again

    @property
    def unpacked(self) -> str:
        """What lies in data/ instead, where somebody has unpacked it: a file or a folder."""
        return next(iter(self.contents)).partition("/")[0]

    @property
    def remedy(self) -> str:
        return (
            f"Let this machine download it from {' or '.join(self.urls)}, or put {self.name} into data/ yourself, "
            "packed or unpacked. If DATA_FOLDER is set, data/ means that folder."
        )


def obtain(archive: Archive, folder: Path, say: Say, clean_ups: CleanUps) -> None:
    """Put the archive's files, verified, into a folder: from data/, or from a download that data/ then keeps."""
    if own := lookup.find((archive.name, archive.unpacked), say):
        _take_own(own, archive, folder, say)
        return
    if reason := why_not_writable(DATA):
        raise SettingError(
            f"{archive.name} is not in {DATA}/ and cannot be downloaded, because {DATA}/ is not writable: {reason}. "
            f"Make {DATA}/ writable for the owner of results/ (user ID {os.geteuid()}). {archive.remedy}",
            "cannot-write",
        )
    with scratch_in(DATA, clean_ups) as scratch:
        target = scratch / archive.name
        _download(archive, target, folder, say)
        target.rename(DATA / archive.name)


def _take_own(path: Path, archive: Archive, folder: Path, say: Say) -> None:
    """Refuse a user's file that does not hold the published ones."""
    if reason := faults.why_unreadable(path):
        raise SettingError(reason, "invalid-file")
    size = path.stat().st_size
    if size > PROGRESS_BYTES:
        say(f"checking {path}, {size / 1e6:.0f} MB")
    if fault := faults.take_out(path, archive.contents, folder):
        raise SettingError(f"{path} {fault}. Remove it first. {archive.remedy}", "invalid-file")


def _download(archive: Archive, target: Path, folder: Path, say: Say) -> None:
    """Try one URL after another until the published files have arrived."""
    reasons = []
    for url in archive.urls:
        say(f"downloading {url}")
        try:
            _fetch(url, target, say)
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {error}")
            continue
        fault = faults.take_out(target, archive.contents, folder)
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
