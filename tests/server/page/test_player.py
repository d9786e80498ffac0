"""The page's player outside of a browser: what a hold does to the samples."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from support.paths import ROOT
from support.patience import PATIENCE

NODE = shutil.which("node")
PLAYBACK = ROOT / "agent/server/page/playback.js"
QUANTUM = 128
HARNESS = """
let Player;
globalThis.sampleRate = 24000;
globalThis.AudioWorkletProcessor = class { port = { postMessage: (report) => reports.push(report) } };
globalThis.registerProcessor = (name, made) => (Player = made);
const reports = [], heard = [];
await import(process.argv[1]);
const player = new Player();
for (const step of JSON.parse(process.argv[2])) {
  if (step.render !== undefined) {
    for (let i = 0; i < step.render; i++) {
      const output = new Float32Array(128);
      player.process([], [[output]]);
      heard.push(...output.map((sample) => Math.round(sample * 32768)));
    }
  } else if (step.ramp) {
    const pcm = Int16Array.from({ length: step.ramp[1] }, (_, i) => step.ramp[0] + i);
    player.port.onmessage({ data: { item: "a", audio: pcm.buffer } });
  } else player.port.onmessage({ data: step });
}
console.log(JSON.stringify({ heard, reports }));
"""

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def play(*steps: dict[str, Any]) -> tuple[list[int], list[dict[str, Any]]]:
    done = subprocess.run(
        [NODE or "", "--input-type=module", "-e", HARNESS, PLAYBACK.as_uri(), json.dumps(steps)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    )
    said = json.loads(done.stdout)
    return said["heard"], said["reports"]


def test_hold_is_silent_and_loses_nothing() -> None:
    """But for the quantum that fades out and the one that fades in, which are played too."""
    ramp = {"ramp": [1, 40 * QUANTUM]}
    heard, _ = play(ramp, {"render": 5}, {"hold": True}, {"render": 10}, {"hold": False}, {"render": 34})
    whole = list(range(1, 40 * QUANTUM + 1))
    assert heard[: 5 * QUANTUM] == whole[: 5 * QUANTUM]
    assert heard[6 * QUANTUM : 15 * QUANTUM] == [0] * 9 * QUANTUM
    assert heard[16 * QUANTUM : 49 * QUANTUM] == whole[7 * QUANTUM :]
    faded = heard[5 * QUANTUM : 6 * QUANTUM], heard[15 * QUANTUM : 16 * QUANTUM]
    assert all(0 <= sample <= limit for sample, limit in zip(faded[0], whole[5 * QUANTUM :], strict=False))
    assert faded[0][0] == whole[5 * QUANTUM] and faded[0][-1] < 20 and faded[1][0] == 0


def test_audio_that_comes_during_a_hold_waits() -> None:
    heard, reports = play(
        {"ramp": [1, 20 * QUANTUM]},
        {"render": 2},
        {"hold": True},
        {"render": 2},
        {"ramp": [20 * QUANTUM + 1, QUANTUM]},
        {"end": True},
        {"render": 30},
        {"hold": False},
        {"render": 22},
    )
    assert heard[-3 * QUANTUM - 1 - QUANTUM] > 0
    assert max(heard) == 21 * QUANTUM
    assert [report for report in reports if "finished" in report] == [
        {"finished": "a", "samples": 21 * QUANTUM}
    ]


def test_interruption_ends_a_hold() -> None:
    heard, reports = play(
        {"ramp": [1000, 20 * QUANTUM]},
        {"render": 4},
        {"hold": True},
        {"render": 4},
        {"flush": True},
        {"render": 4},
        {"ramp": [5000, 20 * QUANTUM]},
        {"render": 4},
    )
    assert heard[5 * QUANTUM : 12 * QUANTUM] == [0] * 7 * QUANTUM
    assert {"flushed": [{"item": "a", "samples": 5 * QUANTUM}]} in reports
    assert heard[12 * QUANTUM :] == list(range(5000, 5000 + 4 * QUANTUM))


def test_hold_of_silence_begins_at_once() -> None:
    heard, _ = play(
        {"hold": True}, {"ramp": [1, 40 * QUANTUM]}, {"render": 20}, {"hold": False}, {"render": 2}
    )
    assert heard[: 20 * QUANTUM] == [0] * 20 * QUANTUM
    assert heard[21 * QUANTUM :] == list(range(QUANTUM + 1, 2 * QUANTUM + 1))
