"""Reads settings from the environment, which no other module reads, or from given values alone."""

import os
import re
from collections.abc import Mapping

from app.errors import SettingError
from app.settings import launchers
from app.settings.settings import FIELDS, RefusedSettingsError, Settings


def load(options: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment; raises an error that lists all their problems at once.

    `options` are the settings from the command line, by name.
    """
    place = launchers.find(options or {}, os.environ)
    return of({name: value for name, value in os.environ.items() if value} | place)


def of(given: Mapping[str, str]) -> Settings:
    """Settings from these values by variable, without reading the environment."""
    return Settings.of(**{name.lower(): value for name, value in given.items() if name.lower() in FIELDS})


def problems(given: Mapping[str, str]) -> dict[str, str]:
    """Problems with these values, by variable; a conflict is listed under the first variable in its message."""
    try:
        of(given)
    except RefusedSettingsError as error:
        return {first_named(str(each), given): str(each) for each in error.each}
    except SettingError as error:
        return {first_named(str(error), given): str(error)}
    return {}


def first_named(message: str, given: Mapping[str, str]) -> str:
    """The first of the given variables that a message names; empty if it names none."""
    return next((name for name in re.findall(r"[A-Z][A-Z_]+", message) if name in given), "")
