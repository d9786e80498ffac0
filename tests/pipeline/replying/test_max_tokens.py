"""How much a reply may say, and what it has cost: in virtual time, on the wire, and with a real model."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support import speech
from support.published import conforms
from support.serving import LINE, THREE_LINES, Talk, serving

from rejoinder.agent.simulate import scenario
from rejoinder.agent.wires.commands import Configure, Respond
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.models.scripted import ScriptedTts
from rejoinder.pipeline import (
    AudioChunk,
    Channel,
    Entry,
    Event,
    Message,
    ModelError,
    Models,
    Options,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    TokenLlm,
    Usage,
)
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.reply import Reply, ReplySettings
from rejoinder.pipeline.replying.running import attempt
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS, TOKEN_CHARACTERS

MAX = MAX_TOKENS * TOKEN_CHARACTERS
STORY = "This is one sentence of a story. And this is another one."


def call(reply: str = STORY, **options: Any) -> scenario.Talk:
    talk = scenario.Talk("what is the weather", replies=(reply,), **options)
    talk.says(1.2, at=0.5)
    return talk


@pytest.mark.parametrize("speaks", [True, False])
def test_a_reply_ends_where_it_may_have_no_more(speaks: bool) -> None:
    talk = call(max_tokens=3, speaks=speaks).run(until=6.0)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard) == ("incomplete", "This is one")
    assert done.usage == Usage(read=4, written=3), "four words were asked"
    assert talk.said() == [("user", "what is the weather"), ("assistant", "This is one")]


def test_a_reply_that_fits_is_whole() -> None:
    for most in (0, 12, 13):
        (done,) = call(max_tokens=most).run(until=8.0).of(ReplyDone)
        assert (done.status, done.heard, done.usage) == ("completed", STORY, Usage(4, 12))


def words(count: int) -> str:
    return " ".join(f"w{number}." for number in range(count))


@pytest.mark.parametrize("most", [0, 4096])
def test_no_reply_has_more_than_a_spoken_one_may_have(most: int) -> None:
    """The limit holds even if the model ignores it."""
    talk = call(words(10_000), speaks=False, max_tokens=most, max_reply_s=0.0).run(until=20.0)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard, done.usage) == ("incomplete", words(MAX_TOKENS), Usage(4, MAX_TOKENS))


class Pieces:
    """Answers in pieces of any size, and says when it was stopped."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.open = 0
        self.left = -1

    async def reply(self, messages: Any) -> Any:
        self.open, self.left = self.open + 1, len(self.pieces)
        try:
            for piece in self.pieces:
                self.left -= 1
                yield piece
                await asyncio.sleep(0.001)
        finally:
            self.open -= 1

    async def warm(self, messages: Any) -> None:
        return


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_a_model_that_sends_more_than_a_token_at_once_is_held_to_as_many_characters(size: int) -> None:
    text = words(100_000)
    llm = Pieces(*(text[begin : begin + size] for begin in range(0, len(text), size)))
    talk = scenario.Talk(llm=llm, speaks=False)
    (done,) = talk_once(talk).of(ReplyDone)
    assert done.status == "incomplete" and llm.left == len(llm.pieces) - -(-MAX // size)
    assert MAX - 8 < len(done.heard) <= MAX and text.startswith(f"{done.heard} "), "whole words"


def talk_once(talk: scenario.Talk, until: float = 8.0) -> scenario.Talk:
    talk.says(1.2, at=0.5)
    return talk.run(until=until)


SENTENCES = " ".join(f"This is the sentence number {number} of many." for number in range(100, 300))


def test_a_reply_ends_with_its_clause_after_max_reply_s() -> None:
    llm = Pieces(*(f"{word} " for word in SENTENCES.split()))
    talk = talk_once(scenario.Talk(llm=llm, max_reply_s=6.0), until=15.0)
    (done,) = talk.of(ReplyDone)
    seconds = sum(event.chunk.seconds for event in talk.of(ReplyAudio))
    assert done.status == "incomplete" and SENTENCES.startswith(done.heard) and done.heard[-1] == "."
    assert 6.0 <= seconds < 6.0 + 45 * 0.06, "the clause that is spoken then is the last one"
    assert llm.left > 800, "the model was stopped"
    assert talk.said()[-1] == ("assistant", done.heard)


def test_a_reply_that_is_over_in_time_is_whole() -> None:
    """Though its last clause is spoken beyond the limit: nothing was left out."""
    for seconds in (0.0, 1.0, 60.0):
        (done,) = call("It is so. This is the end.", max_reply_s=seconds).run(until=8.0).of(ReplyDone)
        assert (done.status, done.heard) == ("completed", "It is so. This is the end.")


def test_one_response_may_have_another_limit_than_its_session() -> None:
    talk = scenario.Talk(replies=(STORY,), max_tokens=2, speaks=False)
    asked: tuple[tuple[float, ReplyRequest], ...] = (
        (0.2, ReplyRequest(max_tokens=4)),
        (1.2, ReplyRequest(max_tokens=0)),
        (2.2, ReplyRequest()),
        (3.2, ReplyRequest(prompt=[Entry("user", "and now?")], remembered=False, max_tokens=1)),
    )
    for at, one in asked:
        talk.does(lambda session, one=one: session.respond(one), at=at)  # type: ignore[misc]
    talk.run(until=5.0)
    done = talk.of(ReplyDone)
    assert [(one.status, one.usage.written) for one in done] == [
        ("incomplete", 4),
        ("completed", 12),
        ("incomplete", 2),
        ("incomplete", 1),
    ]
    assert done[-1].usage == Usage(2, 1) and done[-1].heard == "This"


def test_guesses_that_were_dropped_are_not_in_the_bill() -> None:
    talk = scenario.Talk("so there", replies=(STORY,), max_tokens=5)
    talk.says(0.6, at=0.5)
    talk.says(0.6, at=1.4)
    talk.run(until=7.0)
    assert len(talk.llm.prompts) > 1, "a guess was dropped"
    (done,) = talk.of(ReplyDone)
    assert done.usage == Usage(2, 5)


def test_an_interrupted_reply_costs_what_its_model_has_said() -> None:
    talk = call(LINE * 40).run(until=0.0)
    talk = call(LINE * 40)
    talk.says(1.5, at=4.0)
    talk.run(until=6.0)
    cut = talk.of(ReplyDone)[0]
    assert cut.status == "cancelled" and cut.usage.read == 4
    assert len(cut.heard.split()) < cut.usage.written < len((LINE * 40).split())


def test_a_model_that_does_not_count_has_no_usage() -> None:
    class Mute:
        async def reply(self, messages: Any) -> Any:
            yield "Yes."

        async def warm(self, messages: Any) -> None:
            return

    class TooLong(Mute):
        def count(self, messages: Any) -> int:
            raise ModelError("test", "a prompt that is too long")

    generation = Generation([Message(role="user", content="hm")])
    assert generation.usage(TooLong()) is None, "it has not begun"
    generation.begin()
    assert generation.usage(Mute()) is None and generation.usage(TooLong()) is None


@pytest.mark.parametrize("letters", [100, 100_000])
def test_long_prompts_are_counted_beside_the_loop(letters: int) -> None:
    counting: list[bool] = []

    class Counting(scenario.ScriptedLlm):
        def count(self, messages: Any) -> int:
            counting.append(threading.current_thread() is threading.main_thread())
            return 7

    async def reply() -> Usage | None:
        llm = Counting(["Yes."])
        generation = Generation([Message(role="user", content="a" * letters)])
        reply = Reply(1, "hm", generation=generation)
        reply.commit()
        models = Models(scenario.ScriptedVad(), scenario.ScriptedStt(["hm"]), llm, ScriptedTts())
        assert await attempt(reply, models, Channel(500, "out")) is None
        assert generation.usage(llm) == generation.usage(llm)
        return generation.usage(llm)

    assert asyncio.run(reply()) == Usage(7, 1)
    assert counting == [letters == 100], "once, and where it does not hold the loop up"


# --- the protocol ---------------------------------------------------------------------------------------


def said(wire: Realtime, type_: str, **fields: Any) -> list[Any]:
    answers = list(wire.receive(json.dumps({"type": type_, **fields})))
    conforms(answers)
    return answers


def test_the_limit_of_the_session_and_of_a_response() -> None:
    wire = Realtime(Options())
    configure, updated = said(wire, "session.update", session={"max_output_tokens": 7})
    assert isinstance(configure, Configure) and configure.options.max_tokens == 7
    assert updated["session"]["max_output_tokens"] == 7
    configure, _ = said(wire, "session.update", session={"max_output_tokens": "inf"})
    assert configure.options.max_tokens == 0
    for given, most in ((3, 3), ("inf", 0), (None, None)):
        response = {"conversation": "none", "max_output_tokens": given}
        (respond,) = said(wire, "response.create", response=response)
        assert isinstance(respond, Respond) and respond.request.max_tokens == most


@pytest.mark.parametrize("wrong", [0, -1, 4097, 1.5, "many", [7]])
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    for type_, given in (("session.update", "session"), ("response.create", "response")):
        (error,) = said(Realtime(Options()), type_, **{given: {"max_output_tokens": wrong}})
        assert error["error"]["param"] == f"{given}.max_output_tokens", error
        assert error["error"]["code"] == "invalid_value"


def test_what_is_incomplete_is_said_to_be_and_its_audio_is_whole() -> None:
    wire = Realtime(Options())
    wire.handle(ReplyStarted(1))
    wire.handle(ReplyText(1, "This is one"))
    for _ in range(25):
        wire.handle(ReplyAudio(1, AudioChunk(bytes(2 * 882), 22_050)))
    events = wire.handle(ReplyDone(1, "incomplete", "This is one", usage=Usage(40, 3)))
    conforms(events)
    assert events[0]["type"] == "response.output_audio.delta", "what the resampler held is sent"
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
    (item,) = response["output"]
    assert item["status"] == "incomplete" and item["content"][0]["transcript"] == "This is one"
    (kept,) = said(wire, "conversation.item.retrieve", item_id=item["id"])
    assert kept["item"]["status"] == "incomplete"
    assert response["usage"] == {
        "total_tokens": 43,
        "input_tokens": 40,
        "output_tokens": 3,
        "input_token_details": {"text_tokens": 40, "audio_tokens": 0, "cached_tokens": 0},
        "output_token_details": {"text_tokens": 3, "audio_tokens": 0},
    }


@pytest.mark.server
def test_a_client_gets_no_more_than_it_has_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, llm=THREE_LINES) as server, Talk(server) as talk:
        talk.send("session.update", session={"max_output_tokens": 2})
        short = talk.turn()
        assert short["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
        assert short["output"][0]["content"][0]["transcript"] == "This is"
        assert short["usage"]["output_tokens"] == 2
        talk.send("response.create", response={"max_output_tokens": "inf", "output_modalities": ["text"]})
        whole = talk.until("response.done")["response"]
        assert whole["status"] == "completed" and whole["usage"]["output_tokens"] == len(LINE.split()) * 3
        conforms(talk.seen)


# --- a real model ---------------------------------------------------------------------------------------


@pytest.mark.weights
def test_the_embedded_model_counts_what_it_reads_and_writes() -> None:
    model = speech.model("ort:")
    assert isinstance(model, TokenLlm)
    prompt = [Message(role="user", content="How many days are there in a week?")]
    more = [*prompt, Message(role="assistant", content="Seven."), Message(role="user", content="Thanks.")]
    assert 8 < model.count(prompt) < model.count(more) < model.count(prompt) + 40

    async def hold() -> tuple[Reply, int]:
        out: Channel[Event] = Channel(500, "out")
        reply = Reply(1, settings=ReplySettings(speaks=False), generation=Generation(prompt, max_tokens=3))
        reply.commit()
        models = Models(scenario.ScriptedVad(), scenario.ScriptedStt(["hm"]), model, ScriptedTts())
        reply.outcome.end(await attempt(reply, models, out))
        read = max(len(slot.cached) for slot in model._cache_slots)
        return reply, read

    try:
        reply, read = asyncio.run(hold())
    finally:
        asyncio.run(model.aclose())
    assert reply.outcome.status == "incomplete" and reply.generation.tokens == 3
    cost = reply.generation.usage(model)
    assert cost is not None and cost.written == 3
    assert cost.read <= read <= cost.read + 3 + 8, "the prompt, and the tokens behind it"
    assert len(model._tokenizer.encode(reply.output.heard(0.0)).ids) == 3
