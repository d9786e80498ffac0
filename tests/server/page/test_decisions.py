"""What the page decides without a browser: when to try again, which words were heard, what to tell again."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from support.paths import ROOT

NODE = shutil.which("node")
PAGE = ROOT / "agent/server/page"

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def evaluate(module: str, code: str) -> Any:
    """Run the body of an async function that gets the module as ``page``."""
    call = f"await (async () => {{{code}}})()"
    script = f"const page = await import(process.argv[1]); console.log(JSON.stringify({call}))"
    done = subprocess.run(
        [NODE or "", "--input-type=module", "-e", script, (PAGE / module).as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
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


def test_history_is_sent_once_where_two_sessions_begin_in_a_row() -> None:
    script = """
        const { History } = await import(new URL("history.js", process.argv[1]));
        const view = new Proxy({}, { get: () => () => 0 }); // player and transcript
        const [history, sent, waits] = [new History(), [], []];
        const conversation = new page.Conversation({
          history, player: view, transcript: view, showState() {}, showLevel() {}, showProblem() {},
          now: () => 0,
          send: ({ item }) => sent.push(item.id),
          wait: () => new Promise((resolve) => waits.push(resolve)),
        });
        const begin = (id) => conversation.receive({ type: "session.created", session: { id } });
        begin("one");
        history.write("agent", "a", "Hello.");
        for (const id of ["two", "three"]) { // each socket breaks off at once
          conversation.lost();
          begin(id);
        }
        for (const resolve of waits) resolve();
        await new Promise((resolve) => setTimeout(resolve));
        return [conversation.session, sent];
    """
    assert evaluate("conversation.js", script) == ["three", ["a"]]


def test_what_was_played_of_the_newest_item() -> None:
    """The loudspeaker is 100 ms late, and what was under way arrives. A repeated item has a new start."""
    script = """
        const view = new Proxy({}, { get: () => () => 0 });
        const player = { play() {}, end() {}, flush() {}, underway: () => 2400 };
        let clock = 0;
        const speech = new page.Speech({
          history: view, transcript: view, player, showTrace() {}, showLevel() {}, showProblem() {},
          now: () => clock, send() {},
        });
        const found = [speech.position()];
        speech.audio({ item_id: "a", delta: btoa("\\0".repeat(48000)) });
        speech.played({ playing: "a", samples: 12000, level: 0 });
        found.push(speech.position());
        clock = 50;
        found.push(speech.position());
        clock = 5000;
        found.push(speech.position());
        speech.resent("a", 3000);
        speech.audio({ item_id: "a", delta: btoa("\\0".repeat(48000)) });
        speech.played({ playing: "a", samples: 36000, level: 0 });
        clock = 9000;
        found.push(speech.position());
        speech.played({ flushed: [{ item: "a", samples: 38400 }] });
        clock = 99000;
        found.push(speech.position());
        return found;
    """
    at = [None, 400, 450, 500, 3500, 3500]
    assert evaluate("speech.js", script) == [ms if ms is None else {"item": "a", "ms": ms} for ms in at]


def test_audio_of_an_earlier_repeat_keeps_its_position() -> None:
    """An item is sent a third time while the player has not reached the end of the second."""
    script = """
        const view = new Proxy({}, { get: () => () => 0 });
        const player = { play() {}, end() {}, flush() {}, underway: () => 0 };
        const speech = new page.Speech({
          history: view, transcript: view, player, showTrace() {}, showLevel() {}, showProblem() {},
          now: () => 0, send() {},
        });
        const second = () => speech.audio({ item_id: "a", delta: btoa("\\0".repeat(48000)) });
        const at = (ms) => {
          speech.played({ playing: "a", samples: 24 * ms, level: 0 });
          return speech.position().ms;
        };
        second();
        speech.resent("a", 3000);
        second();
        speech.resent("a", 5000);
        second();
        return [at(900), at(1200), at(1900), at(2100)];
    """
    assert evaluate("speech.js", script) == [900, 3200, 3900, 5100]


def test_words_after_a_filler_appear_when_they_begin() -> None:
    said = """
        const spoken = new page.SpokenText();
        spoken.addAudio(4000);
        spoken.addText("One two.");
        spoken.addAudio(8000);
        spoken.ended = true;
        return [0, 2000, 4000, 4500, 12000].map((played) =>
          [spoken.begun(played, 8000), spoken.text.slice(0, spoken.heardLetters(played, 8000))]);
    """
    assert evaluate("heard.js", said) == [
        ["", ""],
        ["", ""],
        ["", ""],
        ["One", ""],
        ["One two.", "One two."],
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
