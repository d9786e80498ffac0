"""The files in examples/ as their readers run them, against the real server."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile
from support import speech
from support.browsing import CHROMIUM, becomes_true, browsing, noise, silence
from support.browsing import run as browse
from support.callers.carriers import TwilioSim
from support.callers.phone import calling, served
from support.forks.forking import Fork
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import PATIENCE, THREE_LINES, run_script, serving
from support.sound_card import FakeSounddevice

from rejoinder.agent.client import devices
from rejoinder.agent.client.devices import NoDevice
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.wires.phone.line import signature
from rejoinder.client import AgentSaid, connect
from rejoinder.models.loading import Specs
from rejoinder.models.specs import ROLES

EXAMPLES = Path(__file__).parent.parent / "examples"
KEY = "rj_the_key_of_this_test"
TOKEN = "the_token_of_twilio"
PUBLIC = "https://agent.example.com"


def run(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    return run_script(EXAMPLES / name, *arguments, **environment)


@contextmanager
def running(name: str, *arguments: str, port: int, **environment: str) -> Iterator[None]:
    """Run an example that serves on a port, for the length of the block."""
    with tempfile.TemporaryDirectory() as made:
        said = Path(made, "said")
        process = Fork(arguments, Path.cwd(), {**os.environ, **environment}, said, said, EXAMPLES / name)
        try:
            deadline = time.monotonic() + PATIENCE
            while not answers(port):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)
        assert "Traceback" not in said.read_text(), said.read_text()


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE).close()
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "name",
    [
        "embed.py",
        "own_models.py",
        "openai_python.py",
        "twilio.py",
        "twilio_call.py",
        "browser_embed.py",
        "browser_chat.py",
        "home_assistant.py",
        "pcm.py",
    ],
)
def test_an_example_without_arguments_says_how_it_is_run(name: str) -> None:
    done = run(name)
    assert done.returncode == 1 and f"python examples/{name}" in done.stderr
    assert f"python examples/{name}" in (EXAMPLES / "README.md").read_text()


WAYS_IN = [
    ("openai_python.py", "http", ""),
    ("pcm.py", "ws", "/v1/pcm"),
    ("twilio_call.py", "ws", "/v1/phone"),
]
"""Examples that call a server: the scheme and the path of their address."""


def refused(name: str, *arguments: str, **environment: str) -> str:
    """Run an example that cannot do what it should; return the one line that it says."""
    done = run(name, *arguments, **environment)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(("name", "scheme", "path"), WAYS_IN)
def test_everyday_mistakes_are_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, scheme: str, path: str
) -> None:
    question, answer, nowhere = (
        str(tmp_path / file) for file in ("question.wav", "answer.wav", "no/where.wav")
    )
    soundfile.write(question, noise(1.0), 48_000)
    closed = f"{scheme}://127.0.0.1:{unused_port()}{path}"
    assert "is the server running there?" in refused(name, question, answer, closed)
    assert nowhere in refused(name, nowhere, answer, closed)
    if scheme == "ws":
        assert "http" in refused(name, question, answer, closed.replace("ws", "http", 1))
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    with serving(tmp_path, llm=THREE_LINES) as server:
        url = f"{scheme}://127.0.0.1:{server.port}{path}"
        message = refused(name, question, answer, url)
        assert "HTTP 401" in message and "API keys" in message
        assert not Path(answer).exists()
        assert nowhere in refused(name, question, nowhere, url, REJOINDER_KEY=KEY)
        server.wait_idle()


@pytest.mark.parametrize("name", ["embed.py", "own_models.py", "home_assistant.py"])
def test_a_question_that_is_not_there(tmp_path: Path, name: str) -> None:
    nowhere, answer = str(tmp_path / "nowhere.wav"), str(tmp_path / "answer.wav")
    if name != "home_assistant.py":
        assert nowhere in refused(name, nowhere, answer)
        return
    port = str(unused_port())
    with serving(tmp_path, llm=THREE_LINES, wyoming_port=port):
        assert nowhere in refused(name, nowhere, answer, port)


def test_pcm_with_a_key_a_stereo_recording_and_one_without_speech(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, silent_question, answer = (
        str(tmp_path / name) for name in ("question.flac", "nobody.wav", "answer.wav")
    )
    soundfile.write(question, np.stack((noise(1.0), noise(1.0)), axis=1), 16_000)
    soundfile.write(silent_question, silence(0.5), 16_000, subtype="FLOAT")
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    with serving(tmp_path, llm=THREE_LINES) as server:
        url = f"ws://127.0.0.1:{server.port}/v1/pcm"
        silent = f"the server detected no speech in {silent_question}"
        nothing = str(tmp_path / "nothing.wav")
        with ThreadPoolExecutor() as pool:  # the example waits for eight seconds
            waiting = pool.submit(refused, "pcm.py", silent_question, nothing, url, REJOINDER_KEY=KEY)
            done = run("pcm.py", question, answer, url, REJOINDER_KEY=KEY)
            assert waiting.result() == silent
        assert not Path(nothing).exists()
        server.wait_idle()
    assert done.returncode == 0, done.stderr
    assert soundfile.info(answer).duration > 1.0


def test_a_failed_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_APOLOGY", "")  # else the answer is an apology
    files = str(tmp_path / "question.wav"), str(tmp_path / "answer.wav")
    soundfile.write(files[0], noise(1.0), 16_000)
    page = (EXAMPLES.parent / "docs" / "guides" / "client.md").read_text()
    (tmp_path / "program.py").write_text(page.split("```python\n")[1].split("```")[0])

    def works(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")

    port = unused_port()
    with ExitStack() as stack:
        with chat_server(port, works):  # warming up needs an answer
            llm = f"openai:http://127.0.0.1:{port}/v1#m"
            server = stack.enter_context(serving(tmp_path, clean=False, llm=llm))
        pcm = refused("pcm.py", *files, f"ws://127.0.0.1:{server.port}/v1/pcm")
        program = run(str(tmp_path / "program.py"), server.http, *files)
        server.wait_idle()
    assert pcm.startswith("the answer failed: ")
    assert program.returncode == 1 and "Traceback" not in program.stderr
    assert program.stderr.startswith("failed: ") and program.stderr.endswith("the answer is failed\n")
    assert not Path(files[1]).exists()


@pytest.mark.weights
def test_own_models(tmp_path: Path) -> None:
    speech.need("silero", "whisper:tiny.en")
    weather = next(r for r in speech.recordings("phone_prompts_8k") if "weather" in r.path.stem)
    done = run("own_models.py", str(weather.path), str(tmp_path / "answer.wav"))
    assert done.returncode == 0, done.stderr
    you, *agent = done.stdout.splitlines()
    assert you.startswith("you:") and "weather" in you
    heard = " ".join(line.removeprefix("agent: ") for line in agent)
    assert heard == f"You said: {you.removeprefix('you:   ')}"
    audio, rate = soundfile.read(tmp_path / "answer.wav")
    assert rate == 16_000 and len(audio) == len(heard.split()) * rate // 4


def test_openai_python(tmp_path: Path) -> None:
    files = str(tmp_path / "question.wav"), str(tmp_path / "answer.wav")
    soundfile.write(files[0], noise(1.0), 48_000)
    with serving(tmp_path, llm=THREE_LINES) as server:
        done = run("openai_python.py", *files, server.http)
        server.wait_idle()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "you:   what is the weather"
    assert done.stdout.splitlines()[1].startswith("agent: This is a sentence of the answer.")
    audio, rate = soundfile.read(files[1])
    assert rate == 24_000 and len(audio) > 2 * rate and np.abs(audio).max() > 0.05


def test_home_assistant(tmp_path: Path) -> None:
    files, port = (str(tmp_path / "question.wav"), str(tmp_path / "answer.wav")), str(unused_port())
    soundfile.write(files[0], noise(1.0), 48_000)
    with serving(tmp_path, llm=THREE_LINES, wyoming_port=port) as server:
        done = run("home_assistant.py", *files, port)
        server.wait_idle()
    assert done.returncode == 0, done.stderr
    assert "heard what is the weather" in done.stdout
    assert soundfile.info(files[1]).duration > 1.0

    done = run("home_assistant.py", *files, port)
    assert done.returncode == 1 and "is wyoming_port set?" in done.stderr


def test_twilio() -> None:
    port = unused_port()
    url = f"http://127.0.0.1:{port}/voice"
    form = {"CallSid": "CA00000000000000000000000000000000", "From": "+441234567890"}

    def post(given: str) -> bytes:
        request = urllib.request.Request(url, urlencode(form).encode(), {"X-Twilio-Signature": given})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return bytes(response.read())

    with running("twilio.py", PUBLIC, str(port), port=port, TWILIO_AUTH_TOKEN=TOKEN):
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            post(signature("of somebody else", f"{PUBLIC}/voice", form))
        refused.value.close()
        twiml = post(signature(TOKEN, f"{PUBLIC}/voice", form))
    (stream,) = ElementTree.fromstring(twiml).iter("Stream")
    assert stream.attrib["url"].startswith("wss://agent.example.com/")

    class Called(TwilioSim):
        parameters: ClassVar = {given.attrib["name"]: given.attrib["value"] for given in stream}

    async def hold() -> None:
        async with served() as (program, phone):
            assert urlsplit(phone).path == urlsplit(stream.attrib["url"]).path
            async with calling(phone, Called()) as caller:
                await caller.until(lambda: caller.seconds_heard > 0.5)
                prompts = program.models.llm.prompts  # type: ignore[union-attr]
                assert "calls from: +441234567890" in prompts[-1][0]["content"]

    asyncio.run(hold())


def test_twilio_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody speaks over the first answer, presses keys over the next one, and hears the third."""
    files = str(tmp_path / "question.wav"), str(tmp_path / "call.wav")
    soundfile.write(files[0], np.concatenate((noise(1.0), silence(1.8), noise(1.2))), 48_000)
    monkeypatch.setenv("REJOINDER_TWILIO_AUTH_TOKEN", TOKEN)
    with serving(tmp_path, llm=THREE_LINES) as server:
        url = f"ws://127.0.0.1:{server.port}/v1/phone"
        refused = run("twilio_call.py", *files, url)
        done = run("twilio_call.py", *files, url, "42#", TWILIO_AUTH_TOKEN=TOKEN)
        server.wait_idle()
    assert refused.returncode == 1 and "403" in refused.stderr and "Traceback" not in refused.stderr
    assert done.returncode == 0, done.stderr
    said = done.stdout
    ends = [int(re.findall(rf"played up to the mark {reply}-(\d+)", said)[-1]) for reply in (1, 2, 3)]
    assert max(ends[:2]) < ends[2] / 2, "the third answer alone was played to its end"
    pressed, clear = said.index("pressed 42#"), said.index("clear: the agent was interrupted")
    assert said.index("mark 2-") < pressed < clear < said.index("mark 3-")
    audio, rate = soundfile.read(files[1])
    assert rate == 8000 and audio.shape[1] == 2
    loud = [np.abs(side).max() > 0.1 for side in (audio[:rate, 0], audio[:rate, 1], audio[-4 * rate :, 1])]
    assert loud == [True, False, True]


def test_browser_embed_without_a_server() -> None:
    port, closed = unused_port(), f"http://127.0.0.1:{unused_port()}"
    with running("browser_embed.py", closed, str(port), port=port, REJOINDER_KEY=KEY):
        with pytest.raises(urllib.error.HTTPError, match="502") as failed:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/secret", data=b"", timeout=PATIENCE)
        failed.value.close()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_browser_embed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = unused_port()
    origin = f"http://127.0.0.1:{port}"
    words = "document.querySelector('#words').innerText"
    heard = f"() => /^You: what is the weather.*Agent: This is a sentence/s.test({words})"

    async def visit() -> None:
        # A caller asks, and then speaks over the answer; on a busy machine it may come late.
        again = [silence(3.0), noise(1.2)]
        microphone = [silence(1.0), noise(0.8), *again, *again, *again, *again, silence(60.0)]
        async with browsing(tmp_path, microphone) as (page, errors):
            sent: list[Any] = []
            page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
            await page.goto(origin)
            await page.click("#talk")
            await becomes_true(page, "() => document.querySelector('#state').innerText === 'Speak.'")
            await becomes_true(page, heard)
            async with asyncio.timeout(PATIENCE):
                while not any("conversation.item.truncate" in frame for frame in sent):
                    await page.wait_for_timeout(100)
            await becomes_true(page, "() => document.querySelectorAll('#words p').length >= 3")
            await page.click("#talk")
            assert await page.inner_text("#talk") == "Talk to us"
            assert errors == []

    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    monkeypatch.setenv("REJOINDER_ALLOWED_ORIGINS", origin)
    with serving(tmp_path, llm=THREE_LINES) as server:
        with running("browser_embed.py", server.http, str(port), port=port, REJOINDER_KEY=KEY):
            browse(visit())
        server.wait_idle()


@pytest.mark.weights
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_browser_chat(tmp_path: Path) -> None:
    """The page reads an answer in pieces, and sends the conversation with the next question."""
    speech.need(*(getattr(Specs(), role) for role in ROLES))
    port = unused_port()
    asked: list[dict[str, Any]] = []

    async def visit() -> None:
        async with browsing(tmp_path, [silence(1.0)]) as (page, errors):
            page.on("request", lambda request: request.post_data and asked.append(request.post_data_json))
            await page.goto(f"http://127.0.0.1:{port}")
            for number, question in enumerate(("Where can I park my car?", "How much is breakfast?"), 1):
                await page.fill("#question", question)
                await page.click("button")
                lines = f"document.querySelectorAll('#words p').length === {2 * number}"
                await becomes_true(page, f"() => {lines} && !document.querySelector('form').inert")
            assert errors == [] and await page.inner_text("#state") == ""
            assert len((await page.inner_text("#words p:last-child")).split()) > 2

    with running("browser_chat.py", str(port), port=port):
        browse(visit())
    first, second = (one["messages"] for one in asked)
    assert len(first) == 1 and [one["role"] for one in second] == ["user", "assistant", "user"]
    assert len(second[1]["content"]) > 2


def local_mic() -> Any:
    spec = importlib.util.spec_from_file_location("local_mic", EXAMPLES / "local_mic.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_local_mic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The headset is unplugged once the answer is over."""
    headset = FakeSounddevice()
    monkeypatch.setattr(devices, "import_module", lambda name: headset)
    with serving(tmp_path, llm=THREE_LINES) as server:
        with pytest.raises(NoDevice, match="Headset has stopped recording"):
            asyncio.run(local_mic().main(server.http))
        server.wait_idle()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "you:   what is the weather" and said[1].startswith("agent: This is a sentence")
    assert np.abs(np.frombuffer(headset.heard, "<i2")).max() > 1000


def test_local_mic_without_a_device_says_what_to_do(tmp_path: Path) -> None:
    with suppress(NoDevice):
        devices.choose_device("input", None)
        pytest.skip("this machine has a sound device")
    done = run("local_mic.py")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "sound device" in done.stderr or "PortAudio" in done.stderr or "sounddevice" in done.stderr


@pytest.mark.parametrize("name", ["test_my_agent.py", "test_restaurant.py", "test_hotel.py"])
def test_tests_of_agents(name: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(EXAMPLES / name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stdout


@pytest.mark.weights
def test_mount() -> None:
    speech.need(*(getattr(Specs(), role) for role in ROLES))
    port = unused_port()

    async def greeting() -> str:
        async with connect(f"ws://127.0.0.1:{port}/voice/v1/realtime") as call, asyncio.timeout(PATIENCE):
            async for event in call:
                if isinstance(event, AgentSaid):
                    return event.text
        return ""

    with running("mount.py", str(port), port=port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as page:
            assert page.read().startswith(b"Mario's own page.")
        assert asyncio.run(greeting()) == "Mario's, how can I help?"
