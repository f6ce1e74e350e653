"""Checks a built-in mode, or a file from standard input, and prints the verdict as text or as a CSV row."""

import sys
import tempfile
from pathlib import Path

from app.errors import SettingError
from app.extensions import moved, reading
from app.extensions.files import path_of
from app.extensions.loading import load
from app.machine.say import Say, as_csv, shown
from app.modes import MODES
from app.settings.explanations import hint
from app.sync.modes import mode_class, own_mode
from app.tools.conformance.check import Checker, ConformanceVerdict, Submission
from app.tools.conformance.confinement import keep_out_of_reach

STANDARD_INPUT = "-"
UNCHECKED = "none"  # it averages nothing
NAME = "submission"


def check(name: str, called: str, say: Say, *, table: bool = False) -> int:
    """Return exit code 0 if the mode conforms, else 1; raises SettingError for an unknown or invalid mode."""
    keep_out_of_reach()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            submission = _of_input(Path(folder), called) if name == STANDARD_INPUT else _built_in(name)
        except SettingError as error:
            if table:
                say(row(called, "refused", "", str(error), 0.0))
            raise
        verdict = Checker(submission).run(lambda line: print(line, file=sys.stderr, flush=True))
    if table:
        broken = verdict.broken
        case = f"{broken.case}: {broken.seen}" if broken else verdict.left_out
        said, law = ("broken", broken.law.name) if broken else (conforms(verdict), "")
        say(row(called, said, law, case, verdict.seconds))
    else:
        for line in words(called, verdict):
            say(line)
    return 1 if verdict.broken or verdict.left_out else 0


def row(called: str, verdict: str, law: str, case: str, seconds: float) -> str:
    return as_csv([(called, verdict, law, case, f"{seconds:.1f}")]).rstrip("\n")


def words(called: str, verdict: ConformanceVerdict) -> list[str]:
    """The verdict as lines of text, with the smallest case that breaks a law."""
    if verdict.left_out:
        return [
            f"{called} is too slow: {verdict.cases} cases pass after {verdict.seconds:.0f} s. Not tried:",
            f"  {verdict.left_out}. If the machine is busy, try again.",
        ]
    if verdict.broken is None:
        tried = f"{verdict.laws} laws, {verdict.cases} cases on 1 to 8 ranks, {verdict.seconds:.0f} s"
        return [f"{called} {conforms(verdict)}: {tried}"]
    return [
        f"{called} breaks the law '{verdict.broken.law.name}': {verdict.broken.law.sentence}",
        f"  smallest case: {verdict.broken.case}",
        f"  observed: {verdict.broken.seen}",
    ]


def conforms(verdict: ConformanceVerdict) -> str:
    """The verdict on a mode that breaks no law, with its class unless that is `exact`."""
    if verdict.left_out:
        return "too slow"
    return "conforms" if verdict.kind == "exact" else f"conforms as {verdict.kind}"


def _built_in(name: str) -> Submission:
    if name == UNCHECKED:
        raise SettingError(f"{UNCHECKED} averages nothing, so no law applies. Give another mode.", "invalid-argument")
    if name not in MODES:
        raise SettingError(
            f"unknown mode '{shown(name)}', and no file extensions/{shown(name)}.py. {hint(name, [*MODES])}",
            "unknown-name",
        )
    return Submission(lambda: mode_class(name), f"{name}.py", takes_unused=name != "ddp")


def _of_input(folder: Path, called: str) -> Submission:
    """The file from standard input. It is parsed here, but executed only in the ranks."""
    path = folder / f"{NAME}.py"
    path.write_bytes(sys.stdin.buffer.read(reading.MOST_BYTES + 1))
    try:
        reading.check_mode(NAME, path)
        for notice in moved.notices(path, Path(called)):
            print(notice, file=sys.stderr, flush=True)
    except SettingError as error:
        raise SettingError(str(error).replace(str(path_of(NAME)), called), error.name) from None
    return Submission(lambda: own_mode(load(NAME, path), called), str(path))
