"""What mpirun starts as a rank: python3 -m app.tools.launch.stand_in SOCKET.

It brings the rank's place in MPI to the rank.

The container's first process starts the program itself. So output and exit code are the container's, a signal reaches
the program, and mpirun, which ends all its processes when one fails, does not end a rank before it has said why.
"""

import json
import os
import socket
import sys

PREFIXES = ("PMIX_", "PRTE_", "OMPI_")
OF_OTHERS = "OMPI_COMM_WORLD_"  # the rank follows from the container, as without mpirun


def place() -> dict[str, str]:
    """The variables by which MPI finds this rank's place."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIXES) and not name.startswith(OF_OTHERS)
    }


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        connection.sendall(json.dumps(place()).encode() + b"\n")
        while connection.recv(1):  # until the rank has ended
            pass
