"""How ranks start under mpirun: who is let in, what a rank is given, and which limits hold."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from app.cluster import key
from app.cluster.identity import Identity
from app.errors import JoinError, SettingError
from app.settings.place import PlaceSettings
from app.tools.launch import program, start
from app.tools.launch.door import open_door
from app.tools.launch.program import Program
from app.tools.launch.reach import reach

HERE = "127.0.0.1"
COMPOSE = {"backend": "mpi", "master_addr": "rank0"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncssh.SSHKey]:
    """The key of this start."""
    monkeypatch.setattr(key, "FOLDER", tmp_path)
    monkeypatch.setattr(key, "FILE", tmp_path / "of_this_start")
    key.make_for(PlaceSettings.model_validate(COMPOSE))
    yield key.read()
    key.remove()
    assert list(tmp_path.iterdir()) == []


async def visit(key_of_the_door: asyncssh.SSHKey, rank0: str, command: str) -> int:
    door = await open_door(HERE, rank0, key_of_the_door)
    try:
        return await reach(HERE, command)
    finally:
        door.close()


def test_rank_0_runs_a_command_through_the_door(own: asyncssh.SSHKey, tmp_path: Path) -> None:
    assert asyncio.run(visit(own, HERE, f"touch {tmp_path}/made; rm {tmp_path}/made; exit 7")) == 7


def test_nobody_else_is_let_in(own: asyncssh.SSHKey) -> None:
    with pytest.raises((OSError, asyncssh.Error)):
        asyncio.run(visit(own, "127.0.0.2", "exit 0"))
    with pytest.raises(asyncssh.Error):
        asyncio.run(visit(asyncssh.generate_private_key("ssh-ed25519"), HERE, "exit 0"))


def test_the_key_is_its_owners_alone(own: asyncssh.SSHKey) -> None:
    assert key.FILE.stat().st_mode & 0o777 == 0o600
    before = key.read().export_public_key()
    key.make_for(PlaceSettings.model_validate(COMPOSE))
    assert key.read().export_public_key() != before


def test_a_compose_without_mpirun_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "FOLDER", tmp_path / "none")
    with pytest.raises(SettingError, match=r"docker/compose\.mpi\.yaml"):
        key.make_for(PlaceSettings.model_validate(COMPOSE))
    key.make_for(PlaceSettings(backend="gloo", master_addr="rank0"))
    key.make_for(PlaceSettings(backend="mpi", rank=0, world_size=1, master_addr=HERE))


def test_a_worker_whose_server_never_comes_is_named() -> None:
    identity = Identity(0, (), HERE, "rank0", HERE, HERE, HERE, time.monotonic() + 0.3, addresses=(HERE, "127.0.0.9"))
    with pytest.raises(JoinError, match=r"rank 1 \(127.0.0.9\).* within JOIN_TIMEOUT=1 s"):
        asyncio.run(start._insist_on_doors(identity, PlaceSettings(join_timeout=1)))


async def take_the_place(folder: Path, environment: dict[str, str]) -> tuple[int, int | None]:
    """What becomes of a program whose stand-in comes with these variables: its exit code, and the stand-in's."""
    code = "import os, sys; sys.exit(os.environ.get('PMIX_RANK') == '2' and 'OMPI_COMM_WORLD_RANK' not in os.environ)"
    (folder / "app.py").write_text(code)
    async with Program([]) as waiting:
        stand_in = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.tools.launch.stand_in", str(program.SOCKET), env=os.environ | environment
        )
        assert await waiting.has_place(asyncio.get_running_loop().time() + 60)
        os.chdir(folder)
        ended = await waiting.run()
        return ended, await asyncio.wait_for(stand_in.wait(), 60)


def test_the_program_runs_in_the_place_of_its_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SOCKET", tmp_path / "socket")
    monkeypatch.chdir(Path.cwd())
    given = {"PMIX_RANK": "2", "OMPI_COMM_WORLD_RANK": "2"}
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    assert asyncio.run(take_the_place(tmp_path, given)) == (1, 0)


async def wait_in_vain() -> bool:
    async with Program([]) as waiting:
        return await waiting.has_place(asyncio.get_running_loop().time() + 0.1)


def test_a_wait_for_a_stand_in_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SOCKET", tmp_path / "socket")
    assert asyncio.run(wait_in_vain()) is False


async def stopped(number: signal.Signals) -> None:
    async with Program([]) as waiting:
        os.kill(os.getpid(), number)
        await waiting.has_place(asyncio.get_running_loop().time() + 60)


def test_a_signal_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SOCKET", tmp_path / "socket")
    with pytest.raises(asyncio.CancelledError, match="SIGTERM"):
        asyncio.run(stopped(signal.SIGTERM))
