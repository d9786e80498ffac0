"""What a voice in replicas says of itself, and the audio that a second replica leaves out."""

from __future__ import annotations

import pytest

from rejoinder.models.ray import voice
from rejoinder.models.ray.voice import RemoteWork, after
from rejoinder.pipeline.audio.chunk import AudioChunk


def test_audio_that_was_heard_is_left_out() -> None:
    whole = AudioChunk(bytes(range(20)), 16_000, 100)
    assert after(whole, 0) == after(whole, 100) == whole
    rest = after(whole, 103)
    assert rest and (rest.start, rest.pcm) == (103, bytes(range(6, 20)))
    assert after(whole, 110) is None and after(whole, 500) is None


@pytest.mark.parametrize("machines", [1, 2])
def test_a_voice_is_at_work_on_this_machine_only(machines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice, "machines", lambda: machines)
    work = RemoteWork()
    assert not work.running
    with work.at_work(), work.at_work():
        assert work.running == (machines == 1)
    assert not work.running
