"""A model that does not fit its interface is refused at once, by an error that says what to change."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import rejoinder.pipeline
from rejoinder.agent.simulate import models as simulated_models
from rejoinder.agent.simulate.caller import Caller
from rejoinder.models import scripted
from rejoinder.models.registry import MODULES
from rejoinder.pipeline import ModelError, Models, open_session
from rejoinder.pipeline.fitting import PARTS, check_fits

MESSAGES = "self, messages: Sequence[Message]"
REPLY = f"async def reply({MESSAGES}) -> AsyncGenerator[str, None], with yield"
WARM = f"async def warm({MESSAGES}) -> None"
SPEAK = "async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None], with yield"


class Good:
    """Fits every role; a test takes away or replaces one of its methods."""

    def stream(self) -> Good:
        return self

    def feed(self, chunk: Any) -> list[tuple[int, float]]:
        return []

    async def transcribe(self, is_final: bool) -> Any:
        return None

    def reset(self) -> None:
        pass

    async def probability(self, audio: Any, text: str) -> float:
        return 1.0

    async def reply(self, messages: Any) -> AsyncGenerator[str, None]:
        yield "Yes."

    async def warm(self, messages: Any) -> None:
        pass

    async def speak(self, text: str) -> AsyncGenerator[Any, None]:
        yield None


def changed(**methods: Any) -> object:
    """Return an object of a class Mine: ``Good`` with other methods; None takes one away."""
    return type("Mine", (), {**{k: v for k, v in vars(Good).items() if k[0] != "_"}, **methods})()


def plain(self: object, text: Any) -> str:
    return "Yes."


def unannotated(self, text):  # type: ignore[no-untyped-def]
    return text


def generator(self: object, text: str) -> Any:
    yield "Yes."


async def returns(self: object, text: Any) -> str:
    return "Yes."


async def yields(self: object, text: Any) -> AsyncGenerator[str, None]:
    yield "Yes."


async def takes_nothing(self: object) -> AsyncGenerator[str, None]:
    yield "Yes."


async def wants_more(self: object, text: str, voice: str) -> AsyncGenerator[str, None]:
    yield "Yes."


async def other_name(self: object, final: bool) -> None:
    pass


async def no_text(self: object, audio: Any) -> float:
    return 1.0


WRONG: list[tuple[str, str, Any, str, str]] = [
    ("llm", "reply", None, "it has no method reply", REPLY),
    ("llm", "reply", "Yes.", "reply is a str and not a method", REPLY),
    ("llm", "reply", plain, "reply is a plain function", REPLY),
    ("llm", "reply", unannotated, "reply is a plain function", REPLY),
    ("llm", "reply", generator, "reply is a generator without async", REPLY),
    ("llm", "reply", returns, "reply is an async function without yield", REPLY),
    ("llm", "reply", takes_nothing, "reply cannot be called so: too many positional arguments", REPLY),
    ("llm", "reply", wants_more, "reply cannot be called so: missing a required argument: 'voice'", REPLY),
    ("llm", "warm", None, "it has no method warm", WARM),
    ("llm", "warm", plain, "warm is a plain function", WARM),
    ("llm", "warm", yields, "warm is an async generator", WARM),
    ("llm", "answer", returns, "answer is an async function without yield", "async def answer(self, mess"),
    ("llm", "write", plain, "write is a plain function", "async def write(self, messages: Sequence[Mess"),
    ("llm", "count", returns, "count is an async function without yield", f"def count({MESSAGES}) -> int"),
    ("llm", "failed", lambda self: "", "failed is a method and not a property", "def failed(self) -> str"),
    ("tts", "speak", None, "it has no method speak", SPEAK),
    ("tts", "speak", plain, "speak is a plain function", SPEAK),
    ("tts", "speak", wants_more, "missing a required argument: 'voice'", SPEAK),
    ("turn", "probability", plain, "probability is a plain function", "async def probability(self, audio"),
    ("turn", "probability", no_text, "too many positional arguments", "async def probability(self, audio"),
    ("vad", "stream", None, "it has no method stream", "def stream(self) -> VadStream"),
    ("stt", "stream", returns, "stream is an async function", "def stream(self) -> SttStream"),
    ("vad stream", "feed", returns, "feed is an async function", "def feed(self, chunk: AudioChunk)"),
    ("vad stream", "feed_together", plain, "is a plain function", "async def feed_together(self, chunk: Aud"),
    ("stt stream", "feed", None, "it has no method feed", "def feed(self, chunk: AudioChunk) -> None"),
    ("stt stream", "reset", plain, "missing a required argument: 'text'", "def reset(self) -> None"),
    ("stt stream", "transcribe", other_name, "missing a required argument: 'final'", "async def transcribe"),
]


@pytest.mark.parametrize(("role", "method", "put", "reason", "expected"), WRONG)
def test_the_error_names_all_that_does_not_fit(
    role: str, method: str, put: object, reason: str, expected: str
) -> None:
    check_fits(role, Good())
    with pytest.raises(ModelError) as failed:
        check_fits(role, changed(**{method: put}))
    told = str(failed.value)
    assert "Mine" in told and f"{PARTS[role].name} ({role})" in told
    assert reason in told and expected in told
    assert "rejoinder/pipeline/interfaces.py" in told


def test_an_adapter_is_named_where_it_has_a_name() -> None:
    with pytest.raises(ModelError) as failed:
        check_fits("tts", object(), "toy")
    assert failed.value.adapter == "toy"
    assert str(failed.value) == (
        "toy: object does not fit as the voice (tts): it has no method speak; needed: "
        f"{SPEAK}; see Tts in rejoinder/pipeline/interfaces.py"
    )


def test_the_error_names_a_class_given_instead_of_an_instance() -> None:
    with pytest.raises(
        ModelError, match=r"test_fitting\.Good .*: it is the class: give an instance of it, Good\(\)"
    ):
        check_fits("llm", Good)


class Delegates:
    """Plain functions fit where their annotations say that they return the right thing."""

    def reply(self, messages: Any) -> AsyncIterator[str]:
        return Good().reply(messages)

    def warm(self, messages: Any) -> Awaitable[None]:
        return Good().warm(messages)

    def speak(self, words: str) -> Anything:
        return Good().speak(words)


Anything = Any


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Proxy:
    """Stands before another object, as tracing does."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Callables:
    """Its method is an object that can be called."""

    class Warm:
        async def __call__(self, messages: Any) -> None:
            pass

    warm = Warm()
    reply = staticmethod(functools.partial(Good.reply, None))


@pytest.mark.parametrize(
    ("role", "thing"),
    [
        ("llm", Delegates()),
        ("tts", Delegates()),
        ("llm", changed(reply=logged(yields), warm=logged(returns))),
        ("llm", Proxy(Good())),
        ("llm", Callables()),
        ("llm", changed(failed=property(lambda self: ""))),
    ],
)
def test_other_ways_to_write_it_fit(role: str, thing: object) -> None:
    check_fits(role, thing)


def test_models_refuses_what_does_not_fit() -> None:
    good = Good()
    Models(good, good, good, good)
    Models(good, good, good, good, good)
    for number, role in enumerate(("vad", "stt", "llm", "tts", "turn")):
        given: list[Any] = [good] * 5
        given[number] = object()
        with pytest.raises(ModelError, match=rf"\({role}\)"):
            Models(*given)


def test_a_simulated_caller_refuses_an_agent_that_does_not_fit() -> None:
    with pytest.raises(ModelError, match=r"Mine does not fit as the language model \(llm\): .*warm"):
        Caller(changed(warm=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ["vad", "stt"])
def test_a_stream_that_does_not_fit_ends_the_session_before_it_hears(role: str) -> None:
    given: dict[str, Any] = dict.fromkeys(("vad", "stt", "llm", "tts"), Good())
    given[role] = changed(stream=lambda self: object())

    async def hold() -> None:
        async with open_session(Models(**given)) as session:
            async for _ in session.events:
                raise AssertionError("it heard something")

    with pytest.raises(ModelError, match=rf"object does not fit as .* \({role} stream\): it has no method"):
        asyncio.run(hold())


SCRIPTED = {
    "vad": scripted.ScriptedVad(),
    "turn": scripted.ScriptedTurnModel(),
    "stt": scripted.ScriptedStt(["hi"]),
    "llm": scripted.ScriptedLlm(),
    "tts": scripted.ScriptedTts(),
}


@pytest.mark.parametrize("role", SCRIPTED)
def test_scripted_models_fit(role: str) -> None:
    model: Any = SCRIPTED[role]
    check_fits(role, model)
    if f"{role} stream" in PARTS:
        check_fits(f"{role} stream", model.stream())


def test_simulated_models_fit() -> None:
    stt = simulated_models.CallersStt(simulated_models.Spoken())
    check_fits("stt", stt)
    check_fits("stt stream", stt.stream())
    check_fits("turn", simulated_models.CallersTurnModel(lambda: True))
    check_fits("llm", simulated_models.WatchedLlm(SCRIPTED["llm"]))  # type: ignore[arg-type]


def adapters() -> list[tuple[str, type]]:
    from rejoinder.models.llm import llama_cpp, openai
    from rejoinder.models.llm.ort import adapter as ort
    from rejoinder.models.llm.vllm import adapter as vllm
    from rejoinder.models.llm.vllm.tools import ToolVllm
    from rejoinder.models.ray.recogniser import RayStt, RaySttStream
    from rejoinder.models.ray.turn_model import RayTurnModel
    from rejoinder.models.ray.voice import RayVoice
    from rejoinder.models.stt import whisper
    from rejoinder.models.tts import hibari, piper
    from rejoinder.models.turn import smart_turn
    from rejoinder.models.vad import silero

    assert hibari and piper  # their voices are of one class
    from rejoinder.models.tts.voice import Voice

    return [
        ("vad", silero.Silero),
        ("vad stream", silero.SileroStream),
        ("turn", smart_turn.SmartTurn),
        ("stt", whisper.Whisper),
        ("stt stream", whisper.WhisperStream),
        ("llm", llama_cpp.LlamaCpp),
        ("llm", ort.OrtLlm),
        ("llm", openai.OpenAiChat),
        ("llm", vllm.Vllm),
        ("llm", ToolVllm),
        ("tts", Voice),
        ("stt", RayStt),
        ("stt stream", RaySttStream),
        ("turn", RayTurnModel),
        ("tts", RayVoice),
    ]


@pytest.mark.parametrize(("role", "adapter"), adapters())
def test_adapters_of_ours_fit(role: str, adapter: type) -> None:
    """Without their weights: an object that was not initialised has all methods."""
    check_fits(role, adapter.__new__(adapter))


def test_every_built_in_adapter_was_looked_at() -> None:
    modules = {part.replace("_", "-") for _, adapter in adapters() for part in adapter.__module__.split(".")}
    named = {name.replace("llama", "llama-cpp") for name in MODULES} - {"scripted", "piper", "hibari"}
    assert named <= modules


def test_the_file_that_the_error_names_is_there() -> None:
    assert (Path(rejoinder.pipeline.__path__[0]) / "interfaces.py").is_file()
