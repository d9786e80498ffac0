"""The caller's microphone, loudspeaker and account of a call; and one call to a server unlike ours."""

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve

from rejoinder.agent.bench.callers.caller import open_call
from rejoinder.agent.bench.callers.microphone import MICROPHONE_FRAME, Microphone
from rejoinder.agent.bench.callers.turns import HeardReply
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost
from rejoinder.agent.simulate.player import Cut, Player
from rejoinder.pipeline.audio.chunk import Samples, to_float, to_pcm
from rejoinder.pipeline.audio.loudness import AUDIBLE


def tone(length: int, level: float = 0.5) -> Samples:
    return np.full(length, level, np.float32)


def test_audio_plays_when_it_arrives_and_after_what_is_queued() -> None:
    player = Player()
    assert player.play("a", tone(100), now=1000) == 1000
    assert player.play("a", tone(50), now=1010) == 1100
    assert player.play("a", tone(50), now=2000) == 2000
    assert player.end == 2050
    assert [player.played("a", now) for now in (900, 1000, 1060, 1149, 1150, 1999, 2025, 3000)] == [
        0, 0, 60, 149, 150, 150, 175, 200,
    ]  # fmt: skip
    assert np.flatnonzero(player.track(2050)).tolist() == [*range(1000, 1150), *range(2000, 2050)]


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3000)), max_size=8),
    stop=st.integers(0, 30_000),
)
def test_a_flush_leaves_exactly_what_was_heard(arrivals: list[tuple[int, int]], stop: int) -> None:
    player, whole, now = Player(), Player(), 0
    for wait, length in arrivals:
        now += wait
        player.play("a", tone(length), now)
        whole.play("a", tone(length), now)
    stop = max(stop, now)
    heard, playing = whole.played("a", stop), whole.playing(stop)
    cut = player.flush(stop)
    assert (cut is not None) == playing
    assert np.array_equal(player.track(stop + 100)[:stop], whole.track(stop))
    assert not player.track(stop + 100)[stop:].any()
    if cut is not None:
        assert cut.at == stop
        assert cut.played_ms * CLIENT_RATE <= heard * 1000 < (cut.played_ms + 1) * CLIENT_RATE
        assert cut.unheard == whole.received("a") - heard
        assert player.played("a", stop + 10_000) == heard
        player.play("a", tone(480), stop + 10)
        assert not player.playing(stop + 20), "what comes late of a cut item is not played"
        assert player.play("b", tone(480), stop + 10) == stop + 10


def test_a_flush_of_silence_is_no_interruption() -> None:
    player = Player()
    assert player.flush(0) is None
    player.play("a", tone(100), 0)
    assert player.flush(100) is None


def test_the_first_audible_sample_is_found_behind_silence() -> None:
    player = Player()
    player.play("a", tone(480, AUDIBLE / 2), 100)
    assert player.first_audible("a") is None
    player.play("a", np.concatenate((tone(7, 0.0), tone(5, -0.1))), 100)
    assert player.first_audible("a") == 100 + 480 + 7
    assert player.first_audible("b") is None
    assert player.last_sample("a") == 100 + 480 + 12


def test_a_microphone_says_things_in_order_over_its_background() -> None:
    microphone = Microphone(tone(7, 0.01))
    microphone.frame()
    assert microphone.say(tone(MICROPHONE_FRAME + 10)) == MICROPHONE_FRAME
    assert microphone.say(tone(5, 0.25)) == 2 * MICROPHONE_FRAME + 10
    for _ in range(3):
        microphone.frame()
    expected = np.full(4 * MICROPHONE_FRAME, 0.01, np.float32)
    expected[MICROPHONE_FRAME : 2 * MICROPHONE_FRAME + 10] = 0.5
    expected[2 * MICROPHONE_FRAME + 10 : 2 * MICROPHONE_FRAME + 15] = 0.25
    assert np.array_equal(microphone.track(), expected)


@given(st.integers(0, 10_000))
def test_a_frame_is_due_when_its_last_sample_is_recorded(frames: int) -> None:
    microphone = Microphone()
    microphone._frames = [tone(MICROPHONE_FRAME)] * frames
    assert microphone.due() == pytest.approx(0.02 * (frames + 1), abs=1e-9)


def test_a_microphone_speaks_until_all_is_said() -> None:
    microphone = Microphone()
    states = []
    for length in (0, MICROPHONE_FRAME + 1, 0, 0):
        microphone.say(tone(length))
        states.append(microphone.speaking)
        microphone.frame()
    assert states == [False, True, True, False]


def test_a_frame_is_pcm_as_the_wire_wants_it() -> None:
    microphone = Microphone()
    microphone.say(tone(MICROPHONE_FRAME))
    assert np.allclose(to_float(microphone.frame()), 0.5, atol=1e-4)


def reply(*deltas: tuple[str, int], status: str = "completed") -> HeardReply:
    made = HeardReply("r", 0, "a", status=status)
    for text, received in deltas:
        made.write(text, received)
    return made


def test_words_are_heard_as_their_audio_is() -> None:
    spoken = reply(("One two three.", 0), (" Four.", 14_000))
    assert [spoken.heard(played, 20_000) for played in (0, 5000, 9000, 14_000, 19_999, 20_000)] == [
        "", "One", "One two", "One two three.", "One two three.", "One two three. Four.",
    ]  # fmt: skip


def test_text_that_comes_ahead_of_all_audio_is_spread_over_it() -> None:
    spoken = reply(("One ", 0), ("two ", 0), ("three.", 0))
    assert spoken.text == "One two three."
    assert [spoken.heard(played, 14_000) for played in (0, 5000, 14_000)] == ["", "One", "One two three."]


def test_a_cut_reply_was_not_heard_to_its_end_because_its_audio_ends() -> None:
    cut = reply(("One two three four five six seven.", 0), status="cancelled")
    assert cut.heard(CLIENT_RATE // 2, CLIENT_RATE // 2) == "One"


@given(
    st.lists(st.tuples(st.text(alphabet="ab .", max_size=12), st.integers(0, 5000)), max_size=5), st.data()
)
def test_heard_words_grow_into_the_text(pieces: list[tuple[str, int]], data: st.DataObject) -> None:
    place, deltas = 0, []
    for text, length in pieces:
        deltas.append((text, place))
        place += length
    spoken = reply(*deltas)
    sooner, later = sorted((data.draw(st.integers(0, place)), data.draw(st.integers(0, place))))
    assert spoken.text.startswith(spoken.heard(later, place))
    assert spoken.heard(later, place).startswith(spoken.heard(sooner, place))


BURST_SECONDS = 10
"""So many that a busy machine hears of the interruption before the end."""
BURST = to_pcm(tone(BURST_SECONDS * CLIENT_RATE))


async def foreign_server(socket: ServerConnection, received: list[dict[str, Any]]) -> None:
    """Burst ten seconds of audio under the old event names, then hear the caller speak up."""

    async def send(type_: str, **fields: Any) -> None:
        await socket.send(json.dumps({"type": type_, **fields}))

    place = {"response_id": "r1", "item_id": "i1"}
    await send("session.created", session={})
    await send("response.created", response={"id": "r1"})
    await send(
        "response.audio_transcript.delta", **place, delta="Something long that is cut off. " * BURST_SECONDS
    )
    await send("response.audio.delta", **place, delta=base64.b64encode(BURST).decode())
    await send("response.done", response={"id": "r1", "status": "completed"})
    await send("something.new", anything=1)
    interrupted = False
    async for message in socket:
        received.append(json.loads(message))
        if len(received) == 25 and not interrupted:
            interrupted = True
            await send("input_audio_buffer.speech_started", item_id="u1", audio_start_ms=0)
        if received[-1]["type"] == "conversation.item.truncate":
            await send("error", error={"message": "just so"})


def test_a_caller_gets_on_with_a_server_that_bursts_and_traces_nothing() -> None:
    async def call() -> list[dict[str, Any]]:
        received: list[dict[str, Any]] = []
        async with serve(lambda socket: foreign_server(socket, received), "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with open_call(f"ws://127.0.0.1:{port}/v1/realtime", key="secret") as caller:
                assert await caller.until(lambda: bool(caller.errors), 60)
                said, heard = caller.tracks()
                assert len(said) == len(heard)
                [reply] = caller.replies
                assert reply.cut is not None and reply.parts == []
                assert 0 < caller.player.received("i1") < BURST_SECONDS * CLIENT_RATE
                assert 0 < len(caller.heard(reply)) < len(reply.text)
            return received

    received = asyncio.run(call())
    [truncate] = [event for event in received if event["type"] == "conversation.item.truncate"]
    assert truncate["item_id"] == "i1" and truncate["content_index"] == 0
    assert 0 < truncate["audio_end_ms"] < BURST_SECONDS * 1000
    appended = [event for event in received if event["type"] == "input_audio_buffer.append"]
    assert all(len(base64.b64decode(event["audio"])) == 2 * MICROPHONE_FRAME for event in appended)


def test_a_server_that_hangs_up_is_a_lost_call() -> None:
    async def hang_up(socket: ServerConnection) -> None:
        await socket.close(1013, "all lines are busy")

    async def call() -> None:
        async with serve(hang_up, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with open_call(f"ws://127.0.0.1:{port}") as caller:
                await caller.until(lambda: False, 60)

    with pytest.raises(CallLost, match=r"1013|server ended"):
        asyncio.run(call())


def test_unreachable_server_is_a_lost_call() -> None:
    async def call() -> None:
        async with open_call("ws://127.0.0.1:9"):
            pass

    with pytest.raises(CallLost, match="cannot call"):
        asyncio.run(call())


def test_an_exception_leaves_the_block_unchanged() -> None:
    async def call() -> None:
        received: list[dict[str, Any]] = []
        async with serve(lambda socket: foreign_server(socket, received), "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with open_call(f"ws://127.0.0.1:{port}"):
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(call())


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3000)), min_size=1, max_size=8),
    stop=st.integers(0, 20_000),
    length=st.integers(0, 9000),
)
def test_a_hold_moves_what_follows_and_loses_nothing(
    arrivals: list[tuple[int, int]], stop: int, length: int
) -> None:
    player, number, now, held = Player(), 0, 0, False
    for wait, count in arrivals:
        if not held and now + wait >= stop:
            player.hold(stop)
            held = True
        now += wait
        audio = np.arange(number + 1, number + 1 + count, dtype=np.float32)
        player.play("a", audio, now)
        number += count
    if not held:
        player.hold(max(now, stop))
    begin = stop if held else max(now, stop)
    end = max(begin, now) + length
    assert not player.playing(end)
    player.release(end)
    track = player.track(end + number + 1)
    assert not track[begin:end].any(), "silence"
    assert np.array_equal(track[track > 0], np.arange(1, number + 1)), "every sample once, in order"


def test_held_audio_can_still_be_discarded() -> None:
    player = Player()
    player.play("a", tone(1000), 0)
    player.hold(400)
    player.play("a", tone(200), 450)
    cut = player.flush(900)
    assert cut == Cut("a", 400, 400 * 1000 // CLIENT_RATE, 800)
    player.release(950)
    assert not player.playing(950)
    assert player.play("b", tone(10), 960) == 960
    assert (player.last_audible("a"), player.last_audible("c")) == (400, None)
