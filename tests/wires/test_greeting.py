"""The greeting: spoken word for word at the start of a call, without the language model, on every wire."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console
from support import speech
from support.browsing import CHROMIUM, browsing, silence
from support.browsing import run as browse
from support.callers.asterisk import calling as asterisk
from support.callers.carriers import TwilioSim
from support.callers.phone import calling, served
from support.ports import unused_port
from support.published import conforms
from support.resuming import back, conversation, words
from support.serving import PATIENCE, SCRIPTED, Server, Talk, run_command, serving
from support.sound_card import FakeSounddevice
from websockets.sync.client import connect

from rejoinder.agent.cli.talk import run
from rejoinder.agent.client import devices
from rejoinder.agent.config import load
from rejoinder.agent.server.own_server import own_server
from rejoinder.agent.simulate.scenario import Talk as Scenario
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import AudioChunk, ReplyDone, ReplyRequest, ReplyStarted, ReplyText
from rejoinder.pipeline.history import GREETED
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter

GREETING = "Good morning, this is Ada. How can I help?"
SPLITTER = ClauseSplitter()
SECONDS = sum(map(len, [*SPLITTER.feed(GREETING), SPLITTER.flush()])) * SECONDS_PER_CHARACTER


# --- in the pipeline ----------------------------------------------------------------------------------------


def test_it_is_the_first_reply_and_no_model_is_asked() -> None:
    talk = Scenario(greeting=GREETING)
    talk.run(until=6.0)
    assert talk.llm.prompts == []
    assert talk.done() == [(1, "completed", GREETING)]
    assert talk.said() == [("assistant", GREETING)]
    (done,) = [event for _, event in talk.log if isinstance(event, ReplyDone)]
    assert done.usage is None, "it has cost nothing"


def test_no_greeting_without_the_setting() -> None:
    for greeting in ("", "  "):
        talk = Scenario(greeting=greeting)
        talk.run(until=3.0)
        assert talk.log == []


def test_answer_builds_on_it() -> None:
    talk = Scenario("hello", replies=("Sunny.",), greeting=GREETING)
    talk.says(0.6, at=SECONDS + 1.0)
    talk.run(until=SECONDS + 5.0)
    assert [message["content"] for message in talk.llm.prompts[-1]] == [GREETED.format(GREETING), "hello"]
    assert talk.said() == [("assistant", GREETING), ("user", "hello"), ("assistant", "Sunny.")]


def test_it_can_be_interrupted_and_the_history_has_what_was_heard() -> None:
    talk = Scenario("what is the weather", replies=("Sunny.",), greeting=GREETING)
    talk.says(1.2, at=1.5)
    talk.run(until=6.0)
    first, *_ = talk.said()
    assert first[0] == "assistant" and first[1].endswith("—") and GREETING.startswith(first[1][:-1])
    assert [status for _, status, _ in talk.done()] == ["cancelled", "completed"]
    assert talk.session.floor._patience.extra == 0.0, "nobody was cut off by it"


def test_greeting_in_a_text_session_is_text() -> None:
    talk = Scenario(greeting=GREETING, speaks=False)
    talk.run(until=2.0)
    assert "".join(event.text for _, event in talk.log if isinstance(event, ReplyText)) == GREETING
    assert talk.said() == [("assistant", GREETING)]


def test_integrator_lets_it_say_anything_at_any_time() -> None:
    talk = Scenario("one")
    talk.does(lambda session: session.respond(ReplyRequest(words="One moment, please.", tag=7)), at=1.0)
    talk.run(until=4.0)
    assert talk.llm.prompts == [] and talk.done() == [(1, "completed", "One moment, please.")]
    assert [event.tag for _, event in talk.log if isinstance(event, ReplyStarted)] == [7]


# --- on the wires -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("greeting"), greeting=GREETING) as server:
        yield server


def test_realtime_it_is_an_ordinary_response_after_the_session(server: Server) -> None:
    with Talk(server) as talk:
        done = talk.until("response.done")["response"]
        assert [event["type"] for event in talk.seen[:3]] == [
            "session.created",
            "conversation.created",
            "response.created",
        ]
        conforms(talk.seen)
        assert done["status"] == "completed" and words(talk.seen) == GREETING
        assert done["output"][0]["content"][0]["transcript"] == GREETING
        assert talk.turn()["status"] == "completed", "and the conversation goes on"


def test_realtime_speech_interrupts_it(server: Server) -> None:
    with Talk(server) as talk:
        item = talk.until("response.output_audio.delta")["item_id"]
        talk.speak(seconds=1.5)
        assert talk.until("response.done")["response"]["status"] == "cancelled"
        talk.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=0)
        assert talk.until("response.done")["response"]["status"] == "completed"


def test_realtime_resumed_client_is_not_greeted_again(server: Server) -> None:
    with Talk(server) as before:
        conversation(before)
        before.until("response.done")
        before.cut()
    with back(server, before) as after:
        after.until("rejoinder.resumed")
        after.turn()
        said = words(after.seen)
        assert said and GREETING not in said


def test_realtime_a_conversation_that_is_gone_is_a_new_one_and_greeted(server: Server) -> None:
    with Talk(server, query="&conversation_id=conv_lost") as talk:
        talk.until("response.done")
        assert words(talk.seen) == GREETING


def greeted(server: Server) -> tuple[list[dict[str, Any]], bytes]:
    """Return a device's messages until the end of the first reply, and its audio."""
    with connect(f"ws://127.0.0.1:{server.port}/v1/pcm", proxy=None) as socket:
        told: list[dict[str, Any]] = []
        audio = b""
        while not told or told[-1]["type"] != "reply_ended":
            frame = socket.recv(timeout=PATIENCE)
            if isinstance(frame, bytes):
                audio += frame
            else:
                told.append(json.loads(frame))
        return told, audio


def test_pcm(server: Server) -> None:
    told, audio = greeted(server)
    assert [one["type"] for one in told[:2]] == ["ready", "reply_started"]
    assert (told[-1]["status"], told[-1]["heard"]) == ("completed", GREETING)
    assert len(audio) / 32_000 == pytest.approx(SECONDS, abs=0.01)


class Asking(TwilioSim):
    parameters: ClassVar = {"greet": "true"}


class Declining(TwilioSim):
    parameters: ClassVar = {"greet": "false"}


@pytest.mark.parametrize("carrier", [TwilioSim, Asking])
def test_phone(carrier: type[TwilioSim]) -> None:
    """Also where the carrier asks for a greeting, which without ours would be the language model's."""

    async def hold() -> None:
        async with served(greeting=GREETING) as (program, url), calling(url, carrier()) as caller:
            await caller.until(lambda: caller.seconds_heard >= SECONDS - 0.02)
            assert len(program.models.llm.prompts) == 1, "that of the warm-up"  # type: ignore[union-attr]

    asyncio.run(hold())


def test_phone_a_call_can_do_without() -> None:
    async def hold() -> None:
        async with served(greeting=GREETING) as (program, url), calling(url, Declining()) as caller:
            await caller.socket.send(caller.sim.digit("#"))
            await caller.socket.send(caller.sim.digit("7"))
            await caller.until(lambda: len(program.models.llm.prompts) > 1)  # type: ignore[union-attr]
            prompt = program.models.llm.prompts[-1]  # type: ignore[union-attr]
            assert "assistant" not in {message["role"] for message in prompt[-2:]}

    asyncio.run(hold())


def test_audiosocket() -> None:
    async def hold() -> None:
        port = unused_port()
        async with served(greeting=GREETING, audiosocket_port=port), asterisk(port) as caller:
            await caller.until(lambda: caller.seconds_heard >= SECONDS - 0.02)

    asyncio.run(hold())


def test_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that it starts greets, too: other callers of such a server speak first."""
    headset = FakeSounddevice()
    headset._recorded = 50  # it says nothing
    monkeypatch.setattr(devices, "import_module", lambda name: headset)
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    monkeypatch.setenv("REJOINDER_GREETING", GREETING)
    console = Console(file=io.StringIO(), width=200)
    failure = run(SCRIPTED, load(SCRIPTED)[0], "Headset", None, console)
    assert failure == "Headset has stopped recording"
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"agent  {GREETING}" in told and "\nyou " not in told


def test_recorded_question_is_no_call(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "question.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(speech.chunk(speech.noise(0.6, 0.2)).pcm + bytes(32_000))
    models = [word for name, spec in SCRIPTED.items() for word in (f"--{name}", spec)]
    environment = {"REJOINDER_VAD": "scripted:vad", "REJOINDER_GREETING": GREETING}
    result = run_command("ask", "question.wav", *models, folder=tmp_path, **environment)
    assert result.returncode == 0 and "weather" in result.stdout, result.stderr
    assert "Ada" not in result.stdout


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")

    async def act() -> None:
        flags = {**SCRIPTED, "greeting": GREETING}
        async with own_server(flags) as url, browsing(tmp_path, [silence(30)]) as (page, errors):
            await page.goto(url.replace("ws://", "http://").partition("v1/")[0])
            await page.click("#talk")
            await page.wait_for_selector(f".entry.agent:has-text('{GREETING}')")
            await page.wait_for_selector("#state[data-state=listening]")
            assert await page.locator(".entry.user").count() == 0
            assert errors == []

    browse(act())


@pytest.mark.weights
def test_real_voice_says_it(tmp_path: Path) -> None:
    stt = speech.model("whisper:tiny.en")
    speech.need("piper:en_US-joe-medium")
    with serving(tmp_path, tts="piper:en_US-joe-medium", greeting=GREETING) as server:
        told, pcm = greeted(server)
    stream = stt.stream()
    stream.feed(AudioChunk(pcm, 16_000))
    heard = asyncio.run(stream.transcribe(is_final=True)).text
    stt.close()
    assert told[-1]["heard"] == GREETING
    assert speech.word_error_rate([GREETING], [heard]) <= 0.2, heard
