"""The stubs of examples/ filled in, and docs/extensions.md's own files: what users write."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES, PAGE = ROOT / "examples", ROOT / "docs/extensions.md"

TODO = re.compile(r"^ *raise NotImplementedError\((?:[^()]|\([^()]*\))*\)\n", re.MULTILINE)

# What replaces the TODOs of a file, in their order; each line stands as deep as the TODO did.
SOLUTIONS = {
    "part_2a": [
        ["everyones = self._communicator.gather(gradient)"],
        ["mean = sum(everyones) / self._communicator.world_size"],
        ["self._communicator.scatter(gradient, [mean] * len(everyones))"],
    ],
    "part_2b": [
        ["self._communicator.all_reduce(gradient)"],
        ["gradient /= self._communicator.world_size"],
    ],
    "ring": [
        [
            "own = chunks[(rank - step - 2) % ranks]",
            "arriving = torch.empty_like(own)",
            "sending = self._communicator.start_send(chunks[(rank - step - 1) % ranks], following)",
            "self._communicator.start_receive(arriving, before).wait()",
            "sending.wait()",
            "own += arriving",
        ],
        ["chunks[rank] /= ranks"],
        [
            "sending = self._communicator.start_send(chunks[(rank - step) % ranks], following)",
            "self._communicator.start_receive(chunks[(rank - step - 1) % ranks], before).wait()",
            "sending.wait()",
        ],
    ],
}


def solved(name: str) -> str:
    """An example with its TODOs done."""
    steps = iter(SOLUTIONS[name])

    def fill_in(todo: re.Match[str]) -> str:
        indent = todo[0][: len(todo[0]) - len(todo[0].lstrip())]
        return "".join(f"{indent}{line}\n" for line in next(steps))

    text = TODO.sub(fill_in, (EXAMPLES / f"{name}.py").read_text())
    assert next(steps, None) is None
    return text


def on_the_page() -> dict[str, str]:
    """The files that docs/extensions.md shows, by name."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {block.partition('"""extensions/')[2].partition(".py")[0]: block for block in blocks}


SCHEDULED = '''"""A chain: the sum goes up from rank to rank, and the mean down again."""

from app.sync.schedules.schedule import Message, Schedule
from app.sync.rounds import Scheduled


class Chain(Scheduled):
    @staticmethod
    def schedule(elements, world_size, settings):
        ranks = range(1, world_size)
        up = [[Message(rank - 1, rank, range(elements), adds=True)] for rank in ranks]
        down = [[Message(rank, rank - 1, range(elements), adds=False)] for rank in reversed(ranks)]
        return Schedule.of(*up, *down)
'''
