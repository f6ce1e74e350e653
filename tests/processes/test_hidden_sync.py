"""What is seen of messages during backward adds up. That it changes nothing else: test_contract, test_equivalence."""

from pathlib import Path

import pytest

from app.analysis.run_records import read
from app.records.lines import Step
from tests.processes import group
from tests.processes.test_training import TrainOn, train_on  # noqa: F401  # a fixture


def phases(step: Step) -> list[float]:
    exposed = (step.wait_seconds or 0.0) + (step.sync_seconds or 0.0)
    return [step.data_seconds, step.forward_seconds, step.backward_seconds, exposed, step.optimiser_seconds]


@pytest.mark.parametrize(("mode", "bucket_bytes"), [("ddp", None), ("ddp", 100_000), ("bucketed_all_reduce", 100_000)])
def test_every_message_is_seen_and_the_phases_add_up(tmp_path: Path, mode: str, bucket_bytes: int | None) -> None:
    buckets = {} if bucket_bytes is None else {"BUCKET_BYTES": bucket_bytes}
    group.run(tmp_path, 3, SYNC_MODE=mode, MAX_STEPS=6, GLOBAL_BATCH_SIZE=96, **buckets)
    for rank in read(tmp_path / "results/latest").ranks:
        for step in rank.steps:
            assert step.buckets is not None
            assert sum(bucket.bytes for bucket in step.buckets) == 61_706 * 4
            ready = [bucket.ready_seconds for bucket in step.buckets]
            assert ready == sorted(ready)
            assert all(0 < bucket.ready_seconds < bucket.end_seconds <= step.seconds for bucket in step.buckets)
            assert sum(phases(step)) == pytest.approx(step.seconds, rel=0.01)
            assert min(phases(step)) >= 0
            assert step.wait_seconds is not None
            assert step.sync_seconds is not None
            assert step.wait_seconds >= 0
            assert step.sync_seconds >= -1e-9
            assert step.hidden_sync_seconds is not None
            assert 0 <= step.hidden_sync_seconds <= step.backward_seconds
        assert len(rank.steps[-1].buckets or []) > (1 if bucket_bytes else 0)


def test_buffers_are_seen_apart_from_gradients(train_on: TrainOn) -> None:  # noqa: F811
    """VGG-11 has two running statistics and a counter of 8 bytes in each of its 8 layers, here of 8 channels."""
    for rank in train_on(2, model="vgg11", sync_mode="ddp", global_batch_size=4, max_steps=3, evaluate="never"):
        for step in rank[:-1]:
            assert [buffer["bytes"] for buffer in step["buffers"]] == [4 * 2 * 64, 8 * 8]
            assert step["bytes_sent"] == 4 * 4530
