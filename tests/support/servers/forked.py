"""Runs a script as a fork, with this process's streams: python -IS forked.py ADDRESS SCRIPT ARGUMENT...

For programs that others start, as an MCP client does. This one imports little, so it starts at once. The
address is that of ``support/forks/forking.py``.
"""

import json
import os
import resource
import socket
import sys

with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    request = {
        "command": sys.argv[2:],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "is_script": True,
    }
    socket.send_fds(line, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
    answers = line.makefile("rb")
    answers.readline()
    sys.exit(int(answers.readline()) & 0xFF)
