"""Reads settings: from the environment, which nothing else reads, or from given texts alone."""

import os
import re
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from app.errors import SettingError
from app.settings import launchers
from app.settings.explanations import explain
from app.settings.fields import Settings


def load(options: Mapping[str, str] | None = None) -> Settings:
    """Read the environment, or refuse it with everything that is wrong in it.

    Options are settings from the command line, in the names of the settings.
    """
    place = launchers.find(options or {}, os.environ)
    try:
        return Settings(**place)  # type: ignore[arg-type]  # it reads texts
    except ValidationError as error:
        raise SettingError("\n".join(explain(detail) for detail in error.errors())) from None


class _Given(Settings):
    """Settings that take nothing from the environment."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def of(given: Mapping[str, str]) -> Settings:
    """Settings from these values alone, by variable."""
    return _Given(**{name.lower(): value for name, value in given.items()})  # type: ignore[arg-type]  # it reads texts


def problems(given: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with these values, by variable; what concerns several of them stands under the first it names."""
    try:
        of(given)
    except ValidationError as error:
        return {str(detail["loc"][0]).upper(): explain(detail) for detail in error.errors()}
    except SettingError as error:
        named = [name for name in re.findall(r"[A-Z][A-Z_]+", str(error)) if name in given]
        return {named[0] if named else "": str(error)}
    return {}
