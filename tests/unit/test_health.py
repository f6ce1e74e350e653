"""A rank says that it stalls when nothing comes for much longer than before, and not sooner."""

import pytest

from app.cluster.heartbeat import Heartbeat
from app.cluster.judgement import Judgement
from app.run.health import FIRST_SECONDS, LEAST_SECONDS, Progress


@pytest.mark.parametrize(("seconds", "patience"), [(0.1, LEAST_SECONDS), (1.0, LEAST_SECONDS), (30.0, 150.0)])
def test_the_longer_steps_take_the_longer_is_the_patience(seconds: float, patience: float) -> None:
    progress = Progress(100.0)
    for step in range(1, 5):
        assert progress.look(step, 100.0 + step * seconds) is None
    last = 100.0 + 4 * seconds
    assert progress.look(4, last + patience) is None
    assert progress.look(4, last + patience + 1) == pytest.approx(patience + 1)
    assert progress.look(5, last + patience + 2) is None


def test_the_first_step_has_its_own_limit() -> None:
    progress = Progress(0.0)
    assert progress.look(0, FIRST_SECONDS) is None
    assert progress.look(0, FIRST_SECONDS + 1) == FIRST_SECONDS + 1


def test_those_who_have_not_been_heard_are_waited_for_and_those_who_have_left_are_not() -> None:
    judgement = Judgement(0, (1, 2, 3), 300.0, 0.0)
    judgement.hear(Heartbeat(1), 20.0)
    judgement.hear(Heartbeat(3, done=True), 1.0)
    assert judgement.silent_since(10.0) == [2]
