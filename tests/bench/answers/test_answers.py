"""The questions, the rules that judge the answers, and the command that asks a model."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support import speech
from typer.testing import CliRunner

from rejoinder.agent.bench.answers.ask import NOW, Asked, ask, of_half
from rejoinder.agent.bench.answers.ask_tools import ToolAnswer, ask_tools
from rejoinder.agent.bench.answers.questions import HALVES, UNKNOWN, Half, Question, read
from rejoinder.agent.bench.answers.rules import is_right, is_spoken, sentences
from rejoinder.agent.bench.answers.speed import TOPICS
from rejoinder.agent.bench.answers.tool_rules import read_tools
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.app import app
from rejoinder.agent.config import Settings
from rejoinder.models.specs import LANGUAGE_MODELS
from rejoinder.pipeline import Message, Options
from rejoinder.pipeline.interfaces import Tools

SET = read()


def test_the_set_has_a_rule_for_every_question_and_two_halves_of_every_kind() -> None:
    assert len(SET) >= 100
    assert len({question.turns for question in SET}) == len(SET)
    assert all(bool(one.right) != (one.kind == UNKNOWN) for one in SET)
    sizes = Counter((one.kind, one.half) for one in SET)
    for kind in {one.kind for one in SET}:
        first, second = (sizes[kind, half] for half in HALVES)
        assert second >= 4 and first - second in (0, 1)
    assert len(of_half(SET, Half.BOTH)) == len(SET) == sum(len(of_half(SET, half)) for half in HALVES)


def test_no_question_answers_itself() -> None:
    """A model that repeats the question is right only where repeating is what the caller asked for."""
    repeated = {one.turns[-1] for one in SET if is_right(one, one.turns[-1], normaliser())}
    assert repeated == {
        "Good morning.",
        "Hello, can you hear me?",
        "Please say the word banana.",
        "Please say that you are ready.",
        "Are you a human or a computer?",
        "Is it morning or afternoon?",
        "Can you help me with my homework?",
        "Goodbye.",
        "Where does the sun rise, in the east or in the west?",
        "Which is heavier, a kilogram of iron or a gram of iron?",
        "Which number is bigger, forty or fourteen?",
    }


@pytest.mark.parametrize(
    "asked, answer, right",
    [
        ("How many days are in a week?", "There are seven days in a week.", True),
        ("How many days are in a week?", "A week has 7 days.", True),
        ("How many days are in a week?", "There are 17 days, or seventy.", False),
        ("How many days are in a week?", "", False),
        ("What is seventeen plus twenty five?", "That's forty-two.", True),
        ("What is seventeen plus twenty five?", "It is 142.", False),
        ("What is a thousand minus one?", "Nine hundred ninety-nine.", True),
        (
            "Where does the sun rise, in the east or in the west?",
            "It rises in the west, not in the east.",
            False,
        ),
        (
            "Which is heavier, a kilogram of iron or a gram of iron?",
            "They weigh the same, a kilogram.",
            False,
        ),
        ("Which is heavier, a kilogram of iron or a gram of iron?", "A kilogram of iron is heavier.", True),
        ("Count from one to five.", "One, two, three, four, five.", True),
        ("Count from one to five.", "One, two, three.", False),
        ("Count from one to five.", "1, 2, 3, 4, and 5.", True),
        ("Spell the word cat.", "C-A-T.", True),
        ("Spell the word cat.", "'C', 'a', 't'.", True),
        ("Name three animals.", "Giraffe, zebra, and panda.", True),
        ("Name three animals.", "A dog, a dog, and a cat.", False),
        ("How many days are in a week?", "Seven. Seven days make a week.", True),
        ("What is today's date?", "It's March fourth, twenty twenty-six.", True),
        ("What time is it?", "It's 3:20 PM.", True),
        ("A movie starts at seven and lasts two hours. When does it end?", "At nine o'clock.", True),
        ("Please repeat the code.", "Your code is four two seven one.", True),
        ("What is my phone number?", "I'm sorry, but I don't know your phone number.", True),
        ("What is my phone number?", "Your phone number is 555 1234.", False),
        ("What is my phone number?", "You haven't told me.", True),
        ("What is my phone number?", "I haven't been told.", True),
        ("Where did I put my keys?", "You put them on the table.", False),
        ("Where is my husband at the moment?", "He is at work. Please let me know if you need more!", False),
        ("What is the weather like right now?", "It's sunny and warm.", False),
        ("What is the weather like right now?", "I can't check the weather from here.", True),
    ],
)
def test_rules_judge_as_a_reader_would(asked: str, answer: str, right: bool) -> None:
    (question,) = [one for one in SET if one.turns[-1] == asked]
    assert is_right(question, answer, normaliser()) is right


@pytest.mark.parametrize(
    "answer, spoken, count",
    [
        ("It's seven days.", True, 1),
        ("Sure! It is 3.5 miles. Anything else", True, 3),
        ("Here is a list:\n- one\n- two", False, 1),
        ("**Paris** is the capital.", False, 1),
        ("As an AI language model, I can't eat.", False, 1),
        ("", False, 0),
        ("42. That is the answer.", True, 2),
        ("You need:\n1. milk\n2. bread", False, 3),
    ],
)
def test_style_and_length_of_an_answer(answer: str, spoken: bool, count: int) -> None:
    assert (is_spoken(answer), sentences(answer)) == (spoken, count)


class Recorder:
    """A language model that notes its prompts."""

    def __init__(self) -> None:
        self.prompts: list[list[tuple[str, str]]] = []

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        self.prompts.append([(message["role"], message["content"]) for message in messages])
        for word in ("answer ", str(len(self.prompts))):
            yield word

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


def test_follow_ups_are_asked_after_the_models_own_answer() -> None:
    llm = Recorder()
    question = Question("follow_up", Half.TUNE, ("My name is Anna.", "What is my name?"), ("Anna",))
    answer = asyncio.run(ask(llm, question, Options(instructions="Be brief.")))
    assert llm.prompts[1] == [
        ("system", "Be brief."),
        ("user", "My name is Anna."),
        ("assistant", "answer 1"),
        ("user", "What is my name?"),
    ]
    assert (answer.text, answer.tokens) == ("answer 2", 2) and 0 < answer.first_s <= answer.whole_s


def test_the_command_counts_right_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [
        "bench",
        "answers",
        "--llm",
        "scripted:llm|It is seven.",
        "--half",
        "tune",
        "--json",
        "report.json",
    ]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    report = json.loads(Path("report.json").read_text())
    every, tune = report["rows"][-1], of_half(SET, Half.TUNE)
    right = sum(is_right(one, "It is seven.", normaliser()) for one in tune)
    assert (every["asked"], every["short"], every["right"]) == (len(tune), len(tune), right) and right > 0
    assert "unknown: What did I have for breakfast? -> It is seven." in done.output


def test_a_half_that_does_not_exist_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "answers", "--half", "third"])
    assert done.exit_code == 2 and "'third' is not one of" in " ".join(done.output.split())


def test_models_are_compared_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = f"scripted:llm|It is seven.,{tmp_path / 'nothing.gguf'}"
    flags = ["--llm", named, "--speech", "no-recordings", "--json", "report.json"]
    done = CliRunner().invoke(app, ["bench", "models", *flags])
    assert done.exit_code == 1 and "there is no file or folder" in done.output
    assert "No calls are measured" in done.output
    (model,) = json.loads(Path("report.json").read_text())["models"]
    assert model["spec"] == "scripted:llm|It is seven." and model["download"] is None
    assert model["answers"]["asked"] == len(of_half(SET, Half.REPORT)) and model["answers"]["right"] > 0
    assert all(model["speed"][name]["count"] == len(TOPICS) for name in ("cold", "warm", "cancelled"))
    assert model["memory"] is None or model["memory"] > 2**20
    assert model["tools"] == {"needed": 18, "right": 0, "unneeded": 10, "needless": 0}, "it only talks"
    assert model["calls"] == []


@pytest.mark.weights
def test_a_real_model_is_asked() -> None:
    question = next(one for one in SET if one.turns == ("How many days are in a week?",))
    llm = speech.model("ort:smollm2-135m-instruct")

    async def answered() -> Asked:
        try:
            return await ask(llm, question, Options())
        finally:
            await llm.aclose()

    answer = asyncio.run(answered())
    assert answer.text and answer.tokens and 0 < answer.first_s < answer.whole_s


@pytest.mark.weights
def test_the_default_model_calls_a_tool_under_the_default_options() -> None:
    """Its examples, of answers without calls, once kept it from calling any."""
    functions, requests = read_tools()
    options = replace(Settings().options(NOW), tools=Tools(functions))
    timers = [request for request in requests if request.kind == "set_timer"][:3]
    llm = speech.model(LANGUAGE_MODELS["small"])

    async def called() -> list[ToolAnswer]:
        try:
            return [await ask_tools(llm, request, options) for request in timers]
        finally:
            await llm.aclose()

    answers = asyncio.run(called())
    assert [call.name for answer in answers for call in answer.calls].count("set_timer") >= 2
