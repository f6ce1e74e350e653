"""The worker's SSH server: rank 0 alone may come, with the key of this start, and start mpirun's daemon."""

import asyncio

import asyncssh

PORT = 2222  # no privilege is needed for it; only rank 0 connects
LOGIN_SECONDS = 20


class _Server(asyncssh.SSHServer):
    """Admits rank 0's address only."""

    def __init__(self, rank0: str) -> None:
        self._rank0 = rank0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        address, *_ = conn.get_extra_info("peername")
        if address != self._rank0:
            conn.abort()


async def open_door(address: str, rank0: str, key: asyncssh.SSHKey) -> asyncssh.SSHAcceptor:
    """Serve on the ranks' network. It needs no account and no privilege, whoever runs it."""
    return await asyncssh.listen(
        address,
        PORT,
        server_factory=lambda: _Server(rank0),
        server_host_keys=[key],
        authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
        process_factory=_obey,
        login_timeout=LOGIN_SECONDS,
        agent_forwarding=False,
        allow_scp=False,
    )


async def is_open(address: str) -> bool:
    """Whether a worker's server listens."""
    try:
        _, writer = await asyncio.open_connection(address, PORT)
    except OSError:
        return False
    writer.close()
    return True


async def _obey(process: asyncssh.SSHServerProcess[str]) -> None:
    """Run the command to its end; mpirun's daemon leaves the session and stays."""
    shell = await asyncio.create_subprocess_shell(
        process.command or "",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await shell.communicate()
    process.stdout.write(output.decode(errors="replace"))
    process.exit(shell.returncode or 0)
