"""CloudLab's portal on this machine: runs the script that it is given with geni-lib, whose release is for Python 2.

Only geni/portal.py of that release is no Python 3: it prints by statements. It is read with calls instead, and not
changed on the disk.
"""

import re
import runpy
import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import geni.rspec.pg


def load_portal() -> None:
    spec = find_spec("geni.portal")
    assert spec is not None
    assert spec.origin is not None
    source = re.sub(r"^(\s*)print (.+)$", r"\1print(\2)", Path(spec.origin).read_text(), flags=re.MULTILINE)
    module = sys.modules[spec.name] = geni.portal = module_from_spec(spec)
    exec(compile(source, spec.origin, "exec"), vars(module))  # noqa: S102  # as an import does


def print_text() -> None:
    """Let requests be written as text, where the release writes bytes to a file of text."""
    as_bytes = geni.rspec.pg.Request.toXMLString
    geni.rspec.pg.Request.toXMLString = lambda request, pretty_print=False: as_bytes(request, pretty_print, ucode=True)


if __name__ == "__main__":
    load_portal()
    print_text()
    runpy.run_path(sys.argv[1], run_name="__main__")
