"""Searches data/ to a limited depth, because a shared folder may hold millions of files."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from app.machine.folders import DATA, data_locked
from app.machine.say import Say

MOST_FOLDERS_DEEP = 3
MOST_ENTRIES = 10_000


def find(names: Sequence[str], say: Say) -> Path | None:
    """The least deeply nested path of one of these names below data/, of any kind, even a link.

    Without a match, it reports the ignored paths: links to folders that are not mounted, and entries beyond the limit.
    """
    _check_entered(names[0])
    folders = [DATA]
    seen = 0
    dangling: list[Path] = []
    for depth in range(MOST_FOLDERS_DEEP + 1):
        places = (folder / name for folder in folders for name in names)
        if found := next(filter(os.path.lexists, places), None):
            return found
        if depth == MOST_FOLDERS_DEEP or seen == MOST_ENTRIES:
            break
        entries = sorted(islice(_entries(folders), MOST_ENTRIES - seen), key=lambda entry: entry.path)
        seen += len(entries)
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        dangling += [path for entry in entries if entry.is_symlink() and not (path := Path(entry.path)).exists()]
    for link in dangling:
        say(f"ignored {link}: it is a link to {link.readlink()}, which is not mounted here")
    if seen == MOST_ENTRIES:
        say(f"stopped searching {DATA}/ after {seen:,} entries. Put {names[0]} directly into {DATA}/.")
    return None


def _check_entered(name: str) -> None:
    """Refuse a folder that this user may not enter, because all its files would seem to be missing."""
    try:
        (DATA / name).lstat()
    except PermissionError as error:
        raise data_locked(error) from None
    except OSError:
        pass  # it is missing, or the error recurs when it is read


def _entries(folders: list[Path]) -> Iterator[os.DirEntry[str]]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                yield from entries
        except PermissionError as error:
            if folder == DATA:
                raise data_locked(error) from None
        except OSError:
            pass  # removed meanwhile, or never there
