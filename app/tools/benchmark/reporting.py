"""`benchmark report`: the making of a long run's summary, trace and page, by plain reading of its files."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import gettempdir

from app.analysis.run import Run
from app.machine import cpus
from app.machine.folders import scratch_in
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.pages import page, trace
from app.records import journal, lines
from app.records.lines import Clock, Finished, PhaseSeconds, Record, Step, Usage
from app.records.manifest import Image, Manifest, Participant, TrainingPlan, Versions
from app.settings.settings import Settings
from app.tools.benchmark import results
from app.tools.benchmark.choice import ReportChoice
from app.tools.benchmark.ratios import Middle

STEP_SECONDS, USAGE_SECONDS = 1.5, 0.5
GRADIENTS = 36_924_456  # bytes, of VGG-11
BATCH = 256


def time_report(choice: ReportChoice, say: Say, clean_ups: CleanUps) -> None:
    """Make up a run, then read it plainly and make its pages, in turn."""
    ranks, steps, rounds = choice.ranks, choice.steps, choice.rounds
    seconds: dict[str, list[float]] = {"plain reading": [], "summary": [], "trace": [], "page": [], "all": []}
    with scratch_in(Path(gettempdir()), clean_ups) as folder:
        make_up(folder, ranks, steps)
        size = sum(path.stat().st_size for path in folder.iterdir())
        for number in range(rounds):
            seconds["plain reading"].append(_timed(lambda: read_plainly(folder, ranks)))
            run = Run(folder)
            parts = {
                "summary": _timed(lambda run=run: run.summary.write(folder)),  # type: ignore[misc]
                "trace": _timed(lambda run=run: trace.write(run)),  # type: ignore[misc]
                "page": _timed(lambda run=run: page.write(run)),  # type: ignore[misc]
            }
            for part, taken in parts.items():
                seconds[part].append(taken)
            seconds["all"].append(sum(parts.values()))
            say(f"round {number + 1} of {rounds}")
    say(f"\n{ranks} ranks, {steps} steps, {size / 1e6:.0f} MB of records. / plain: relative to plain JSON parsing")
    for name, values in seconds.items():
        say(f"{name:<14} {median(values):>7.2f} s   / plain {Middle.of_ratios(values, seconds['plain reading'])}")
    results.write("report", {"ranks": ranks, "steps": steps, "bytes": size, "seconds": seconds}, say)


def read_plainly(folder: Path, ranks: int) -> int:
    """As anybody would who wants the numbers: every line of every rank, as JSON."""
    found = 0
    for rank in range(ranks):
        with journal.path_of(folder, rank).open() as file:
            found += sum(1 for line in file if json.loads(line))
    return found


def make_up(folder: Path, ranks: int, steps: int) -> None:
    """A run that never was: every rank as fast as the others, but for a thousandth."""
    _manifest(ranks, steps).write(folder)
    for rank in range(ranks):
        with journal.path_of(folder, rank).open("w") as file:
            file.writelines(map(lines.as_line, _records(rank, ranks, steps)))


def _records(rank: int, ranks: int, steps: int) -> Iterator[Record]:
    yield Clock(rank, 0.0, 0.0, 1e-5, process_at_seconds=-4.0, links_at_seconds=-1.0, links_seconds=0.8)
    share = round(2 * (ranks - 1) / ranks * GRADIENTS)
    for number in range(steps):
        pace = STEP_SECONDS * (1 + (number * 7 + rank * 3) % 11 / 11_000)
        phases = PhaseSeconds(0.01 * pace, 0.25 * pace, 0.6 * pace, 0.02 * pace, 0.04 * pace, 0.08 * pace)
        yield Step(
            rank=rank,
            epoch=0,
            step=number,
            samples=BATCH // ranks,
            loss=2.3 / (1 + number / 100),
            correct=BATCH // ranks // 2,
            learning_rate=0.1,
            gradient_norm=None,
            at_seconds=number * STEP_SECONDS * 1.01,
            seconds=phases.of(*asdict(phases)),
            **{f"{name}_seconds": value for name, value in asdict(phases).items()},
            hidden_sync_seconds=None,
            exposed_sync_seconds=None,
            bytes_sent=share,
            bytes_received=share,
            communication_seconds=phases.sync or 0.0,
            batch_norm_bytes_sent=None,
            batch_norm_seconds=None,
            interface_bytes_sent=share + share // 50,
            interface_bytes_received=share + share // 50,
            throttled_seconds=0.0,
            buckets=None,
            buffers=None,
            cpu_seconds=phases,
        )
    end = steps * STEP_SECONDS * 1.01
    for number in range(int(end / USAGE_SECONDS)):
        yield Usage(rank, (number + 1) * USAGE_SECONDS, USAGE_SECONDS, 45.0, 3.0, 0.0, 400 << 20, share, share)
    yield Finished(rank, steps, end, "0" * 64, 0, at_seconds=end)


def _manifest(ranks: int, steps: int) -> Manifest:
    machine = cpus.look()
    participants = [
        Participant(
            rank=rank,
            name=f"rank{rank}",
            address=f"10.77.1.{rank + 2}",
            threads=1,
            cores=len(machine.cores),
            quota_cpus=0.5,
            fair_share_cpus=0.5,
            memory_bytes=machine.memory_bytes,
            cpu_model=machine.cpu_model,
            host_boot_id=machine.boot_id,
            interface="eth0",
            formula_bytes_sent_per_step=2 * (ranks - 1) / ranks * GRADIENTS,
            link=None,
        )
        for rank in range(ranks)
    ]
    return Manifest(
        run="made-up",
        started_at="2026-01-01T00:00:00Z",
        world_size=ranks,
        settings=Settings.of(sync_mode="all_reduce", dataset="shapes").values(),
        plan=TrainingPlan(1, steps, steps, BATCH),
        dataset="made up",
        parameters=GRADIENTS // 4,
        gradient_bytes=GRADIENTS,
        sync_seconds_at_least=None,
        ranks=participants,
        warnings=[],
        versions=Versions(*[""] * 5),
        image=Image(None, "", None),
    )


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
