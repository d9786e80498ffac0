"""Draw the moving picture of a call in README: hold a real one, and write it as an animated SVG.

.venv/bin/python docs/pictures/demo.py docs/pictures/demo.svg

Words, times and levels are those of ``rejoinder demo``: a simulated caller, the real server, the real models.
The picture plays at the speed of the call, by CSS alone, and begins again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from rejoinder.agent.bench.reports.timeline import AGENT, CALLER, Timeline
from rejoinder.agent.cli.demo import demo
from rejoinder.agent.config import load

WIDTH, LEFT, TOP = 860, 24, 92
LINE, GAP = 21, 12
CHARACTERS = 72
BARS_PER_SECOND = 8
END_SECONDS = 3.0
"""How long the whole call stands before it begins again."""
COLOURS = {CALLER: "#2f6fb0", AGENT: "#1f8a5c"}


def picture(call: Timeline) -> str:
    """Return the SVG of a call."""
    seconds = len(call.said) / call.rate
    whole = seconds + END_SECONDS
    body, height = _track(call, seconds), TOP + GAP
    rules: list[str] = []
    for number, one in enumerate(sorted(call.spoken, key=lambda one: one.begin)):
        latency = next((gap for gap in call.gaps if abs(gap.end - one.begin) < 0.05), None)
        lines, words = _lines(one.text, one.unheard), 0
        count = len(one.text.split())
        body.append(
            f'<text x="{LEFT}" y="{height + 15}" class="who" fill="{COLOURS[one.who]}">{one.who}</text>'
        )
        if latency and one.who == AGENT:
            name = f"m{number}"
            shown = f"{(latency.end - latency.begin) * 1000:.0f} ms after the last word"
            body.append(f'<text x="{WIDTH - LEFT}" y="{height + 15}" class="ms {name}">{shown}</text>')
            rules.append(_appears(name, latency.end, whole))
        for line in lines:
            spans = []
            for word, heard in line:
                at = one.begin + (one.end - one.begin) * min(words, count) / max(count, 1)
                name = f"w{round(at * 10)}"
                rules.append(_appears(name, round(at, 1), whole))
                spans.append(f'<tspan class="{name}{"" if heard else " cut"}">{escape(word)} </tspan>')
                words += 1
            body.append(f'<text x="{LEFT + 70}" y="{height + 15}" class="words">{"".join(spans)}</text>')
            height += LINE
        height += GAP
    rules = [*dict.fromkeys(rules)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + 4}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="15">',
            f"<title>{escape(_title(call))}</title>",
            "<style>",
            ".who { font-weight: 600 } .words { fill: #24292f }",
            ".ms { fill: #a0522d; text-anchor: end; font-size: 13px }",
            ".cut { fill: #8b949e; text-decoration: line-through } .tick { fill: #6e7781; font-size: 11px }",
            f".head {{ animation: head {whole:.1f}s linear infinite }}",
            f"@keyframes head {{ from {{ transform: translateX(0) }} {seconds / whole:.2%}, to "
            f"{{ transform: translateX({WIDTH - 2 * LEFT}px) }} }}",
            *rules,
            "@media (prefers-reduced-motion: reduce) { * { animation: none !important } }",
            "</style>",
            f'<rect width="{WIDTH}" height="{height + 4}" rx="8" fill="#fbfbfa"/>',
            *body,
            "</svg>\n",
        ]
    )


def _title(call: Timeline) -> str:
    said = "; ".join(f"{one.who}: {one.text}" for one in sorted(call.spoken, key=lambda one: one.begin))
    return f"A call of {len(call.said) / call.rate:.0f} seconds. {said}"


def _lines(text: str, unheard: str) -> list[list[tuple[str, bool]]]:
    """Return the words line by line, each with whether it was heard."""
    heard = len(text.split())
    words = [(word, place < heard) for place, word in enumerate(f"{text} {unheard}".split())]
    lines = []
    for line in wrap(f"{text} {unheard}", CHARACTERS):
        count = len(line.split())
        lines.append(words[:count])
        words = words[count:]
    return lines


def _appears(name: str, at: float, whole: float) -> str:
    """Return the rule by which something is there from ``at`` seconds on; without animations it is there."""
    place = f"{at / whole:.2%}"
    return (
        f".{name} {{ animation: {name} {whole:.1f}s step-end infinite }} "
        f"@keyframes {name} {{ from {{ fill-opacity: 0 }} {place} {{ fill-opacity: 1 }} }}"
    )


def _track(call: Timeline, seconds: float) -> list[str]:
    """Return both sides' levels over time, the seconds, and the line that moves over them."""
    wide = (WIDTH - 2 * LEFT) / seconds
    out = []
    for who, samples, middle in ((CALLER, call.said, 24), (AGENT, call.heard, 60)):
        out.append(f'<g fill="{COLOURS[who]}">')
        for place, level in enumerate(_levels(samples, call.rate)):
            high = max(1.0, 30 * level)
            x = LEFT + place * wide / BARS_PER_SECOND
            out.append(
                f'<rect x="{x:.1f}" y="{middle - high / 2:.1f}" width="{wide / BARS_PER_SECOND * 0.6:.1f}" '
                f'height="{high:.1f}"/>'
            )
        out.append("</g>")
    for second in range(0, int(seconds) + 1, 5):
        out.append(f'<text x="{LEFT + second * wide:.0f}" y="{TOP}" class="tick">{second} s</text>')
    out.append(
        f'<line class="head" x1="{LEFT}" x2="{LEFT}" y1="6" y2="{TOP - 14}" stroke="#c8372d" '
        'stroke-width="1.5"/>'
    )
    return out


def _levels(samples: Any, rate: int) -> Sequence[float]:
    step = rate // BARS_PER_SECOND
    cut = samples[: len(samples) // step * step].reshape(-1, step)
    rms = np.sqrt(np.mean(np.square(cut, dtype=np.float64), axis=1))
    return [float(one) for one in np.sqrt(rms / max(rms.max(), 1e-9))]


def main(path: Path) -> None:
    """Hold a call, and write its picture."""
    settings, _ = load({}, None)
    with TemporaryDirectory() as folder:
        outcome = asyncio.run(demo({}, settings, out=Path(folder)))
    path.write_text(picture(outcome.call))
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
