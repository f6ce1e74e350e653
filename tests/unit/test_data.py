"""Batches: every sample once, the same for every world size; and the sets they are cut from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.errors import LockstepError, SettingError
from app.machine.folders import PREPARED
from app.settings.training import DatasetName, MemoryFormat, ModelName, TrainingSettings
from app.training import batches
from app.training.batches import Augmentation
from app.training.convolution import LAYOUTS
from app.training.datasets import SOURCES, digits, fashion, prepared, shapes
from app.training.datasets.prepared import DataSet, Split
from app.training.numerics import Numerics


def dataset(samples: int) -> DataSet:
    source = SOURCES["shapes"]
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (samples, 32, 32, source.channels), dtype=np.uint8)
    part = Split(images, np.arange(samples) % 10)
    return DataSet(source, part, part)


@given(samples=st.integers(1, 200), batch=st.integers(1, 64), world=st.integers(1, 9), epoch=st.integers(0, 3))
def test_every_sample_counts_exactly_once_per_epoch(samples: int, batch: int, world: int, epoch: int) -> None:
    seen: list[int] = []
    for global_batch in batches.global_batches(dataset(samples), batch, seed=1, epoch=epoch):
        parts = [batches.part_of(global_batch, rank, world) for rank in range(world)]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        for part in parts:
            seen += map(int, part)
    assert sorted(seen) == list(range(samples))


def test_the_order_changes_with_epoch_and_seed_and_with_nothing_else() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return [int(sample) for batch in batches.global_batches(dataset(100), 32, seed, epoch) for sample in batch]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_a_crop_is_a_shifted_image_with_a_black_border() -> None:
    whole = dataset(2)
    crops = Augmentation(np.array([0, 4], np.int8), np.array([8, 4], np.int8), np.array([False, True]))
    cropped = crops.apply(whole.train.images, np.arange(2))
    expected = np.zeros((32, 32, 3), np.uint8)
    expected[4:, :28] = whole.train.images[0, :28, 4:]
    assert np.array_equal(cropped[0], expected)
    assert np.array_equal(cropped[1], whole.train.images[1, :, ::-1])


def test_crops_and_flips_are_spread_over_all_that_is_possible() -> None:
    drawn = batches.draw_augmentation(dataset(5000), seed=3, epoch=0)
    assert drawn is not None
    assert set(map(int, drawn.top)) == set(map(int, drawn.left)) == set(range(9))
    assert 0.45 < drawn.flip.mean() < 0.55


@pytest.mark.parametrize("memory_format", LAYOUTS)
def test_batches_are_normalised_as_the_course_has_it(memory_format: MemoryFormat) -> None:
    whole, numerics = dataset(3), Numerics(memory_format=memory_format)
    images, labels = batches.load_batch(whole, whole.train, np.array([2, 0]), numerics=numerics)
    mean, deviation = torch.tensor([125.3, 123.0, 113.9]), torch.tensor([63.0, 62.1, 66.7])
    pixels = torch.from_numpy(whole.train.images[[2, 0]]).to(torch.float32)
    torch.testing.assert_close(images, ((pixels - mean) / deviation).permute(0, 3, 1, 2))
    assert images.is_contiguous(memory_format=numerics.layout.large)
    assert labels.tolist() == [2, 0]


def test_shapes_are_balanced_varied_and_the_same_for_the_same_seed() -> None:
    images, labels = shapes.draw(505, seed=5)
    again, labels_again = shapes.draw(505, seed=5)
    assert np.array_equal(images, again)
    assert np.array_equal(labels, labels_again)
    assert images.shape == (505, 32, 32, 3)
    assert images.dtype == np.uint8
    counts = np.bincount(labels, minlength=10)
    assert counts.max() - counts.min() <= 1
    assert not np.array_equal(images, shapes.draw(505, seed=6)[0])
    assert len({image.tobytes() for image in images}) == 505


def test_digits_are_the_1797_of_scikit_learn() -> None:
    parts = digits.make()
    images, labels = (np.concatenate([parts[part][which] for part in ("train", "test")]) for which in (0, 1))
    assert images.shape == (1797, 32, 32, 1)
    assert images.max() == 255
    assert not images[:, :2].any()
    assert not images[:, :, -2:].any()
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert {len(parts["train"][0]), len(parts["test"][0])} == {1437, 360}


def test_fashion_is_all_of_fashion_mnist_within_a_black_border() -> None:
    for part, samples in (("train", 60_000), ("test", 10_000)):
        images, labels = fashion.make()[part]
        assert images.shape == (samples, 32, 32, 1)
        assert np.bincount(labels).tolist() == [samples // 10] * 10
        assert not images[:, [0, 1, -2, -1]].any()
        assert not images[:, :, [0, 1, -2, -1]].any()
        assert images[:, 2, 2:-2].any()


@pytest.mark.parametrize("name", ["digits", "fashion"])
def test_mean_and_deviation_are_those_of_the_training_part(name: DatasetName) -> None:
    images, _ = SOURCES[name].make()["train"]
    assert SOURCES[name].mean == (round(float(images.mean()), 1),)
    assert SOURCES[name].deviation == (round(float(images.std()), 1),)


@pytest.mark.parametrize("memory_format", LAYOUTS)
def test_a_grey_image_fills_every_channel_of_a_model_that_takes_colours(memory_format: MemoryFormat) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 1), dtype=np.uint8)
    part = Split(images, np.arange(3))
    grey, numerics = DataSet(SOURCES["fashion"], part, part), Numerics(memory_format=memory_format)
    one, _ = batches.load_batch(grey, part, np.arange(3), numerics=numerics)
    three, _ = batches.load_batch(replace(grey, channels=3), part, np.arange(3), numerics=numerics)
    assert three.shape == (3, 3, 32, 32)
    assert three.is_contiguous(memory_format=numerics.layout.large)
    for channel in range(3):
        assert torch.equal(three[:, channel], one[:, 0])


def test_a_set_is_made_once_and_again_where_it_was_altered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PREPARED.mkdir()
    assert prepared.make("digits", print, [])
    assert not prepared.make("digits", print, [])

    images = prepared.folder_of("digits") / "train_images.npy"
    content = bytearray(images.read_bytes())
    content[-100] ^= 1
    images.write_bytes(content)
    assert prepared.make("digits", print, [])
    assert not prepared.make("digits", print, [])
    assert len(prepared.load("digits").train) == 1437
    (prepared.folder_of("digits") / prepared.CHECKSUMS).unlink()  # which is written last
    assert prepared.make("digits", print, [])


def test_a_run_takes_the_first_images_of_a_set_and_never_more_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PREPARED.mkdir()
    prepared.make("digits", print, [])
    few = prepared.load_for(TrainingSettings(model="lenet5", dataset="digits", train_samples=100, test_samples=7))
    whole = prepared.load("digits")
    assert (len(few.train), len(few.test)) == (100, 7)
    assert np.array_equal(few.train.images, whole.train.images[:100])
    assert np.array_equal(few.test.labels, whole.test.labels[:7])
    with pytest.raises(SettingError, match=r"TRAIN_SAMPLES.*1438.*1 to 1437"):
        prepared.load_for(TrainingSettings(model="lenet5", dataset="digits", train_samples=1438))
    with pytest.raises(SettingError, match=r"TEST_SAMPLES.*361.*1 to 360"):
        prepared.load_for(TrainingSettings(model="lenet5", dataset="digits", test_samples=361))


def test_an_unprepared_set_says_how_to_prepare_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LockstepError, match="python -m app prepare"):
        prepared.load("digits")


@pytest.mark.parametrize(
    ("model", "name", "fits"),
    [
        ("vgg11", "digits", True),
        ("resnet18", "fashion", True),
        ("vgg11", "cifar10", True),
        ("lenet5", "fashion", True),
        ("lenet5", "cifar10", False),
        ("lenet5", "shapes", False),
    ],
)
def test_only_a_model_of_grey_images_refuses_a_set_and_only_one_in_colour(
    model: ModelName, name: DatasetName, fits: bool
) -> None:
    if fits:
        prepared.check_fit(model, name)
    else:
        message = rf"MODEL={model} with DATASET={name}: .*: fashion, digits, mnist\."
        with pytest.raises(SettingError, match=message):
            prepared.check_fit(model, name)
