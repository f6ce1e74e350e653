"""The commands `calibrate`, `predict` and `verify`, for the scripts of the same names."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command

VERIFICATION_STEPS = {
    "lacking": "print the calibration and the models it lacks",
    "plan": "write the predictions, then the list of runs",
    "settle": "reopen runs that machine drift disturbed",
    "report": "compare the measurements with the predictions",
}


def add_to(commands: Commands) -> None:
    calibrate = add_command(commands, "calibrate", "fit costs to the runs of scripts/calibrate", _calibrate)
    calibrate.add_argument("name", metavar="NAME", help="name of the calibration")
    calibrate.add_argument("--model", metavar="MODEL", help="add this model, from its runs on one rank")
    calibrate.add_argument("--settle", action="store_true", help="reopen runs that machine drift disturbed")

    predict = add_command(commands, "predict", "predict step times from a calibration", _predict)
    meaning = "a grid file, or lists of values such as WORKERS=1,3,7"
    predict.add_argument("cells", nargs="+", metavar="GRID | NAME=VALUE,...", help=meaning)
    predict.add_argument("--lacking", action="store_true", help="only print the calibration and the models it lacks")
    hosts = predict.add_mutually_exclusive_group()
    meaning = "all ranks share the calibrated machine [if it has enough cores]"
    hosts.add_argument("--one-host", dest="one_host", action="store_true", default=None, help=meaning)
    meaning = "each rank has a machine like the calibrated one to itself"
    hosts.add_argument("--own-hosts", dest="one_host", action="store_false", default=None, help=meaning)

    verify = add_command(commands, "verify", "compare predictions with measured runs", _verify)
    meaning = "; ".join(f"{step}: {what}" for step, what in VERIFICATION_STEPS.items())
    verify.add_argument("step", choices=VERIFICATION_STEPS, help=meaning)
    verify.add_argument("grid", metavar="GRID", help="name of a grid file")
    verify.add_argument("--quick", action="store_true", help="use the grid's quick version")
    verify.add_argument("--fresh", action="store_true", help="discard earlier predictions and their runs")
    verify.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="override the grid file's value")
    for command in (predict, verify):
        command.add_argument("--calibration", metavar="NAME", help="calibration to use [the newest]")


def _calibrate(arguments: Namespace) -> int | None:
    from app.tools.prediction import on_demand

    if arguments.model:
        on_demand.add_model(arguments.name, arguments.model)
    elif arguments.settle:
        on_demand.settle_calibration(arguments.name)
    else:
        return on_demand.calibrate(arguments.name)
    return None


def _predict(arguments: Namespace) -> None:
    from app.tools.prediction import calibration, cells, on_demand

    if arguments.lacking:
        on_demand.print_lacking(cells.asked(arguments.cells)[1], calibration.read(arguments.calibration))
    else:
        on_demand.predict(arguments.cells, name=arguments.calibration, one_host=arguments.one_host)


def _verify(arguments: Namespace) -> int | None:
    from app.tools.prediction.on_demand import GridVerification

    asked = GridVerification(arguments.grid, arguments.set, quick=arguments.quick, model=arguments.calibration)
    match arguments.step:
        case "lacking":
            asked.lacking()
        case "plan":
            asked.plan(fresh=arguments.fresh)
        case "settle":
            asked.settle()
        case "report":
            return asked.report()
    return None
