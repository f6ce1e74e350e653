"""Texts generated from the settings: the command line's help, .env.example, and the table that the scripts read."""

import textwrap
from collections.abc import Iterator

from app.settings.explanations import allowed_values, default_text, names, rule_of
from app.settings.fields import CONSUMED_BY_CLOUDLAB, CONSUMED_BY_COMPOSE, Settings
from app.settings.kinds import Pattern

WIDTH = 120
CONSUMED = CONSUMED_BY_COMPOSE + CONSUMED_BY_CLOUDLAB


def help_text() -> str:
    """The table of all settings for `python -m app --help`."""
    return "\n".join(
        f"  {name.upper():<22} {default_text(field):<12} {field.description} ({allowed_values(field)})"
        for name, field in Settings.model_fields.items()
    )


def env_example() -> str:
    """The text of .env.example: every setting that Compose takes or passes on, commented out, at its default."""
    others = [name for name in names() if name.lower() not in CONSUMED]
    lines = [
        "# Every setting of Lockstep with its default. Copy this file to .env and uncomment what you change,",
        "# or give a setting on the command line: SYNC_MODE=all_reduce scripts/up",
        "# Made by `python -m app env-example`.",
        *(line for name in others for line in _entry(name)),
        "",
        "# Docker Compose itself reads the next six.",
        *(line for name in CONSUMED_BY_COMPOSE for line in _entry(name.upper())),
        "",
        "# scripts/cloudlab reads the last two.",
        *(line for name in CONSUMED_BY_CLOUDLAB for line in _entry(name.upper())),
    ]
    return "\n".join(lines) + "\n"


def _entry(name: str) -> Iterator[str]:
    field = Settings.model_fields[name.lower()]
    yield ""
    meaning = f"{field.description} ({allowed_values(field)})"
    yield from textwrap.wrap(meaning, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    yield f"#{name}={default_text(field)}"


def settings_table() -> str:
    """The text of scripts/host/settings.table: all names, and the rules of those that the scripts check."""
    lines = [
        "# The settings, for scripts/host/settings.sh. Made by `python -m app settings-table`.",
        "# Columns of those that the scripts check: name, default, pattern of what is allowed, the same in words.",
        *(_row(name) for name in names()),
    ]
    return "\n".join(lines) + "\n"


def _row(name: str) -> str:
    if name.lower() not in CONSUMED:
        return name
    field = Settings.model_fields[name.lower()]
    rule = rule_of(field, Pattern)
    return "\t".join([name, default_text(field), rule.pattern if rule else "", allowed_values(field)])
