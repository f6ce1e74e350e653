"""The checkout's profile.py hides no module of Python's library, however Python is started there."""

import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = Path(sysconfig.get_path("stdlib"))


def test_torch_and_cprofile_find_the_librarys_profile_from_here() -> None:
    """In this process, whose path begins with the checkout."""
    import cProfile
    import profile

    import torch

    assert str(ROOT) in sys.path
    assert Path(profile.__file__) == LIBRARY / "profile.py"
    assert cProfile.Profile().runcall(sum, [1, 2]) == 3
    torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1).step()
