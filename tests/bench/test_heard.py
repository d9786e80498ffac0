"""The bench of heard text: replies with known words, an aligner, and figures."""

from __future__ import annotations

import asyncio
import random

import pytest
from rich.console import Console
from support import speech

from rejoinder.agent.bench import heard as bench_heard
from rejoinder.agent.bench.cases import heard as heard_cases
from rejoinder.agent.bench.heard import BY_LENGTH, TOLD, CutReply
from rejoinder.models.tts.spoken import spoken


def normalise(text: str) -> list[str]:
    return ["".join(filter(str.isalnum, word)).lower() for word in text.split()]


def test_the_notation_has_what_is_written_and_what_is_said() -> None:
    assert heard_cases.words("It is [$5|five dollars], or so [🎉|]") == [
        ("It", "It"), ("is", "is"), ("$5,", "five dollars,"), ("or", "or"), ("so", "so"), ("🎉", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "reply", heard_cases.written(), ids=lambda reply: " ".join(one for one, _ in reply)[:30]
)
def test_replies_are_said_as_they_are_noted(reply: list[heard_cases.Word]) -> None:
    assert normalise(spoken(" ".join(one for one, _ in reply))) == normalise(
        " ".join(said for _, said in reply)
    )


def cut(truth: int, timed: int, length: int, numbers: bool = False, voice: str = "piper") -> CutReply:
    return CutReply(voice, "text", numbers, 1.0, truth, {TOLD: timed, BY_LENGTH: length})


def test_figures_are_shares_of_cuts() -> None:
    cuts = [cut(3, 3, 5), cut(3, 4, 3), cut(3, 1, 0), cut(5, 5, 5, numbers=True)]
    rows = bench_heard.rows([*cuts, cut(1, 1, 1, voice="hibari")])
    row = rows[f"piper, all, {TOLD}"]
    assert (row.cuts, row.exact, row.within_one, row.within_two) == (4, 0.5, 0.75, 1.0)
    assert (row.worst, row.mean) == (-2, -0.25)
    assert rows[f"piper, all, {BY_LENGTH}"].worst == -3
    assert rows[f"piper, with numbers, {TOLD}"].cuts == 1
    assert bench_heard.summary(rows) == {"piper_within_one": 0.75, "hibari_within_one": 1.0}
    console = Console(width=120)
    with console.capture() as shown:
        console.print(bench_heard.table(rows))
    assert "75.0" in shown.get() and "-2" in shown.get()


@pytest.mark.weights
def test_heard_words_of_a_real_voice_match_an_aligner() -> None:
    pytest.importorskip("pocketsphinx", reason="needs the extra bench")
    voice, aligner = speech.model("hibari"), bench_heard.Aligner()
    assert aligner.knows(["Hello", "there,"]) and not aligner.knows(["blorgfish"])

    async def cuts() -> list[CutReply]:
        replies = heard_cases.written()[:6]
        chance = random.Random(0)
        return [
            found
            for reply in replies
            for found in await bench_heard.cut_reply("hibari", voice, aligner, reply, 20, chance)
        ]

    try:
        found = asyncio.run(cuts())
    finally:
        voice.close()
    assert len(found) == 120
    assert max(cut.truth for cut in found) > 8
    timed, spread = bench_heard.row(found, TOLD), bench_heard.row(found, BY_LENGTH)
    assert timed.within_one > 0.97
    assert timed.exact > spread.exact
