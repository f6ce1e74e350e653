"""What epochs of several batch sizes and numbers of ranks say, in words."""

from collections.abc import Iterator

from app.experiment.reading.results import Results
from app.experiment.reading.statistics import Blocks, Comparison
from app.experiment.views import epoch_measures as measures
from app.experiment.views.epoch_cells import base_of, batch_of, in_order
from app.experiment.views.view import interval, middle, missing_sentences, noise_sentence
from app.report.table import digits


def sentences(results: Results, blocks: Blocks) -> Iterator[str]:
    """Speedups, communication, batch sizes, and what the document's formula makes of it; `blocks` of epoch seconds."""
    yield _about_speedup(results, blocks)
    parts = []
    for cell in in_order(results):
        runs = results.runs(cell.name)
        sent, hidden = middle(runs, measures.communication), middle(runs, measures.hidden)
        if cell.world_size > 1 and sent is not None:
            behind = "" if hidden is None else f" and {digits(hidden)} s hidden"
            parts.append(f"{cell.name} {digits(sent)} s{behind}")
    if parts:
        yield f"Communication that delays steps, in an epoch: {'; '.join(parts)}."
    yield from _about_batches(results, blocks)
    yield from _about_formula(results)
    yield (
        "Seconds per epoch are as many median steps as an epoch has: no epoch was measured as a whole, and accuracies "
        "are those of the steps that were made."
    )
    yield noise_sentence(blocks, results, what="seconds per step")
    yield from missing_sentences(results)


def _about_speedup(results: Results, blocks: Blocks) -> str:
    parts = []
    for cell in in_order(results):
        base = base_of(results, cell)
        speedup = blocks.compare(base.name, cell.name) if base and cell.world_size > 1 else None
        if speedup:
            alike = ", no difference beyond the noise" if speedup.beyond_noise is False else ""
            parts.append(f"{cell.name} {digits(speedup.value)}{interval(speedup)}{alike}")
    if not parts:
        return "No speedup can be told: it needs one rank and more, with the same batch per rank."
    return f"Speedup of an epoch against one rank with the same batch per rank: {'; '.join(parts)}."


def _about_batches(results: Results, blocks: Blocks) -> Iterator[str]:
    """Whether a larger batch per rank makes an epoch shorter."""
    for ranks in sorted({cell.world_size for cell in results.cells}):
        cells = [cell for cell in in_order(results) if cell.world_size == ranks and batch_of(cell) is not None]
        if len(cells) < 2:
            continue
        found = blocks.compare(cells[0].name, cells[-1].name)
        if found:
            least, most = batch_of(cells[0]), batch_of(cells[-1])
            yield (
                f"On {ranks} rank{'s' if ranks > 1 else ''}, an epoch with {least} images per rank takes "
                f"{digits(found.value)} times{interval(found)} what it takes with {most}{_judged(found)}."
            )


def _judged(found: Comparison) -> str:
    if found.beyond_noise is None:
        return ", and one round does not tell whether that is noise"
    return "" if found.beyond_noise else ", which is no difference beyond the noise"


def _about_formula(results: Results) -> Iterator[str]:
    """By how much the documents' formula is off, which depends on the number of ranks alone."""
    for ranks in sorted({cell.world_size for cell in results.cells if cell.world_size > 1}):
        runs = [run for cell in results.cells if cell.world_size == ranks for run in results.runs(cell.name)]
        if any(run.summary.run.bandwidth for run in runs):
            yield (
                f"For {ranks} ranks, 2(N-1) S by the same time is {ranks} times what passes a link: it adds up what "
                "all ranks send."
            )
