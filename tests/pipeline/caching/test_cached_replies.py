"""Conversations with a cache of answers, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk, sleep_until
from rejoinder.models.caching.cache import CACHE_RETRY_S, LOOKUP_S, SemanticCache
from rejoinder.models.caching.store import Stats
from rejoinder.models.guard.guardrails import guardrails
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import (
    AudioChunk,
    EndOfTurn,
    Guard,
    Options,
    ReplyAudio,
    ReplyText,
    Tools,
    TurnTraced,
)
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion
from rejoinder.pipeline.engines.load_shedding import LoadShedder

CAPITAL = "What is the capital of France?"
SPECS = {"stt": "whisper:tiny.en", "llm": "ort:a", "tts": "piper:b"}
ANSWER = ("It is Paris. ", "Paris lies on the Seine.")


@dataclass
class Shelf:
    """A store in memory. delay: seconds that a lookup takes. fails: whether it is away. times: of lookups."""

    entries: dict[str, bytes] = field(default_factory=dict)
    delay: float = 0.0
    fails: bool = False
    times: list[float] = field(default_factory=list)

    async def get(self, key: str) -> bytes | None:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.delay)
        if self.fails:
            raise ConnectionRefusedError("no server")
        return self.entries.get(key)

    @property
    def asked(self) -> int:
        return len(self.times)

    async def put(self, key: str, body: bytes) -> None:
        self.entries[key] = body

    async def stats(self) -> Stats:
        return Stats(len(self.entries), 0)

    async def purge(self) -> int:
        self.entries.clear()
        return 0

    async def aclose(self) -> None:
        pass


def call(shelf: Shelf, *lines: str, tenant: str = "one", until: float = 12.0, **more: Any) -> Talk:
    """Hold one call, whose caller says the lines."""
    cache = SemanticCache(shelf, "meaning")
    more = {"replies": ANSWER, "specs": SPECS, **more}
    talk = Talk(*lines, cache=cache.of(tenant), **more)
    for place in range(len(lines)):
        talk.says(1.0, at=0.5 + 6.0 * place)

    async def held() -> None:
        async with cache.running():
            await talk.hold(lambda: sleep_until(until))

    virtual_clock.run(held())
    talk.check()
    return talk


def counts(talk: Talk, place: int = -1) -> dict[str, float]:
    return dict(talk.of(TurnTraced)[place].trace.counts)


def audio(talk: Talk) -> bytes:
    return b"".join(event.chunk.pcm for event in talk.of(ReplyAudio))


def test_a_hit_says_the_same_without_the_models() -> None:
    shelf = Shelf()
    first = call(shelf, CAPITAL)
    again = call(shelf, "what's the capital of France", replies=("Wrong.",))
    assert counts(first)["cache_miss"] == 1
    assert counts(again)["cache_similar"] == 1
    assert not again.llm.prompts
    assert audio(again) == audio(first)
    assert [event.text for event in again.of(ReplyText)] == [event.text for event in first.of(ReplyText)]
    assert again.said() == [("user", "what's the capital of France"), *first.said()[1:]]


def test_the_same_words_are_an_exact_hit_and_nothing_is_heard_before_the_turn_is_over() -> None:
    shelf = Shelf()
    call(shelf, CAPITAL)
    again = call(shelf, CAPITAL)
    assert counts(again)["cache_exact"] == 1
    assert again.when(ReplyAudio)[0] == again.when(EndOfTurn)[0]
    assert shelf.times[-1] < again.when(EndOfTurn)[0], "it is asked while the user speaks"


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "two"},
        {"specs": {**SPECS, "llm": "ort:c"}},
        {"specs": {**SPECS, "tts": "hibari"}},
        {"specs": {**SPECS, "stt": "whisper:base@de"}},
        {"greeting": "Hello."},
        {"max_tokens": 5},
        {"examples": ({"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."})},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_an_answer_depends_on_is_part_of_its_key(other: dict[str, Any]) -> None:
    shelf = Shelf()
    call(shelf, CAPITAL)
    talk = call(shelf, CAPITAL, **other)
    assert counts(talk)["cache_miss"] == 1
    assert len(talk.llm.prompts) == 1
    assert len(shelf.entries) == 2


def test_other_instructions_have_other_answers() -> None:
    shelf = Shelf()
    call(shelf, CAPITAL)

    def pirate(session: Any) -> None:
        session.configure(Options(instructions="You are a pirate.", cache=session.options.cache))

    talk = Talk(CAPITAL, replies=ANSWER, specs=SPECS, cache=SemanticCache(shelf).of("one"))
    talk.says(1.0, at=0.5)
    talk.does(pirate, at=0.1)
    talk.run(until=8.0)
    assert counts(talk)["cache_miss"] == 1


@pytest.mark.parametrize("line", ["What time is it?", "Who won the game yesterday?"])
def test_an_answer_that_changes_with_time_is_not_kept(line: str) -> None:
    shelf = Shelf()
    call(shelf, line)
    assert not shelf.entries


def test_tools_and_knowledge_need_the_language_model() -> None:
    async def knowledge(words: str) -> str:
        return "The caller is Ada."

    function = {"type": "function", "function": {"name": "look", "parameters": {}}}
    with_tools = {"tools": Tools([function]), "llm": ScriptedLlm(ANSWER)}
    for more in ({"context": knowledge}, with_tools, {"specs": {}}):
        shelf = Shelf()
        talk = call(shelf, CAPITAL, **more)
        assert "cache_miss" not in counts(talk)
        assert (shelf.asked, shelf.entries) == (0, {})


def test_a_guard_is_part_of_the_key() -> None:
    """Answers that one guard let pass are not heard behind another one, nor any behind a function."""
    shelf = Shelf()
    bakery, strict = guardrails(block=["poison"]), guardrails(block=["poison", "paris"])
    assert counts(call(shelf, CAPITAL, guard=bakery))["cache_miss"] == 1
    assert counts(call(shelf, CAPITAL, guard=guardrails(block=["poison"])))["cache_exact"] == 1
    assert counts(call(shelf, CAPITAL))["cache_miss"] == 1, "without a guard"
    refused = call(shelf, CAPITAL, guard=strict)
    assert counts(refused)["cache_miss"] == counts(refused)["refused"] == 1
    assert counts(call(shelf, CAPITAL, guard=strict))["cache_miss"] == 1, "what was refused is not kept"
    asked = shelf.asked
    call(shelf, CAPITAL, guard=guardrails(judges=[friendly]))
    assert shelf.asked == asked, "a function may judge otherwise each time"


def test_an_answer_is_not_kept_if_a_judge_did_not_decide() -> None:
    shelf = Shelf()
    undecided = Guard(judges=[broken], identity="a moderation endpoint that is down")
    assert counts(call(shelf, CAPITAL, guard=undecided))["guard_undecided"] >= 1
    assert not shelf.entries


async def friendly(text: str) -> str:
    """Refuse nothing."""
    return ""


async def broken(text: str) -> str:
    """Fail."""
    raise RuntimeError("down")


def test_only_the_first_words_of_a_call_are_looked_up() -> None:
    shelf = Shelf()
    call(shelf, CAPITAL)
    asked = shelf.asked
    talk = call(shelf, "Who wrote Hamlet?", CAPITAL, until=14.0)
    assert counts(talk, 0)["cache_miss"] == 1 and "cache_exact" not in counts(talk, 1)
    assert len(shelf.entries) == 2 and shelf.asked > asked
    typed = Talk(CAPITAL, replies=ANSWER, specs=SPECS, cache=SemanticCache(shelf).of("one"))
    typed.says(1.0, at=0.5)
    typed.does(lambda session: session.add_text(""), at=0.1)
    typed.run(until=8.0)
    assert not {"cache_exact", "cache_miss"} & counts(typed).keys(), "words that are empty are words, too"


def test_an_answer_from_the_cache_says_nothing_of_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[Any] = []
    monkeypatch.setattr(LoadShedder, "answered", lambda shedder, *given: answered.append(given))
    shelf = Shelf()
    call(shelf, CAPITAL)
    assert len(answered) == 1
    assert counts(call(shelf, CAPITAL))["cache_exact"] == 1
    assert len(answered) == 1


def test_what_an_agent_knows_of_a_caller_is_part_of_the_key() -> None:
    callers = iter(("Ada", "Bob", "Ada"))
    agent: Agent[None] = Agent("You help.")

    @agent.on_call
    async def name(call: Call[None]) -> None:
        call.instructions = f"You help. The caller is {next(callers)}."

    shelf = Shelf()
    for match in ("cache_miss", "cache_miss", "cache_exact"):
        talk = call(shelf, CAPITAL, agent=agent)
        assert counts(talk)[match] == 1
    assert len(shelf.entries) == 2


def test_an_answer_that_was_cut_is_not_kept() -> None:
    shelf = Shelf()
    cut = call(shelf, CAPITAL, "Stop.", replies=("Paris is a very long city. " * 20,), until=8.5)
    assert cut.done()[0][1] == "cancelled"
    assert not shelf.entries


def test_a_store_that_is_slow_or_away_costs_a_moment() -> None:
    fast = call(Shelf(), CAPITAL)
    for shelf in (Shelf(delay=60.0), Shelf(fails=True)):
        talk = call(shelf, CAPITAL)
        assert counts(talk)["cache_miss"] == 1
        assert talk.when(ReplyAudio)[0] - fast.when(ReplyAudio)[0] <= 0.02
        assert talk.done()[0][1] == "completed"


def test_a_store_that_failed_is_left_alone_for_a_while() -> None:
    shelf = Shelf(fails=True)

    async def ask() -> None:
        cache, question = SemanticCache(shelf), CacheQuestion(CAPITAL, "scope")
        for _ in range(5):
            assert await cache.find("one", question) is None
        assert shelf.asked == 1
        await asyncio.sleep(CACHE_RETRY_S)
        await cache.find("one", question)

    virtual_clock.run(ask())
    assert shelf.asked == 2


def test_a_late_lookup_goes_on_and_the_others_do_not_wait_for_it() -> None:
    shelf, question = Shelf(delay=1.0), CacheQuestion(CAPITAL, "scope")

    async def ask() -> list[float]:
        loop, times = asyncio.get_running_loop(), []
        async with SemanticCache(shelf).running() as cache:
            cache.keep("one", question, CachedAnswer([("Paris.", AudioChunk(bytes(20), 22_050))]))
            for _ in range(3):
                begun = loop.time()
                assert await cache.find("one", question) is None
                times.append(round(loop.time() - begun, 3))
            await asyncio.sleep(1.0)
            shelf.delay = 0.0
            assert await cache.find("one", question)
        return times

    assert virtual_clock.run(ask()) == [LOOKUP_S, 0.0, 0.0]
