"""The checkout's profile.py hides no module of Python's library, however Python is started there."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = Path(sysconfig.get_path("stdlib"))

OPTIMISER = """
import cProfile, profile
print(profile.__file__)
import torch
layer = torch.nn.Linear(2, 1)
optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(torch.ones(1, 2)).sum().backward()
optimiser.step()
print(cProfile.Profile().runcall(sum, [1, 2]))
"""


def test_torch_and_cprofile_find_the_librarys_profile_from_here() -> None:
    """In this process, whose path begins with the checkout."""
    import cProfile
    import profile

    import torch

    assert str(ROOT) in sys.path
    assert Path(profile.__file__) == LIBRARY / "profile.py"
    assert cProfile.Profile().runcall(sum, [1, 2]) == 3
    torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1).step()


def test_a_new_process_finds_it_too() -> None:
    """One that was started as `python -m app` is in the checkout: the working directory stands before the library."""
    result = subprocess.run(
        [sys.executable, "-c", OPTIMISER], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.split()) == (0, [str(LIBRARY / "profile.py"), "3"]), result.stderr
