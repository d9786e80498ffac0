"""Measures vLLM's time to the first token and tokens per second, for numbers of simultaneous callers.

python -m rejoinder.agent.bench.gpu.llm --shape 8b --callers 1,2,4,8,16,32,64
python -m rejoinder.agent.bench.gpu.llm --model /path/to/weights
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.agent.bench.gpu.stand_in import STAND_IN_MODELS, language_model
from rejoinder.models.llm.vllm.adapter import Vllm
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.pipeline import Message

SYSTEM = (
    "You are the telephone assistant of a small hotel by the sea, and you answer in one or two sentences. "
    * 12
)
"""The instructions, as long as those of a real agent."""
TALK = [
    Message(role="user", content="Hello there, I would like to ask about a room for the next weekend."),
    Message(role="assistant", content="Of course. For how many people, and for how many nights would it be?"),
]
"""The conversation before the question."""


async def answered(llm: Vllm, number: int, tokens: int) -> tuple[float, float, int]:
    """Send one request. Return seconds to the first token, seconds to the last, and the number of tokens.

    Cancelling aborts the request.
    """
    question = Message(
        role="user", content=f"We are {number} people, and we stay for {number % 7 + 1} nights."
    )
    began, first, count = time.perf_counter(), 0.0, 0
    async with aclosing(llm.reply([Message(role="system", content=SYSTEM), *TALK, question])) as pieces:
        async for _ in pieces:
            first = first or time.perf_counter() - began
            count += 1
            if count == tokens:
                break
    return first or time.perf_counter() - began, time.perf_counter() - began, count


async def level(llm: Vllm, callers: int, rounds: int, tokens: int) -> dict[str, Any]:
    """Send ``callers`` requests at the same moment, several times: the worst case. Cancelling aborts them."""
    firsts, rates = [], []
    for turn in range(rounds):
        began = time.perf_counter()
        results = await asyncio.gather(
            *(answered(llm, 1000 * turn + each, tokens) for each in range(callers))
        )
        firsts += [1000 * first for first, _, _ in results]
        rates.append(sum(count for _, _, count in results) / (time.perf_counter() - began))
    p50, p95, p99 = (round(float(np.percentile(firsts, share)), 1) for share in (50, 95, 99))
    return {
        "callers": callers,
        "ttft_ms": {"p50": p50, "p95": p95, "p99": p99},
        "tokens_per_second": round(float(np.median(rates)), 1),
        "each": round(float(np.median(rates)) / callers, 1),
    }


async def measure(model: Path, settings: VllmSettings, given: argparse.Namespace) -> dict[str, Any]:
    """Start the engine, measure each level, and stop the engine. Cancelling stops the engine."""
    began = time.perf_counter()
    llm = await asyncio.get_running_loop().run_in_executor(
        None, lambda: Vllm(str(model), given.threads, settings)
    )
    try:
        report: dict[str, Any] = {"start_seconds": round(time.perf_counter() - began, 1)}
        await level(llm, max(given.callers), 1, 4)  # compiles what it compiles at its first use
        report["levels"] = []
        for callers in given.callers:
            report["levels"].append(await level(llm, callers, given.rounds, given.tokens))
            row = report["levels"][-1]
            print(
                f"{callers:>4} callers: first token {row['ttft_ms']['p50']:>8.1f} ms p50 "
                f"{row['ttft_ms']['p95']:>8.1f} ms p95, {row['tokens_per_second']:>8.1f} tokens/s, "
                f"{row['each']:>6.1f} each",
                flush=True,
            )
        return report
    finally:
        await llm.aclose()


def main() -> None:
    """Parse the options, measure, and write the report."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--model", type=Path, help="folder with real weights; without it: a stand-in")
    options.add_argument("--shape", choices=STAND_IN_MODELS, default="8b", help="of the stand-in")
    options.add_argument(
        "--callers", type=lambda text: [int(one) for one in text.split(",")], default="1,2,4,8,16,32,64"
    )
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--tokens", type=int, default=60, help="of an answer: two spoken sentences")
    options.add_argument("--threads", type=int, default=1, help="where there is no GPU")
    options.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting of vLLM")
    options.add_argument("--json", type=Path, help="where the report goes")
    given = options.parse_args()
    fields = {name: json.loads(value) for name, _, value in (each.partition("=") for each in given.set)}
    fields = {"max_model_len": 4096, "max_num_seqs": max(given.callers), **fields}
    with tempfile.TemporaryDirectory() as folder:
        if given.model is None:
            fields["load_format"] = "dummy"
        model = given.model or language_model(Path(folder), given.shape)
        report = asyncio.run(measure(model, VllmSettings(**fields), given))
    report = {"model": str(given.model or f"stand-in {given.shape}"), "settings": fields, **report}
    if given.json:
        given.json.write_text(json.dumps(report, indent=2))
    json.dump(report, sys.stdout)
    print()


if __name__ == "__main__":
    main()
