"""The benchmarks by name: their options on the command line, and what each one starts."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping

from app.machine.interrupt import end_on_signal
from app.machine.quick_imports import quick_imports
from app.machine.say import Say
from app.settings import environment
from app.tools.benchmark.choice import Choice, ComputeChoice, Noted, ReportChoice
from app.tools.benchmark.setups import StepChoice

BENCHMARKS = {
    "step": "whole training steps of every set-up against an ordinary course script's",
    "sync": "every mode against the plainest correct code of its pattern",
    "collectives": "collective operations over a range of sizes, through the communicator and without it",
    "overhead": "a training step with and without measurements, and what those cost",
    "compute": "what each choice of the compute path gains: a rank's own step with and without it",
    "startup": "tell what the stages of a start took, which scripts/benchmark has timed",
    "report": "the making of a long run's summary and pages, by itself, against plain reading",
    "table": "print the rows of the README's table from a result of `step`",
    "compare": "say which ratios of a result of `step` got worse than the kept ones",
}


def _result(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="its name in results/benchmarks/ [the newest]")


def _result_to_compare(parser: ArgumentParser) -> None:
    _result(parser)
    parser.add_argument("--keep", action="store_true", help="keep its ratios from now on, instead")


OPTIONS: Mapping[str, Callable[[ArgumentParser], None]] = {
    "step": StepChoice.add_options,
    "collectives": Choice.add_options,
    "compute": ComputeChoice.add_options,
    "startup": Noted.add_options,
    "report": ReportChoice.add_options,
    "table": _result,
    "compare": _result_to_compare,
}


def add_to(command: ArgumentParser) -> None:
    """Add each benchmark and its options to the command's line."""
    names = command.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, what in BENCHMARKS.items():
        benchmark = names.add_parser(name, help=what)
        if name in OPTIONS:
            OPTIONS[name](benchmark)


def run(arguments: Namespace, place: Mapping[str, str], say: Say) -> int:
    """Run one; `place` says which rank this is, where nothing else does. Returns the exit code."""
    match arguments.name:
        case "table":
            from app.tools.benchmark import kept

            kept.show_table(arguments.file, say)
        case "compare":
            from app.tools.benchmark import kept

            return kept.compare(arguments.file, arguments.keep, say)
        case "startup":
            from app.tools.benchmark.startup import tell

            tell(arguments.starts, say)
        case "compute":
            clean_ups = end_on_signal()
            from app.tools.benchmark.compute import time_choices

            time_choices(environment.load(), ComputeChoice.of(arguments), say, clean_ups)
        case "report":
            clean_ups = end_on_signal()
            from app.tools.benchmark.reporting import time_report

            time_report(ReportChoice.of(arguments), say, clean_ups)
        case _:
            clean_ups = end_on_signal()
            with quick_imports():
                from app.tools.benchmark.take_part import benchmark

            benchmark(arguments.name, arguments, environment.load(place), say, clean_ups)
    return 0
