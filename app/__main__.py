"""The command line: python -m app COMMAND. Each package adds its own commands."""

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from app.errors import LockstepError, StoppedError, WriteError
from app.machine.command_line import CommandParser
from app.machine.folders import unwritten
from app.machine.interrupt import ignore_further_signals
from app.machine.say import for_terminal

# The module `commands` of each of these packages adds these commands, and imports no more than parsing needs.
ROOMS = {
    "run": ("train", "prepare", "check", "check-settings", "schedule", "progress"),
    "tools.launch": ("mpi",),
    "tools.doctor": ("doctor",),
    "pages": ("report", "schema"),
    "tools.experiment": ("experiment",),
    "tools.prediction": ("calibrate", "predict", "verify"),
    "tools.conformance": ("conformance",),
    "tools.faults": ("faults",),
    "tools.benchmark": ("benchmark",),
    "cluster.link": ("shape-link",),
    "settings": ("env-example", "settings-page", "settings-table"),
}

SETTINGS = """\
settings are environment variables, such as SYNC_MODE=ring_all_reduce:
  python -m app --help settings   all settings: name, default, meaning, allowed values
  python -m app --help GROUP      one group: averaging, training, links, place, recovery, measuring
"""

OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})


def main() -> int:
    """Run one command; returns exit code 2 for invalid input, 1 for a failure or for a problem that a check found."""
    try:
        match sys.argv[1:]:
            case ["-h" | "--help", topic]:
                from app.settings import texts

                print(texts.help_on(topic))
                return 0
            case words:
                arguments = _parse(words)
                return arguments.run(arguments) or 0
    except StoppedError as stopped:
        print(stopped, file=sys.stderr, flush=True)
        return stopped.exit_code
    except LockstepError as error:
        ignore_further_signals()
        print(for_terminal(error.line), file=sys.stderr, flush=True)
        return error.exit_code
    except OSError as error:
        ignore_further_signals()
        if error.errno not in OF_A_DISK:
            raise
        print(WriteError(unwritten(error)).line, file=sys.stderr, flush=True)
        return 1


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(prog="python -m app", epilog=SETTINGS, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = [room for room, names in ROOMS.items() if words and words[0] in names]
    for room in asked or ROOMS:
        import_module(f"app.{room}.commands").add_to(commands)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        commands.choices[arguments.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    if behind := getattr(arguments, "command_line", []):
        _parse(behind)  # a wrong one is refused here, before any rank starts
    return arguments


if __name__ == "__main__":
    try:
        code = main()
    except Exception as error:
        traceback.print_exc()
        report = f"internal error, please report it with the lines above: {type(error).__name__}."
        print(LockstepError(report, "internal-error").line, file=sys.stderr, flush=True)
        code = 1
    with suppress(OSError):  # because of a closed terminal or a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    # Skip the interpreter's own shutdown, in which Gloo can wait forever for a peer that has exited, and its threads
    # can crash the program with a segmentation fault.
    os._exit(code)
