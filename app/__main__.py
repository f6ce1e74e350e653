"""The commands: python -m app train, prepare, doctor, report, ..."""

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from app.errors import LockstepError, SettingError, StoppedError
from app.machine.folders import unwritten
from app.machine.interrupt import end_on_signal, ignore_further_signals
from app.machine.quick_imports import quick_imports
from app.machine.say import for_terminal, say, shown
from app.settings import environment, names, texts
from app.settings.launchers import OPTIONS
from app.settings.settings import Settings
from app.tools.benchmark import commands as benchmarks

COMMANDS = {
    "train": "take part in a run, as one of its ranks",
    "prepare": "check the settings, make the data set, open the run's folder; runs once, before `train`",
    "mpi": "run another command as this rank of an MPI job: rank 0 starts all ranks through mpirun, in Compose",
    "schedule": "print what the ranks would send to whom, and what that costs; scripts/schedule",
    "doctor": "examine the cluster, as one of its ranks: the machines, each link, the collective programs",
    "report": "make the report of a run again, or one page that compares several runs",
    "compare": "compare runs on the terminal, the fastest first",
    "experiment": "plan an experiment, print its next run, make its page; scripts/experiment runs them",
    "calibrate": "fit costs to the runs of a calibration; scripts/calibrate makes them",
    "predict": "print what steps would take, by a calibration; scripts/predict",
    "verify": "hold predictions against runs; scripts/verify makes these",
    "conformance": "check that a mode keeps the laws of synchronisation; scripts/conformance confines it",
    "faults": "plan faults in real runs, judge what happened; scripts/faults injects them",
    "benchmark": "time a part of the program against plain code, as one of the cluster's ranks",
    "shape-link": "shape this rank's link as the LINK_ settings request; as root, before another command",
    "check": "check the settings, and a command line if one follows; make what that needs",
    "progress": "follow a run on a terminal: rank 0's lines on standard input, a bar below them",
    "env-example": "print the text of .env.example",
    "settings-table": "print the text of scripts/host/settings.table",
}

OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})

# Scripts hand these their arguments as they are.
OF_RUNS = {name: f"scripts/{name}" for name in ("report", "compare")}

# Ranks that nothing else tells their place, as course scripts start them.
PLACE = {
    "rank": ("R", "this process's rank, 0 to N - 1 [RANK]"),
    "world_size": ("N", "number of ranks [WORLD_SIZE]"),
    "master_addr": ("ADDRESS", "rank 0's address or name [MASTER_ADDR]"),
    "master_port": ("PORT", "rank 0's port for the join [MASTER_PORT]"),
}

EXPERIMENT_STEPS = {
    "plan": "check a grid file and write the list of its runs",
    "next": "note how the last run ended, and print the next one's settings",
    "page": "make the page from the finished runs",
    "manual": "print the text of scripts/experiments/README.md",
}

VERIFICATION_STEPS = {
    "lacking": "print the calibration and each model that it lacks",
    "plan": "write predictions down, then the list of runs",
    "settle": "open those runs again that the machine disturbed",
    "report": "lay what was measured beside them",
}

FAULT_STEPS = {
    "plan": "check the arguments and write the list of trials",
    "next": "print what the host has to do for the next trial",
    "judge": "judge a trial by what was seen",
    "table": "print the table of all trials",
    "stranger": "be a stranger on the ranks' network, who sends rubbish to a port",
}


def main() -> int:
    """Run one command; the exit code is 2 for bad input, 1 for a failure or a problem that a check-up has found."""
    try:
        return _run(_parse(sys.argv[1:]))
    except StoppedError as stopped:
        print(stopped, file=sys.stderr, flush=True)
        return stopped.exit_code
    except LockstepError as error:
        ignore_further_signals()
        told = "\n".join([f"error: {error}", *getattr(error, "__notes__", [])])
        print(for_terminal(told), file=sys.stderr, flush=True)
        return error.exit_code
    except OSError as error:
        ignore_further_signals()
        if error.errno not in OF_A_DISK:
            raise
        print(f"error: {unwritten(error)}", file=sys.stderr, flush=True)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    # Each command imports what it needs: only those that compute wait for torch.
    match arguments.command:
        case "train":
            clean_ups = end_on_signal()
            with quick_imports():
                from app.run.rank import run

            run(environment.load(_place(arguments)), say, clean_ups)
        case "prepare":
            clean_ups = end_on_signal()
            from app.run.prepare import prepare

            _warn_of_misspelt(arguments.variables)
            settings = environment.load()
            _make_key(settings)
            prepare(settings, _neighbours(arguments.neighbours), say, clean_ups, only_data=arguments.only_data)
        case "mpi":
            from app.tools.launch.start import start

            return start(environment.load().place, arguments.command_line)
        case "schedule":
            from app.run.schedule import show

            show(environment.load(), say)
        case "doctor":
            clean_ups = end_on_signal()
            with quick_imports():
                from app.tools.doctor.checkup import check_up

            return check_up(environment.load(_place(arguments)), say, clean_ups)
        case "shape-link":
            from app.cluster.link import shaping

            settings = environment.load()
            if arguments.rehearse:
                shaping.rehearse(settings.links)
            else:
                shaping.shape_link(settings.links, settings.place)
        case "check":
            _warn_of_misspelt(arguments.variables)
            _neighbours(arguments.neighbours)
            settings = environment.load()
            _make_key(settings)
            if arguments.with_floor:
                from app.run.prepare import check_floor

                check_floor(settings)
            if arguments.command_line:
                _parse(arguments.command_line)  # a wrong one is refused before any rank starts
        case "report":
            from app.pages.commands import report

            report(arguments.runs, say, arguments.baseline)
        case "compare":
            from app.pages.commands import compare

            compare(arguments.runs, say, arguments.baseline)
        case "experiment":
            return _experiment(arguments)
        case "calibrate":
            from app.tools.prediction import commands as predictions

            if arguments.model:
                return predictions.add_model(arguments.name, arguments.model, say)
            if arguments.settle:
                predictions.settle_calibration(arguments.name, say)
                return 0
            return predictions.calibrate(arguments.name, say)
        case "predict":
            from app.tools.prediction import commands as predictions

            if arguments.lacking:
                predictions.print_lacking(arguments.cells, say, name=arguments.calibration)
            else:
                predictions.predict(arguments.cells, say, name=arguments.calibration, one_host=arguments.one_host)
        case "verify":
            return _verify(arguments)
        case "faults":
            return _faults(arguments)
        case "conformance":
            with quick_imports():
                from app.tools.conformance import commands as conformance

            own = arguments.own.split(",") if arguments.own else []
            return conformance.check(arguments.mode, arguments.called, own, say, table=arguments.table)
        case "progress":
            from app.run.progress import follow

            follow(sys.stdin)
        case "benchmark":
            return benchmarks.run(arguments, _place(arguments), say)
        case "env-example":
            print(texts.env_example(), end="")
        case "settings-table":
            print(texts.settings_table(), end="")
    return 0


def _experiment(arguments: argparse.Namespace) -> int:
    from app.tools.experiment import commands

    match arguments.step:
        case "manual":
            from app.tools.experiment.manual import text

            print(text(), end="")
        case "plan":
            commands.plan(
                arguments.name,
                arguments.set,
                say,
                quick=arguments.quick,
                fresh=arguments.fresh,
                dry_run=arguments.dry_run,
            )
        case "next":
            commands.next_trial(arguments.name, arguments.ended, say, quick=arguments.quick)
        case "page":
            return commands.make_page(arguments.name, arguments.set, say, quick=arguments.quick)
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from app.tools.prediction import commands

    given, quick, model = arguments.set, arguments.quick, arguments.calibration
    match arguments.step:
        case "lacking":
            commands.print_lacking_of_grid(arguments.grid, given, say, quick=quick, model=model)
        case "plan":
            commands.plan_verification(arguments.grid, given, say, quick=quick, fresh=arguments.fresh, model=model)
        case "settle":
            commands.settle(arguments.grid, given, say, quick=quick, model=model)
        case "report":
            return commands.verify(arguments.grid, given, say, quick=quick, model=model)
    return 0


def _faults(arguments: argparse.Namespace) -> int:
    from app.tools.faults import commands
    from app.tools.faults.stranger import visit

    match arguments.step:
        case "plan" if arguments.kills is not None:
            commands.make_plan_of_kills(
                arguments.sweep,
                say,
                number=arguments.kills,
                seed=arguments.seed,
                modes=arguments.modes,
                given=arguments.set,
                dry_run=arguments.dry_run,
            )
        case "plan":
            commands.make_plan(
                arguments.sweep,
                say,
                trials=arguments.trials,
                seed=arguments.seed,
                kinds=arguments.faults,
                modes=arguments.modes,
                given=arguments.set,
                dry_run=arguments.dry_run,
            )
        case "next":
            commands.next_trial(arguments.sweep, say)
        case "judge":
            commands.judge_trial(arguments.sweep, arguments.trial, say)
        case "table":
            return commands.make_table(arguments.sweep, say)
        case "stranger":
            visit(arguments.host, arguments.port, arguments.rubbish, arguments.seed)
    return 0


def _make_key(settings: Settings) -> None:
    """For ranks that mpirun starts; others need none, and no wait for the library that makes it."""
    if settings.place.backend == "mpi":
        from app.tools.launch import key

        key.make_for(settings.place)


def _place(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings among the options: those that say which rank this process is."""
    return {setting: value for setting in PLACE if (value := getattr(arguments, setting)) is not None}


def _warn_of_misspelt(variables: str) -> None:
    for warning in names.misspelt(variables.split(",")):
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def _neighbours(given: str) -> str:
    """What to say of other clusters on this machine: said now, and kept for the run's page."""
    if not given:
        return ""
    each = [cluster.split(":") for cluster in given.split(",")]
    named = ", ".join(
        f"project {project} of {user or 'an unnamed user'} ({count} container{'s' if count != '1' else ''})"
        for project, user, count in each
    )
    said = f"the machine's cores were shared from the start with {named}. Times are longer than without that"
    print(f"warning: {said}", file=sys.stderr, flush=True)
    return said


class _Command(argparse.ArgumentParser):
    """The arguments of a command."""

    def error(self, message: str) -> NoReturn:
        """Refuse them: in a line where people have typed them after a script's name and not after ours."""
        if self.prog not in OF_RUNS.values():
            super().error(message)
        raise SettingError(f"{self.prog}: {shown(message)}. Allowed: names or folders of runs, --baseline RUN, --help.")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        own = _Command(prog=OF_RUNS[arguments.command]) if arguments.command in OF_RUNS else parser
        own.error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"settings, from the environment (name, default, meaning):\n{texts.help_text()}",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Command)
    for name, what in COMMANDS.items():
        command = commands.add_parser(name, help=what, prog=OF_RUNS.get(name))
        if name in ("train", "doctor", "benchmark"):
            for setting, (value, meaning) in PLACE.items():
                command.add_argument(OPTIONS[setting], dest=setting, metavar=value, help=meaning)
        if name == "benchmark":
            benchmarks.add_to(command)
        if name == "conformance":
            command.add_argument("mode", metavar="MODE", help="a built-in mode, or - for a file on standard input")
            command.add_argument("--called", default="", metavar="NAME", help="what messages call it")
            command.add_argument("--own", default="", metavar="A,B,C", help="the files in extensions/, by name")
            command.add_argument("--table", action="store_true", help="print one row of a table (CSV)")
        if name == "experiment":
            _add_experiments(command)
        if name == "calibrate":
            command.add_argument("name", metavar="NAME", help="what the calibration is called")
            command.add_argument("--model", metavar="MODEL", help="add this one, by its runs on one rank")
            command.add_argument("--settle", action="store_true", help="open those runs again that were disturbed")
        if name == "verify":
            command.add_argument(
                "step",
                choices=VERIFICATION_STEPS,
                help="; ".join(f"{each}: {what}" for each, what in VERIFICATION_STEPS.items()),
            )
            command.add_argument("grid", metavar="GRID", help="name of a grid file")
            command.add_argument("--quick", action="store_true", help="the quick version of the grid")
            command.add_argument("--fresh", action="store_true", help="discard earlier predictions and their runs")
            command.add_argument("--calibration", metavar="NAME", help="which one [the newest]")
            meaning = "settings in place of the file's values"
            command.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help=meaning)
        if name == "predict":
            meaning = "a grid file, or lists of values: WORKERS=1,3,7"
            command.add_argument("cells", nargs="+", metavar="GRID | NAME=VALUE,...", help=meaning)
            meaning = "print the calibration and each model that it lacks, and predict nothing"
            command.add_argument("--lacking", action="store_true", help=meaning)
            command.add_argument("--calibration", metavar="NAME", help="which one [the newest]")
            hosts = command.add_mutually_exclusive_group()
            meaning = "all ranks share the machine of the calibration [where its cores suffice]"
            hosts.add_argument("--one-host", dest="one_host", action="store_true", default=None, help=meaning)
            meaning = "each rank has such a machine for itself"
            hosts.add_argument("--own-hosts", dest="one_host", action="store_false", default=None, help=meaning)
        if name == "faults":
            _add_faults(command)
        if name in OF_RUNS:
            many, what = ("*", " [the present run]") if name == "report" else ("+", "")
            command.add_argument("runs", nargs=many, metavar="RUN", help=f"name in results/, or its folder{what}")
            meaning = "the run that the others are compared with, part by part, with the noise of each difference"
            command.add_argument("--baseline", metavar="RUN", help=meaning)
        if name in ("prepare", "check"):
            meaning = "the caller's variables, A,B,C: warn about those that look like a misspelt setting"
            command.add_argument("--variables", default="", metavar="NAMES", help=meaning)
            meaning = "other clusters that run on this machine now, as PROJECT:USER:CONTAINERS,...: say so"
            command.add_argument("--neighbours", default="", metavar="LIST", help=meaning)
        if name == "prepare":
            meaning = "make the data set, and open no run: on machines without rank 0"
            command.add_argument("--only-data", action="store_true", help=meaning)
        if name == "mpi":
            command.add_argument("command_line", nargs=argparse.REMAINDER, help="train, doctor or benchmark NAME")
        if name == "check":
            meaning = "also check the same run without synchronisation, which is to be made first"
            command.add_argument("--with-floor", action="store_true", help=meaning)
            command.add_argument("command_line", nargs=argparse.REMAINDER, help="another command to check as well")
        if name == "shape-link":
            command.add_argument(
                "--rehearse", action="store_true", help="only try it on the loopback device, and undo it"
            )
    return parser


def _add_experiments(command: argparse.ArgumentParser) -> None:
    steps = command.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, what in EXPERIMENT_STEPS.items():
        step = steps.add_parser(name, help=what)
        if name == "manual":
            continue
        many = "+" if name == "plan" else None
        step.add_argument("name", nargs=many, metavar="NAME", help="name of a grid file")
        step.add_argument("--quick", action="store_true", help="take its quick version")
        if name == "next":
            step.add_argument("--ended", nargs=3, metavar=("TRIAL", "CODE", "SECONDS"), help="how the last run ended")
            continue
        step.add_argument("--set", nargs="+", default=[], metavar="NAME=value", help="replaces the grid file's value")
        if name == "plan":
            step.add_argument("--fresh", action="store_true", help="forget finished runs")
            step.add_argument("--dry-run", action="store_true", help="print the plan only")


def _add_faults(command: argparse.ArgumentParser) -> None:
    steps = command.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, what in FAULT_STEPS.items():
        step = steps.add_parser(name, help=what, prog="scripts/faults" if name == "plan" else None)
        if name == "stranger":
            step.add_argument("host", metavar="HOST")
            step.add_argument("port", type=int, metavar="PORT")
            step.add_argument("rubbish", metavar="KIND", help="what to send")
            step.add_argument("seed", type=int, metavar="SEED")
            continue
        step.add_argument("sweep", metavar="SWEEP", help="name of a folder in results/faults/")
        if name == "judge":
            step.add_argument("trial", metavar="TRIAL", help="name of the trial")
        if name == "plan":
            step.add_argument("--trials", type=int, default=12, metavar="N", help="number of runs")
            step.add_argument("--kills", type=int, metavar="N", help="number of kills that runs must recover from")
            step.add_argument("--seed", type=int, metavar="S", help="the same seed gives the same plan")
            step.add_argument("--faults", metavar="KIND,...", help="only these kinds of faults")
            step.add_argument("--modes", metavar="MODE,...", help="only these modes")
            step.add_argument("--set", nargs="+", default=[], metavar="NAME=value", help="settings of all runs")
            step.add_argument("--dry-run", action="store_true", help="print the plan only")


if __name__ == "__main__":
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        code = 1
    with suppress(OSError):  # of a terminal that has gone, or a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    # Skip the interpreter's own shutdown, in which Gloo can wait for ever for a peer that has already gone, and its
    # threads can end the program by a segmentation fault.
    os._exit(code)
