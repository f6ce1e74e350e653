"""The settings: read once, checked whole, and the same wherever they are listed."""

import re
from pathlib import Path

import pytest

from app.errors import SettingError
from app.modes import MODES
from app.settings import fields as settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def refusal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as caught:
        settings.load()
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_wrong_word_is_answered_with_the_allowed_ones_and_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(monkeypatch, SYNC_MODE="dpp")
    assert message == f"SYNC_MODE=dpp: not allowed. Allowed: {', '.join(MODES)}. Did you mean ddp?"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("GLOBAL_BATCH_SIZE", "0", "a whole number, 1 or more"),
        ("MAX_STEPS", "ten", "a whole number, 1 or more"),
        ("EPOCHS", "1.5", "a whole number, 1 or more"),
        ("LEARNING_RATE", "nan", "a number, more than 0"),
        ("LEARNING_RATE", "inf", "a number, more than 0"),
        ("MOMENTUM", "1", "a number, 0 or more, less than 1"),
        ("SEED", "-1", "a whole number, 0 or more, at most 9223372036854775807"),
        ("MASTER_PORT", "80", "a whole number, 1024 or more, at most 65535"),
        ("RUN_NAME", "../elsewhere", "letters, digits"),
        ("RUN_NAME", "latest", "not 'latest'"),
        ("MODEL", "vgg", "vgg11, lenet5, resnet18. Did you mean vgg11?"),
        ("EVALUATE", "always", "sharded, every_rank, never"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    message = refusal(monkeypatch, **{name: value})
    assert message.startswith(f"{name}={value}: not allowed. Allowed: ")
    assert allowed in message


def test_all_wrong_settings_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(refusal(monkeypatch, EPOCHS="0", MODEL="x").splitlines()) == 2


@pytest.mark.parametrize(
    "environment",
    [
        {"GLOBAL_BATCH_SIZE": "8", "BATCH_SIZE_PER_RANK": "2"},
        {"RANK": "0"},
        {"RANK": "4", "WORLD_SIZE": "4"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    message = refusal(monkeypatch, **environment)
    assert all(f"{name}={value}" in message for name, value in environment.items())


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_MODE", "")
    monkeypatch.setenv("MAX_STEPS", "")
    assert settings.load() == settings.Settings()


def test_the_batch_follows_the_ranks_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.load().global_batch(world_size=7) == 256
    monkeypatch.setenv("BATCH_SIZE_PER_RANK", "32")
    assert settings.load().global_batch(world_size=7) == 224


def test_env_example_is_made_from_the_settings() -> None:
    assert (ROOT / ".env.example").read_text() == settings.env_example()


def test_compose_passes_every_setting_and_no_other() -> None:
    """In rows of names; a comment may end a row, and a name may have a value."""
    block = re.search(r"x-settings: &settings\n +\[(.*?)\]\n", (ROOT / "compose.yaml").read_text(), re.DOTALL)
    assert block is not None
    rows = [row.partition(" #")[0] for row in block[1].splitlines()]
    passed = [entry.strip(' "').partition("=")[0] for row in rows for entry in row.split(",") if entry.strip()]
    assert len(passed) == len(set(passed))
    assert set(passed) == {name.upper() for name in settings.Settings.model_fields} - {"RANK"}


def test_help_names_every_setting() -> None:
    for name in (*settings.Settings.model_fields, *settings.CONSUMED_BY_COMPOSE):
        assert f"  {name.upper()} " in settings.help_text()
