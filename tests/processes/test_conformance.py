"""`python -m app conformance` checks whole files: correct ones, broken ones, and ones that misbehave."""

import csv
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.cluster.members import Cluster
from app.extensions.loading import load
from app.sync.modes import mode_class, own_mode
from app.tools.conformance import check, verdicts
from app.tools.conformance.cases import MODELS, Model
from app.tools.conformance.check import Checker, ConformanceVerdict, Submission
from app.tools.conformance.outcomes import LENGTH, TrialOutcome, unpack
from app.tools.conformance.trial import synchronise
from tests.processes.conftest import GroupOf
from tests.processes.contract import broken_law
from tests.processes.program import PATIENCE_SECONDS, Forked, environment_with
from tests.solutions import EXAMPLES, SCHEDULED, SOLUTIONS, on_the_page, solved

HEAD = """import os
import time
from app.sync.modes.all_reduce import AllReduce
class Mine(AllReduce):
    def average(self, values):
        print("mine conforms: 13 laws")
        {}
        super().average(values)
"""
MISBEHAVING = {
    "hangs": ("time.sleep(1000)", "hung for 10 s in synchronise of step 0 on 2 ranks: no answer from ranks 0, 1, rank"),
    "hangs beside": ("self._communicator.rank or time.sleep(1000)", "rank 0 at line 7, in average"),
    "fills memory": ("[bytearray(1 << 24) for _ in range(1000)]", " 512 MiB"),
    "opens files": ("x = [open('/dev/null') for _ in range(1000)]", " 256)"),
    "ends itself": ("os._exit(0)", "code 0 in synchronise of step 0"),
    "ends another": (
        "import psutil; own = psutil.Process(); others = [each for each in own.parent().children() if each != own]; "
        "self._communicator.rank and [each.kill() for each in others]",
        "was killed by SIGKILL",
    ),
    "raises": ("1 / 0", "line 7, in average: ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit('conforms')", "exited with code 0"),
    "prints": ("while True: print('conforms' * 1000)", "more than 1 MiB"),
    "writes to the checker": ("os.write(3, b'conforms' * 100)", "sent the checker"),
    "answers": ("os.write(3, b'A' + bytes(7) + b'!' + b'x' * 33)", "sent the checker"),
    "talks": ("while True: os.write(3, (b'N' + bytes(8)) * 1000)", "sent the checker"),
    "looks into the checker": ("open(f'/proc/{os.getppid()}/mem', 'rb')", "PermissionError"),
    "is of no law": ("type(self).law = 'mine'", "`law` is exact, mine"),
    "is of a law for some": (
        "type(self).law = 'exact' if self._communicator.world_size > 2 else 'contraction'",
        "`law` is contraction, exact",
    ),
}  # fmt: skip

# Each would be right if it knew what the others have, and communicates nothing.
KNOWING = """import gc
import sys
from app.tools.conformance.cases import values
from app.sync.schedules.costs import Cost
from app.sync.contract import GradientSync
import torch


def seeds_of(world_size):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            secret = getattr(value, "_secret", None)
            if secret is not None:
                return [hash((secret, rank)) & (2**63 - 1) for rank in range(world_size)]
        if len(frame.f_locals.get("seeds", [])) == world_size:
            return frame.f_locals["seeds"]
        frame = frame.f_back
    lists = [each for each in gc.get_objects() if type(each) in (list, tuple) and len(each) == world_size]
    return next((each for each in lists if all(type(seed) is int and seed > 2**40 for seed in each)), None)


class Mine(GradientSync):
    cost = Cost(lambda size, rank, world_size: 0.0)

    def synchronise(self, parameters):
        ranks = self._communicator.world_size
        seeds = seeds_of(ranks)
        frame = sys._getframe()
        while "self" not in frame.f_locals or not hasattr(frame.f_locals["self"], "_model"):
            frame = frame.f_back
        model, step = frame.f_locals["self"]._model, self._communicator.step
        if seeds and ranks > 1 and any(each.grad is not None and each.grad.any() for each in parameters):
            given = [values(model, seed, step) for seed in seeds]
            for at, each in enumerate(parameters):
                if each.grad is not None:
                    each.grad.copy_(torch.as_tensor(sum(own[at] for own in given) / ranks))
"""
# Communicates, past the communicator that counts.
UNCOUNTED = """import torch.distributed as dist
from app.sync.schedules.costs import Cost
from app.sync.contract import GradientSync
class Mine(GradientSync):
    cost = Cost(lambda size, rank, world_size: 0.0)
    def synchronise(self, parameters):
        for each in parameters:
            if each.grad is not None and self._communicator.world_size > 1:
                each.grad = each.grad.contiguous()
                dist.all_reduce(each.grad)
                each.grad /= self._communicator.world_size
"""
CHEATING = {
    "knows the others' seeds": (KNOWING, "mean"),
    "is not counted": (UNCOUNTED, "bytes"),
    "is not counted, in a class without a mean": (UNCOUNTED.replace("cost =", "law = 'contraction'; cost ="), "bytes"),
}


def conformance(text: str, *options: str, mode: str = "-") -> tuple[int, str, str]:
    """Exit code, standard output, and what else was said."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "given")
        given.write_text(text)
        done = Forked(["conformance", mode, *options], Path(folder), environment_with({}), True, given)
        output, errors = done.communicate(timeout=PATIENCE_SECONDS)
    return done.returncode or 0, output, errors or ""


@pytest.mark.parametrize("name", CHEATING)
def test_no_submission_conforms_that_does_not_communicate_or_is_not_counted(name: str) -> None:
    text, law = CHEATING[name]
    code, told, said = conformance(text)
    assert code == 1, said
    assert told.startswith(f"- breaks the law '{law}': "), told


@pytest.fixture(scope="module")
def misbehaved() -> dict[str, tuple[int, str, str]]:
    """All of them, some at a time: they mostly wait."""
    texts = [HEAD.format(line) for line, _ in MISBEHAVING.values()]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(MISBEHAVING, pool.map(conformance, texts), strict=True))


@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_submission_that_misbehaves_ends_with_a_word_about_it(
    misbehaved: dict[str, tuple[int, str, str]], name: str
) -> None:
    code, told, said = misbehaved[name]
    assert code == 1, said
    assert told.startswith("- breaks the law 'ends': "), told
    assert MISBEHAVING[name][1] in told


@pytest.mark.parametrize("name", SOLUTIONS)
def test_a_stub_names_its_first_todo(name: str) -> None:
    code, told, said = conformance((EXAMPLES / f"{name}.py").read_text(), "--called", f"extensions/{name}.py")
    assert code == 1, said
    assert told.startswith(f"extensions/{name}.py breaks the law 'ends': ")
    assert ": TODO 1: " in told


def test_a_ring_that_is_right_conforms() -> None:
    code, told, said = conformance(solved("ring"), "--called", "ring")
    assert code == 0, said
    assert told.startswith("ring conforms: 13 laws, ")


GOOD = {**{name: solved(name) for name in SOLUTIONS}, "scheduled": SCHEDULED, "exchange": on_the_page()["my_mode"]}


def lawful(cluster: Cluster, path: Path, name: str, model: Model) -> TrialOutcome:
    return synchronise(cluster, own_mode(load(name, path), name), model, thorough=True)


@pytest.mark.parametrize("world_size", [1, 3, 4])
@pytest.mark.parametrize("name", GOOD)
def test_what_users_write_keeps_all_laws(group_of: GroupOf, tmp_path: Path, name: str, world_size: int) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(GOOD[name])
    for model in (MODELS["odd shapes"], MODELS["fewer elements than ranks"], MODELS["some frozen"]):
        outcomes = group_of(world_size).run(lawful, path, name, model)
        assert broken_law(outcomes, model, group_of(world_size).run(lawful, path, name, model)) is None


def test_a_mistake_that_few_models_show_is_found_and_made_small() -> None:
    """From the third parameter on, one of more than two dimensions is left as it is."""
    text = solved("part_2b").replace(
        "gradients_of(parameters):", "[g for n, g in enumerate(gradients_of(parameters)) if n < 2 or g.dim() < 3]:"
    )
    code, told, said = conformance(text, "--table")
    assert code == 1, said
    (row,) = csv.reader([told.strip()])
    assert row[:3] == ["'-", "broken", "mean"]
    assert row[3].startswith("2 ranks, 3 parameters of shape (), (), (1, 1, 1) in fp64: step 0, rank 0, parameter 2: ")
    assert ".grad" in row[3]


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [
        ("-", "class (", "-, line 1: "),
        ("-", "", "subclass of GradientSync"),
        ("-", f"class X({'a.' * 1500}a): pass", "subclass of GradientSync"),
        ("ring_all_reduc", "", "Did you mean ring_all_reduce?"),
        ("none", "", "averages nothing"),
    ],
)
def test_what_is_no_mode_at_all_is_bad_usage(mode: str, text: str, words: str) -> None:
    code, told, said = conformance(text, mode=mode)
    assert (code, told) == (2, "")
    assert words in said


def test_a_mode_that_names_another_class_is_said_to_conform_as_that() -> None:
    """It was not held to the mean."""
    for kind, words in (("exact", "conforms"), ("vote", "conforms as vote")):
        assert verdicts.conforms(ConformanceVerdict(None, kind, 100, 10, 1.0)) == words


def test_what_was_too_slow_to_be_tried_does_not_conform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "TOTAL_SECONDS", 0.0)
    verdict = Checker(Submission(lambda: mode_class("all_reduce"), "all_reduce.py")).run(lambda _: None)
    assert verdict.broken is None
    assert " cases, on 1, 2, 3, 4, 5, 6, 7, 8 ranks, and all " in verdict.left_out
    assert verdicts.conforms(verdict) == "too slow"


def test_no_answer_can_be_more_than_data() -> None:
    """What a rank sends is read as numbers, or refused: never unpickled, and never run."""
    for content in (b"", b"\x80\x04N.", LENGTH.pack(2) + b"{}", LENGTH.pack(1 << 60), LENGTH.pack(2) + b"[]"):
        with pytest.raises(ValueError, match="not an outcome"):
            unpack(content)
