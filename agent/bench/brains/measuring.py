"""Measures language models in turn, through the adapters that calls use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from rejoinder.agent.bench.brains.shapes import DECODERS
from rejoinder.agent.bench.brains.stand_in import make
from rejoinder.agent.bench.prefix_cache.warming import measure_warming
from rejoinder.models.registry import create
from rejoinder.models.specs import DEFAULTS
from rejoinder.models.threads import plan
from rejoinder.models.weights.fetch import WeightsMissing, locate
from rejoinder.pipeline import Llm
from rejoinder.pipeline.errors import ModelError

BRAINS = (
    "ort:smollm2-135m-instruct",
    "ort:smollm2-360m-instruct",
    "llama:smollm2-360m-instruct",
    "llama:lfm2.5-350m",
    "llama:gemma-3-270m-it",
    "llama:qwen3-0.6b",
)
"""The specs that are measured; the others are compared with the first."""
INSTRUCTION_WORDS = 150
"""Words of the instructions, about 190 tokens."""
LONG_REQUEST = "Tell me a long story about a ship, please."
"""Asks for more tokens than are measured."""


@dataclass(frozen=True, slots=True)
class BrainTimes:
    """One round of a model. cold, warmed: seconds to the first token; rate: tokens a second after it."""

    cold: float
    warmed: float
    rate: float


@dataclass(frozen=True, slots=True)
class Brain:
    """A model and its rounds. size: of its GGUF file, in bytes. stand_in: whether its weights are random."""

    spec: str
    file: Path
    size: int
    stand_in: bool
    rounds: list[BrainTimes]


def file_of(spec: str, folder: Path) -> tuple[Path, bool]:
    """Return the GGUF file of a spec, and whether it is a stand-in, which is made in ``folder`` if missing.

    Raises ModelError for a name without a shape, and OSError.
    """
    name = spec.partition(":")[2]
    try:
        (path,) = locate(name).glob("*.gguf")
        return path, False
    except WeightsMissing:
        if name not in DECODERS:
            raise ModelError(
                spec, f"there is no stand-in for {name}; there are: {', '.join(DECODERS)}"
            ) from None
    path = folder / f"{name}.gguf"
    if not path.exists():
        make(DECODERS[name], next(locate(DEFAULTS["ort"]).glob("*.gguf")), path)
    return path, True


async def measure(
    specs: Sequence[str],
    rounds: int,
    tokens: int,
    folder: Path,
    advance: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Brain]:
    """Measure each model in turn, ``rounds`` times, so that the machine's other load concerns all alike.

    tokens: of an answer, after the first. folder: of the stand-ins. clock: in seconds. Raises ModelError and
    OSError. Cancelling closes the request.
    """
    brains = []
    for spec in specs:
        path, stand_in = file_of(spec, folder)
        brains.append(Brain(spec, path, path.stat().st_size, stand_in, []))
    for number in range(rounds):
        for brain in brains:
            adapter = brain.spec.partition(":")[0]
            llm = create(f"{adapter}:{brain.file}", plan())
            try:
                (times,) = await measure_warming(llm, 1, INSTRUCTION_WORDS, number, clock=clock)
                brain.rounds.append(BrainTimes(times.cold, times.warmed, await _rate(llm, tokens, clock)))
            finally:
                await llm.aclose()
            advance()
    return brains


async def _rate(llm: Llm, tokens: int, clock: Callable[[], float]) -> float:
    """Return the tokens a second of an answer, from its first token on."""
    count, first, last = 0, 0.0, 0.0
    async with aclosing(llm.reply([{"role": "user", "content": LONG_REQUEST}])) as pieces:
        async for _ in pieces:
            last = clock()
            first = first or last
            count += 1
            if count > tokens:
                break
    if count < 2:
        raise ModelError("bench", "the answer is too short to be measured")
    return (count - 1) / (last - first)


def report(brains: Sequence[Brain]) -> Mapping[str, Mapping[str, float | int | bool]]:
    """Return the medians of each model, and of each round's ratio to the first model."""
    base = brains[0].rounds
    return {
        brain.spec: {
            "stand_in": brain.stand_in,
            "size": brain.size,
            "cold_ms": 1000 * median(times.cold for times in brain.rounds),
            "warmed_ms": 1000 * median(times.warmed for times in brain.rounds),
            "tokens_per_s": median(times.rate for times in brain.rounds),
            "rate_ratio": median(own.rate / one.rate for own, one in zip(brain.rounds, base, strict=True)),
            "warmed_ratio": median(
                own.warmed / one.warmed for own, one in zip(brain.rounds, base, strict=True)
            ),
        }
        for brain in brains
    }


def table(brains: Sequence[Brain]) -> Table:
    """Return a table of the models; a stand-in has a star."""
    shown = Table(title="* random weights of the same shapes", title_justify="left", box=None)
    for name in ("", "MB", "first ms", "not warmed", "tokens/s", "× first", "× tok/s"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for spec, row in report(brains).items():
        shown.add_row(
            spec + "*" * bool(row["stand_in"]),
            f"{row['size'] / 1e6:.0f}",
            f"{row['warmed_ms']:.0f}",
            f"{row['cold_ms']:.0f}",
            f"{row['tokens_per_s']:.1f}",
            f"{row['warmed_ratio']:.1f}",
            f"{row['rate_ratio']:.2f}",
        )
    return shown
