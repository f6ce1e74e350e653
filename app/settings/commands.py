"""The commands that print texts generated from the settings, and the options that set a rank's identity."""

from argparse import ArgumentParser, Namespace

from app.machine.command_line import Commands, add_command
from app.settings.launchers import OPTIONS

# The settings that are also options, for ranks that are started by hand like the course's scripts.
RANK_OPTIONS = {
    "rank": ("R", "this process's rank, 0 to N - 1 [RANK]"),
    "world_size": ("N", "number of ranks [WORLD_SIZE]"),
    "master_addr": ("ADDRESS", "address or host name of rank 0 [MASTER_ADDR]"),
    "master_port": ("PORT", "port on which rank 0 waits for the others [MASTER_PORT]"),
}


def add_rank_options(command: ArgumentParser) -> None:
    for setting, (value, meaning) in RANK_OPTIONS.items():
        command.add_argument(OPTIONS[setting], dest=setting, metavar=value, help=meaning)


def rank_options(arguments: Namespace) -> dict[str, str]:
    """The options that were given, by setting, in the form that `environment.load` takes."""
    return {setting: value for setting in RANK_OPTIONS if (value := getattr(arguments, setting)) is not None}


def add_to(commands: Commands) -> None:
    add_command(commands, "env-example", "print the text of .env.example", _generated)
    add_command(commands, "settings-page", "print the text of docs/settings.md", _generated)
    add_command(commands, "settings-table", "print the text of scripts/host/settings.table", _generated)


def _generated(arguments: Namespace) -> None:
    from app.settings import texts

    makers = {
        "env-example": texts.env_example,
        "settings-page": texts.settings_page,
        "settings-table": texts.settings_table,
    }
    print(makers[arguments.command](), end="")
