"""A worker's SSH server: it accepts only rank 0, with this start's key, so that mpirun can start its daemon."""

import asyncio

import asyncssh

PORT = 2222  # above 1023, so it needs no privilege
LOGIN_SECONDS = 20


class _Server(asyncssh.SSHServer):
    """Closes every connection from an address other than rank 0's, before any authentication."""

    def __init__(self, rank0: str) -> None:
        self._rank0 = rank0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        address, *_ = conn.get_extra_info("peername")
        if address != self._rank0:
            conn.abort()


async def open_door(address: str, rank0: str, key: asyncssh.SSHKey) -> asyncssh.SSHAcceptor:
    """Start the server at an address on the ranks' network. It needs neither an account nor a privilege."""
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
    try:
        _, writer = await asyncio.open_connection(address, PORT)
    except OSError:
        return False
    writer.close()
    return True


async def _obey(process: asyncssh.SSHServerProcess[str]) -> None:
    """Run the command, and return its output and exit code. mpirun's daemon detaches itself and keeps running."""
    shell = await asyncio.create_subprocess_shell(
        process.command or "",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await shell.communicate()
    process.stdout.write(output.decode(errors="replace"))
    process.exit(shell.returncode or 0)
