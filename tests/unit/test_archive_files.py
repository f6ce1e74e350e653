"""What can lie in data/ under an archive's name, or in its way: refused at once, and never read to its end."""

import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10

from app.errors import SettingError
from app.machine.folders import DATA, PREPARED
from app.training.datasets import archives, lookup, prepared
from tests import published

OWN = DATA / str(CIFAR10.filename)
STRANGER = 65_534  # a user who owns nothing


@pytest.fixture(autouse=True)
def _workplace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Port 9 of this machine answers nobody.
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:9/{CIFAR10.filename}")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders keep other users out
        monkeypatch.chdir(folder)
        for each in (Path(), PREPARED, DATA):
            each.mkdir(exist_ok=True)
            each.chmod(0o777)
        yield
        monkeypatch.undo()


def refusal() -> str:
    with pytest.raises(SettingError) as caught:
        prepared.make("cifar10", lambda _: None, [])
    message = str(caught.value)
    assert "\n" not in message
    return message


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@contextmanager
def as_a_stranger() -> Iterator[None]:
    """As a user without root's right to read and write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "is a named pipe, not a file"),
        (Path.mkdir, "lacks cifar-10-batches-py/data_batch_1"),
        (bind, "is a socket, not a file"),
    ],
    ids=["named pipe", "folder", "socket"],
)
def test_what_is_not_a_file_is_refused_without_opening_it(make: Callable[[Path], None], words: str) -> None:
    make(OWN)
    message = refusal()
    assert message.startswith(f"{OWN} {words}. Remove it")


def test_a_link_to_a_device_is_refused_without_reading_it() -> None:
    OWN.symlink_to("/dev/zero")
    assert refusal().startswith(f"{OWN} is a device, not a file.")


def test_a_file_of_any_size_is_read_no_further_than_it_makes_sense() -> None:
    OWN.touch()
    os.truncate(OWN, 200_000_000_000)
    assert refusal().startswith(f"{OWN} is damaged and cannot be unpacked")
    assert OWN.stat().st_blocks == 0


def test_a_large_file_says_that_it_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    content = published.put_cifar10(monkeypatch, DATA).read_bytes()
    monkeypatch.setattr(archives, "PROGRESS_BYTES", len(content) - 1)
    said: list[str] = []
    assert prepared.make("cifar10", said.append, [])
    assert said == [f"checking {OWN}, {len(content) / 1e6:.0f} MB"]


def test_a_link_that_leads_out_says_so() -> None:
    OWN.symlink_to("/srv/nowhere/cifar-10-python.tar.gz")
    message = refusal()
    assert message.startswith(f"{OWN} is a link to /srv/nowhere/cifar-10-python.tar.gz, which is not mounted")
    assert "DATA_FOLDER" in message
    OWN.unlink()
    OWN.symlink_to(OWN.name)
    assert refusal() == f"{OWN} is a circular link. Remove it."


def test_a_link_to_an_archive_that_is_there_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    published.put_cifar10(monkeypatch, DATA).rename(DATA / "of the lab")
    OWN.symlink_to("of the lab")
    assert prepared.make("cifar10", print, [])


def test_a_file_or_folder_that_may_not_be_read_says_who_must_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    published.put_cifar10(monkeypatch, DATA)
    OWN.chmod(0)
    with as_a_stranger():
        message = refusal()
        assert re.search(rf"{OWN}: Permission denied\..*owner of results/ \(user ID {os.geteuid()}\)", message)
    for mode in (0, stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH):
        DATA.chmod(mode)
        with as_a_stranger():
            assert re.search(rf"{DATA}/: Permission denied\..*owner of results/", refusal())
    DATA.chmod(0o777)


def test_a_folder_that_may_only_be_read_is_enough_for_an_archive_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    published.put_cifar10(monkeypatch, DATA)
    DATA.chmod(0o555)
    with as_a_stranger():
        assert prepared.make("cifar10", print, [])


def test_a_folder_that_may_only_be_read_and_holds_nothing_names_both_remedies() -> None:
    DATA.chmod(0o555)
    with as_a_stranger():
        message = refusal()
    assert re.search(rf"cifar-10-python\.tar\.gz.* {DATA}/.*: Permission denied\.", message)
    for fact in (f"download it from {CIFAR10.url}", "into data/", "DATA_FOLDER"):
        assert fact in message


def test_the_least_deep_of_several_is_taken() -> None:
    for folder in ("a/b/c", "a/b", "z"):
        (DATA / folder).mkdir(parents=True, exist_ok=True)
        (DATA / folder / "archive").touch()
        assert lookup.find(("archive", "archive.gz"), print) == DATA / folder / "archive"


def test_links_to_folders_are_not_followed_and_those_that_lead_out_are_named() -> None:
    (DATA / "loop").symlink_to(".")
    (DATA / "lab").symlink_to("/srv/nowhere")
    said: list[str] = []
    assert lookup.find(("archive", "archive.gz"), said.append) is None
    (line,) = said
    assert "data/lab: it is a link to /srv/nowhere, which is not mounted" in line


def test_a_folder_without_end_is_looked_through_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_ENTRIES", 20)
    deep = DATA / "/".join("abcdefgh")
    deep.mkdir(parents=True)
    (deep / "archive").touch()
    assert lookup.find(("archive", "archive.gz"), print) is None
    for number in range(30):
        (DATA / "a" / str(number)).mkdir()
    said: list[str] = []
    assert lookup.find(("archive", "archive.gz"), said.append) is None
    (line,) = said
    assert re.search(r"20 entries.*archive directly into data/", line)
    (DATA / "archive").touch()
    assert lookup.find(("archive", "archive.gz"), print) == DATA / "archive"
