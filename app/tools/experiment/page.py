"""The page of an experiment, the tables and figures beside it as files, and the index of all pages."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app.analysis import measures
from app.analysis.catalogue import slug
from app.analysis.units import Value
from app.errors import LockstepError
from app.machine import folders
from app.machine.say import as_csv, shown
from app.pages import files
from app.pages.section import Section, write_page
from app.records.manifest import ALWAYS_SET
from app.settings.explanations import hint
from app.settings.settings import own_among
from app.tools.experiment.plan import grid as grids
from app.tools.experiment.plan.grid import Grid
from app.tools.experiment.plan.grid_file import Place, ViewTable, refusal, refusal_of
from app.tools.experiment.plan.trials import ExperimentPlan, page_folder
from app.tools.experiment.results import Results
from app.tools.experiment.views import VIEWS
from app.tools.experiment.views.view import View

MOST_WARNINGS = 8
RUNS = "runs.csv"
SUMMARY = "experiment.json"  # what the index needs to know of a page


def views_of(grid: Grid) -> list[View]:
    """The views that the grid file asks for, checked as far as that goes without a run."""
    return [_view(grid, ("view", number), table) for number, table in enumerate(grid.views)]


def _view(grid: Grid, place: Place, table: ViewTable) -> View:
    if table.kind not in VIEWS:
        message = f"unknown kind '{shown(table.kind)}'. {hint(table.kind, list(VIEWS))}"
        raise refusal(grid.file, (*place, "kind"), message, "unknown-name")
    try:
        view = VIEWS[table.kind].model_validate(table.model_dump())
    except ValidationError as error:
        raise refusal_of(error, grid.file, VIEWS[table.kind], place) from None
    # The quick version may leave out what the full version has.
    for what, asked, known in view.references(grid.cells) if not grid.quick else ():
        for name in asked:
            if name not in known:
                choice = f" Choose from: {', '.join(known)}." if known else ""
                raise refusal(grid.file, place, f"{what} '{shown(name)}'.{choice}", "unknown-name")
    return view


def write(grid: Grid, plan: ExperimentPlan) -> Path:
    """Make the page of what is finished."""
    results = Results(grid, plan)
    views = views_of(grid)
    named = zip(names_of(views), views, strict=True)
    sections = [view.section(results, name) for name, view in named] if results.cells else []
    folder = page_folder(grid.name)
    folder.mkdir(parents=True, exist_ok=True)
    folders.replace_file(folder / RUNS, _runs(plan, results))
    summary = _summary(grid, plan, results, sections)
    folders.replace_file(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")
    content = summary | {
        "kind": grid.name,
        "made_from": "the records of the runs",
        "grid": grid,
        "summary": summary,
        "results": results,
        "plan": plan,
        "attempts": plan.attempts_made(),
    }
    return write_page(folder, "experiment.html", sections, content)


def _runs(plan: ExperimentPlan, results: Results) -> str:
    """A row per finished run: its cell and round, every setting, and every figure of all ranks together."""
    made = [(trial, run) for trial in plan.trials if (run := results.run(trial.cell, trial.round))]
    settings = list(dict.fromkeys(name for _, run in made for name in run.manifest.settings))
    rows: list[list[Value]] = [
        ["run", "cell", "round", *(name.upper() for name in settings), *(each.name for each in measures.OF_RUN)]
    ]
    for trial, run in made:
        own: list[Value] = [trial.name, trial.cell, trial.round]
        own += [run.manifest.settings.get(name) for name in settings]
        rows.append(own + [run.summary.run[each] for each in measures.OF_RUN])
    return as_csv(rows)


def write_index() -> Path:
    """Lead to the pages of all experiments that have one."""
    pages = []
    for name in grids.names():
        path = page_folder(name) / SUMMARY
        try:
            grid, wrong = grids.read(name), None
        except LockstepError as error:  # of a file that is none of the present experiment's business
            grid, wrong = None, str(error)
        summary = json.loads(path.read_text()) if path.is_file() else None
        pages.append({"name": name, "grid": grid, "wrong": wrong, "summary": summary})
    path = folders.RESULTS / "experiments" / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    folders.replace_file(path, files.render("experiments.html", {"pages": pages}))
    return path


def names_of(views: Sequence[View]) -> list[str]:
    """Of the views on the page, and of their files: kind and measure, numbered where both come again."""
    names = [f"{view.kind}-{slug(view.measure[0])}" for view in views]
    return [
        name if names.index(name) == number else f"{name}-{names[: number + 1].count(name)}"
        for number, name in enumerate(names)
    ]


def _summary(grid: Grid, plan: ExperimentPlan, results: Results, sections: Sequence[Section]) -> dict[str, Any]:
    return {
        "name": grid.name,
        "title": grid.title,
        "quick": grid.quick,
        "runs_planned": len(plan.trials),
        "runs_finished": len(results.all_runs),
        "failed": [trial.name for trial in plan.failed()],
        "reading": [f"{each.title}. {each.findings[0]}" for each in sections if each.findings],
        "warnings": list(_warnings(results)),
    }


def _warnings(results: Results) -> Iterator[str]:
    """What readers of the comparisons must know, and what the runs themselves warn of."""
    manifests = [run.manifest for run in results.all_runs]
    if len({tuple(sorted({rank.host_boot_id for rank in each.ranks})) for each in manifests}) > 1:
        yield "These runs come from different machines, or from before and after a reboot: ratios may be misleading."
    named = [{name.upper(): str(each.settings[name]) for name in ALWAYS_SET} for each in manifests]
    versions = {(bool(own_among(own)), each.image.source_sha256) for own, each in zip(named, manifests, strict=True)}
    if len(versions) > len({own for own, _ in versions}):  # the hash covers the user's own files where a run uses them
        yield "The runs were made by different versions of the program: what differs may be the program."
    told = Counter(warning for run in results.all_runs for warning in run.summary.warnings)
    for warning, times in told.most_common(MOST_WARNINGS):
        yield f"{warning} (in {times} of {len(manifests)} runs)"
    if len(told) > MOST_WARNINGS:
        yield f"{len(told) - MOST_WARNINGS} more warnings are in the runs' own reports."
