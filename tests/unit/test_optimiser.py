"""The learning rate of every step, and the clipped gradient."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from app.settings.training import TrainingSettings
from app.training import models
from app.training.optimiser import LearningRateSchedule, Optimiser


def schedule(steps: int = 100, global_batch_size: int = 256, **settings: Any) -> LearningRateSchedule:
    return LearningRateSchedule.of(TrainingSettings(**{"warmup_steps": 0, **settings}), global_batch_size, steps)


def test_without_a_warm_up_the_course_s_learning_rate_never_changes() -> None:
    assert {schedule().rate(step) for step in range(100)} == {0.1}


def test_linear_scaling_follows_the_global_batch() -> None:
    scaled = schedule(global_batch_size=2048, learning_rate_scaling="linear", base_batch_size=128)
    assert scaled.rate(0) == pytest.approx(1.6)
    assert schedule(global_batch_size=2048, base_batch_size=128).rate(0) == 0.1


def test_the_warm_up_rises_in_equal_steps_to_the_full_rate() -> None:
    rates = [schedule(warmup_steps=4).rate(step) for step in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_the_cosine_runs_from_the_end_of_the_warm_up_to_zero() -> None:
    falling = schedule(schedule="cosine", warmup_steps=20)
    assert falling.rate(19) == falling.rate(20) == 0.1
    assert falling.rate(60) == pytest.approx(0.05)
    assert falling.rate(99) == pytest.approx(0.05 * (1 + math.cos(math.pi * 79 / 80)))
    assert all(falling.rate(step) > falling.rate(step + 1) for step in range(20, 99))


def test_the_steps_come_after_half_and_three_quarters() -> None:
    rates = [schedule(schedule="step").rate(step) for step in (0, 49, 50, 74, 75, 99)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


@given(shape=st.sampled_from(["constant", "cosine", "step"]), steps=st.integers(1, 50), warmup_steps=st.integers(0, 60))
def test_every_step_of_every_run_has_a_rate(shape: str, steps: int, warmup_steps: int) -> None:
    """Also where the run is over before the warm-up is."""
    whole = schedule(steps, schedule=shape, warmup_steps=warmup_steps)
    assert all(0 < whole.rate(step) <= 0.1 for step in range(steps))


def parameters(*gradients: list[float]) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(len(gradient))) for gradient in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return made


def test_the_norm_is_that_of_all_gradients_together_and_only_a_greater_one_is_cut() -> None:
    def move(clip: float | None) -> tuple[list[float], float | None]:
        moved = parameters([3.0, 0.0], [4.0])
        settings = TrainingSettings(gradient_clip=clip, learning_rate=1, warmup_steps=0, momentum=0, weight_decay=0)
        update = Optimiser(moved, settings, LearningRateSchedule.of(settings, 256, 10)).step(0)
        return [-float(value) for parameter in moved for value in parameter.detach()], update.gradient_norm

    assert move(None) == ([3.0, 0.0, 4.0], None)
    assert move(10) == ([3.0, 0.0, 4.0], 5.0)
    cut, norm = move(1)
    assert cut == pytest.approx([0.6, 0.0, 0.8], rel=1e-5)
    assert norm == 5.0


def test_the_norm_is_the_same_to_the_bit_whatever_the_threads() -> None:
    """Ranks may have different numbers of threads, and their replicas must stay the same."""
    norms = set()
    settings = TrainingSettings(gradient_clip=1)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            whole = list(models.build("vgg11", seed=1).parameters())
            for parameter in whole:
                parameter.grad = parameter.detach().clone()
            norms.add(Optimiser(whole, settings, LearningRateSchedule.of(settings, 256, 10)).step(0).gradient_norm)
    finally:
        torch.set_num_threads(before)
    assert len(norms) == 1


def test_each_step_is_made_with_its_own_rate() -> None:
    settings = TrainingSettings(warmup_steps=4, momentum=0, weight_decay=0)
    moved = parameters([1.0])
    optimiser = Optimiser(moved, settings, LearningRateSchedule.of(settings, 256, 10))
    assert [optimiser.step(step).learning_rate for step in range(3)] == pytest.approx([0.025, 0.05, 0.075])
    assert float(moved[0].detach()) == pytest.approx(-0.15)
