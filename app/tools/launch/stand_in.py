"""The process that mpirun starts for a rank: python3 -m app.tools.launch.stand_in SOCKET.

It passes its MPI variables to the container's first process, which runs the program itself. The program's output and
exit code are therefore the container's, and signals reach the program. mpirun kills all its processes when one fails,
but it cannot kill a rank that has not reported its error yet.
"""

import json
import os
import socket
import sys

PREFIXES = ("PMIX_", "PRTE_", "OMPI_")
OF_OTHERS = "OMPI_COMM_WORLD_"  # not passed on: the container determines the rank, as without mpirun


def place() -> dict[str, str]:
    """The environment variables that identify this process to MPI as part of the job."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIXES) and not name.startswith(OF_OTHERS)
    }


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        connection.sendall(json.dumps(place()).encode() + b"\n")
        while connection.recv(1):  # until the program has exited
            pass
