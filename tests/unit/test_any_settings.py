"""Whatever stands in a setting is accepted or refused in a line, and what is accepted can be computed with."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from app.cluster.link import shaping
from app.errors import SettingError
from app.settings import environment, explanations
from app.settings.averaging import SEED_LIMIT
from app.settings.concern import Mark
from app.settings.settings import FIELDS, Settings, marked
from app.training.loop import make_plan
from app.training.optimiser import LearningRateSchedule, Optimiser

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 400
NAMES = sorted(name.upper() for name in FIELDS)
CHECKED = sorted(name.upper() for name in marked(Mark.READ_BY_COMPOSE, Mark.READ_BY_CLOUDLAB))

BOUNDS = sorted(
    {0, 1, 0.01, 320, 1024, 16_384, 2**31, 2**32, 2**63, SEED_LIMIT, 10**20, 10**30, 1e-30, 1e300, 5e-324}
    | {bound for field in FIELDS.values() for bound in explanations.bounds_of(field).values()}
)


def written(number: float) -> st.SearchStrategy[str]:
    """A number, and its neighbours, as people and programs write them."""
    near = [number, number + 1, number - 1, number / 2, -number, np.nextafter(number, 0), np.nextafter(number, 1e308)]
    texts = {form.format(each) for each in near for form in ("{}", "{:g}", "{:.0f}", "{:.1f}", "+{}", " {} ", "00{}")}
    return st.sampled_from(sorted(texts))


WORDS = sorted({word for field in FIELDS.values() for word in explanations.allowed_values(field).split(", ")})
VALUES = st.one_of(
    st.sampled_from(BOUNDS).flatmap(written),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(WORDS),
    st.from_regex(r"[0-9.]{1,9}[%kKmMgGbBitus]{0,4}", fullmatch=True),
    st.from_regex(r"[0-9]{1,3}=[0-9]{1,4}[mg]bit(,[0-9]{1,3}=[0-9]{1,4}[mg]bit)*", fullmatch=True),
    st.from_regex(r"(10|172|192|100|[0-9]{1,3})[.][0-9]{1,3}[.][0-9]{1,3}", fullmatch=True),
    st.sampled_from(
        ["nan", "-inf", "0x10", "1_000", "1e3", "1E+2", "٣", "½", "³", "1,5", "true", "None", "null", "[]"]
    ),
    st.text(min_size=1),
    st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zs", "Nd")), min_size=1),
    st.text(min_size=1, max_size=3).map(lambda text: text * 3000),
    st.tuples(st.sampled_from(["/", "./", "../", "~/", "~", "."]), st.text()).map("".join),
)


def check_lines(lines: list[str]) -> None:
    for line in lines:
        assert line.isprintable(), line
        assert len(line) <= LONGEST_LINE, line


def compute_with(accepted: Settings) -> None:
    """Everything that follows from settings before the first image is touched."""
    world_size = accepted.place.world_size or 4
    json.dumps(accepted.values(), allow_nan=False)
    try:
        accepted.check_ranks(world_size)
        accepted.place.check_machine(64)
    except SettingError as error:
        check_lines(str(error).splitlines())
        return
    plan = make_plan(accepted.training, 50_000, world_size)
    schedule = LearningRateSchedule.of(accepted.training, plan.global_batch_size, plan.steps)
    parameter = nn.Parameter(torch.tensor([1.0, -1e-30, 0.0]))
    optimiser = Optimiser([parameter], accepted.training, schedule)
    for step in (0, plan.steps // 2, plan.steps - 1):
        parameter.grad = torch.tensor([1e30, -1.0, 0.0])
        assert optimiser.step(step).learning_rate <= 1e30
    np.random.default_rng((accepted.averaging.seed, plan.epochs, 1)).permutation(3)
    torch.Generator().manual_seed(accepted.averaging.seed)
    assert all(all(command) for command in shaping.commands(accepted.links.of(0), "eth0"))


@settings(max_examples=max(300, settings().max_examples))
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=2))
@example({"LEARNING_RATE": "1e30", "WEIGHT_DECAY": "1e30"})
@example({"GRADIENT_CLIP": "1e-30", "LEARNING_RATE": "1e-30"})
@example({"BATCH_SIZE_PER_RANK": "1000000", "LEARNING_RATE_SCALING": "linear"})
@example({"WARMUP_STEPS": "1000000000", "MAX_STEPS": "1000000000"})
@example({"EPOCHS": "1000000", "GLOBAL_BATCH_SIZE": "1"})
@example({"LINK_RATE_BY_RANK": ",".join(f"{rank}=1mbit" for rank in range(9999))})
def test_any_text_is_refused_in_a_line_or_computed_with(variables: dict[str, str]) -> None:
    told = environment.problems(variables)
    check_lines(list(told.values()))
    assert all(name in variables for name in told)
    if not told:
        compute_with(environment.of(variables))
    if all(can_be_in_an_environment(value) for value in variables.values()):
        assert loaded(variables) == (environment.of(variables) if not told else sorted(told.values()))


def can_be_in_an_environment(value: str) -> bool:
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def loaded(variables: dict[str, str]) -> object:
    """The settings that the environment gives, or the lines that refuse it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            return environment.load()
        except SettingError as error:
            return sorted(str(error).splitlines())


@given(st.sampled_from(CHECKED), st.lists(VALUES.filter(lambda value: "\0" not in value), max_size=20))
def test_the_scripts_accept_what_the_program_accepts(name: str, values: list[str]) -> None:
    values = [value for value in values if value.isascii()]
    source = ". scripts/host/settings.sh; name=$1; shift; "
    loop = 'for value; do allows "$name" "$value" && echo yes || echo no; done'
    told = subprocess.run(
        ["bash", "-c", source + loop, "bash", name, *values], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    assert told == ["no" if environment.problems({name: value}) else "yes" for value in values]
