"""Follows a run on a terminal: rank 0's lines, and below them a bar with loss, images per second and time left."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from app.machine import folders
from app.records import series
from app.records.journal import path_of
from app.records.lines import Step, parse
from app.records.manifest import Manifest

REFRESH_SECONDS = 0.5


def follow(lines: TextIO, *, of_series: bool) -> None:
    """Print rank 0's lines as they arrive, above a progress bar that follows its records; end with the last line."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[speed]} images/s"),
        TimeRemainingColumn(),
        console=Console(force_terminal=True, highlight=False),
        transient=True,
    )
    run: str | None = None
    tail: _Tail | None = None
    task: TaskID | None = None
    with bar:
        for line in _lines_and_pauses(lines):
            if line is not None:
                bar.console.print(line.rstrip("\n"), markup=False)
            if (current := _current(of_series=of_series)) != run:
                run, tail = current, None
                if task is not None:
                    bar.remove_task(task)
                    task = None
            manifest = _manifest(folders.RESULTS / run) if run else None
            if run is None or manifest is None:
                continue
            if task is None or tail is None:
                tail = _Tail(path_of(folders.RESULTS / run, 0))
                name = run if of_series else str(manifest.settings["sync_mode"])
                task = bar.add_task(name, total=manifest.plan.steps, loss="-", speed="-")
            if steps := tail.new_steps():
                speed = sum(s.samples for s in steps) / sum(s.seconds for s in steps) * manifest.world_size
                loss = steps[-1].loss
                bar.update(
                    task,
                    completed=steps[-1].step + 1,
                    loss="-" if loss is None else f"{loss:.4f}",
                    speed=f"{speed:.0f}",
                )


def _current(*, of_series: bool) -> str | None:
    """The run in progress; None between two of a series."""
    if not of_series:
        return folders.run_ticket().run
    ended = {each.run for each in series.ended(folders.RESULTS)}
    return next((each.run for each in series.planned(folders.RESULTS) if each.run not in ended), None)


class _Tail:
    """Reads the steps appended to a file of records since the previous call."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def new_steps(self) -> list[Step]:
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        self._position += len(whole) + bool(whole)
        found = [parse(line) for line in whole.splitlines()]
        return [record for record in found if isinstance(record, Step)]


def _manifest(run_folder: Path) -> Manifest | None:
    """The manifest, or None until rank 0 has written it."""
    try:
        return Manifest.read(run_folder)
    except (FileNotFoundError, ValueError):
        return None


def _lines_and_pauses(lines: TextIO) -> Iterator[str | None]:
    """Yield the lines until they end, and None after every REFRESH_SECONDS without a line."""
    arrived: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in lines:
            arrived.put(line)
        arrived.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = arrived.get(timeout=REFRESH_SECONDS)
        except queue.Empty:
            yield None
            continue
        if not line:
            return
        yield line
