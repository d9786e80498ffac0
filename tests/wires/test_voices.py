"""The names of a server's voice: its own, "default" and OpenAI's. Other names are refused with that list."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal, get_args

import pytest
from openai.types.realtime.realtime_audio_config_output import RealtimeAudioConfigOutput
from support.callers.home_assistant import asked, home
from wyoming.tts import Synthesize, SynthesizeStart, SynthesizeVoice

from rejoinder.agent.wires.commands import Respond
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.voices import OPENAI
from rejoinder.pipeline import Options, ProtocolError

UNKNOWN = "../../etc/passwd"


def say(wire: Realtime, type_: str, **fields: Any) -> list[Any]:
    return list(wire.receive(json.dumps({"type": type_, **fields})))


def wire() -> Realtime:
    return Realtime(Options(), voice="hibari")


def output(voice: object) -> dict[str, Any]:
    return {"audio": {"output": {"voice": voice}}}


def literals(hint: Any) -> set[str]:
    """Return the words that a type allows."""
    if getattr(hint, "__origin__", None) is Literal:
        return set(get_args(hint))
    return {word for one in get_args(hint) for word in literals(one)}


def test_aliases_are_those_that_openai_publishes() -> None:
    assert set(OPENAI) == literals(RealtimeAudioConfigOutput.model_fields["voice"].annotation)


@pytest.mark.parametrize("voice", ["default", "hibari", "alloy", "marin", {"id": "cedar"}])
def test_session_and_a_response_may_name_the_voice(voice: object) -> None:
    one = wire()
    updated = say(one, "session.update", session=output(voice))[-1]
    assert updated["type"] == "session.updated" and updated["session"]["audio"]["output"]["voice"] == voice
    assert isinstance(say(one, "response.create", response=output(voice))[-1], Respond)


@pytest.mark.parametrize("voice", [UNKNOWN, "nova", "", {"id": UNKNOWN}])
def test_unknown_voice_is_refused_and_the_error_lists_the_voices(voice: object) -> None:
    one = wire()
    for type_, where in (("session.update", "session"), ("response.create", "response")):
        (refused,) = say(one, type_, **{where: output(voice)})
        error = refused["error"]
        assert error["code"] == "invalid_value" and error["param"] == f"{where}.audio.output.voice"
        assert "default, hibari, alloy, ash" in error["message"] and "cedar" in error["message"]
    with pytest.raises(ProtocolError, match="there is no voice"):
        one.prepare(output(voice))  # what a client secret is asked for with
    assert one.greet()[0]["session"]["audio"]["output"]["voice"] == "default", "nothing has changed"


def test_wyoming_client_may_name_the_voice() -> None:
    async def ask() -> None:
        async with home() as (_, port):
            for name in ("scripted", "default", "alloy", None):
                voice = SynthesizeVoice(name=name)
                events = await asked(port, Synthesize("hello", voice=voice).event(), last="audio-stop")
                assert events[-1].type == "audio-stop", name
            voice = SynthesizeVoice(name=UNKNOWN)
            for request in (Synthesize("hello", voice=voice), SynthesizeStart(voice=voice)):
                (refused,) = await asked(port, request.event(), last="audio-stop")
                assert refused.type == "error" and refused.data["code"] == "unsupported-voice"
                assert "default, scripted, alloy" in refused.data["text"]

    asyncio.run(ask())
