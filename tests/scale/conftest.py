"""A Ray cluster of this machine, for the tests of this folder."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from support.ports import listens, unused_port

STARTS_WITHIN_S = 90.0


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a cluster in this machine's memory, without a dashboard. It ends with the tests."""
    port = unused_port()
    with TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder:  # sockets need short paths
        command = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--head",
            "--block",
            "--disable-usage-stats",
            "--include-dashboard=false",
            "--node-ip-address=127.0.0.1",
            "--num-cpus=2",
            "--object-store-memory=100000000",
            f"--port={port}",
            f"--temp-dir={folder}",
        ]
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        with Path(folder, "ray.log").open("w") as log:
            ray = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        address = f"127.0.0.1:{port}"
        try:
            assert listens(port, ray, STARTS_WITHIN_S), Path(folder, "ray.log").read_text()[-2000:]
            os.environ["RAY_ADDRESS"] = address
            yield address
        finally:
            for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
                os.environ.pop(name, None)
            _end(ray)


def _end(ray: subprocess.Popen[bytes]) -> None:
    """End the cluster and all its processes, also those that do not end by themselves."""
    began = [psutil.Process(ray.pid), *psutil.Process(ray.pid).children(recursive=True)]
    ray.terminate()
    for process in psutil.wait_procs(began, 5.0)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    ray.wait()
