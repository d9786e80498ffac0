"""The requests for tools, and the rules that judge the calls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.answers.ask_tools import (
    ToolAnswer,
    ToolScore,
    as_tool_json,
    ask_tools,
    score_tools,
    tool_table,
    verdict,
    wrong_calls,
)
from rejoinder.agent.bench.answers.questions import HALVES
from rejoinder.agent.bench.answers.tool_rules import ANYWHERE, ToolRequest, Verdict, judge, read_tools
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.app import app
from rejoinder.pipeline import Message, ModelError, Options, ToolCall, Tools

TOOLS, REQUESTS = read_tools()
ASKED = {request.ask: request for request in REQUESTS}


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("a", name, json.dumps(arguments))


def best(request: ToolRequest) -> list[ToolCall]:
    """Return the call that a request needs."""
    values = {name: right[0].removeprefix(ANYWHERE) for name, right in request.arguments.items()}
    return [call(request.call, **values)] if request.call else []


def test_each_request_needs_a_tool_that_is_there_or_none() -> None:
    required = {tool["function"]["name"]: set(tool["function"]["parameters"]["required"]) for tool in TOOLS}
    assert len(required) == len(TOOLS) == 8
    assert len(ASKED) == len(REQUESTS) == 60
    assert sum(not request.call for request in REQUESTS) == 20
    for request in REQUESTS:
        assert request.arguments.keys() == (required[request.call] if request.call else set())
        assert all(request.arguments.values())


def test_each_kind_has_two_halves() -> None:
    sizes = Counter((request.kind, request.half) for request in REQUESTS)
    for kind in {request.kind for request in REQUESTS}:
        first, second = (sizes[kind, half] for half in HALVES)
        assert second >= 2 and first - second in (0, 1)


def test_the_call_that_a_request_needs_is_right() -> None:
    for request in REQUESTS:
        assert judge(request, "" if request.call else "Well.", best(request), normaliser()) is Verdict.RIGHT


def test_no_request_is_right_with_the_call_of_another() -> None:
    for request in REQUESTS:
        for other in REQUESTS:
            if other.call and other.arguments != request.arguments:
                assert judge(request, "", best(other), normaliser()) is not Verdict.RIGHT


TABLE = "I'd like to book a table for two on Friday at seven pm."


@pytest.mark.parametrize(
    "asked, made, judged",
    [
        ("What is the weather in Paris?", call("get_weather", city="paris."), Verdict.RIGHT),
        ("What is the weather in Paris?", call("get_weather", city="Paris, France"), Verdict.RIGHT),
        ("What is the weather in Paris?", call("get_weather", city="London"), Verdict.WRONG_ARGUMENTS),
        ("What is the weather in Paris?", call("get_weather"), Verdict.WRONG_ARGUMENTS),
        ("What is the weather in Paris?", call("get_weather", city=["Paris"]), Verdict.WRONG_ARGUMENTS),
        ("What is the weather in Paris?", call("set_timer", minutes=1), Verdict.WRONG_TOOL),
        ("Set a timer for ten minutes.", call("set_timer", minutes=10), Verdict.RIGHT),
        ("Set a timer for ten minutes.", call("set_timer", minutes=10.0), Verdict.RIGHT),
        ("Set a timer for ten minutes.", call("set_timer", minutes="ten"), Verdict.RIGHT),
        ("Set a timer for ten minutes.", call("set_timer", minutes=600), Verdict.WRONG_ARGUMENTS),
        ("Set a timer for ten minutes.", call("set_timer", minutes=True), Verdict.WRONG_ARGUMENTS),
        (TABLE, call("book_table", people="two", day="friday", time="7 PM"), Verdict.RIGHT),
        (TABLE, call("book_table", people=2, day="Friday", time="19:00"), Verdict.RIGHT),
        (TABLE, call("book_table", people=2, day="Friday", time="7:00pm"), Verdict.RIGHT),
        (TABLE, call("book_table", people=2, day="Friday", time="7 am"), Verdict.WRONG_ARGUMENTS),
        ("Where is my order four four two?", call("look_up_order", number="442"), Verdict.RIGHT),
        ("Where is my order four four two?", call("look_up_order", number="four four two"), Verdict.RIGHT),
        (
            "Put me through to billing, please.",
            call("transfer_to", department="Billing department"),
            Verdict.RIGHT,
        ),
        ("Hello, how are you?", call("get_weather", city="Paris"), Verdict.NEEDLESS),
    ],
)
def test_values_are_compared_leniently(asked: str, made: ToolCall, judged: Verdict) -> None:
    assert judge(ASKED[asked], "", [made], normaliser()) is judged


def test_words_in_place_of_a_call_and_two_calls_are_wrong() -> None:
    paris, made = ASKED["What is the weather in Paris?"], call("get_weather", city="Paris")
    assert judge(paris, "It is sunny.", [], normaliser()) is Verdict.UNCALLED
    assert judge(paris, "", [made, made], normaliser()) is Verdict.UNCALLED
    assert judge(paris, "Let me look.", [made], normaliser()) is Verdict.RIGHT
    assert judge(paris, " ", [], normaliser()) is Verdict.SILENT
    assert judge(ASKED["Hello, how are you?"], "", [], normaliser()) is Verdict.SILENT


# --- the command ----------------------------------------------------------------------------------------


class OpenEnded:
    """A language model without tools."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "Well."

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


class Weatherman:
    """A language model that calls the weather of Paris, or fails."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.tools: Tools | None = None

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "Well."

    async def warm(self, messages: Sequence[Message]) -> None:
        pass

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        self.tools = tools
        yield "Let me look."
        if self.error:
            raise ModelError("weatherman", self.error)
        yield call("get_weather", city="Paris")


def asked_of(llm: Weatherman) -> list[ToolAnswer]:
    options = Options(tools=Tools(TOOLS))
    requests = [ASKED["What is the weather in Paris?"], ASKED["Hello, how are you?"]]
    return [asyncio.run(ask_tools(llm, request, options)) for request in requests]


def test_what_a_model_calls_is_judged_and_shown() -> None:
    llm = Weatherman()
    answers = asked_of(llm)
    assert llm.tools is not None and list(llm.tools.functions) == TOOLS
    assert [one.text for one in answers] == ["Let me look."] * 2 and answers[0].first_s > 0
    assert [verdict(one, normaliser()) for one in answers] == [Verdict.RIGHT, Verdict.NEEDLESS]
    (line,) = wrong_calls(answers, normaliser())
    assert line == 'called without need: Hello, how are you? -> get_weather({"city": "Paris"}) Let me look.'
    table = tool_table("toy", answers, normaliser())
    assert list(table.columns[2].cells) == ["1", "0", "1"]
    assert [one["verdict"] for one in as_tool_json(answers, normaliser())] == ["right", "called without need"]
    assert score_tools(answers, normaliser()) == ToolScore(needed=1, right=1, unneeded=1, needless=1)


def test_a_model_that_fails_gives_no_answer() -> None:
    answers = asked_of(Weatherman("half a call"))
    assert {verdict(one, normaliser()) for one in answers} == {Verdict.SILENT}
    assert score_tools(answers, normaliser()) == ToolScore(needed=1, right=0, unneeded=1, needless=0)
    assert "half a call" in wrong_calls(answers, normaliser())[0]


def test_a_model_without_tools_is_refused() -> None:
    llm = OpenEnded()
    with pytest.raises(ModelError, match=r"^OpenEnded: this language model cannot call tools"):
        asyncio.run(ask_tools(llm, REQUESTS[0], Options(tools=Tools(TOOLS))))


def test_the_command_counts_right_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    llm = 'scripted:llm|Well.@get_weather {"city": "Paris"}'
    given = ["bench", "answers", "--tools", "--half", "tune", "--llm", llm, "--json", "report.json"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    answers = json.loads(Path("report.json").read_text())["answers"]
    assert Counter(one["verdict"] for one in answers)["right"] == 1
    assert {one["half"] for one in answers} == {"tune"}
    assert "called without need: Hello, how are you?" in done.output
