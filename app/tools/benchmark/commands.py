"""The command `benchmark`: each benchmark with its options, and what it starts."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.interrupt import end_on_signal
from app.machine.quick_imports import quick_imports
from app.machine.say import say
from app.settings.commands import add_rank_options, rank_options
from app.tools.benchmark.choice import BenchmarkOptions, Choice, ComputeChoice, Noted, ReportChoice, StepChoice

BENCHMARKS = {
    "step": "whole training steps of each configuration, compared with an ordinary course script",
    "sync": "each mode, compared with the simplest correct code of its pattern",
    "collectives": "collectives over a range of sizes, with and without the communicator",
    "overhead": "a training step with and without measurements, and the cost of each measurement",
    "compute": "ablations of the compute path: one rank's step with and without each choice",
    "startup": "print the duration of each stage of a start, as timed by scripts/benchmark",
    "report": "building a long run's summary and pages, compared with plain reading",
    "table": "print the rows of the README's table from a result of `step`",
    "compare": "list the ratios of a result of `step` that are worse than the kept ones",
}


CHOICES: dict[str, type[BenchmarkOptions]] = {
    "step": StepChoice,
    "collectives": Choice,
    "compute": ComputeChoice,
    "startup": Noted,
    "report": ReportChoice,
}


def add_to(commands: Commands) -> None:
    command = add_command(commands, "benchmark", "time a part of the program as one of the ranks", _benchmark)
    add_rank_options(command)
    names = command.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, what in BENCHMARKS.items():
        benchmark = add_command(names, name, what)
        if name in CHOICES:
            CHOICES[name].add_options(benchmark)
        if name in ("table", "compare"):
            meaning = "name of a file in results/benchmarks/ [the newest]"
            benchmark.add_argument("file", nargs="?", metavar="FILE", help=meaning)
        if name == "compare":
            benchmark.add_argument("--keep", action="store_true", help="keep these ratios as the new reference")


def _benchmark(arguments: Namespace) -> int:
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
            from app.settings import environment
            from app.tools.benchmark.compute import time_choices

            time_choices(environment.load(), ComputeChoice.of(arguments), say, clean_ups)
        case "report":
            clean_ups = end_on_signal()
            from app.tools.benchmark.reporting import time_report

            time_report(ReportChoice.of(arguments), say, clean_ups)
        case _:
            clean_ups = end_on_signal()
            with quick_imports():
                from app.settings import environment
                from app.tools.benchmark.take_part import benchmark

            benchmark(arguments.name, arguments, environment.load(rank_options(arguments)), say, clean_ups)
    return 0
