"""Reads settings: from the environment, which nothing else reads, or from given texts alone."""

import os
import re
from collections.abc import Mapping

from app.errors import SettingError
from app.settings import launchers
from app.settings.settings import FIELDS, RefusedSettingsError, Settings


def load(options: Mapping[str, str] | None = None) -> Settings:
    """Read the environment, and refuse it with all its problems at once.

    `options` has the settings of the command line, by name.
    """
    place = launchers.find(options or {}, os.environ)
    return of({name: value for name, value in os.environ.items() if value} | place)


def of(given: Mapping[str, str]) -> Settings:
    """Settings from these values alone, by variable."""
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
    """The first of the given variables in a message."""
    return next((name for name in re.findall(r"[A-Z][A-Z_]+", message) if name in given), "")
