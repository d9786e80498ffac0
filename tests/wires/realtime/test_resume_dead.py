"""A network that fails unnoticed: audio sent into it does not count as heard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.echoes import babble
from support.resuming import ANSWER, DELTA, WORDS, audio, back, conversation, transcript, words
from support.serving import Server, Talk, serving

from rejoinder.agent.simulate import scenario
from rejoinder.pipeline import RATE, AudioChunk, Floor, OverlapStarted, Session, SpeechStarted, to_pcm
from rejoinder.pipeline.audio.echo import Echo

WEATHER = "It is sunny today. Take a hat."
SECONDS = len(ANSWER) * 0.06


def held(since: float, unheard: dict[int, float]) -> tuple[scenario.Talk, list[object]]:
    """Return a conversation whose reply had ended by the clock, and sounds again from second 6 on."""
    talk = scenario.Talk("one", "two", replies=(WEATHER, "Fine."), holds_audio=True)
    heard: list[object] = []
    talk.says(1.2, at=0.2)
    talk.does(lambda session: heard.append(session.hold(since)), at=5.9)
    talk.does(lambda session: session.release(unheard), at=6.0)
    return talk, heard


def note(talk: scenario.Talk, into: list[object], at: float) -> None:
    """Record the reply's text in the history, and whose turn it is."""

    def look(session: Session) -> None:
        reply = next(entry for entry in session.history.entries if entry.role == "assistant")
        into.append((reply.text, reply.cut, session.floor.floor))

    talk.does(look, at=at)


def test_reply_counts_as_heard_after_it_was_replayed() -> None:
    talk, heard = held(2.5, {1: 1.0})
    for at in (5.8, 6.01, 6.9, 7.1):
        note(talk, heard, at)
    talk.run(until=8.0)
    assert heard[0] == (WEATHER, False, Floor.NOBODY)
    assert heard[1] == (1, pytest.approx(0.66, abs=0.1)), "the clock stops where the client was last there"
    assert heard[2] == ("It is sunny", True, Floor.AGENT)
    assert heard[4] == (WEATHER, False, Floor.NOBODY)
    assert talk.done() == [(1, "completed", WEATHER)], "and its end is told once"


def test_interrupting_a_replay_keeps_the_part_heard_so_far() -> None:
    talk, _ = held(2.5, {1: 1.5})
    talk.says(1.2, at=6.16)  # it pauses 0.2 s later
    talk.run(until=9.0)
    assert talk.of(OverlapStarted) and len(talk.of(SpeechStarted)) == 2
    assert talk.said() == [
        ("user", "one"),
        ("assistant", "It is—"),
        ("user", "two"),
        ("assistant", "Fine."),
    ]


def test_reply_requested_during_a_replay_comes_after_it() -> None:
    talk, _ = held(2.5, {1: 1.5})
    talk.does(lambda session: session.respond(), at=6.3)
    talk.run(until=9.0)
    assert talk.said()[1:] == [("assistant", WEATHER), ("assistant", "Fine.")]


def test_echo_of_a_replay_is_expected() -> None:
    echo = Echo()
    echo.hear(AudioChunk(bytes(640), RATE, 0), 0.02)
    said = babble(2.0)
    for piece in AudioChunk(to_pcm(said), RATE).slices(RATE // 25):
        echo.play(piece, piece.start / RATE, "Hello." if not piece.start else "")
    assert echo._end == pytest.approx(2 * RATE, abs=20)  # the resampler holds the rest back
    echo.play_again(0.8, 3.0)
    assert not echo._plan[2 * RATE + 20 : 3 * RATE - 20].any()
    assert np.allclose(echo._plan[3 * RATE :][: RATE // 2], said[int(1.2 * RATE) :][: RATE // 2], atol=0.02)
    echo.play_again(0.4, 4.0)  # it broke off again
    assert np.allclose(echo._plan[4 * RATE :][: RATE // 4], said[int(1.6 * RATE) :][: RATE // 4], atol=0.02)
    assert echo._end == pytest.approx(4.4 * RATE, abs=20)


# --- over real sockets --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=f"scripted:llm|{ANSWER}") as running:
        yield running


def dead(server: Server, query: str = "") -> Talk:
    """Return a call whose client has read the first words of an answer that has ended, and is silent."""
    talk = Talk(server, query=query)
    conversation(talk)
    talk.speak()
    for _ in range(10):
        talk.until(DELTA)
    time.sleep(SECONDS + 1.0)
    return talk


@pytest.mark.parametrize("last", [True, False])
def test_client_that_returns_to_a_finished_reply_hears_it_and_can_interrupt(
    server: Server, last: bool
) -> None:
    before = dead(server, "&hold=true")
    query = f"&conversation_id={conversation(before)}" if not last else None
    with Talk(server, query=query) if query else back(server, before) as after:
        after.until(DELTA)
        if not last:
            assert words(after.seen) == ANSWER
        after.speak(seconds=2.0)
        seen = [after.event()["type"]]
        while seen[-1] != "input_audio_buffer.speech_started":
            seen.append(after.event()["type"])
        assert "rejoinder.output_paused" in seen, "it speaks, so that may be a cough"
        assert after.until("response.done")["response"]["status"] == "completed"
    server.wait_idle()


def test_client_that_read_nothing_for_long_gets_all_kept_events(tmp_path: Path) -> None:
    """The last event that it names is older than all that the server still has."""
    said = " ".join([ANSWER] * 3)
    with serving(tmp_path, llm=f"scripted:llm|{said}") as server, Talk(server) as before:
        conversation(before)
        before.speak()
        item = before.until(WORDS)["item_id"]
        time.sleep(len(said) * 0.06 + 1.0)
        with back(server, before) as after:
            resumed = after.until("rejoinder.resumed")
            assert (resumed["after"], resumed["item_id"]) == (None, item)
            assert resumed["audio_start_ms"] > 0, "this much is lost"
            after.until("response.done")
            sent = len(audio(after.seen)) / 48_000
            assert resumed["audio_start_ms"] / 1000 + sent == pytest.approx(0.06 * len(said), rel=0.05)
            assert sent > 5.0
            assert transcript(after, item) == said
        server.wait_idle()
