"""The page of a call plays its recordings, and shows under the sound who speaks when."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from support.browsing import CHROMIUM, SCHEMES, becomes_true, browsing
from support.browsing import run as browse
from support.callers.recorded import only, talk
from support.serving import Talk, serving

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium"),
]
PLAYS = "() => document.querySelector('audio').currentTime > 0.1"
LANES = "side => document.querySelectorAll(`.lane.${side} > i`).length > 0"


@pytest.mark.parametrize("form", ["flac", "opus"])
def test_player_of_an_encrypted_recording(tmp_path: Path, form: str) -> None:
    folder, keys = tmp_path / "recordings", tmp_path / "keys"
    keys.write_text("cd" * 32)
    given = {"recordings": str(folder), "recording": "always", "recording_key_file": str(keys)}

    async def look(url: str, seconds: float) -> None:
        async with browsing(tmp_path, None) as (page, errors):
            await page.goto(url)
            await becomes_true(
                page, "s => Math.abs(document.querySelector('audio')?.duration - s) < 0.2", seconds
            )
            for side in ("caller", "agent", "wait"):
                await becomes_true(page, LANES, side)
            await becomes_true(page, "() => document.querySelectorAll('.lane > svg').length === 2")
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                result = await Axe().run(page, options={"resultTypes": ["violations"]})
                assert result.violations_count == 0, f"{scheme}: {result.generate_report()}"
            box = await page.locator(".lanes").bounding_box()
            assert box
            await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
            await becomes_true(
                page, "s => document.querySelector('audio').currentTime >= s", seconds / 2 - 0.5
            )
            await becomes_true(page, PLAYS)
            await page.screenshot(path=tmp_path / "player.png", full_page=True)
            assert errors == []

    with serving(tmp_path, recording_format=form, **given) as server:
        with Talk(server) as call:
            talk(call, 5.0)
        recording = only(folder)
        browse(look(f"{server.http}/calls#{recording.call}", recording.seconds))
