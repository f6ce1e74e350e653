"""Whatever lies in data/ or in the volume of prepared arrays is read or refused in a line; none of it is run."""

import gzip
import io
import json
import pickle
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.errors import DamagedError, LockstepError
from app.machine import folders
from app.training.datasets import faults, prepared
from tests import published

MOST_MEMORY = 2**25
any_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Trap:
    """An object that leaves a file behind if it is ever loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], object], tuple[Path]]:
        return (Path.touch, (self.path,))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place with the prepared digits."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        folders.PREPARED.mkdir()
        prepared.make("digits", print, [])
        yield folder


def written(array: object) -> bytes:
    """An array's file."""
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def load(name: str, content: bytes) -> str | None:
    """Load the digits with another content of one file; the refusal, if there is one."""
    path = prepared.folder_of("digits") / name
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        found = prepared.load("digits")
        assert len(found.train.images) == len(found.train.labels)
    except LockstepError as error:
        told = str(error)
    else:
        return None
    finally:
        path.write_bytes(whole)
    assert told.isprintable()
    assert "is damaged: " in told
    assert "`python -m app prepare`" in told
    assert "digits-" in told
    return told


@any_example
@given(
    st.sampled_from(["train_images.npy", "test_labels.npy"]),
    st.integers(0, 130),
    st.integers(0, 9),
    st.binary() | st.none(),
)
def test_any_bytes_of_an_array_are_others(place: Path, name: str, begin: int, length: int, other: bytes | None) -> None:
    whole = (prepared.folder_of("digits") / name).read_bytes()
    load(name, whole[:begin] if other is None else whole[:begin] + other + whole[begin + length :])


ODD_SHAPES = st.lists(st.integers(-3, 2**70), max_size=5).map(tuple)
ODD_TYPES = st.sampled_from(["<f8", "|u1", "<i8", "|O", "|V0", "<U9", [("a", "|O")], "x", 3, None])


@any_example
@given(ODD_TYPES, ODD_SHAPES | st.sampled_from(["x", None, (1.5,)]), st.booleans() | st.just("x"))
@example("|u1", (2**62, 2**62), False)
@example("|u1", (), False)
@example("|u1", (0, 32, 32, 1), False)
def test_any_header_of_an_array_is_refused(place: Path, descr: object, shape: object, fortran: object) -> None:
    header = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4096)
    for name in ("train_images.npy", "train_labels.npy"):
        assert load(name, content)


def test_objects_in_an_array_are_never_loaded(place: Path) -> None:
    trap = Trap(place / "trapped")
    archive = io.BytesIO()
    np.savez(archive, np.array([trap], dtype=object))
    for content in (written(np.array([trap] * 9, dtype=object)), pickle.dumps(trap), archive.getvalue()):
        assert load("test_images.npy", content)
        assert load("test_labels.npy", content)
    assert not (place / "trapped").exists()


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        ("train_images.npy", np.zeros((9, 32, 32, 3), np.uint8), "the train images are uint8 (9, 32, 32, 3)"),
        ("train_images.npy", np.zeros((9, 32, 32, 1), np.float32), "the train images are float32 (9, 32, 32, 1)"),
        ("test_labels.npy", np.zeros(9, np.int64), "the test labels are int64 (9,)"),
        ("test_labels.npy", np.full(360, 10, np.int64), "from 10 to 10"),
        ("test_labels.npy", np.full(360, -1, np.int64), "from -1 to -1"),
    ],
)
def test_arrays_of_another_form_are_refused(place: Path, name: str, array: object, told: str) -> None:
    assert told in (load(name, written(array)) or "")


@any_example
@given(st.binary() | st.sampled_from([b"[" * 100_000, b"null", b"1" * 5000, b"\xff"]))
def test_any_checksums_are_others_and_the_set_is_made_again(place: Path, content: bytes) -> None:
    path = prepared.folder_of("digits") / prepared.CHECKSUMS
    whole = path.read_bytes()
    path.write_bytes(content)
    assert not prepared._intact(path.parent)
    path.write_bytes(whole)
    assert prepared._intact(path.parent)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text() | st.just("run"), inside, max_size=3),
)
NAMES = st.sampled_from(["../outside", "/etc", "..", ".", "", "a/b", "a\0", "a\n", "latest\x1b", 3, None, ["a"], {}])


@any_example
@given(
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | NAMES.map(lambda name: json.dumps({"run": name}).encode())
    | JSON.map(lambda value: json.dumps({"run": "mine", "neighbours": value}).encode())
)
@example(b"[" * 100_000)
@example(b'{"run": "' + b"1" * 5000)
def test_whatever_hands_a_run_over_names_a_folder_in_results_or_is_refused(place: Path, content: bytes) -> None:
    folders.RUN_FILE.write_bytes(content)
    try:
        told = folders.run_ticket()
    except DamagedError:
        return
    assert (folders.RESULTS / told.run).parent == folders.RESULTS
    assert isinstance(told.neighbours, str)


def fault(place: Path, name: str, content: bytes) -> str:
    """What is said of a file that has an archive's name, and not its checksum."""
    path = place / name
    path.write_bytes(content)
    around = place / "around"
    around.mkdir(exist_ok=True)
    told = faults.take_out(path, {"a/b": "0" * 32}, around / "out") or ""
    assert told
    assert told.isprintable()
    assert len(told) <= 500
    assert {each for each in around.rglob("*") if not each.is_dir()} <= {around / "out/a/b"}
    return told


def header(name: str = "a", kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    """A member's header, with any announced size."""
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


WHOLE_TAR = gzip.decompress(published.tar_of({"a/b": b"x" * 1000, "a/c": b"y" * 10}))
ANNOUNCED = st.sampled_from([0, 1, 511, 2**16 + 1, 2**33, 2**62, 2**80, -1, -512, -(2**40)]) | st.integers(0, 9999)
KINDS = st.sampled_from([*tarfile.SUPPORTED_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, b"?"])
MEMBERS = st.builds(header, st.text(st.characters(codec="ascii")), KINDS, ANNOUNCED)


@any_example
@given(st.sampled_from(["a.tar.gz", "a.gz"]), st.binary() | st.binary().map(gzip.compress), st.integers(0, 99))
def test_any_bytes_with_the_name_of_an_archive(place: Path, name: str, content: bytes, cut: int) -> None:
    fault(place, name, content)
    fault(place, name, gzip.compress(WHOLE_TAR)[:cut] + content)


@any_example
@given(st.integers(0, 3 * 512), st.integers(0, 512), st.binary(max_size=30))
def test_any_bytes_within_a_tar(place: Path, begin: int, length: int, other: bytes) -> None:
    fault(place, "a.tar.gz", gzip.compress(WHOLE_TAR[:begin] + other + WHOLE_TAR[begin + length :]))


@any_example
@given(st.lists(MEMBERS | st.binary(max_size=600), max_size=6))
def test_any_members_of_a_tar(place: Path, members: list[bytes]) -> None:
    fault(place, "a.tar.gz", gzip.compress(b"".join(members) + bytes(1024)))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (header(size=2**80), "cannot be unpacked"),
        (header("x", tarfile.GNUTYPE_LONGNAME, 512) + bytes(512), ""),
        ((header("x", tarfile.GNUTYPE_LONGNAME, 2) + b"x\0" + bytes(510)) * 5000, "cannot be unpacked"),
        (header("x", tarfile.XHDTYPE, 2**26) + bytes(2**26), "67108864 bytes"),
        (header() * 10_100, "more than 10,000 files and folders"),
    ],
    ids=["announced size", "empty name", "names of names", "a long description", "many members"],
)
def test_an_archive_takes_neither_memory_nor_the_stack(place: Path, content: bytes, told: str) -> None:
    packed = gzip.compress(content, 1)
    tracemalloc.start()
    try:
        assert told in fault(place, "a.tar.gz", packed)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
