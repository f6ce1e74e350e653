"""A folder of pictures is a data set, or it is refused in one line that names what is wrong and what to do."""

import io
import os
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.datasets import ImageFolder

from app.errors import LockstepError, SettingError
from app.extensions import reading
from app.machine.folders import DATA, PREPARED
from app.settings import environment
from app.settings.training import TrainingSettings
from app.training import models
from app.training.datasets import pictures, prepared, source_of
from tests.unit.test_archive_files import as_a_stranger

PETS = DATA / "pets"
CATS = PETS / "train/cat"
FIRST = CATS / "0.png"


def picture(path: Path, mode: str = "RGB", size: tuple[int, int] = (40, 20), seed: int = 0) -> None:
    """Save noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def pets(train: int = 3, test: int = 2, mode: str = "RGB") -> None:
    for part, count in (("train", train), ("test", test)):
        for kind in ("cat", "dog"):
            for number in range(count):
                picture(PETS / part / kind / f"{number}.png", mode, seed=number + 10 * (kind == "dog"))


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pictures.look.cache_clear()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders keep other users out
        monkeypatch.chdir(folder)
        for each in (Path(), PREPARED, DATA):
            each.mkdir(exist_ok=True)
            each.chmod(0o777)
        pets()
        yield
        monkeypatch.undo()


def make(name: str = "pets") -> list[str]:
    """Make the arrays as another process would; returns the lines."""
    pictures.look.cache_clear()
    said: list[str] = []
    prepared.make(name, said.append, [])
    return said


def refusal(name: str = "pets") -> str:
    with pytest.raises(SettingError) as caught:
        make(name)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) <= 400
    return message


def test_the_images_are_those_of_torchvision_s_image_folder_in_another_order() -> None:
    picture(CATS / "large.jpeg", size=(300, 200))
    picture(CATS / "B.JPG", size=(32, 32))
    make()
    found = prepared.load("pets")
    for part, split in (("train", found.train), ("test", found.test)):
        theirs = [
            (np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR), np.int64), label)
            for image, label in ImageFolder(PETS / part)
        ]
        assert len(split) == len(theirs)
        for image, label in theirs:
            distances = [np.abs(own - image).mean() for own in split.images.astype(np.int64)]
            assert min(distances) < 8  # a large JPEG is decoded at a fraction of its size
            assert split.labels[int(np.argmin(distances))] == label
    assert found.source.title == "pets: pictures in data/pets, 8 + 4 in 2 classes"
    assert (found.source.classes, found.source.channels, found.source.crop_and_flip) == (2, 3, False)


def test_mean_and_deviation_are_those_of_the_training_part() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    for number in range(2 * 3):
        Image.fromarray(pixels + np.array([10, 20, 0], np.uint8)).save(
            PETS / "train" / ("cat", "dog")[number % 2] / f"{number // 2}.png"
        )
    Image.fromarray(pixels + np.array([70, 20, 0], np.uint8)).save(FIRST)
    make()
    source = prepared.load("pets").source
    assert source.mean == (20.0, 20.0, 0.0)
    assert source.deviation == (22.4, 1.0, 1.0)  # nothing is divided by 0


def test_the_first_images_are_of_several_classes() -> None:
    for part, count in (("train", 40), ("test", 20)):
        for kind in ("cat", "dog"):
            for number in range(count):
                picture(PETS / part / kind / f"{number}.png", size=(2, 2))
    make()
    few = prepared.load_for(TrainingSettings(dataset="pets", train_samples=20, test_samples=20))
    for split in (few.train, few.test):
        assert set(map(int, np.bincount(split.labels) > 3)) == {True}


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("LA", 1), ("RGBA", 3), ("P", 3)])
def test_grey_pictures_have_one_channel_if_all_are_grey(mode: str, channels: int) -> None:
    pets(mode=mode)
    make()
    assert prepared.load("pets").train.images.shape == (6, 32, 32, channels)
    if channels == 1:
        prepared.check_fit("lenet5", "pets")
        picture(PETS / "test/dog/0.png")
        make()
    assert prepared.load("pets").train.images.shape == (6, 32, 32, 3)
    with pytest.raises(SettingError, match="MODEL=lenet5 with DATASET=pets"):
        prepared.check_fit("lenet5", "pets")


def test_the_arrays_are_made_again_when_the_folder_has_changed_and_only_then() -> None:
    make()
    made = prepared.folder_of("pets")
    before = made.stat().st_ino
    make()
    assert prepared.folder_of("pets").stat().st_ino == before
    for change in (
        lambda: picture(CATS / "more.png"),
        lambda: (CATS / "more.png").unlink(),
        lambda: picture(FIRST, seed=99),
        lambda: os.utime(FIRST, (1, 1)),
        lambda: FIRST.rename(CATS / "other.png"),
    ):
        change()
        make()
        assert not made.exists()
        made = prepared.folder_of("pets")
        assert [path.name for path in PREPARED.iterdir()] == [made.name]


@pytest.mark.parametrize("file", ["train_images.npy", "pictures.json", "sha256.json"])
def test_damaged_arrays_are_made_again(file: str) -> None:
    make()
    path = prepared.folder_of("pets") / file
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b"123")
    make()
    assert path.read_bytes() == whole


def test_ranks_know_the_set_from_its_arrays_alone() -> None:
    make()
    prepare, sha256 = prepared.load("pets").source, prepared.sha256_of("pets")
    shutil.rmtree(DATA)
    DATA.mkdir()
    pictures.look.cache_clear()
    assert environment.of({"DATASET": "pets"}).own == {}
    assert prepared.load("pets").source == prepare
    assert prepared.sha256_of("pets") == sha256
    with pytest.raises(SettingError, match="invalid DATASET 'dogs'"):
        environment.of({"DATASET": "dogs"})


def test_a_plan_knows_the_set_without_its_arrays() -> None:
    shutil.rmtree(PREPARED)
    source = source_of("pets")
    assert (source.train_samples, source.test_samples, source.classes, source.channels) == (6, 4, 2, 3)


def test_a_copy_of_the_folder_has_the_same_checksum() -> None:
    make()
    before = prepared.sha256_of("pets")
    os.utime(FIRST, (1, 1))
    make()
    assert prepared.sha256_of("pets") == before


def test_entries_that_are_no_pictures_are_ignored_and_counted() -> None:
    for hidden in (".DS_Store", "._0.png", ".ipynb_checkpoints/0.png"):
        (CATS / hidden).parent.mkdir(exist_ok=True)
        (CATS / hidden).touch()
    (PETS / "train/README.txt").touch()
    (PETS / "train/.ipynb_checkpoints").mkdir()
    assert make() == []
    (CATS / "a.webp").touch()
    (CATS / "z.png").mkdir()
    picture(CATS / "more.png")
    (said,) = make()
    assert "ignored 2 entries" in said
    assert "data/pets/train/cat/a.webp" in said


def test_a_long_work_says_how_far_it_is() -> None:
    with patch.object(pictures, "PROGRESS_SECONDS", 0.0):
        assert make()[-1] == "  10 of 10 pictures"


def several(*steps: Callable[[], object]) -> Callable[[], None]:
    def take() -> None:
        for step in steps:
            step()

    return take


def without(*paths: str) -> Callable[[], None]:
    def take() -> None:
        for path in paths:
            shutil.rmtree(PETS / path)

    return take


def bytes_of(mode: str = "RGB", suffix: str = "PNG", size: tuple[int, int] = (40, 20)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 1).save(file, suffix)
    return file.getvalue()


def put(content: bytes, path: Path = FIRST) -> Callable[[], object]:
    return lambda: path.write_bytes(content)


def link(target: str, path: Path) -> Callable[[], None]:
    def replace() -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(target)

    return replace


def many_classes() -> None:
    for number in range(1000):
        (PETS / f"train/{number}").mkdir()


def png_of(width: int, height: int) -> bytes:
    """A header that announces a size, and pixels that are none."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", bytes(9))
    )


PNG, JPEG = bytes_of(), bytes_of(suffix="JPEG", size=(200, 100))
NOT_MOUNTED = "is a link to /srv/nowhere, which is not mounted here"
DAMAGE: dict[str, tuple[Callable[[], object], str]] = {
    "no train": (
        without("train"),
        r"^data/pets has no folder train\. Put the pictures to train on into data/pets/train/CLASS/",
    ),
    "no test": (without("test"), r"^data/pets has no folder test\."),
    "neither": (without("train", "test"), r"^data/pets has no folder train\."),
    "train is a file": (several(without("train"), (PETS / "train").touch), r"^data/pets has no folder train\."),
    "no class": (without("train/cat", "train/dog"), r"^data/pets/train has no class\. Give 2 to 1,000 classes"),
    "pictures without classes": (
        several(without("test/cat", "test/dog"), partial(picture, PETS / "test/0.png")),
        r"^data/pets/test has no class\.",
    ),
    "one class": (without("train/cat", "test/cat"), r"^data/pets/train has one class, dog\. Give 2"),
    "too many classes": (many_classes, r"^data/pets/train has 1,002 classes\. Give 2 to 1,000"),
    "a class too few in test": (
        partial(picture, PETS / "train/emu/0.png"),
        r"have different classes, only in train: emu\. Give both the same folders\.",
    ),
    "other classes in test": (
        lambda: (PETS / "test/dog").rename(PETS / "test/Dog"),
        r"only in train: dog; only in test: Dog\.",
    ),
    "many other classes": (
        several(*(partial(picture, PETS / f"test/{number}/0.png") for number in range(9))),
        r"only in test: 0, 1, 2, 3, 4 and 4 more\.",
    ),
    "a class without pictures": (
        several(*((CATS / f"{number}.png").unlink for number in range(3))),
        r"^data/pets/train/cat has no picture, a file that ends in \.png, \.jpg, \.jpeg\.",
    ),
    "a class of other files": (
        lambda: [path.rename(path.with_suffix(".gif")) for path in CATS.iterdir()],
        r"^data/pets/train/cat has no picture",
    ),
    "a class of hidden files": (
        lambda: [path.rename(CATS / f".{path.name}") for path in CATS.iterdir()],
        r"^data/pets/train/cat has no picture",
    ),
    "no bytes": (put(b""), r"^data/pets/train/cat/0\.png is empty\. Replace or remove it\."),
    "text": (put(b"a cat"), r"0\.png is neither a PNG nor a JPEG picture\."),
    "zeros": (put(bytes(5000)), r"0\.png is neither"),
    "another format": (put(bytes_of(suffix="GIF", mode="L")), r"0\.png is neither"),
    "a PNG cut in its header": (put(PNG[:20]), r"0\.png is (neither|damaged)"),
    "a PNG cut in its pixels": (put(PNG[:-30]), r"0\.png is damaged: .*\. Replace or remove it\."),
    "a PNG without pixels": (put(png_of(9, 9)), r"0\.png is damaged"),
    "a PNG with another checksum": (put(PNG[:29] + b"x" + PNG[30:]), r"0\.png is (neither|damaged)"),
    "a JPEG cut": (put(JPEG[:-100]), r"0\.png is damaged: .*truncated"),
    "a JPEG of a header": (put(JPEG[:4]), r"0\.png is (neither|damaged)"),
    "a bomb": (put(png_of(60_000, 60_000)), r"0\.png is too large: it has more than 89,478,485 pixels\. Scale it down"),
    "a large one": (put(png_of(10_000, 10_000)), r"0\.png is too large"),
    "no size": (put(png_of(0, 0)), r"0\.png is (neither|damaged)"),
    "16 bits": (put(bytes_of("I;16")), r"0\.png has more than 8 bits per channel\. Save it with 8 bits\."),
    "16 bits behind colours": (
        put(bytes_of("I;16"), PETS / "test/dog/1.png"),
        r"test/dog/1\.png has more than 8 bits per channel\. Save it with 8 bits\.",
    ),
    "a damaged last one": (put(b"", PETS / "test/dog/1.png"), r"^data/pets/test/dog/1\.png is empty"),
    "a named pipe": (lambda: os.mkfifo(CATS / "a.png"), r"^data/pets/train/cat/a\.png is a named pipe, not a picture"),
    "a link to a device": (link("/dev/zero", FIRST), r"0\.png is a device, not a picture"),
    "a link that leads out": (link("/srv/nowhere", FIRST), rf"^data/pets/train/cat/0\.png {NOT_MOUNTED}\. Copy it"),
    "a circular link": (link("0.png", FIRST), r"^data/pets/train/cat/0\.png is a circular link\. Remove it\."),
    "a class that leads out": (link("/srv/nowhere", CATS), rf"^data/pets/train/cat {NOT_MOUNTED}"),
    "a part that leads out": (link("/srv/nowhere", PETS / "test"), rf"^data/pets/test {NOT_MOUNTED}"),
    "a folder that leads out": (link("/srv/nowhere", PETS), rf"^data/pets {NOT_MOUNTED}\. Copy it, or set DATA_FOLDER"),
    "a name with a line break": (put(b"", CATS / "a\nb.png"), r"cat/a\\nb\.png is empty"),
    "a class with a line break": (partial(picture, PETS / "train/a\nb/0.png"), r"only in train: a\\nb\."),
    "a name of other bytes": (
        Path(os.fsdecode(b"data/pets/train/cat/\xff.png")).touch,
        r"cat/\\udcff\.png is empty",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_any_damage_is_refused_in_a_line(damage: Callable[[], object], words: str) -> None:
    damage()
    message = refusal()
    assert re.search(words, message), message
    assert not list(PREPARED.iterdir())


@pytest.mark.parametrize("path", [FIRST, CATS, PETS / "test", PETS])
def test_what_may_not_be_read_says_who_must_read_it(path: Path) -> None:
    path.chmod(0)
    with as_a_stranger():
        message = refusal()
    assert message.startswith(f"cannot read {path}")
    assert re.search(r": Permission denied\..*owner of results/ \(user ID \d+\)", message)


def test_a_locked_data_folder_says_so() -> None:
    DATA.chmod(0)
    with as_a_stranger(), pytest.raises(SettingError, match=r"cannot read data/: Permission denied") as caught:
        environment.of({"DATASET": "pets"})
    assert "no-permission" in str(caught.value.each[0].name)  # type: ignore[attr-defined]
    DATA.chmod(0o777)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.sampled_from([PNG, JPEG]), st.integers(0, 3000), st.integers(0, 9), st.binary(max_size=20) | st.none())
def test_any_bytes_of_a_picture_are_read_or_refused(whole: bytes, begin: int, length: int, other: bytes | None) -> None:
    begin %= len(whole)
    FIRST.write_bytes(whole[:begin] if other is None else whole[:begin] + other + whole[begin + length :])
    message = ""
    try:
        assert pictures._pixels(FIRST, 3).shape == (32, 32, 3)
    except SettingError as error:
        message = str(error)
    assert message.startswith("data/pets/train/cat/0.png ") or not message
    assert message.isprintable()


def problem(dataset: str) -> str:
    return next(iter(environment.problems({"DATASET": dataset}).values()), "")


def test_a_name_is_found_among_built_in_ones_files_and_folders_in_this_order() -> None:
    extensions = Path("extensions")
    extensions.mkdir()
    (extensions / "my_set.py").write_text("SOURCE = None\n")
    assert environment.of({"DATASET": "pets"}).own == {}
    assert environment.of({"DATASET": "my_set"}).own == {"DATASET": "my_set"}
    words = (
        "Choose from: fashion, shapes, digits, cifar10, mnist, or the name of a file in extensions/ or of a folder in "
    )
    assert f"invalid DATASET 'pet'. {words}data/ (a-z, 0-9, _). Did you mean pets?" in problem("pet")
    assert "Did you mean" not in problem("zzz")
    for odd in ("Cats", "my-cats", "..", "../data/pets", "pets/train"):
        (DATA / "Cats").mkdir(exist_ok=True)
        (DATA / "my-cats").mkdir(exist_ok=True)
        assert f"invalid DATASET '{odd}'" in problem(odd)
    (DATA / "notes").touch()
    assert "invalid DATASET 'notes'" in problem("notes")
    assert next(iter(environment.problems({"MODEL": "pets"}).values())).startswith("invalid MODEL 'pets'")


def test_a_folder_that_shares_its_name_is_refused_if_it_holds_pictures() -> None:
    Path("extensions").mkdir()
    Path("extensions/pets.py").write_text("SOURCE = None\n")
    remedy = "Rename the folder."
    assert problem("pets") == f"DATASET=pets: the folder data/pets has the name of extensions/pets.py. {remedy}"
    (DATA / "mnist/raw").mkdir(parents=True)  # of archives
    assert not problem("mnist")
    (DATA / "mnist/test").mkdir()
    assert problem("mnist") == f"DATASET=mnist: the folder data/mnist has the name of a built-in data set. {remedy}"
    assert not problem("digits")


@pytest.mark.parametrize("name", models.MODELS)
def test_a_built_in_model_has_an_output_for_each_class(name: str) -> None:
    ten, many = models.build(name, seed=1), models.build(name, seed=1, classes=37)
    *_, (_, last) = many.named_parameters()
    assert last.shape == (37,)
    assert models.parameters_sha256(models.build(name, seed=1, classes=10)) == models.parameters_sha256(ten)
    assert sum(mine.shape != other.shape for mine, other in zip(ten.parameters(), many.parameters(), strict=True)) == 2


BUILD = "from torch import nn\n{} nn.Sequential(nn.Flatten(), nn.Linear(3072, {}))\n"


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        (BUILD.format("def build(batch_norm): return", 10), False),
        (BUILD.format("def build(batch_norm, width=8): return", "10 if width == 8 else 0"), False),
        (BUILD.format("def build(batch_norm, classes): return", "classes"), True),
        (BUILD.format("def build(batch_norm, *, classes=10): return", "classes"), True),
        (BUILD.format("build = lambda batch_norm, classes: ", "classes"), True),
        (
            "from torch import nn\nclass build(nn.Linear):\n def __init__(self, batch_norm): super().__init__(3, 10)\n",
            False,
        ),
        (
            "from torch import nn\nclass build(nn.Linear):\n def __init__(self, batch_norm, classes):\n"
            "  super().__init__(3, classes)\n",
            True,
        ),
    ],
)
def test_a_model_of_one_s_own_takes_the_number_of_classes_or_is_refused_before_it_is_run(
    text: str, *, takes: bool
) -> None:
    Path("extensions").mkdir()
    name = f"own_{zlib.crc32(text.encode())}"
    Path(f"extensions/{name}.py").write_text(text)
    reading.check_model(name)
    assert list(models.build(name, seed=1).parameters())[-1].shape == (10,)
    prepared.check_fit(name, "shapes")
    if takes:
        prepared.check_fit(name, "pets")
        assert list(models.build(name, seed=1, classes=2).parameters())[-1].shape == (2,)
        return
    for refuse in (lambda: prepared.check_fit(name, "pets"), lambda: models.build(name, seed=1, classes=2)):
        with pytest.raises(SettingError, match=rf"extensions/{name}\.py: .*10 classes.* has 2\. Write build") as caught:
            refuse()
        assert (caught.value.exit_code, caught.value.name) == (2, "conflicting-settings")


@pytest.mark.parametrize(("classes", "fine"), [(2, True), (1000, True), (1, False), (1001, False), (True, False)])
def test_a_set_of_one_s_own_may_have_2_to_1000_classes(classes: int, *, fine: bool) -> None:
    Path("extensions").mkdir()
    name = f"set_{classes}"
    Path(f"extensions/{name}.py").write_text(
        "from app.training.datasets import Source\n"
        f"SOURCE = Source('t', 3, (1, 1, 1), (1, 1, 1), False, 2, 2, lambda: {{}}, classes={classes!r})\n"
    )
    if fine:
        assert source_of(name).classes == classes
    else:
        with pytest.raises(LockstepError, match=f"{classes} classes. Give a whole number from 2 to 1000"):
            source_of(name)
