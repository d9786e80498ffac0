"""Both sides on one clock: where audio is placed, and what a cut, a hold and a report change of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.recording.timeline import MAY_CHANGE_SECONDS, MOST_BLOCK_SECONDS, RecordingTimeline
from rejoinder.pipeline import RATE, AudioChunk

FRAME = RATE // 50
BEGAN = 1000.0


def sound(samples: int = FRAME) -> bytes:
    return np.full(samples, 1000, "<i2").tobytes()


def reply(timeline: RecordingTimeline, at: float, seconds: float, turn: int = 1, rate: int = RATE) -> None:
    for piece in AudioChunk(sound(int(seconds * rate)), rate).slices(rate // 25):
        timeline.play(piece, at + piece.start / rate, turn=turn)


def written(
    timeline: RecordingTimeline, end: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return when each side is heard, in seconds, if the recording ends at ``end``."""
    blocks = []
    while block := timeline.take(BEGAN + end, whole=True):
        assert block.end - block.start <= MOST_BLOCK_SECONDS * RATE
        blocks.append(block)
    heard = [(one.at, one.at + len(one.pcm) // 2) for block in blocks for one in block.heard]
    played = [(one.at, one.at + one.chunk.seconds * RATE) for block in blocks for one in block.played]
    return spans(heard), spans(played)


def spans(pieces: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in pieces:
        if found and abs(begin / RATE - found[-1][1]) < 1e-4:
            found[-1] = (found[-1][0], end / RATE)
        else:
            found.append((begin / RATE, end / RATE))
    return found


def close(*wanted: tuple[float, float]) -> list[object]:
    return [pytest.approx(one, abs=1e-3) for one in wanted]


def test_audio_is_where_it_arrives_and_a_delay_is_made_up() -> None:
    timeline = RecordingTimeline(BEGAN)
    for frame in range(100):
        late = 0.3 if 40 <= frame < 55 else 0.0  # they arrive in one burst
        timeline.hear(sound(), BEGAN + 0.02 * (54 if late else frame) + 0.02)
    heard, _ = written(timeline, 3.0)
    assert heard == close((0.0, 2.0))


def test_a_client_that_sends_nothing_leaves_silence() -> None:
    timeline = RecordingTimeline(BEGAN)
    timeline.hear(sound(RATE), BEGAN + 1.0)
    timeline.hear(sound(RATE), BEGAN + 5.0)
    heard, _ = written(timeline, 6.0)
    assert heard == close((0.0, 1.0), (4.0, 5.0))


def test_a_client_that_sends_all_at_once_is_answered_behind_its_words() -> None:
    timeline = RecordingTimeline(BEGAN)
    timeline.hear(sound(10 * RATE), BEGAN + 0.1)
    reply(timeline, BEGAN + 0.6, 1.0)
    timeline.hear(sound(RATE), BEGAN + 3.0)
    heard, played = written(timeline, 3.0)
    assert heard == close((0.0, 10.0), (11.9, 12.9))
    assert played == close((10.5, 11.5))


def test_the_reply_of_a_slow_client_clock_stays_beside_its_question() -> None:
    timeline = RecordingTimeline(BEGAN)
    for frame in range(3000):  # a minute, 200 ppm slow
        timeline.hear(sound(), BEGAN + 0.02 * (frame + 1) * 1.0002)
    heard, _ = written(timeline, 60.1)
    assert len(heard) == 1 and heard[0] == pytest.approx((0.0, 60.0), abs=0.11)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000])
def test_what_a_barge_in_cuts_is_not_there(rate: int) -> None:
    timeline = RecordingTimeline(BEGAN)
    reply(timeline, BEGAN + 1.0, 2.0, rate=rate)
    timeline.cut(BEGAN + 1.55)
    _, played = written(timeline, 4.0)
    assert played == close((1.0, 1.55))


def test_a_report_of_the_client_is_truer_than_the_clock() -> None:
    timeline = RecordingTimeline(BEGAN)
    reply(timeline, BEGAN + 1.0, 2.0)
    timeline.cut(BEGAN + 2.5)
    timeline.truncate(1, 1.2)
    reply(timeline, BEGAN + 4.0, 0.4, turn=2)
    timeline.truncate(9, 0.0)
    _, played = written(timeline, 5.0)
    assert played == close((1.0, 2.2), (4.0, 4.4))


def test_a_client_that_holds_its_audio_plays_it_later() -> None:
    timeline = RecordingTimeline(BEGAN)
    reply(timeline, BEGAN + 1.0, 1.0)
    timeline.hold(BEGAN + 1.5)
    timeline.release(BEGAN + 2.5)
    reply(timeline, BEGAN + 3.0, 0.4)
    timeline.hold(BEGAN + 3.2)
    timeline.cut(BEGAN + 3.5)
    _, played = written(timeline, 5.0)
    assert played == close((1.0, 1.5), (2.5, 3.2))


def test_a_client_that_returns_hears_the_end_again() -> None:
    timeline = RecordingTimeline(BEGAN)
    reply(timeline, BEGAN + 1.0, 2.0)
    timeline.cut(BEGAN + 2.0)  # it was lost
    timeline.play_again(1.2, BEGAN + 6.0)
    _, played = written(timeline, 8.0)
    assert played == close((1.0, 2.0), (6.0, 7.2))


def test_blocks_come_once_nothing_in_them_can_change() -> None:
    timeline = RecordingTimeline(BEGAN)
    assert timeline.take(BEGAN + MAY_CHANGE_SECONDS) is None
    reply(timeline, BEGAN + 1.0, 8.0)
    block = timeline.take(BEGAN + MAY_CHANGE_SECONDS + 3.0)
    assert block and (block.start, block.end) == (0, 3 * RATE)
    timeline.cut(BEGAN + 6.0)
    rest = timeline.take(BEGAN + 10.0, whole=True)
    assert rest and (rest.start, rest.end) == (3 * RATE, 10 * RATE)
    assert rest.played[-1].at + len(rest.played[-1].chunk) == pytest.approx(6 * RATE, abs=2)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["hear", "play", "hold", "release", "cut", "truncate", "again", "take"]),
        st.floats(0.0, 3.0),
        st.integers(0, 3 * RATE),
    ),
    max_size=40,
)


@given(MOVES)
def test_blocks_follow_each_other_whatever_happens(moves: list[tuple[str, float, int]]) -> None:
    timeline, now, end, turn = RecordingTimeline(BEGAN), BEGAN, 0, 0
    blocks = []
    for what, seconds, size in moves:
        now += seconds
        match what:
            case "hear":
                timeline.hear(sound(size), now)
            case "play":
                turn += 1
                reply(timeline, now, size / RATE, turn)
            case "hold":
                timeline.hold(now)
            case "release":
                timeline.release(now)
            case "cut":
                timeline.cut(now)
            case "truncate":
                timeline.truncate(turn, seconds)
            case "again":
                timeline.play_again(seconds, now)
            case "take":
                blocks.append(timeline.take(now))
    while block := timeline.take(now, whole=True):
        blocks.append(block)
    total = 0
    for block in filter(None, blocks):
        assert block.start == end <= block.end
        end = block.end
        assert all(block.start <= one.at and one.at + len(one.pcm) // 2 <= end for one in block.heard)
        assert all(block.start <= one.at < end for one in block.played)
        total += sum(len(one.pcm) // 2 for one in block.heard)
    assert total == sum(size for what, _, size in moves if what == "hear"), "no word of the caller is lost"
