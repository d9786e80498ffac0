"""Calls over a wire, and what their recordings have of both sides."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.callers.recorded import CLIENT_RATE, DELTA, Client, Recorded, loud, noise, place

from rejoinder.agent.recording.timeline import RecordingTimeline
from rejoinder.agent.wires.transport import Disconnected
from rejoinder.pipeline import Options

ANSWER = "It is sunny and warm in all of the country today."
CLOSE = 0.02


def question(begin: float = 1.0) -> tuple[float, float]:
    return begin, 0.8


def test_both_sides_are_where_they_were_heard(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([question()], until=9.0))
    (recording,) = call.run(["what is the weather"], [ANSWER])
    caller, agent = call.sides(recording)
    assert place(caller, noise(0.8, CLIENT_RATE, seed=1000)) == pytest.approx(1.0, abs=CLOSE)
    (_, said) = call.voice.said[0]
    assert place(agent, said) == pytest.approx(call.client.when(DELTA)[0], abs=CLOSE)
    ((begin, end),) = loud(agent)
    assert end - begin == pytest.approx(call.said_seconds, abs=CLOSE), "and none of it is lost"
    assert len(caller) / 16_000 == pytest.approx(9.0, abs=0.5)


def test_file_says_whose_call_it_is_and_who_speaks_when(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([question()], until=9.0))
    (recording,) = call.run(["what is the weather"], [ANSWER])
    assert (recording.call, recording.caller, recording.called) == ("call-1", "+4930123456", "+49800")
    assert recording.ended == "the call has ended" and recording.wire == "realtime"
    said, answered = recording.spans
    assert (said.side, said.begin, said.end) == (
        "caller",
        pytest.approx(1.0, abs=0.1),
        pytest.approx(1.8, abs=0.1),
    )
    (heard,) = loud(call.sides(recording)[1])
    assert (answered.side, answered.turn) == ("agent", 1)
    assert (answered.begin, answered.end) == pytest.approx(heard, abs=CLOSE)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [recording.id + ".flac", recording.id + ".json"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert all("4930" not in file.name for file in files)


def test_what_a_barge_in_cuts_is_silent(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([question(), (4.0, 1.5)], until=11.0))
    (recording,) = call.run(["what is the weather", "no, tomorrow please"], [ANSWER, "Fine."])
    caller, agent = call.sides(recording)
    first, second = loud(agent)
    assert first == pytest.approx(call.client.played[0], abs=CLOSE), "it plays what it has received"
    assert 4.0 < first[1] < 4.5
    assert not np.abs(agent[int((first[1] + 0.01) * 16_000) : int(5.5 * 16_000)]).max() > 0.001
    assert place(caller, noise(1.5, CLIENT_RATE, seed=4000)) == pytest.approx(4.0, abs=CLOSE)
    assert second[0] > 5.5


def test_a_backchannel_is_one_span_to_its_end(tmp_path: Path) -> None:
    """The agent goes on under it, before it is over."""
    call = Recorded(tmp_path, Client([question(), (3.5, 0.7)], until=9.0))
    (recording,) = call.run(["what is the weather", "mm-hm"], [ANSWER * 2])
    (_, hummed) = [span for span in recording.spans if span.side == "caller"]
    assert (hummed.begin, hummed.end) == (pytest.approx(3.5, abs=0.1), pytest.approx(4.2, abs=0.15))


def test_what_the_client_says_it_has_played_is_what_is_heard(tmp_path: Path) -> None:
    def truncate(now: float, event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["type"] != "input_audio_buffer.speech_started" or now < 3.0:
            return []
        item = next(e["item_id"] for _, e in call.client.arrived if e["type"] == DELTA)
        return [
            {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 600}
        ]

    call = Recorded(tmp_path, Client([question(), (4.0, 1.5)], until=9.0, reacts=truncate))
    (recording,) = call.run(["what is the weather", "no, tomorrow please"], [ANSWER, "Fine."])
    begin, end = loud(call.sides(recording)[1])[0]
    assert end - begin == pytest.approx(0.6, abs=CLOSE)


def test_opus_is_smaller(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([question()], until=9.0), recording_format="opus")
    (recording,) = call.run(["what is the weather"], [ANSWER])
    assert recording.file.endswith(".ogg")
    _, agent = call.sides(recording)
    ((begin, _),) = loud(agent)
    assert begin == pytest.approx(call.client.when(DELTA)[0], abs=CLOSE)


def test_client_starts_and_stops_recordings(tmp_path: Path) -> None:
    sends = [
        (2.0, {"type": "rejoinder.recording.start"}),
        (5.0, {"type": "rejoinder.recording.stop"}),
        (5.5, {"type": "rejoinder.recording.stop"}),
        (6.0, {"type": "rejoinder.recording.start"}),
    ]
    call = Recorded(tmp_path, Client([(3.0, 0.5)], 8.0, sends), recording="on_request")
    first, second = call.run([""], [])
    assert first.ended == "stopped" and second.ended == "the call has ended"
    assert (first.seconds, second.seconds) == (pytest.approx(3.0, abs=0.25), pytest.approx(2.0, abs=0.25))
    told = call.client.of("rejoinder.recording.started", "rejoinder.recording.stopped")
    assert [(one["type"].rpartition(".")[2], one["recording_id"]) for one in told] == [
        ("started", first.id),
        ("stopped", first.id),
        ("stopped", ""),
        ("started", second.id),
    ]
    assert loud(call.sides(first)[0]) == [(pytest.approx(1.0, abs=0.25), pytest.approx(1.5, abs=0.25))]


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([question()], until=5.0), recording="on_request")
    assert call.run(["what is the weather"], [ANSWER]) == []
    assert list(tmp_path.iterdir()) == []


NOTICE = "This call is recorded."
GREETING = "Good morning."


@pytest.mark.parametrize("included", [True, False])
def test_announcement_comes_first_and_speech_does_not_stop_it(tmp_path: Path, included: bool) -> None:
    call = Recorded(
        tmp_path,
        Client([(0.5, 0.6)], until=12.0),
        Options(greeting=GREETING),
        recording_announcement=NOTICE,
        recording_includes_announcement=included,
    )
    (recording,) = call.run(["hello there"], ["Yes?"])
    assert recording.announced
    assert " ".join(text for text, _ in call.voice.said).startswith(NOTICE)
    _, agent = call.sides(recording)
    (_, notice), *_ = call.voice.said
    if included:
        assert place(agent, notice) == pytest.approx(call.client.when(DELTA)[0], abs=CLOSE)
        begin, end = loud(agent)[0]
        words = 0.06 * sum(len(text) for text, _ in call.voice.said[:2])
        assert end - begin == pytest.approx(words, abs=CLOSE), "all of it"
    else:
        begun = call.client.when("rejoinder.recording.started")[0]
        assert begun == pytest.approx(call.client.when(DELTA)[0] + 0.06 * len(NOTICE), abs=0.1)
        assert recording.seconds == pytest.approx(12.0 - begun, abs=0.5)


def test_greeting_follows_the_announcement(tmp_path: Path) -> None:
    call = Recorded(
        tmp_path, Client([], until=6.0), Options(greeting=GREETING), recording_announcement=NOTICE
    )
    (recording,) = call.run([], [])
    assert " ".join(text for text, _ in call.voice.said) == f"{NOTICE} {GREETING}"
    assert recording.spans[0].turn == 1 and recording.spans[-1].turn == 2


@pytest.mark.parametrize("included", [True, False])
def test_no_recording_without_the_announcement(tmp_path: Path, included: bool) -> None:
    def cancel(now: float, event: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "response.cancel"}] if event["type"] == DELTA else []

    call = Recorded(
        tmp_path,
        Client([], until=20.0, reacts=cancel),
        recording_announcement=NOTICE,
        recording_includes_announcement=included,
    )
    assert call.run([], []) == []
    assert list(tmp_path.iterdir()) == [] and call.counted == ["discarded"] * (3 if included else 0)
    told = {event["reason"] for event in call.client.of("rejoinder.recording.stopped")}
    assert told == {"the announcement was not heard"}


def test_what_is_said_before_a_second_try_is_not_kept(tmp_path: Path) -> None:
    """The client cancels the announcement while the caller speaks, who is answered before the next one."""
    cancelled = list[float]()

    def cancel(now: float, event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["type"] != DELTA or cancelled or now < 0.8:
            return []
        cancelled.append(now)
        return [{"type": "response.cancel"}]

    client = Client([(0.4, 1.5)], until=15.0, reacts=cancel)
    call = Recorded(tmp_path, client, recording_announcement=NOTICE)
    (recording,) = call.run(["before you record me"], ["", "Yes."])
    caller, agent = call.sides(recording)
    assert recording.announced and call.counted == ["discarded", "complete"]
    assert loud(caller) == [] and recording.seconds < 13.5, "nothing of it"
    assert " ".join(text for text, _ in call.voice.said) == f"{NOTICE} Yes. {NOTICE}"
    (begin, _), *_ = loud(agent)
    assert begin < 0.3


def test_announcement_is_spoken_in_a_session_in_text_too(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([], until=6.0), Options(speaks=False), recording_announcement=NOTICE)
    (recording,) = call.run([], [])
    _, agent = call.sides(recording)
    ((begin, end),) = loud(agent)
    assert recording.announced and end - begin == pytest.approx(call.said_seconds, abs=CLOSE)


@pytest.mark.parametrize("late", [True, False])
def test_client_that_reports_that_it_has_not_played_the_announcement(tmp_path: Path, late: bool) -> None:
    """It reports when all of it is sent, or only once the greeting plays."""

    def truncate(now: float, event: dict[str, Any]) -> list[dict[str, Any]]:
        done = [one["response"]["output"] for one in call.client.of("response.done")]
        if event["type"] != (DELTA if late else "response.done") or not done or not done[-1]:
            return []
        item = done[-1][0]["id"]
        message = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0}
        return [{**message, "audio_end_ms": 500}]

    client = Client([], until=8.0, reacts=truncate)
    call = Recorded(tmp_path, client, Options(greeting=GREETING), recording_announcement=NOTICE)
    assert call.run([], []) == []
    assert set(call.counted) == {"discarded"} and list(tmp_path.iterdir()) == []


def test_announcement_cut_by_the_last_message_of_a_call_is_not_kept(tmp_path: Path) -> None:
    """The client reports that it has played less, and leaves before it sends any more audio."""

    class Leaving(Client):
        async def run(self) -> None:
            await asyncio.sleep(4.0)
            (done,) = self.of("response.done")
            item = {"item_id": done["response"]["output"][0]["id"], "content_index": 0}
            self.send({"type": "conversation.item.truncate", **item, "audio_end_ms": 500})
            self.sent.put_nowait(Disconnected(1000))

    call = Recorded(tmp_path, Leaving([], until=1.0), recording_announcement=NOTICE)
    assert call.run([], []) == []
    assert call.counted == ["discarded"] and list(tmp_path.iterdir()) == []


def test_a_client_that_sends_nothing_is_written_all_the_same(tmp_path: Path) -> None:
    class Silent(Client):
        async def run(self) -> None:
            await asyncio.sleep(24.0)
            self.sent.put_nowait(Disconnected(1000))

    call = Recorded(tmp_path, Silent([], until=1.0), Options(greeting=GREETING))
    (recording,) = call.run([], [])
    assert recording.ended == "the call has ended" and recording.seconds == pytest.approx(24.0, abs=0.5)


@pytest.mark.parametrize("stops", [True, False])
def test_settings_that_change_in_the_announcement_count_after_it(tmp_path: Path, stops: bool) -> None:
    detection = {"type": "server_vad", "interrupt_response": stops}
    settings = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
    sends = [(0.3, {"type": "session.update", "session": settings})]
    call = Recorded(
        tmp_path,
        Client([(0.7, 1.5), (4.5, 1.5)], 11.0, sends),
        Options(interrupt_response=not stops),
        recording_announcement=f"{NOTICE} {NOTICE}",
    )
    script = ["", ANSWER, "Fine."]  # the announcement is the agent's first answer
    (recording,) = call.run(["what is the weather", "no, tomorrow please"], script)
    assert recording.announced
    told = [event["response"]["status"] for event in call.client.of("response.done")]
    assert told == ["completed", "cancelled" if stops else "completed", "completed"]


@pytest.mark.parametrize("included", [True, False])
def test_recording_that_stops_before_it_is_announced_is_not_kept(tmp_path: Path, included: bool) -> None:
    call = Recorded(
        tmp_path,
        Client([], 6.0, [(0.5, {"type": "rejoinder.recording.stop"})]),
        recording_announcement=NOTICE,
        recording_includes_announcement=included,
    )
    assert call.run([], []) == []
    assert list(tmp_path.iterdir()) == [] and call.counted == (["discarded"] if included else [])
    (told,) = call.client.of("rejoinder.recording.stopped")
    assert told["reason"] == ("the announcement was not heard" if included else "stopped")


def test_caller_who_hangs_up_in_the_announcement_is_not_recorded(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([], until=0.8), recording_announcement=NOTICE)
    assert call.run([], []) == []
    assert list(tmp_path.iterdir()) == [] and call.counted == ["discarded"]


@pytest.mark.parametrize("included", [True, False])
def test_recording_that_is_asked_for_again_is_announced(tmp_path: Path, included: bool) -> None:
    sends = [
        (0.5, {"type": "rejoinder.recording.stop"}),
        (0.6, {"type": "rejoinder.recording.start"}),
        (0.7, {"type": "rejoinder.recording.start"}),
    ]
    call = Recorded(
        tmp_path,
        Client([], 9.0, sends),
        recording_announcement=NOTICE,
        recording_includes_announcement=included,
    )
    (recording,) = call.run([], [])
    assert recording.announced and recording.ended == "the call has ended"
    said = " ".join(text for text, _ in call.voice.said)
    assert said == (f"{NOTICE} {NOTICE}" if included else NOTICE)


def test_index_is_json(tmp_path: Path) -> None:
    call = Recorded(tmp_path, Client([question()], until=5.0))
    (recording,) = call.run(["what is the weather"], [ANSWER])
    known = json.loads((tmp_path / f"{recording.id}.json").read_text())
    assert known["seconds"] == pytest.approx(5.0, abs=0.25) and "weather" not in json.dumps(known)


def test_a_fault_in_the_recorder_ends_the_recording_and_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: RecordingTimeline, pcm: bytes, now: float) -> None:
        if now > 2.0:
            raise ValueError("a bug")
        heard(self, pcm, now)

    heard = RecordingTimeline.hear
    monkeypatch.setattr(RecordingTimeline, "hear", fail)
    call = Recorded(tmp_path, Client([question(3.0)], until=9.0))
    (recording,) = call.run(["what is the weather"], [ANSWER])
    assert "an error in the server" in recording.ended and "a bug" in caplog.text
    assert call.client.of(DELTA), "the agent answers"
    (told,) = call.client.of("rejoinder.recording.stopped")
    assert told["recording_id"] == recording.id
