"""The settings: read once, checked whole, and the same wherever they are listed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import SettingError
from app.modes import MODES
from app.settings import environment, explanations, kinds, names, texts
from app.settings.concern import Mark
from app.settings.place import MOST_THREADS
from app.settings.settings import CONCERNS, FIELDS, Settings, marked

ROOT = Path(__file__).parents[2]
OR_OWN = "or the name of a file in extensions/"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIELDS:
        monkeypatch.delenv(name.upper(), raising=False)


def refusal(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as caught:
        environment.load()
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_wrong_word_is_answered_with_the_allowed_ones_and_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(monkeypatch, SYNC_MODE="dpp")
    assert message == f"invalid SYNC_MODE 'dpp'. Choose from: {', '.join(MODES)}, {OR_OWN}. Did you mean ddp?"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("GLOBAL_BATCH_SIZE", "0", "a whole number from 1 to 1000000."),
        ("BATCH_SIZE_PER_RANK", "1000001", "a whole number from 1 to 1000000."),
        ("MAX_STEPS", "ten", "a whole number from 1 to 1000000000."),
        ("LOG_EVERY", "99999999999999999999", "a whole number from 1 to 1000000000."),
        ("EPOCHS", "1.5", "a whole number from 1 to 1000000."),
        ("EPOCHS", "1e3", "a whole number from 1 to 1000000."),
        ("EPOCHS", " 5 ", "a whole number from 1 to 1000000."),
        ("EPOCHS", "٣", "a whole number from 1 to 1000000."),
        ("LEARNING_RATE", "nan", "a number from 1e-30 to 1e+30."),
        ("LEARNING_RATE", "1e300", "a number from 1e-30 to 1e+30."),
        ("THREADS_PER_RANK", "1024", "a whole number from 1 to 256."),
        ("MASTER_ADDR", "a..b", "a host's name or IPv4 address"),
        ("MOMENTUM", "1", "a number of at least 0 and below 1"),
        ("SEED", "-1", "a whole number from 0 to 9223372036854775807."),
        ("MASTER_PORT", "80", "a whole number from 1024 to 65535."),
        ("WORKERS", "101", "a whole number from 0 to 100."),
        ("RANK_CPUS", "0.0001", "a number from 0.01 to 1024."),
        ("RANK_MEMORY", "1m", "such as 2g, from 320m to 16384g."),
        ("NETWORK_PREFIX", "10.77", "the first three numbers of a private IPv4 network, such as 10.77.1: "),
        ("NETWORK_PREFIX", "010.077.030", "the first three numbers of a private IPv4 network"),
        ("DATA_FOLDER", "cifar10", "the path of a folder that exists, beginning with /, ./, ../ or ~/."),
        ("RUN_NAME", "../elsewhere", "letters, digits"),
        ("RUN_NAME", "latest", "not 'latest'"),
        ("MODEL", "vgg", f"vgg11, lenet5, resnet18, {OR_OWN}. Did you mean vgg11?"),
        ("EVALUATE", "always", "sharded, every_rank, never"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    message = refusal(monkeypatch, **{name: value})
    assert message.startswith(f"invalid {name} '{value}'. ")
    assert allowed in message


@pytest.mark.parametrize(
    ("value", "as_shown"),
    [
        ("1\n", r"1\n"),
        ("\t1", r"\t1"),
        ("a\x00", r"a\x00"),
        ("\udcff", r"\udcff"),
        ("\u202e1", r"\u202e1"),
        ("é" * 121, "é" * 120 + "…"),
        ("9" * 5000, "9" * 120 + "…"),
    ],
)
def test_what_does_not_print_is_shown_in_escapes_and_what_is_long_is_cut_off(value: str, as_shown: str) -> None:
    for name in map(str.upper, FIELDS):
        (told,) = environment.problems({name: value}).values()
        assert told.startswith(f"invalid {name} '{as_shown}'. ")
        assert told.isprintable()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"LEARNING_RATE": "1e30", "LEARNING_RATE_SCALING": "linear", "GLOBAL_BATCH_SIZE": "512"},
            r"LEARNING_RATE=1e\+30 .*\b2e\+30 .*\b512\b.*BASE_BATCH_SIZE=256",
        ),
        ({"LEARNING_RATE": "1e-30", "LEARNING_RATE_SCALING": "linear", "GLOBAL_BATCH_SIZE": "128"}, r"\b5e-31\b"),
        ({"LEARNING_RATE": "1e30", "LEARNING_RATE_SCALING": "linear"}, None),
        ({"LEARNING_RATE": "1e30", "GLOBAL_BATCH_SIZE": "512"}, None),
    ],
)
def test_a_learning_rate_stays_within_its_bounds_when_it_is_scaled(given: dict[str, str], told: str | None) -> None:
    found = environment.problems(given)
    assert re.search(told, found["LEARNING_RATE"]) if told else not found


def test_a_batch_that_grows_with_the_ranks_is_scaled_when_they_are_counted() -> None:
    given = {"LEARNING_RATE": "1e30", "LEARNING_RATE_SCALING": "linear", "BATCH_SIZE_PER_RANK": "128"}
    settings = environment.of(given)
    settings.check_ranks(2)
    with pytest.raises(SettingError, match=r"1\.5e\+30 .*\b384\b"):
        settings.check_ranks(3)
    assert environment.problems({**given, "WORLD_SIZE": "3"})


@pytest.mark.parametrize(("cpus", "most"), [(1, 16), (4, 16), (5, 20), (64, 256)])
def test_threads_are_bounded_by_the_machine(cpus: int, most: int) -> None:
    environment.of({"THREADS_PER_RANK": str(most)}).place.check_machine(cpus)
    if most < MOST_THREADS:
        with pytest.raises(SettingError, match=rf"THREADS_PER_RANK '?{most + 1}\b.*\b{most}\b"):
            environment.of({"THREADS_PER_RANK": str(most + 1)}).place.check_machine(cpus)


def test_all_wrong_settings_are_refused_at_once_each_on_a_line_with_its_name() -> None:
    with pytest.raises(SettingError) as caught:
        environment.of({"EPOCHS": "0", "MODEL": "x", "GROUP_SIZE": "2"})
    lines = caught.value.line.splitlines()
    assert [line.startswith("error: [") for line in lines] == [True] * 3
    assert [any(name in line for line in lines) for name in ("EPOCHS", "MODEL", "GROUP_SIZE")] == [True] * 3


@pytest.mark.parametrize(
    "variables",
    [
        {"GLOBAL_BATCH_SIZE": "8", "BATCH_SIZE_PER_RANK": "2"},
        {"RANK": "0"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"WIRE_PRECISION": "bf16", "SYNC_MODE": "all_reduce"},
        {"WIRE_PRECISION": "fp16", "PRECISION": "fp64"},
        {"WIRE_PRECISION": "bf16", "BACKEND": "mpi"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    message = refusal(monkeypatch, **variables)
    assert all(f"{name}={value}" in message for name, value in variables.items())


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_MODE", "")
    monkeypatch.setenv("MAX_STEPS", "")
    assert environment.load() == Settings.of()


def test_the_batch_follows_the_ranks_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.load().training.global_batch(world_size=7) == 256
    monkeypatch.setenv("BATCH_SIZE_PER_RANK", "32")
    assert environment.load().training.global_batch(world_size=7) == 224


def test_every_number_has_a_least_and_a_most() -> None:
    for name, field in FIELDS.items():
        if kinds.types_of(field) & {int, float} and not explanations.rule_of(field, kinds.Pattern):
            bounds = explanations.bounds_of(field)
            assert {"ge", "le"} <= bounds.keys() or {"ge", "lt"} <= bounds.keys(), name


@pytest.mark.parametrize(
    ("path", "text"), [(".env.example", texts.env_example), ("docs/settings.md", texts.settings_page)]
)
def test_what_lists_the_settings_is_made_from_them(path: str, text: Callable[[], str]) -> None:
    assert (ROOT / path).read_text() == text(), "regenerate: see CONTRIBUTING.md"


def test_compose_passes_every_setting_and_no_other() -> None:
    """In rows of names; a comment may end a row, and a name may have a value."""
    block = re.search(r"x-settings: &settings\n +\[(.*?)\]\n", (ROOT / "compose.yaml").read_text(), re.DOTALL)
    assert block is not None
    rows = [row.partition(" #")[0] for row in block[1].splitlines()]
    passed = [entry.strip(' "').partition("=")[0] for row in rows for entry in row.split(",") if entry.strip()]
    assert len(passed) == len(set(passed))
    by_a_value = {"RANK", "NODE", "NODES", "WORKERS", "RANK_MEMORY", "NETWORK_PREFIX", "DATA_FOLDER"}
    assert set(passed) == {name.upper() for name in FIELDS.keys() - marked(Mark.READ_BY_CLOUDLAB)} - by_a_value


def test_the_stack_passes_what_compose_passes() -> None:
    """But nothing that shapes a link, and the list of nodes instead of Compose's numbers."""
    compose, stack = (
        set(re.findall(r"\b[A-Z_]{2,}\b", re.sub(" #.*", "", block)))
        for file in ("compose.yaml", "docker/stack.yaml")
        for block in re.findall(r"x-settings: &settings\n(.*?\])\n", (ROOT / file).read_text(), re.DOTALL)
    )
    shaping = {"LINK_RATE", "LINK_RATE_BY_RANK", "LINK_DELAY", "LINK_LOSS"}
    assert stack - compose == {"NETWORK", "NODE", "NODES"}
    assert compose - stack == shaping | {"WORLD_SIZE", "RANKS_STARTED"}


def test_compose_has_the_defaults_of_the_settings() -> None:
    """Those that Compose itself reads; 0 is its word for no limit, and NETWORK_PREFIX chooses a file."""
    written = set(re.findall(r"\$\{([A-Z_]+):[-+]([^}]*)\}", (ROOT / "compose.yaml").read_text()))
    assert ("NETWORK_PREFIX", "_of_prefix") in written
    for name in marked(Mark.READ_BY_COMPOSE) - {"network_prefix"}:
        default = explanations.default_text(FIELDS[name]) or "0"
        assert {value for each, value in written if each == name.upper()} == {default}


def test_what_only_compose_needs_is_in_no_record() -> None:
    """The ranks find how many they are, and may be more than WORKERS says: docker compose up --scale worker=5."""
    excluded = FIELDS.keys() - Settings().values()
    assert excluded == {
        "ranks_started",
        "workers",
        "max_restarts",
        "rank_memory",
        "network_prefix",
        "data_folder",
        "experiment_network",
    }


def test_help_names_every_setting_in_one_group() -> None:
    for name in FIELDS:
        assert f"  {name.upper()} " in texts.help_on(texts.ALL)
        assert sum(f"  {name.upper()} " in texts.help_on(group) for group in texts.GROUPS) == 1
    assert texts.GROUPS.keys() == CONCERNS.keys()


def test_a_setting_is_declared_once() -> None:
    declared = [name for concern in CONCERNS.values() for name in concern.model_fields]
    assert len(declared) == len(set(declared))


def test_settings_are_read_from_their_concerns() -> None:
    values = {
        "sync_mode": "tree",
        "epochs": 2,
        "link_delay": "1ms",
        "slow_rank": 1,
        "resume": "never",
        "trace_steps": 0,
    }
    settings = Settings.of(**values)
    assert settings.given == values.keys()
    assert {name: settings.value(name) for name in values} == values
    assert settings.values(only=values.keys()) == values
    assert settings.changed(epochs=3).value("epochs") == 3
    with pytest.raises(TypeError):
        Settings.of(no_such_setting=1)


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("SYNC_MODES", "SYNC_MODE"),
        ("SYNC_MDOE", "SYNC_MODE"),
        ("SYNCMODE", "SYNC_MODE"),
        ("sync_mode", "SYNC_MODE"),
        ("WORKERZ", "WORKERS"),
        ("SEDE", "SEED"),
        ("XSEED", "SEED"),
    ],
)
def test_a_variable_one_letter_off_is_warned_of(variable: str, setting: str) -> None:
    (warning,) = names.misspelt([variable])
    assert warning == f"{variable} is set, but is not a setting. Did you mean {setting}?"


def test_other_variables_are_left_in_peace() -> None:
    others = ["SYNC_MODE", "HOME", "SYNCHRONISATION", "WORKSHOP", "LOCAL_RANK", "SEEDLY", "DEES", ""]
    assert list(names.misspelt([*names.names(), *others])) == []


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("RING", "ring_all_reduce"),
        ("rng", "ring_all_reduce"),
        ("Ring-AllReduce", "ring_all_reduce"),
        ("allreduce", "all_reduce"),
        ("gather-scatter", "gather_scatter"),
        ("gather", "gather_scatter"),
        ("DDP2", "ddp"),
        ("SendRecv", "send_recv"),
        ("sned_recv", "send_recv"),
        ("p2p", None),
        ("", None),
    ],
)
def test_the_nearest_mode_however_it_is_written(word: str, near: str | None) -> None:
    assert explanations.nearest(word, list(MODES)) == near
