"""Ratios that the repository keeps: a later run of `benchmark step` is held to them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.errors import DamagedError, SettingError
from app.machine.folders import RESULTS, check_writable, replace_file
from app.machine.say import Say
from app.tools.benchmark import table

FOLDER = RESULTS / "benchmarks"
KEPT = Path("benchmarks/kept.json")  # of scripts/, as scripts/benchmark shows it to the image
WORSE = 0.05
SAME = ("model", "world_size", "global_batch_size")  # ratios of other work are no comparison


def show_table(name: str | None, say: Say) -> None:
    """Print the README's rows from a file, the newest one by default."""
    say(table.rows(read(name)))


def compare(name: str | None, keep: bool, say: Say) -> int:
    """Say which ratios got worse than the kept ones, or keep the new ones; 1 if any got worse."""
    path, measured = find(name), read(name)
    if keep:
        _keep(path, measured)
        say(f"kept {len(measured['ratios'])} ratios of {path}")
        return 0
    if not KEPT.is_file():
        raise SettingError("no ratios kept yet. Keep some: scripts/benchmark compare --keep", "missing-file")
    kept = json.loads(KEPT.read_bytes())
    for warning in differences(kept, measured):
        say(f"warning: {warning}")
    worse = list(regressions(kept, measured))
    for line in worse:
        say(line)
    compared = len({*_ratios(kept)} & {*_ratios(measured)})
    say(f"{compared} ratios compared, {len(worse)} worse by more than {WORSE:.0%}")
    return 1 if worse else 0


def find(name: str | None) -> Path:
    """The file of this name, or the newest one of `benchmark step`."""
    found = sorted(FOLDER.glob("*-step.json"))
    if name:
        path = FOLDER / Path(name).name
        if not path.is_file():
            known = ", ".join(each.name for each in found) or "none"
            raise SettingError(f"cannot find {path}. Choose from: {known}.", "missing-file")
        return path
    if not found:
        raise SettingError(f"{FOLDER}/ has no result of scripts/benchmark step. Run it first.", "missing-file")
    return found[-1]


def read(name: str | None) -> dict[str, Any]:
    """The content of that file."""
    path = find(name)
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        if not {"setups", "ratios", *SAME} <= content.keys() or "cpu_model" not in content["environment"]:
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError):
        raise DamagedError(f"{path} is not a result of scripts/benchmark step. Run it again.") from None
    return content


def regressions(kept: dict[str, Any], measured: dict[str, Any]) -> Iterator[str]:
    """A sentence on each ratio whose whole interval lies more than 5 % above the kept value."""
    before, now = _ratios(kept), _ratios(measured)
    for pair in before:
        if pair not in now or (low := now[pair]["low"]) is None:
            continue
        if low > before[pair]["value"] * (1 + WORSE):
            yield (
                f"{pair}: {now[pair]['value']:.2f} ({low:.2f} to {now[pair]['high']:.2f}), "
                f"kept {before[pair]['value']:.2f}: worse by {now[pair]['value'] / before[pair]['value'] - 1:.0%}"
            )


def differences(kept: dict[str, Any], measured: dict[str, Any]) -> Iterator[str]:
    """Why the two may not be comparable."""
    there, here = kept["environment"]["cpu_model"], measured["environment"]["cpu_model"]
    if there != here:
        yield f"the kept ratios come from another CPU ({there}, here {here}). Ratios differ between CPUs"
    for name in SAME:
        if kept[name] != measured[name]:
            yield f"the kept ratios are for {name} {kept[name]}, the new ones for {measured[name]}"
    if any(each["low"] is None for each in measured["ratios"]):
        yield "ratios of fewer than 5 rounds have no interval and are not compared"


def _keep(path: Path, measured: dict[str, Any]) -> None:
    if any(each["low"] is None for each in measured["ratios"]):
        raise SettingError(f"{path} has ratios of fewer than 5 rounds. Run 5 or more to keep them.", "invalid-file")
    check_writable(KEPT.parent)
    parts = ("made_at", *SAME, "options")
    content = {name: measured[name] for name in parts} | {
        "environment": {name: measured["environment"][name] for name in ("cpu_model", "cores", "quota_cpus", "torch")},
        "ratios": [{name: _rounded(value) for name, value in each.items()} for each in measured["ratios"]],
    }
    replace_file(KEPT, json.dumps(content, indent=1) + "\n")


def _rounded(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


def _ratios(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{each['of']} / {each['against']}": each for each in content["ratios"]}
