"""The SSH client of mpirun, which runs a command on a worker: python3 -m app.tools.launch.reach ADDRESS COMMAND..."""

import asyncio
import sys

import asyncssh

from app.cluster import key
from app.tools.launch.door import LOGIN_SECONDS, PORT


async def reach(address: str, command: str) -> int:
    """Run a command on a worker; returns its exit code, or 1 if the worker reports none."""
    own = key.read()
    async with asyncssh.connect(
        address,
        PORT,
        username="rank",
        client_keys=[own],
        known_hosts=([own.convert_to_public()], [], []),
        config=None,
        agent_path=None,
        connect_timeout=LOGIN_SECONDS,
        login_timeout=LOGIN_SECONDS,
    ) as connection:
        done = await connection.run(command)
    print(done.stdout, end="", file=sys.stderr)
    return 1 if done.exit_status is None else done.exit_status


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(reach(sys.argv[1], " ".join(sys.argv[2:]))))
    except (OSError, asyncssh.Error) as error:
        sys.exit(f"cannot connect to {sys.argv[1]} by SSH: {error}")
