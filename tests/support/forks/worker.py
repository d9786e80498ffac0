"""Takes the place of the interpreter that pytest-xdist starts for a worker: asks the fork server for one.

``python worker.py ADDRESS -u -c CODE`` runs CODE in a process forked from the server at ADDRESS, with the
standard streams of this one, and ends with its exit status.
"""

import json
import os
import resource
import socket
import sys


def main() -> int:
    """Run the code and return the exit status of its process."""
    address, *options, code = sys.argv[1:]
    request = {
        "command": [sys.argv[0], *options],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "code": code,
    }
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        socket.send_fds(line, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
        with line.makefile("rb") as answers:
            answers.readline()  # its process identifier
            return int(answers.readline())


if __name__ == "__main__":
    sys.exit(main())
