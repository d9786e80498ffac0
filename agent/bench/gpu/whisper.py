"""Measures Whisper's encoder and decoder in CTranslate2, in ms, by batch size and window.

python -m rejoinder.agent.bench.gpu.whisper --shape large-v3-turbo --batches 1,2,4,8,16,32
python -m rejoinder.agent.bench.gpu.whisper --model /path/to/faster-whisper --device cpu --batches 1,2
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from rejoinder.agent.bench.gpu.stand_in import RECOGNISERS, recogniser

WINDOWS = (10, 15, 30)
"""Seconds that the encoder sees (models/stt/whisper.py)."""
START_TOKENS = ["<|startoftranscript|>"]
"""First tokens of a prompt."""
LANGUAGE_TOKENS = ["<|en|>", "<|transcribe|>"]
"""Next tokens of a prompt, for a model of several languages."""
END_TOKENS = ["<|notimestamps|>"]
"""Last tokens of a prompt."""


def milliseconds(run: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a run, after one warm-up run."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return round(1000 * float(np.median(times[1:])), 2)


def measure(model: Any, batch: int, window: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Encode a batch of noise, and decode ``tokens`` tokens for each item."""
    noise = np.random.default_rng(0).standard_normal((batch, model.n_mels, 100 * window), np.float32)
    features = ctranslate2.StorageView.from_array(noise)

    def encode() -> Any:
        # The copy to the processor waits for the result, so that the time includes all work.
        return model.encode(features, to_cpu=True)

    encoded = model.encode(features)
    prompt = [*START_TOKENS, *(LANGUAGE_TOKENS if model.is_multilingual else []), *END_TOKENS]

    def write() -> Any:
        return model.generate(encoded, [prompt] * batch, beam_size=1, max_length=len(prompt) + tokens)

    once = milliseconds(encode, rounds)
    return {"batch": batch, "window_s": window, "encode_ms": once, "write_ms": milliseconds(write, rounds)}


def main() -> None:
    """Parse the options, measure, and write the report."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--model", type=Path, help="folder with real weights; without it: a stand-in")
    options.add_argument("--shape", choices=RECOGNISERS, default="large-v3-turbo", help="of the stand-in")
    options.add_argument("--batches", default="1,2,4,8,16,32")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--tokens", type=int, default=20, help="of one utterance")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--json", type=Path, help="write the report to this file")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.model or recogniser(Path(folder), given.shape)
        kind = "float16" if given.device == "cuda" else "int8"
        model = ctranslate2.models.Whisper(str(path), device=given.device, compute_type=kind, intra_threads=1)
        rows = []
        for window in WINDOWS:
            for batch in (int(one) for one in given.batches.split(",")):
                row = measure(model, batch, window, given.tokens, given.rounds)
                rows.append(row)
                print(
                    f"{window:>3} s window, batch {batch:>3}: encoder {row['encode_ms']:>9.2f} ms, "
                    f"{given.tokens} tokens {row['write_ms']:>9.2f} ms, "
                    f"{(row['encode_ms'] + row['write_ms']) / batch:>8.2f} ms for each",
                    flush=True,
                )
    if given.json:
        about = {"model": str(given.model or f"stand-in {given.shape}"), "device": given.device}
        given.json.write_text(json.dumps({**about, "compute_type": kind, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
