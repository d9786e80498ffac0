"""Conversations of consented calls become examples for fine-tuning, without personal data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.serving import PATIENCE, run_command, serving
from typer.testing import CliRunner
from websockets.sync.client import connect

from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.exporting import Exported, Redaction, examples, preferences
from rejoinder.agent.cli.preferences import corrections, said_again
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.pipeline import ReplyDone, TurnTraced

AGENT = '''
from rejoinder import Agent, Call

agent = Agent("Be brief. The owner is owner@example.com.")


@agent.tool
async def agree(call: Call, card: int) -> str:
    """Let the conversation be used."""
    call.consent = call.info.query["says"] == "yes"
    return '{"card": 4111111111111111, "ok": true}'
'''
LLM = 'scripted:llm|Your number is 202-555-0143. @agree {"card": 4111111111111111}|Thank you.'


def hold_call(port: int, query: str) -> None:
    """Hold a call in which the caller types, and wait for the answer to the tool's result."""
    with connect(f"ws://127.0.0.1:{port}/v1/pcm{query}", proxy=None, open_timeout=PATIENCE) as call:
        call.send(json.dumps({"type": "text", "text": "I am at jane@example.com, agreed?"}))
        ended = 0
        while ended < 2:
            message = call.recv(timeout=PATIENCE)
            ended += isinstance(message, str) and json.loads(message)["type"] == "reply_ended"


@pytest.mark.server
def test_a_live_call_with_consent_is_exported_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces, out = tmp_path / "traces.jsonl", tmp_path / "sft.jsonl"
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(traces))
    (tmp_path / "agent.py").write_text(AGENT)
    with serving(tmp_path, agent="agent.py", llm=LLM) as server:
        for says in ("yes", "no"):
            hold_call(server.port, f"?says={says}")
        server.wait_idle()
    assert traces.read_text().count('"conversation"') == 1
    done = run_command("export", "calls", "traces.jsonl", "--consented", "--out", str(out), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "1 calls with 2 answers and 1 tool calls; 0 corrections, 0 preference pairs; 5 places" in said
    assert "1 calls without consent" in said
    (example,) = [json.loads(line) for line in out.read_text().splitlines()]
    roles = [message["role"] for message in example["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    system, user, called, result, last = example["messages"]
    assert system["content"] == "Be brief. The owner is [email]."
    assert user["content"] == "I am at [email], agreed?"
    assert called["content"] == "Your number is [phone]."
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"card": "[card]"}
    assert json.loads(result["content"]) == {"card": "[card]", "ok": True}
    assert last["content"].startswith("Thank"), "the caller leaves before it has played"
    assert [tool["function"]["name"] for tool in example["tools"]] == ["agree"]
    assert example["model"]
    assert "4111" not in out.read_text() and "jane" not in out.read_text()


def line(call: str, *messages: dict[str, Any], consent: object = True) -> str:
    conversation = {"messages": list(messages), "tools": [], "model": "m"}
    return json.dumps({"call": call, "consent": consent, "conversation": conversation})


def exported(*lines: str, keep: tuple[str, ...] = ()) -> tuple[list[dict[str, Any]], Exported]:
    found = Exported()
    kinds = [kind for kind in ("card", "email", "iban") if kind not in keep]
    return list(examples(lines, Redaction(kinds, "US"), found)), found


STORY = (
    "It is sunny today. Take a hat, if you go out. There is some wind at noon, and it turns cold at night."
)
USER = {"role": "user", "content": "hi"}


def test_only_calls_with_consent_and_an_answer_are_examples() -> None:
    answer = {"role": "assistant", "content": "Hello."}
    made, found = exported(
        line("a", USER, answer),
        line("b", USER, answer, consent="no"),
        line("c", USER),
        json.dumps({"call": "d", "turn": 1, "said": "hi", "heard": "Hello."}),
        json.dumps({"call": "a", "turn": 1, "said": "hi", "heard": "Hello."}),
        "[]",
        '{"call": "e", "tur',
        "",
    )
    assert [example["messages"] for example in made] == [[USER, answer]]
    assert found == Exported(calls=1, turns=1, without_consent=2, unanswered=1, unreadable=2)


def test_an_interrupted_answer_is_no_example() -> None:
    cut = {"role": "assistant", "content": "Hello and—"}
    ((example,), _) = exported(line("a", USER, cut, USER, {"role": "assistant", "content": "Yes."}))
    assert [message.get("weight") for message in example["messages"]] == [None, 0, None, None]


def stopped_by(line: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the conversation in which a sound stops the agent, and the trace lines of its turns."""
    talk = Talk("what is the weather", line, replies=(STORY, "Fine."))
    talk.says(1.2, at=0.2)
    talk.says(2.0, at=3.0)
    talk.run(until=16.0)
    heard = {done.turn: done.heard for done in talk.of(ReplyDone)}
    traces = {one.trace.turn: one.trace for one in talk.of(TurnTraced)}
    turns = [
        json.dumps(trace.described() | {"call": "a", "said": trace.said, "heard": heard[turn]})
        for turn, trace in traces.items()
    ]
    return [{"role": role, "content": text} for role, text in talk.said()], turns


@pytest.mark.parametrize("sound", ["", "Mm-hm."])
def test_an_answer_that_the_agent_continued_is_one_example(sound: str) -> None:
    messages, turns = stopped_by(sound)
    assert [one["role"] for one in messages].count("assistant") == 2
    ((example,), found) = exported(*turns, line("a", *messages))
    assert [one["content"] for one in example["messages"] if one["role"] == "assistant"] == [STORY]
    assert len(example["messages"]) == 2 and "weight" not in example["messages"][1] and found.turns == 1


def test_an_answer_to_other_words_is_not_joined() -> None:
    messages, turns = stopped_by("Stop.")
    ((example,), _) = exported(*turns, line("a", *messages))
    assert [one["content"] for one in example["messages"]] == [one["content"] for one in messages]
    assert [one.get("weight") for one in example["messages"]] == [None, 0, None, None]
    went_on = json.dumps({"call": "b", "counts": {"went_on": 1}, "said": "", "heard": "And more—"})
    ((example,), _) = exported(went_on, line("b", USER, {"role": "assistant", "content": "And more—"}))
    assert len(example["messages"]) == 2


def test_a_continued_answer_that_is_stopped_for_good_is_no_example() -> None:
    went_on = json.dumps({"call": "a", "counts": {"went_on": 1}, "said": "嗯", "heard": "很好,你"})
    messages = talked("天气怎么样?", "今天天气—", "嗯", "很好,你—", "谢谢")
    ((example,), _) = exported(went_on, line("a", *messages))
    assert [one["content"] for one in example["messages"]] == ["天气怎么样?", "今天天气很好,你—", "谢谢"]
    assert example["messages"][1]["weight"] == 0


def test_kinds_can_be_kept_and_json_stays_json() -> None:
    result = {
        "role": "tool",
        "tool_call_id": "1",
        "content": '{"a@b.com": [4111111111111111, 1.5, null, true]}',
    }
    answer = {"role": "assistant", "content": "4111 1111 1111 1111"}
    ((example,), found) = exported(line("a", USER, result, answer), keep=("email",))
    assert json.loads(example["messages"][1]["content"]) == {"a@b.com": ["[card]", 1.5, None, True]}
    assert example["messages"][2]["content"] == "[card]" and found.redacted == 2


def talked(*words: str) -> list[dict[str, Any]]:
    """A conversation whose messages are a user's and an assistant's in turn."""
    return [
        {"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        ("When do you open on Sunday?", "when do you open on Sunday", True),
        ("When do you open on Sunday?", "I said, when do you open on Monday?", True),
        ("When do you open on Sunday?", "Thanks, and where are you?", False),
        ("Two tickets", "Two tickets", False),
        ("Wann haben Sie am Sonntag offen?", "Wann haben Sie am Samstag offen?", True),
    ],
)
def test_a_request_is_said_again_with_mostly_the_same_words(first: str, second: str, again: bool) -> None:
    assert said_again(first, second) is again


@pytest.mark.parametrize(
    ("answer", "second", "wanted"),
    [
        ("We are open from nine—", "When do you open on Sunday?", "When do you open on Sunday?"),
        ("We are open from nine—", "No, the café.", "When do you open at weekends? No, the café."),
        ("We are open from nine—", "Nothing else, thanks.", None),
        ("We are open from nine—", "Okay.", None),
        ("We are open from nine.", "No, the café.", None),
    ],
)
def test_an_interrupted_answer_is_corrected_by_what_the_caller_says_next(
    answer: str, second: str, wanted: str | None
) -> None:
    found = list(corrections(talked("When do you open at weekends?", answer, second, "From ten.")))
    assert [one.request for one in found] == ([wanted] if wanted else [])


def test_a_correction_is_a_pair_of_two_answers_to_one_prompt() -> None:
    messages = talked(
        "Hello.", "Hello, I am—", "A table for two on Monday, jane@example.com.", "On Sunday we have—",
        "No, I said Monday.", "Monday at eight it is.", "Great.", "Anything else?",
    )  # fmt: skip
    ((example,), found) = exported(line("a", {"role": "system", "content": "Be brief."}, *messages))
    (pair,) = preferences(example, found)
    assert pair["prompt"] == [
        {"role": "system", "content": "Be brief."},
        *talked("Hello.", "Hello, I am—", "A table for two on Monday, [email]. No, I said Monday."),
    ]
    assert pair["chosen"] == [{"role": "assistant", "content": "Monday at eight it is."}]
    assert pair["rejected"] == [{"role": "assistant", "content": "On Sunday we have"}]
    assert (pair["model"], pair["tools"]) == ("m", [])
    assert (found.corrections, found.pairs) == (1, 1)


@pytest.mark.parametrize(
    "end",
    [
        ["No, Monday."],  # the call ends
        ["No, Monday.", "On Monday—"],  # the next answer is interrupted, too
        ["No, Monday.", "On Monday—", "Wait, Tuesday.", "On Tuesday we have—"],
    ],
)
def test_without_a_whole_answer_after_it_a_correction_makes_no_pair(end: list[str]) -> None:
    ((example,), found) = exported(line("a", *talked("A table, please.", "On Sunday we have—", *end)))
    assert list(preferences(example, found)) == []
    assert found.corrections == len(end[::2]) and found.pairs == 0


def test_a_tool_call_may_be_what_the_caller_wanted() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
    booked = {"role": "assistant", "content": "", "tool_calls": [call]}
    messages = [*talked("A table, please.", "We are a restaurant—", "I asked for a table."), booked]
    ((example,), found) = exported(line("a", *messages))
    (pair,) = preferences(example, found)
    assert pair["chosen"] == [booked] and found.tool_calls == 1


def test_the_command_writes_the_pairs_beside_the_examples(tmp_path: Path) -> None:
    words = "A table, please.", "On Sunday we have—", "No, on Monday.", "Monday it is."
    (tmp_path / "t.jsonl").write_text(line("a", *talked(*words)) + "\n")
    sft, pairs = tmp_path / "sft.jsonl", tmp_path / "pairs.jsonl"
    given = [str(tmp_path / "t.jsonl"), "--consented", "--out", str(sft), "--pairs", str(pairs)]
    done = CliRunner().invoke(app, ["export", "calls", *given], env={"COLUMNS": "300"})
    assert done.exit_code == 0 and "1 corrections, 1 preference pairs" in done.stderr
    assert json.loads(sft.read_text())["messages"][1] == {
        "role": "assistant", "content": "On Sunday we have—", "weight": 0,
    }  # fmt: skip
    assert json.loads(pairs.read_text())["rejected"][0]["content"] == "On Sunday we have"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["t.jsonl"], 2, "add --consented"),
        (["t.jsonl", "--consented"], 1, "No such file"),
        (["[t].jsonl", "--consented"], 1, "'[t].jsonl'"),
        (["t.jsonl", "--consented", "--keep", "name"], 2, "'name': write card, email, iban, phone"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["export", "calls", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == code and reason in done.stderr
