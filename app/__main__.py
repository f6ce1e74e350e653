"""python -m app: the commands of the image."""

import argparse
import os
import sys

from app.benchmark.choice import Choice
from app.errors import LockstepError
from app.machine.interrupt import end_on_signal
from app.settings import fields as settings

COMMANDS = {
    "train": "take part in a run, as the rank that this process turns out to be",
    "prepare": "check the settings, make the data set, open the run's folder; once before `train`",
    "doctor": "examine the cluster, as one of its ranks: the machines, each link, the collective programs",
    "report": "make the report of a run anew, or one page of several runs side by side",
    "compare": "runs side by side on the terminal, the fastest first",
    "experiment": "plan an experiment, tell its next run, make its page; scripts/experiment runs them",
    "benchmark": "as one of the cluster's ranks: time a part of the program against plain code",
    "shape-link": "as root, before one of the others: shape this rank's link as the LINK_ settings ask",
    "check": "refuse wrong settings, and a wrong command line that follows, and do nothing else",
    "progress": "follow a run on a terminal: rank 0's lines on standard input, a bar below them",
    "env-example": "print the text of .env.example",
}

EXPERIMENT_STEPS = {
    "list": "all experiments",
    "plan": "check a grid file and write down which runs it is made of",
    "next": "note how the last run ended, and print the next one's settings",
    "page": "make the page of what is finished",
    "manual": "print the text of scripts/experiments/README.md",
}

BENCHMARKS = {
    "sync": "every mode beside the plainest correct code of its pattern",
    "collectives": "collective operations over a range of sizes, through the communicator and straight",
    "overhead": "a training step with all that is measured in it, and what that costs",
}


def main() -> int:
    """Run one command; the exit code is 2 for bad input, 1 for a failure or for what a check-up has found."""
    arguments = _parser().parse_args()
    try:
        return _run(arguments)
    except LockstepError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code


def _run(arguments: argparse.Namespace) -> int:
    # Each command imports what it needs, so that only those that compute wait for torch.
    match arguments.command:
        case "train":
            clean_ups = end_on_signal()
            from app.run.rank import run

            run(settings.load(), _say, clean_ups)
        case "prepare":
            clean_ups = end_on_signal()
            from app.run.prepare import prepare

            prepare(settings.load(), _say, clean_ups)
        case "doctor":
            end_on_signal()
            from app.doctor.checkup import check_up

            return check_up(settings.load(), _say)
        case "shape-link":
            from app.link import shaping

            (shaping.rehearse if arguments.rehearse else shaping.shape_link)(settings.load())
        case "check":
            settings.load()
            if arguments.command_line:
                _parser().parse_args(arguments.command_line)
        case "report":
            from app.report.commands import report

            report(arguments.runs, _say)
        case "compare":
            from app.report.commands import compare

            compare(arguments.runs, _say)
        case "experiment":
            return _experiment(arguments)
        case "progress":
            from app.run.progress import follow

            follow(sys.stdin)
        case "benchmark":
            end_on_signal()
            from app.benchmark.take_part import benchmark

            benchmark(arguments.name, Choice.of(arguments), settings.load(), _say)
        case "env-example":
            print(settings.env_example(), end="")
    return 0


def _experiment(arguments: argparse.Namespace) -> int:
    from app.experiment import commands

    match arguments.step:
        case "list":
            commands.list_all(_say)
        case "manual":
            from app.experiment.manual import text

            print(text(), end="")
        case "plan":
            commands.plan(
                arguments.name,
                arguments.set,
                _say,
                quick=arguments.quick,
                fresh=arguments.fresh,
                dry_run=arguments.dry_run,
            )
        case "next":
            commands.next_trial(arguments.name, arguments.ended, _say, quick=arguments.quick)
        case "page":
            return commands.make_page(arguments.name, arguments.set, _say, quick=arguments.quick)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"settings, from the environment (name, default, meaning):\n{settings.help_text()}",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in COMMANDS.items():
        command = commands.add_parser(name, help=what)
        if name == "benchmark":
            _add_benchmarks(command)
        if name == "experiment":
            _add_experiments(command)
        if name in ("report", "compare"):
            many, what = ("*", " [the present run]") if name == "report" else ("+", "")
            command.add_argument("runs", nargs=many, metavar="RUN", help=f"name in results/, or its folder{what}")
        if name == "check":
            command.add_argument("command_line", nargs=argparse.REMAINDER, help="another command to check as well")
        if name == "shape-link":
            command.add_argument("--rehearse", action="store_true", help="only try it, on the loop device, and undo it")
    return parser


def _add_experiments(command: argparse.ArgumentParser) -> None:
    steps = command.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, what in EXPERIMENT_STEPS.items():
        step = steps.add_parser(name, help=what)
        if name in ("list", "manual"):
            continue
        many = "+" if name == "plan" else None
        step.add_argument("name", nargs=many, metavar="NAME", help="of a grid file")
        step.add_argument("--quick", action="store_true", help="its quick version")
        if name == "next":
            step.add_argument("--ended", nargs=3, metavar=("TRIAL", "CODE", "SECONDS"), help="how the last one ended")
            continue
        step.add_argument("--set", nargs="+", default=[], metavar="NAME=value", help="in place of the grid file's")
        if name == "plan":
            step.add_argument("--fresh", action="store_true", help="forget what is finished")
            step.add_argument("--dry-run", action="store_true", help="only tell")


def _add_benchmarks(command: argparse.ArgumentParser) -> None:
    names = command.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, what in BENCHMARKS.items():
        benchmark = names.add_parser(name, help=what)
        if name == "collectives":
            Choice.add_options(benchmark)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's own farewell: Gloo's can wait for ever on a peer that has gone already.
    os._exit(code)
