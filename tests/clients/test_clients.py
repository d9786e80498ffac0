"""Clients of other projects hold a spoken conversation with the server: ``make test-clients``.

Each is driven by a program of its own, in an environment of its own. Ears and voice are real; what is
answered is scripted, so that it is long enough to interrupt and the expected words are known.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from checks import CALL, END, PARTS, ROWS, STORY
from support.patience import PATIENCE
from support.serving import Server, serving

from rejoinder.agent.bench.cases.recordings import read_set, speech_folder
from rejoinder.pipeline import to_pcm

pytestmark = pytest.mark.clients
HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent.parent / ".venv" / "clients"
MODELS = {"stt": "whisper:tiny.en", "tts": "piper:en_US-joe-medium", "turn": "smart-turn", "vad": "silero"}
RECORDINGS = ("azure_whatstheweatherlike", "google_audio")
SECONDS = 5 * PATIENCE
CLIENTS = {
    "openai-python": [ENVIRONMENTS / "openai/bin/python", "openai_python.py"],
    "openai-node": [ENVIRONMENTS / "node/bin/node", "openai_node.mjs"],
    "@openai/agents": [ENVIRONMENTS / "node/bin/node", "openai_agents.mjs"],
    "openai-agents-python": [ENVIRONMENTS / "openai/bin/python", "openai_agents.py"],
    "pipecat OpenAIRealtimeLLMService": [ENVIRONMENTS / "pipecat/bin/python", "pipecat_realtime.py"],
    "livekit-plugins-openai": [ENVIRONMENTS / "livekit/bin/python", "livekit_realtime.py"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    llm = f"scripted:llm|{STORY}|@opened {json.dumps(CALL)}|{END}"
    with serving(tmp_path_factory.mktemp("server"), llm=llm, **MODELS) as started:
        yield started


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a question and an interruption, as files of 24 kHz PCM."""
    found = {
        recording.path.stem: recording for recording in read_set(speech_folder(), "assistant_utterances")
    }
    folder = tmp_path_factory.mktemp("recordings")
    for name in RECORDINGS:
        (folder / name).write_bytes(to_pcm(found[name].load(24_000)))
    return [folder / name for name in RECORDINGS]


@pytest.mark.parametrize("client", CLIENTS)
def test_client_of_another_project(client: str, server: Server, recordings: list[Path]) -> None:
    command = [*CLIENTS[client], server.http, *recordings]
    ROWS.append([client, "?", *["no"] * len(PARTS)])
    quiet = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"}  # nothing is to leave this machine
    ran = subprocess.run(command, cwd=HERE, env=quiet, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = json.loads(ran.stdout.splitlines()[-1])
    wrong = {name: check(seen) for name, check in PARTS.items()}
    ROWS[-1][1:] = [seen["version"], *("no" if wrong[name] else "yes" for name in PARTS)]
    assert (set(wrong.values()), seen["errors"]) == ({""}, []), (wrong, seen)
    server.wait_idle()
