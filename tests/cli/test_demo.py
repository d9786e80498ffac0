"""The whole program from outside: a real server, a real conversation, a real interruption."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console

from rejoinder.agent.bench.reports.timeline import AGENT, SpokenSpan, Timeline, draw, drawable, envelope, wrap
from rejoinder.agent.cli.demo import demo
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.pipeline.audio.chunk import to_float

ANSWER = " ".join(f"This is sentence number {number} of a story about the sea." for number in range(1, 5))
"""Nine seconds: on a busy machine the interruption comes later. A language model may say less."""
ANSWERS = f"Hello, I can help you.|{ANSWER}|Goodbye."
"""Only the second answer is interrupted. The others are heard out, and may be short."""


@pytest.mark.weights
@pytest.mark.realtime
def test_a_demo_talks_interrupts_and_leaves_a_recording(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    pytest.importorskip("piper", reason="needs the extra piper")
    pytest.importorskip("hibari", reason="needs the extra hibari")
    console = Console(width=100, force_terminal=False)
    with console.capture() as shown:
        outcome = asyncio.run(demo(llm=f"scripted:llm|{ANSWERS}", out=tmp_path, console=console))
    output = shown.get()
    assert len(outcome.exchanges) == 3
    for exchange in outcome.exchanges:
        assert exchange.reply is not None and exchange.latency_ms is not None and exchange.latency_ms > 0
        assert exchange.reply.text.strip() and exchange.parts
        assert sum(ms for _, ms in exchange.parts) == pytest.approx(exchange.latency_ms)
    interrupted = outcome.exchanges[1].reply
    assert interrupted is not None and interrupted.cut is not None
    assert "ocean" in output and "[cut, unheard:" in output and "last word to first sound" in output
    audio, rate = soundfile.read(outcome.wav, dtype="float32")
    assert rate == CLIENT_RATE and audio.shape[1] == 2
    cut = interrupted.cut.at
    assert not audio[cut : cut + CLIENT_RATE // 10, 1].any(), "silence after the cut"
    assert audio[: cut + 1, 1].any() and audio[:, 0].any()
    assert outcome.png.read_bytes().startswith(b"\x89PNG") and outcome.png.stat().st_size > 20_000


def test_an_envelope_keeps_its_peaks() -> None:
    times, peaks = envelope(to_float(b"\x00\x00" * 480 + b"\x00\x40" + b"\x00\x00" * 479), CLIENT_RATE)
    assert times.tolist() == pytest.approx([0.01, 0.03])
    assert peaks.tolist() == [0.0, 0.5]
    assert envelope(to_float(b""), CLIENT_RATE)[0].size == 0


def test_captions_are_about_as_wide_as_their_speech() -> None:
    assert wrap("one two three four five six", 2.0) == "one two three\nfour five six"
    assert wrap("", 1.0) == ""


def test_words_that_no_font_can_draw_do_not_spoil_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert drawable("A \N{GLOWING STAR} for you, Zoë.") == "A  for you, Zoë."
    text = "It costs $5 or $6 \N{GLOWING STAR}"
    silence = np.zeros(24_000, np.float32)
    draw(
        Timeline(silence, silence, 24_000, [SpokenSpan(AGENT, 0.1, 0.9, text, text)], [], []),
        tmp_path / "x.png",
    )
    assert (tmp_path / "x.png").stat().st_size > 1000
