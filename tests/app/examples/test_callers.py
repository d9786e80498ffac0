"""Programs with one question wait for its answer: not for a greeting, nor for a reply that calls tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from support.browsing import noise
from support.paths import EXAMPLES, ROOT
from support.servers.chat import chat_server
from support.servers.clerk import WANTED, Clerk
from support.serving import serving

from rejoinder.agent.server.own_server import free_port

pytestmark = pytest.mark.server

TOLD = "Done: Booked for 4 on Tuesday, 24 November at 19:00."


def guide(folder: Path) -> Path:
    """Return the program of docs/guides/client.md as a file."""
    page, file = (ROOT / "docs" / "guides" / "client.md").read_text(), folder / "program.py"
    file.write_text(page.split("```python\n")[1].split("```")[0])
    return file


def test_an_answer_comes_behind_a_greeting_and_a_tool(tmp_path: Path) -> None:
    question = str(tmp_path / "question.wav")
    soundfile.write(question, noise(1.0), 16_000)
    clerk, port = Clerk(), free_port()
    with chat_server(port, clerk.answer):
        flags = {"llm": f"openai:http://127.0.0.1:{port}/v1#clerk", "stt": f"scripted:stt|{WANTED}"}
        with serving(tmp_path, agent=str(EXAMPLES / "restaurant.py"), **flags) as server:
            ways = {
                EXAMPLES / "pcm.py": f"ws://127.0.0.1:{server.port}/v1/pcm",
                EXAMPLES / "openai_python.py": server.http,
                guide(tmp_path): server.http,
            }
            for number, (program, address) in enumerate(ways.items()):
                answer = str(tmp_path / f"{number}.wav")
                files = (
                    (question, answer, address) if program.parent == EXAMPLES else (address, question, answer)
                )
                done = subprocess.run(
                    [sys.executable, str(program), *files],
                    capture_output=True,
                    text=True,
                    env=dict(os.environ),
                    timeout=120,
                )
                assert done.returncode == 0, done.stderr
                assert TOLD in done.stdout, done.stdout
                assert 2.0 < soundfile.info(answer).duration < 4.0, "the answer, without the greeting"
                server.wait_idle()
    assert clerk.asked == len(ways)
