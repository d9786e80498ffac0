"""A picture of a call: two tracks of speech over time, the words, the latencies and the cuts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.hints import install
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import PipelineError

CALLER = "caller"
"""Speaker of the upper track."""
AGENT = "agent"
"""Speaker of the lower track."""
COLOURS = {CALLER: "#2f6fb0", AGENT: "#2a9d6f"}
"""The colour of each side in the plot."""
INK = "#222222"
"""Colour of text."""
FAINT_COLOUR = "#a0a0a0"
"""Colour of words that were not heard."""
RED = "#c8372d"
"""Colour of interruptions."""
PLACES = {CALLER: 1.0, AGENT: -1.0}
"""The middle of each track on the vertical axis."""
COLUMNS_PER_SECOND = 50
"""Resolution of the drawn level, in columns per second."""
CAPTION_CHARACTERS_PER_SECOND = 8.5
"""Characters of a caption that fit into the width of a second."""


@dataclass(frozen=True, slots=True)
class SpokenSpan:
    """Spoken words; times in seconds. unheard: words that a cut removed."""

    who: str
    begin: float
    end: float
    text: str
    unheard: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time in seconds from the end of the caller's words to the first sound of the answer."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Interruption:
    """The agent was silent from second ``end`` on, because the caller began to speak at second ``begin``.

    begin: None if the caller had only paused and went on.
    """

    begin: float | None
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """A call: spoken and played audio, float32 of shape (n,), both from the start, at ``rate`` Hz."""

    said: Samples
    heard: Samples
    rate: int
    spoken: Sequence[SpokenSpan]
    gaps: Sequence[Gap]
    interruptions: Sequence[Interruption]


class PlotMissing(PipelineError):
    """Matplotlib is not installed."""


def check() -> None:
    """Raise PlotMissing if ``draw`` could not draw."""
    if find_spec("matplotlib") is None:
        raise PlotMissing(f"the picture needs matplotlib; run: {install('bench')}")


def draw(timeline: Timeline, path: Path) -> None:
    """Write the picture as a PNG. Raises PlotMissing."""
    check()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not pyplot: it looks for a display, and keeps the figure in memory.
    seconds = len(timeline.said) / timeline.rate
    figure = Figure(figsize=(min(40.0, max(10.0, 0.62 * seconds + 1.0)), 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for who, samples in ((CALLER, timeline.said), (AGENT, timeline.heard)):
        _track(axes, who, samples, timeline.rate)
    for spoken in timeline.spoken:
        _caption(axes, spoken)
    for gap in timeline.gaps:
        _gap(axes, gap)
    for interruption in timeline.interruptions:
        _interruption(axes, interruption)
    axes.set_xlim(0, seconds)
    axes.set_ylim(-2.35, 2.2)
    axes.set_yticks(list(PLACES.values()), list(PLACES), fontsize=11)
    title = "Shaded: from the caller's last word to the first sound of the answer. [Grey]: cut, never heard."
    axes.set_title(title, loc="left", fontsize=9, color="#666666")
    axes.set_xlabel("seconds, as said and heard at the caller's end")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path)


def envelope(samples: Samples, rate: int) -> tuple[Samples, Samples]:
    """Return times in seconds and the peak around each, ``COLUMNS_PER_SECOND`` of them a second."""
    size = max(1, rate // COLUMNS_PER_SECOND)
    count = len(samples) // size
    peaks = np.abs(samples[: count * size]).reshape(count, size).max(axis=1) if count else samples[:0]
    times = (np.arange(count, dtype=np.float32) + 0.5) * np.float32(size / rate)
    return times, peaks.astype(np.float32)


def wrap(text: str, seconds: float) -> str:
    """Break a caption into lines of about the width of its speech."""
    return "\n".join(textwrap.wrap(text, max(16, int(seconds * CAPTION_CHARACTERS_PER_SECOND))))


def drawable(text: str) -> str:
    """Return the text without characters that the font lacks, such as emoji."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    return "".join(sign for sign in text if sign.isspace() or font.get_char_index(ord(sign)))


def _track(axes: Any, who: str, samples: Samples, rate: int) -> None:
    times, peaks = envelope(samples, rate)
    loudest = max(float(peaks.max(initial=0.0)), 1e-3)
    # The square root makes soft syllables visible beside loud ones.
    height = 0.5 * np.sqrt(peaks / loudest)
    middle = PLACES[who]
    axes.axhline(middle, color=COLOURS[who], linewidth=0.6, alpha=0.5)
    axes.fill_between(times, middle - height, middle + height, color=COLOURS[who], linewidth=0)


def _caption(axes: Any, spoken: SpokenSpan) -> None:
    above = spoken.who == CALLER
    place = PLACES[spoken.who] + (0.6 if above else -0.6)
    shown = wrap(drawable(spoken.text), spoken.end - spoken.begin)
    style = {"fontsize": 8.5, "va": "bottom" if above else "top", "ha": "left", "linespacing": 1.2}
    style |= {"parse_math": False}  # two dollar signs in a sentence are not a formula
    axes.text(spoken.begin, place, shown, color=INK, **style)
    if spoken.unheard:
        lines = "\n" * (shown.count("\n") + 1 if shown else 0)
        lost = f"{lines}{wrap(f'[{drawable(spoken.unheard)}]', max(3.0, spoken.end - spoken.begin))}"
        axes.text(spoken.begin, place, lost, color=FAINT_COLOUR, style="italic", **style)


def _gap(axes: Any, gap: Gap) -> None:
    axes.axvspan(gap.begin, gap.end, ymin=0.29, ymax=0.74, color="#f2c14e", alpha=0.35, linewidth=0)
    arrow = {"arrowstyle": "<->", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (gap.begin, 0.0), (gap.end, 0.0), arrowprops=arrow)
    axes.text(
        (gap.begin + gap.end) / 2,
        0.08,
        f"{1000 * (gap.end - gap.begin):.0f} ms",
        ha="center",
        va="bottom",
        fontsize=10,
        fontweight="bold",
        color=INK,
    )


def _interruption(axes: Any, interruption: Interruption) -> None:
    begin, end = interruption.begin, interruption.end
    axes.plot([end, end], [-1.55, 0.0], color=RED, linewidth=1.4)
    if begin is None:
        label = "stops: the caller goes on"
    else:
        axes.plot([begin, begin], [0.0, 1.0], color=RED, linewidth=0.9, linestyle=":")
        axes.plot([begin, end], [0.0, 0.0], color=RED, linewidth=0.9)
        label = f"interrupted: silent after {1000 * (end - begin):.0f} ms"
    # Below the line, where a latency's own label does not go.
    axes.text(end + 0.06, -0.14, label, ha="left", va="center", fontsize=9, color=RED)
