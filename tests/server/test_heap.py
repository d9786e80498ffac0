"""The server's threads share one heap, and what they have freed goes back to the system."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from support.forks.forking import run_forked

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has several heaps"),
]

BEGIN = """
import asyncio, ctypes, threading
import psutil
from rejoinder.agent.server.operating import heap

c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
"""

HEAPS = """
together = threading.Barrier(4)

def work():
    c.malloc(100_000)
    together.wait()

{first}
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
c.malloc_stats()
"""

FREED = """
def resident():
    return psutil.Process().memory_info().rss

async def main():
    blocks = [c.malloc(50_000) for _ in range(2000)]
    for one in blocks:
        ctypes.memset(one, 1, 50_000)
    for one in blocks[:-1]:  # the last one keeps the end of the heap
        c.free(ctypes.c_void_p(one))
    before = resident()
    heap.TRIM_SECONDS = 0.01
    task = asyncio.create_task(heap.trim_heap())
    async with asyncio.timeout(30.0):
        while resident() > before - 90e6:
            await asyncio.sleep(0.01)
    task.cancel()

asyncio.run(main())
"""


def run(folder: Path, program: str) -> str:
    """Run a program, and return what it and the C library have printed. Its end must be orderly."""
    script = folder / "script.py"
    script.write_text(BEGIN + program)
    done = run_forked([], folder, os.environ, script)
    assert done.returncode == 0, done.stderr
    return done.stderr


def heaps(said: str) -> int:
    return said.count("Arena ")


def test_all_threads_share_one_heap(tmp_path: Path) -> None:
    assert heaps(run(tmp_path, HEAPS.format(first=""))) > 1, "else this test shows nothing"
    assert heaps(run(tmp_path, HEAPS.format(first="heap.keep_one_heap()"))) == 1


def test_freed_memory_goes_back(tmp_path: Path) -> None:
    run(tmp_path, FREED)
