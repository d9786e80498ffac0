"""What the page decides without a browser: when to try again, which words were heard, what to tell again."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from support.paths import ROOT
from support.patience import PATIENCE

NODE = shutil.which("node")
PAGE = ROOT / "agent/server/page"

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def evaluate(module: str, code: str) -> Any:
    """Run the body of a function that gets the module as ``page``."""
    script = f"const page = await import(process.argv[1]); console.log(JSON.stringify((() => {{{code}}})()))"
    done = subprocess.run(
        [NODE or "", "--input-type=module", "-e", script, (PAGE / module).as_uri()],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("code", "reason", "tries", "begun", "wait"),
    [
        (1006, "", 0, True, 500),
        (1006, "", 3, True, 4000),
        (1006, "", 9, True, 8000),
        (1006, "", 10, True, None),
        (1006, "", 0, False, None),  # no server: the page says so, and the user retries
        (1011, "internal error", 0, True, 500),
        (1012, "the server is shutting down", 0, True, 500),
        (1013, "the models are still loading: try again in a few seconds", 0, False, 500),
        (1013, "all 16 lines are busy", 0, False, None),
        (1013, "all 16 lines are busy", 1, True, 1000),  # ours may not have been let go of
        (1000, "nobody spoke", 0, True, None),
        (1001, "the server goes away", 0, True, 500),
        (1009, "", 0, True, None),  # it would happen again
    ],
)
def test_when_a_socket_is_opened_again(code: int, reason: str, tries: int, begun: bool, wait: Any) -> None:
    close = json.dumps({"code": code, "reason": reason})
    assert evaluate("connection.js", f"return page.nextWait({close}, {tries}, {json.dumps(begun)})") == wait


def test_call_that_has_lasted_too_long_is_over() -> None:
    close = json.dumps({"code": 1001, "reason": "Your session hit the maximum duration.", "expired": True})
    assert evaluate("connection.js", f"return page.nextWait({close}, 0, true)") is None


def test_words_appear_when_they_begin_and_count_when_they_are_over() -> None:
    said = """
        const spoken = new page.SpokenText();
        spoken.addText("One two.");
        spoken.addAudio(8000);
        spoken.addText(" Three four.");
        spoken.addAudio(12000);
        spoken.ended = true;
        return [0, 500, 2000, 5000, 8000, 8500, 15000, 20000].map((played) =>
          [spoken.begun(played, 8000), spoken.text.slice(0, spoken.heardLetters(played, 8000))]);
    """
    assert evaluate("heard.js", said) == [
        ["", ""],
        ["One", ""],
        ["One", ""],
        ["One two.", "One "],
        ["One two.", "One two. "],
        ["One two. Three", "One two. "],
        ["One two. Three four.", "One two. Three "],
        ["One two. Three four.", "One two. Three four."],
    ]


def test_the_history_is_sent_again_in_order_and_without_unheard_words() -> None:
    script = """
        const history = new page.History();
        history.place("user", "a");
        history.place("agent", "b");
        history.write("user", "a", "Hello");
        const waiting = history.unanswered;
        history.write("agent", "b", "Hi the");
        history.write("agent", "c", " ");
        return [waiting, history.unanswered, history.createEvents()];
    """
    waiting, after, events = evaluate("history.js", script)
    assert waiting == "a" and after is None
    assert [(e["item"]["id"], e["item"]["role"], e["item"]["content"]) for e in events] == [
        ("a", "user", [{"type": "input_text", "text": "Hello"}]),
        ("b", "assistant", [{"type": "output_text", "text": "Hi the"}]),
    ]


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"error": {"code": "model_error", "message": "llm: busy"}}, "The server says: llm: busy."),
        ({"error": {"code": "model_error", "message": "llm: busy!"}}, "The server says: llm: busy!"),
        (
            {"error": {"code": "rate_limit_exceeded"}},
            "The server says: rate_limit_exceeded.",
        ),  # as OpenAI does
        (None, "The server gave no reason."),
    ],
)
def test_a_failed_answer_shows_the_servers_reason(details: Any, said: str) -> None:
    problem = evaluate("problems.js", f"return page.responseProblem({json.dumps(details)})")
    advice = f"{said} You can ask again."
    assert problem == {"title": "The answer failed.", "advice": advice}
