"""Context functions run while the caller speaks, and what they find reaches the prompt of that turn only."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.knowledge import Knowledge, text_of
from rejoinder.agent.app.text_answers import agent_answer
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import History, Message, Options, ReplyDone, ReplyRequest, Session, Trace, TurnTraced

LINE = "where can I park my car tonight"


class Library:
    """An agent whose lookups take ``seconds``, and a log of them."""

    def __init__(self, seconds: float) -> None:
        self.log: list[tuple[str, str]] = []
        self.running = 0
        self.agent = Agent("Be brief.", fillers=())

        @self.agent.context
        async def look_up(call: Call, words: str) -> str:
            self.log.append(("begun", words))
            self.running += 1
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.log.append(("cancelled", words))
                raise
            finally:
                self.running -= 1
            self.log.append(("done", words))
            return f"about {words}"

    def of(self, kind: str) -> list[str]:
        return [words for one, words in self.log if one == kind]


class Cached(ScriptedLlm):
    """A model that records what it reads ahead."""

    def __init__(self) -> None:
        super().__init__(["Sunny."])
        self.warmed: list[str] = []

    async def warm(self, messages: Any) -> None:
        self.warmed += [one["content"] for one in messages[-1:]]


def informed_of(words: str) -> str:
    return f"Use this information if it helps:\nabout {words}\n\n{words}"


def prompts(talk: Talk) -> list[list[tuple[str, str]]]:
    return [[(one["role"], one["content"]) for one in prompt] for prompt in talk.llm.prompts]


def first_trace(talk: Talk) -> Trace:
    trace = talk.of(TurnTraced)[0].trace
    assert isinstance(trace, Trace)
    return trace


def known(functions: list[Callable[..., Any]], words: str) -> str:
    async def look_up() -> str:
        return await Knowledge(Call(CallInfo()), functions, AgentHost(Agent()))(words)

    return asyncio.run(look_up())


def test_lookups_follow_the_words_and_the_last_one_is_in_the_prompt() -> None:
    library = Library(0.9)
    talk = Talk(LINE, agent=library.agent, context_wait_s=2.0)
    talk.says(3.0, at=0.5)
    talk.run(8.0)
    begun = library.of("begun")
    assert len(begun) > 2 and begun[-1] == LINE
    assert begun == sorted(set(begun), key=len), "no words are looked up twice"
    assert library.of("cancelled") and library.running == 0
    assert prompts(talk)[-1][-1] == ("user", informed_of(LINE))


def test_what_was_found_for_one_turn_is_not_in_the_next() -> None:
    library = Library(0.01)
    talk = Talk(LINE, "and tomorrow", agent=library.agent)
    talk.says(2.0, at=0.5)
    talk.says(1.0, at=6.0)
    talk.run(12.0)
    assert talk.said() == [
        ("user", LINE),
        ("assistant", "Sunny."),
        ("user", "and tomorrow"),
        ("assistant", "Sunny."),
    ]
    assert prompts(talk)[-1] == [
        ("system", "Be brief."),
        ("user", LINE),
        ("assistant", "Sunny."),
        ("user", informed_of("and tomorrow")),
    ]


@pytest.mark.parametrize(("seconds", "wait_s"), [(0.0, (0.0, 0.0)), (0.2, (0.0, 0.2)), (60.0, (0.5, 0.5))])
def test_a_reply_waits_for_a_lookup_up_to_a_limit(seconds: float, wait_s: tuple[float, float]) -> None:
    library = Library(seconds)
    talk = Talk(LINE, agent=library.agent, context_wait_s=0.5)
    talk.says(2.0, at=0.5)
    talk.run(9.0)
    trace, late = first_trace(talk), seconds > 0.5
    waited = trace.marks["context"] - trace.marks["reply_started"]
    assert wait_s[0] <= round(waited, 3) <= wait_s[1]
    assert prompts(talk)[-1][-1][1] == (LINE if late else informed_of(LINE))
    assert trace.found == ("" if late else f"about {LINE}")
    assert trace.counts.get("context_late", 0) == late
    assert late or trace.counts["context_ms"] == pytest.approx(seconds * 1000)
    assert talk.done()[-1][1] == "completed" and library.running == 0


def test_a_quick_lookup_costs_the_turn_nothing() -> None:
    """The lookup of the final words begins with the transcript and ends before the turn is surely over."""
    quick, plain = Talk(LINE, agent=Library(0.05).agent), Talk(LINE)
    for talk in (quick, plain):
        talk.says(2.0, at=0.5)
        talk.run(8.0)
    first, second = (round(sum(ms for _, ms in first_trace(talk).budget())) for talk in (quick, plain))
    assert first == second
    assert "wait for context" in dict(first_trace(quick).budget())
    assert "wait for context" not in dict(first_trace(plain).budget())


@pytest.mark.parametrize("start_ms", range(900, 6_000, 150))
def test_interruptions_lose_no_answer_and_leave_no_lookup(start_ms: int) -> None:
    library = Library(0.25)
    talk = Talk(LINE, "no wait", agent=library.agent)
    talk.says(2.0, at=0.5)
    talk.says(0.8, at=start_ms / 1000)
    talk.run(12.0)
    ended = [*library.of("done"), *library.of("cancelled")]
    assert library.running == 0 and sorted(library.of("begun")) == sorted(ended)
    assert talk.done()[-1][1] == "completed"
    asked = [text for role, text in talk.said() if role == "user"][-1]
    assert prompts(talk)[-1][-1][1].endswith(asked) and f"about {asked}" in prompts(talk)[-1][-1][1]


def test_a_reply_to_a_tools_result_keeps_what_was_found() -> None:
    library = Library(0.01)
    library.agent.tool(fetch)
    talk = Talk(LINE, agent=library.agent, llm=ScriptedLlm(["@fetch", "It is there."]))
    talk.says(2.0, at=0.5)
    talk.run(8.0)
    assert [done.heard for done in talk.of(ReplyDone)] == ["", "It is there."]
    users = [text for prompt in prompts(talk)[-2:] for role, text in prompt if role == "user"]
    assert users == [informed_of(LINE)] * 2
    assert library.of("begun").count(LINE) == 1


def test_typed_words_are_looked_up() -> None:
    library = Library(0.05)
    talk = Talk(agent=library.agent)

    def types(session: Session) -> None:
        session.add_text("may I bring a dog")
        session.respond()

    talk.does(types, at=1.0)
    talk.run(5.0)
    assert prompts(talk) == [[("system", "Be brief."), ("user", informed_of("may I bring a dog"))]]


def test_given_words_and_prompts_are_not_looked_up() -> None:
    library = Library(0.05)
    talk = Talk(agent=library.agent)
    talk.does(lambda session: session.respond(ReplyRequest(words="Hello.")), at=1.0)
    talk.does(lambda session: session.respond(ReplyRequest(prompt=[], instructions="Say hello.")), at=3.0)
    talk.run(5.0)
    assert len(talk.done()) == 2 and not library.log


def test_the_cache_reads_what_is_found_while_the_caller_speaks() -> None:
    library, llm = Library(0.05), Cached()
    talk = Talk(LINE, agent=library.agent, llm=llm)
    talk.says(3.0, at=0.5)
    talk.run(8.0)
    partial = [words for words in library.of("done") if words != LINE]
    assert partial and all(informed_of(words) in llm.warmed for words in partial)


def test_a_long_result_is_cut() -> None:
    agent = Agent("Be brief.")

    @agent.context
    async def look_up(call: Call, words: str) -> str:
        return "fact " * 5_000

    talk = Talk(LINE, agent=agent)
    talk.says(2.0, at=0.5)
    talk.run(8.0)
    asked = prompts(talk)[-1][-1][1]
    assert 2_000 < len(asked) < 2_100 and asked.endswith(f"…\n\n{LINE}")


def test_another_agent_looks_up_for_its_part_of_the_call() -> None:
    first, second = Library(0.01), Library(0.01)
    first.agent.agents.append(second.agent)

    @first.agent.tool
    async def other(call: Call) -> Agent:
        """Ask the other one."""
        return second.agent

    talk = Talk(LINE, agent=first.agent, llm=ScriptedLlm(["@other", "Hello."]))
    talk.says(2.0, at=0.5)
    talk.run(8.0)
    assert LINE in first.of("done") and second.of("done") == [LINE]


def test_a_failing_function_is_logged_and_the_others_count(caplog: pytest.LogCaptureFixture) -> None:
    async def good(call: Call, words: str) -> list[str]:
        return [" one ", "", "two"]

    def broken(call: Call, words: str) -> str:
        raise ValueError("no index")

    def strange(call: Call, words: str) -> int:
        return 3

    with caplog.at_level(logging.ERROR):
        assert known([broken, good, strange], "words") == "one\n\ntwo"
    assert "the context function broken (tests/app/test_knowledge.py" in caplog.text
    assert "it returned int: it must return text, a list of texts, or None" in caplog.text


@pytest.mark.parametrize(("found", "text"), [(None, ""), ("", ""), (" a ", "a"), (("a", " ", "b"), "a\n\nb")])
def test_texts(found: object, text: str) -> None:
    assert text_of(found) == text


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match=r"context hook .* def look_up\(call, words\)"):

        @Agent().context
        def look_up(words: str) -> str:
            return ""


def test_a_synchronous_function_has_one_thread_per_call() -> None:
    running, most, seen = 0, 0, list[str]()
    began, may_end = threading.Event(), threading.Event()

    def slow(call: Call, words: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        began.set()
        may_end.wait(20.0)
        running -= 1
        seen.append(words)
        return words

    async def main() -> str:
        knowledge = Knowledge(Call(CallInfo()), [slow], AgentHost(Agent()))
        for words in ("one", "one two"):
            lookup = asyncio.create_task(knowledge(words))
            await asyncio.to_thread(began.wait, 20.0)
            await asyncio.sleep(0)
            lookup.cancel()
            await asyncio.wait([lookup])
        may_end.set()
        return await knowledge("one two three")

    assert asyncio.run(main()) == "one two three"
    assert most == 1 and seen == ["one", "one two three"], "the lookup in between never began"


@pytest.mark.parametrize("has_tools", [False, True])
def test_text_requests_are_looked_up(has_tools: bool) -> None:
    library, llm = Library(0.0), ScriptedLlm(["Sunny."])
    if has_tools:
        library.agent.tool(fetch)

    async def ask() -> list[Message]:
        host = AgentHost(library.agent)
        history = History("Be brief.")
        history.add_user(LINE)
        call = host.new_call(CallInfo(), Options())
        assert "".join([word async for word in agent_answer(llm, history, host, call)]).strip() == "Sunny."
        return history.messages()

    after = asyncio.run(ask())
    assert llm.prompts[-1][-1]["content"] == informed_of(LINE) and after[-1]["content"] == LINE


def fetch() -> str:
    """Fetch it."""
    return "fetched"
