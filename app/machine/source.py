"""The version of the running program: its revision, a hash of its source, and the packages of its image."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

REVISION = Path("REVISION")  # written when the image is built
PACKAGES = Path("PACKAGES")  # likewise: name and version of each package
# They determine a run's numbers and times. `base-files` has the version of the base image's Debian.
DECISIVE = (
    *("base-files", "libc6", "libgloo0", "libopenblas0-openmp", "libtorch2.6", "openmpi-bin"),
    *("python3.13", "python3-numpy", "python3-torch", "python3-torchvision"),
)


def source_sha256(further: Sequence[Path] = ()) -> str:
    """Hash of the names and contents of all source files of this package, and of the user's files that a run uses."""
    folder = Path(__file__).parents[1]
    own = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}
    return files_sha256([*own.items(), *((str(path), path) for path in further)])


def files_sha256(files: Iterable[tuple[str, Path]]) -> str:
    """Hash of names and contents."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def git_revision() -> str | None:
    """The revision that the image was built from; None if unknown."""
    return (REVISION.read_text().strip() or None) if REVISION.is_file() else None


def packages_sha256() -> str | None:
    """Hash of the list of the image's packages; None outside the image."""
    return hashlib.sha256(PACKAGES.read_bytes()).hexdigest() if PACKAGES.is_file() else None


def package_versions() -> dict[str, str] | None:
    """Versions of the packages in DECISIVE; None outside the image."""
    if not PACKAGES.is_file():
        return None
    versions = dict(line.split() for line in PACKAGES.read_text().splitlines())
    return {name: versions[name] for name in DECISIVE if name in versions}
