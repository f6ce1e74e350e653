"""`python -m app mpi COMMAND`: runs the command on every rank in Compose, as one mpirun job."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

import asyncssh

from app.cluster import key
from app.cluster.identity import Identity, identify, interface_of, missing_error
from app.errors import JoinError
from app.settings.place import PlaceSettings
from app.tools.launch.door import PORT, is_open, open_door
from app.tools.launch.program import SOCKET, Program

LOOK_SECONDS = 0.1
FAREWELL_SECONDS = 5.0  # for mpirun to exit after its ranks
LONGEST_COMPLAINT = 2000  # characters of mpirun's output in an error

# The owner of results/ may have no account in the image, where mpirun and SSH look up the user's name and shell.
NO_ACCOUNT = {"LOGNAME": "rank", "SHELL": "/bin/sh"}

# A lost rank causes errors in the other ranks' operations instead of terminating the whole job.
TOLERANT = ("--with-ft", "ulfm", "--initial-errhandler", "mpi_errors_return")


def start(place: PlaceSettings, command: Sequence[str]) -> int:
    """Run a command as this container's rank and return its exit code. Rank 0 calls mpirun, and workers wait for it."""
    identity = identify(place)
    own = key.read()
    work = _start_all(identity, place, command) if identity.rank == 0 else _wait(identity, place, command, own)
    try:
        return asyncio.run(work)
    except asyncio.CancelledError as stopped:
        name = str(stopped)
        print(f"stopped by {name}", file=sys.stderr, flush=True)
        return 128 + signal.Signals[name]


async def _wait(identity: Identity, place: PlaceSettings, command: Sequence[str], own: asyncssh.SSHKey) -> int:
    async with Program(command) as program:
        door = await open_door(identity.address, identity.master_address, own)
        if not await program.has_place(_on_the_loop(identity.deadline)):
            raise JoinError(
                f"{identity.name}: rank 0 did not start this rank through mpirun within "
                f"JOIN_TIMEOUT={place.join_timeout:g} s. See rank 0's output."
            )
        door.close()
        return await program.run()


async def _start_all(identity: Identity, place: PlaceSettings, command: Sequence[str]) -> int:
    try:
        async with Program(command) as program:
            return await _run_job(identity, place, program)
    finally:
        key.remove()


async def _run_job(identity: Identity, place: PlaceSettings, program: Program) -> int:
    if identity.absent:  # Docker does not restart the ranks of an MPI job
        raise missing_error(identity, identity.absent)
    await _insist_on_doors(identity, place)
    mpirun = await asyncio.create_subprocess_exec(
        *_mpirun(identity), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, env=os.environ | NO_ACCOUNT,
    )  # fmt: skip
    output = asyncio.ensure_future(mpirun.communicate())
    has_place = asyncio.ensure_future(program.has_place(_on_the_loop(identity.deadline)))
    await asyncio.wait([output, has_place], return_when=asyncio.FIRST_COMPLETED)
    if not (has_place.done() and has_place.result()):
        raise JoinError(await _complaint(mpirun, output, place))
    key.remove()
    try:
        return await program.run()
    finally:
        await _end(mpirun, output)


async def _insist_on_doors(identity: Identity, place: PlaceSettings) -> None:
    """Wait until every worker's SSH server listens; raises JoinError at the join's deadline."""
    missing = list(range(1, len(identity.addresses)))
    while missing:
        opened = await asyncio.gather(*(is_open(identity.addresses[rank]) for rank in missing))
        missing = [rank for rank, is_there in zip(missing, opened, strict=True) if not is_there]
        if missing and time.monotonic() > identity.deadline:
            names = ", ".join(f"rank {rank} ({identity.addresses[rank]})" for rank in missing)
            raise JoinError(
                f"mpirun cannot reach {names}: no SSH server listened on port {PORT} within "
                f"JOIN_TIMEOUT={place.join_timeout:g} s. See the output of the missing ranks."
            )
        if missing:
            await asyncio.sleep(LOOK_SECONDS)


def _mpirun(identity: Identity) -> list[str]:
    """The command line of mpirun, with one process per container, in rank order."""
    runtime = {
        "plm_ssh_agent": f"{sys.executable} -m app.tools.launch.reach",
        "plm_ssh_no_tree_spawn": "1",
        "prte_if_include": interface_of(identity.address),
    }
    return [
        "mpirun",
        *(["--allow-run-as-root"] if os.getuid() == 0 else []),
        *TOLERANT,
        *(word for name, value in runtime.items() for word in ("--prtemca", name, value)),
        *("--host", ",".join(f"{host}:1" for host in (socket.gethostname(), *identity.addresses[1:]))),
        *("--np", str(len(identity.addresses)), "--map-by", "slot", "--bind-to", "none"),
        *(sys.executable, "-m", "app.tools.launch.stand_in", str(SOCKET)),
    ]


async def _complaint(
    mpirun: asyncio.subprocess.Process, output: "asyncio.Future[tuple[bytes, bytes]]", place: PlaceSettings
) -> str:
    if mpirun.returncode is None:
        mpirun.kill()
    printed = (await output)[0].decode(errors="replace").strip()[-LONGEST_COMPLAINT:]
    return (
        f"rank 0: mpirun did not start the ranks within JOIN_TIMEOUT={place.join_timeout:g} s, or failed "
        f"(exit code {mpirun.returncode}). Its output:\n{printed or '(none)'}"
    )


async def _end(mpirun: asyncio.subprocess.Process, output: "asyncio.Future[tuple[bytes, bytes]]") -> None:
    """Wait for mpirun to exit, then kill it. The ranks exit by themselves and report lost ranks better than it does."""
    await asyncio.wait([output], timeout=FAREWELL_SECONDS)
    if mpirun.returncode is None:
        mpirun.kill()


def _on_the_loop(deadline: float) -> float:
    """Convert a time of `time.monotonic` to the event loop's clock."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()
