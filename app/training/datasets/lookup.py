"""Looks for a file in data/, some folders deep and no further: a shared folder may hold millions of files."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from app.errors import SettingError
from app.machine.folders import DATA
from app.machine.say import Say

MOST_FOLDERS_DEEP = 3
MOST_ENTRIES = 10_000


def find(name: str, say: Say) -> Path | None:
    """What has this name in data/ or in a folder below it, the least deep first; it may be anything, even a link.

    If there is none, this says what was left out: links to what is not mounted, and entries beyond `MOST_ENTRIES`.
    """
    _check_entered(name)
    folders = [DATA]
    seen = 0
    astray: list[Path] = []
    for depth in range(MOST_FOLDERS_DEEP + 1):
        if found := next((folder / name for folder in folders if os.path.lexists(folder / name)), None):
            return found
        if depth == MOST_FOLDERS_DEEP or seen == MOST_ENTRIES:
            break
        entries = sorted(islice(_entries(folders), MOST_ENTRIES - seen), key=lambda entry: entry.path)
        seen += len(entries)
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        astray += [path for entry in entries if entry.is_symlink() and not (path := Path(entry.path)).exists()]
    for link in astray:
        say(f"{link} is a link to {link.readlink()}, which is not mounted here: it is passed over")
    if seen == MOST_ENTRIES:
        say(f"{DATA}/ holds {seen:,} entries or more: the others are passed over. Put {name} directly into {DATA}/.")
    return None


def _check_entered(name: str) -> None:
    """Refuse a folder that this user may not enter: everything in it would seem to be missing."""
    try:
        (DATA / name).lstat()
    except PermissionError as error:
        raise _locked(error) from None
    except OSError:
        pass  # nothing is there, or it is looked at again when it is read


def _entries(folders: list[Path]) -> Iterator[os.DirEntry[str]]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                yield from entries
        except PermissionError as error:
            if folder == DATA:
                raise _locked(error) from None
        except OSError:
            pass  # removed meanwhile, or never there


def _locked(error: OSError) -> SettingError:
    return SettingError(
        f"{DATA}/ cannot be read: {error.strerror}. Let the owner of results/ (user ID {os.geteuid()}) read and enter "
        "it. Where DATA_FOLDER is set, data/ is that folder."
    )
