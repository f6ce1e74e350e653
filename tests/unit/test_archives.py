"""Real archives' layouts, packed and unpacked, and every way in which their content can be wrong."""

import gzip
import http.server
import re
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from app.errors import LockstepError, SettingError
from app.machine.folders import DATA, PREPARED
from app.settings.training import DatasetName
from app.training.datasets import archives, mnist, prepared
from tests import published
from tests.published import TEST, TRAIN


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PREPARED.mkdir()
    DATA.mkdir()
    # Port 9 of this machine answers nobody: what a test does not serve itself is out of reach.
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:9/{CIFAR10.filename}")
    monkeypatch.setattr(mnist, "MIRRORS", ("http://127.0.0.1:9/one/", "http://127.0.0.1:9/two/"))


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which a web server gives out what lies in it."""
    folder = tmp_path_factory.mktemp("served")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def make(name: DatasetName) -> list[str]:
    """What is said while the set is made."""
    said: list[str] = []
    assert prepared.make(name, said.append, [])
    return said


def refusal(name: DatasetName, error: type[LockstepError] = SettingError) -> str:
    """The message with which the set is not made; nothing of it stays."""
    before = sorted(DATA.rglob("*"))
    with pytest.raises(error) as caught:
        prepared.make(name, lambda _: None, [])
    assert list(PREPARED.iterdir()) == []
    assert sorted(DATA.rglob("*")) == before
    return str(caught.value)


def put_cifar10(files: dict[str, bytes], packed: bool) -> None:
    if packed:
        (DATA / CIFAR10.filename).write_bytes(published.tar_of(files))
    else:
        (DATA / CIFAR10.base_folder).mkdir()
        for name, content in files.items():
            (DATA / name).write_bytes(content)


@pytest.mark.parametrize("packed", [True, False])
def test_cifar_10_s_own_layout(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    files = published.cifar10_files(monkeypatch)
    put_cifar10(files, packed)
    assert make("cifar10") == []
    made = prepared.load("cifar10")
    assert (len(made.train), len(made.test)) == (TRAIN, TEST)
    assert made.train.labels.tolist() == published.labels_of(TRAIN).tolist()
    # An image is a row of 3,072 bytes: 1,024 of red, then of green, then of blue.
    first = np.random.default_rng(0).integers(0, 256, (10, 3072), dtype=np.uint8)[0]
    assert np.array_equal(made.train.images[0], first.reshape(3, 32, 32).transpose(1, 2, 0))
    assert not prepared.make("cifar10", print, [])


@pytest.mark.parametrize("place", [".", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_s_own_layout_where_torchvision_would_have_put_it_too(
    monkeypatch: pytest.MonkeyPatch, place: str, packed: bool
) -> None:
    (DATA / place).mkdir(parents=True, exist_ok=True)
    files = published.put_mnist(monkeypatch, DATA / place)
    if not packed:
        for name, content in files.items():
            (DATA / place / f"{name}.gz").unlink()
            (DATA / place / name).write_bytes(content)
    assert make("mnist") == []
    made = prepared.load("mnist")
    assert (len(made.train), len(made.test)) == (TRAIN, TEST)
    assert made.test.labels.tolist() == published.labels_of(TEST).tolist()
    assert made.train.images.shape == (TRAIN, 32, 32, 1)
    pixels = np.frombuffer(next(iter(files.values()))[16:], np.uint8).reshape(TRAIN, 28, 28)
    assert np.array_equal(made.train.images[:, 2:-2, 2:-2, 0], pixels)
    assert int(made.train.images.sum()) == int(pixels.sum())


def test_ranks_get_plain_arrays_which_are_mapped_and_hold_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    published.put_cifar10(monkeypatch, DATA)
    make("cifar10")
    made = prepared.load("cifar10")
    for part in (made.train, made.test):
        for array, kind in ((part.images, np.uint8), (part.labels, np.int64)):
            assert isinstance(array, np.memmap)
            assert not array.flags.writeable
            assert array.dtype == kind


def test_nothing_and_nowhere_to_get_it_names_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal("cifar10", LockstepError)
    assert message.startswith("cannot download cifar-10-python.tar.gz")
    assert "Connection refused" in message
    for fact in (f"download it from {CIFAR10.url}", "put cifar-10-python.tar.gz into data/"):
        assert fact in message
    assert "http://127.0.0.1:9/one/" in refusal("mnist", LockstepError)


def test_a_download_is_kept_and_not_asked_for_again(monkeypatch: pytest.MonkeyPatch, served: tuple[Path, str]) -> None:
    folder, address = served
    content = published.put_cifar10(monkeypatch, folder).read_bytes()
    monkeypatch.setattr(CIFAR10, "url", address + CIFAR10.filename)
    assert make("cifar10") == [f"downloading {CIFAR10.url}"]
    assert [path.name for path in DATA.iterdir()] == [CIFAR10.filename]
    assert (DATA / CIFAR10.filename).read_bytes() == content
    (folder / CIFAR10.filename).unlink()
    for stale in PREPARED.iterdir():
        stale.rename(PREPARED / "elsewhere")
    assert make("cifar10") == []


class Drips(http.server.BaseHTTPRequestHandler):
    """Never silent for long, and never done in time, either with the headers or with what follows."""

    whole_answers = 0

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path == "/headers":
            self.flush_headers()
        else:
            self.send_header("Content-Length", "200")
            self.end_headers()
        with suppress(ConnectionError):
            for _ in range(200):
                self.wfile.write(b"x")
                time.sleep(0.02)
            Drips.whole_answers += self.path != "/headers"


def test_a_server_that_sends_too_slowly_is_given_up_for_the_next(
    monkeypatch: pytest.MonkeyPatch, served: tuple[Path, str]
) -> None:
    folder, address = served
    content = bytes(100_000)
    (folder / "archive").write_bytes(content)
    contents = {"archive": published.md5(content)}
    monkeypatch.setattr(archives, "LEAST_BYTES", 1000)
    monkeypatch.setattr(archives, "LEAST_SECONDS", 0.5)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Drips) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = f"http://127.0.0.1:{server.server_port}"
        urls = (f"{own}/archive", f"{own}/headers", f"{address}archive")
        said: list[str] = []
        archives.obtain(archives.Archive("archive", urls, contents), PREPARED, said.append, [])
        server.shutdown()
    assert said == [f"downloading {url}" for url in urls]
    assert Drips.whole_answers == 0
    assert (DATA / "archive").read_bytes() == (PREPARED / "archive").read_bytes() == content


def test_a_spoilt_download_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch, served: tuple[Path, str]) -> None:
    folder, address = served
    published.put_cifar10(monkeypatch, folder).write_bytes(b"<html>not here</html>")
    monkeypatch.setattr(CIFAR10, "url", address + CIFAR10.filename)
    message = refusal("cifar10", LockstepError)
    assert re.search(rf"{re.escape(CIFAR10.url)}: the received file is damaged and cannot be unpacked", message)


def test_a_cut_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = published.put_cifar10(monkeypatch, DATA)
    whole = path.read_bytes()
    path.write_bytes(b"")
    assert "data/cifar-10-python.tar.gz is empty" in refusal("cifar10")
    for length in (5, len(whole) // 2):
        path.write_bytes(whole[:length])
        message = refusal("cifar10")
        assert message.startswith(f"data/cifar-10-python.tar.gz is truncated after {length:,} bytes. Remove it")


def test_a_flipped_byte_is_refused_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    name, content = next(iter(published.put_mnist(monkeypatch, DATA).items()))
    (DATA / f"{name}.gz").unlink()
    random = np.random.default_rng(0)
    for path, whole in ((DATA / name, content), (DATA / f"{name}.gz", gzip.compress(content))):
        for position in (0, len(whole) - 1, *random.integers(10, len(whole), 10)):  # the header may have another time
            spoilt = bytearray(whole)
            spoilt[position] ^= 1 << int(random.integers(8))
            path.write_bytes(spoilt)
            assert re.match(rf"{path} (is damaged|is truncated|has different content)", refusal("mnist"))
        path.unlink()


def test_other_content_in_a_sound_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = published.put_cifar10(monkeypatch, DATA)
    other = published.cifar10_files(monkeypatch) | {"cifar-10-batches-py/data_batch_1": b"something else"}
    path.write_bytes(published.tar_of(other))
    assert "different content than the published file: cifar-10-batches-py/data_batch_1 has 14 b" in refusal("cifar10")


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize(
    ("files", "members"),
    [
        ({"../escaped": b"x"}, []),
        ({"cifar-10-batches-py/../../escaped": b"x"}, []),
        ({"/var/escaped": b"x"}, []),
        ({}, [link("cifar-10-batches-py/link", "/etc"), link("cifar-10-batches-py", "/etc")]),
    ],
)
def test_whatever_else_an_archive_holds_is_left_in_it(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], members: list[tarfile.TarInfo]
) -> None:
    archive = published.tar_of(published.cifar10_files(monkeypatch) | files, *members)
    (DATA / CIFAR10.filename).write_bytes(archive)
    make("cifar10")
    assert not [path for folder in (Path(), Path("/var")) for path in folder.rglob("escaped")]


def test_a_link_in_place_of_a_batch_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = published.cifar10_files(monkeypatch)
    name, content = files.popitem()
    Path("elsewhere").write_bytes(content)
    (DATA / CIFAR10.filename).write_bytes(published.tar_of(files, link(name, str(Path("elsewhere").resolve()))))
    assert f"lacks {name}" in refusal("cifar10")


def test_a_missing_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = published.tar_of(published.cifar10_files(monkeypatch, test_labels=np.arange(20) % 9))
    (DATA / CIFAR10.filename).write_bytes(archive)
    assert re.search(r"cifar10: .*test.* 0 to 9.*issing: \[9\], unknown: \[\]", refusal("cifar10"))

    published.put_mnist(monkeypatch, DATA, published.mnist_files(train_labels=np.arange(50) % 8 + 3))
    assert re.search(r"mnist: .*train.* 0 to 9.*issing: \[0, 1, 2\], unknown: \[10\]", refusal("mnist"))


@pytest.mark.parametrize("packed", [True, False])
def test_a_missing_batch_is_refused(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    files = published.cifar10_files(monkeypatch)
    del files["cifar-10-batches-py/data_batch_3"]
    put_cifar10(files, packed)
    assert " lacks cifar-10-batches-py/data_batch_3. Remove it" in refusal("cifar10")
