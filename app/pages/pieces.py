"""The pieces of a step, one after another, as they happened."""

from collections.abc import Iterator, Sequence

from app.analysis.run_records import RankRecords
from app.records.lines import Step

UNDIVIDED = "wait or sync"  # exposed, and not all ranks' records are there to say which


def pieces(
    step: Step, given: Sequence[float] = (), *, moves_parameters: bool = False
) -> Iterator[tuple[str, float, float]]:
    """Each piece's phase, beginning and end, in seconds since the step began; a phase may come in several pieces.

    `given` is when rank 0 had each of its buffers ready, by the same zero. In a run that averages parameters, the
    optimiser comes before that.
    """
    at = 0.0
    for phase, seconds in _lengths(step, given, moves_parameters):
        if seconds > 0:
            yield phase, at, at + seconds
            at += seconds


def buffers_given(central: RankRecords, steps: Sequence[Step]) -> dict[int, list[float]]:
    """When rank 0 had its buffers ready, by step, on the common clock."""
    return {
        step.step: [central.on_common_clock(step.at_seconds) + each.ready_seconds for each in step.buffers or ()]
        for step in steps
    }


def _lengths(step: Step, given: Sequence[float], moves_parameters: bool) -> Iterator[tuple[str, float]]:
    """The broadcast of rank 0's buffers interrupts the forward pass: until rank 0 sends, the others wait for it."""
    divided = step.wait_seconds is not None and step.sync_seconds is not None
    forward = waited = exchanged = 0.0
    at = step.data_seconds
    yield "data", step.data_seconds
    for number, buffer in enumerate(step.buffers or ()):
        yield "forward", buffer.ready_seconds - at
        forward += buffer.ready_seconds - at
        taken, at = buffer.end_seconds - buffer.ready_seconds, buffer.end_seconds
        late = given[number] - buffer.ready_seconds if number < len(given) else 0.0
        late = min(max(late, 0.0), taken)
        if divided:
            yield "wait", late
            yield "sync", taken - late
        else:
            yield UNDIVIDED, taken
        waited, exchanged = waited + late, exchanged + taken
    yield "forward", step.forward_seconds - forward
    yield "backward", step.backward_seconds
    if moves_parameters:
        yield "optimiser", step.optimiser_seconds
    if step.wait_seconds is not None and step.sync_seconds is not None:
        yield "wait", step.wait_seconds - waited
        yield "sync", step.sync_seconds - (exchanged - waited)
    elif step.exposed_sync_seconds is not None:
        yield UNDIVIDED, step.exposed_sync_seconds - exchanged
    if not moves_parameters:
        yield "optimiser", step.optimiser_seconds
