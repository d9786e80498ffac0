"""A real Chromium in front of the page, with a recording as its microphone, and a wire that can be cut."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pytest
import soundfile
from playwright.async_api import BrowserContext, Page, Playwright, ViewportSize, async_playwright
from support.patience import PATIENCE

from rejoinder.agent.bench.cases.recordings import RecordingsMissing, read_set, speech_folder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RATE = 48_000
FLAGS = [
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-sandbox",
    "--disable-gpu",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--deny-permission-prompts",
    "--host-resolver-rules=MAP *.test 127.0.0.1",
    "--unsafely-treat-insecure-origin-as-secure=*.secure.test",
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
]
"""One set for all tests, since another set is another browser. What a test wants is a setting of its page."""
POLICY = "Content Security Policy"
"""What the browser names where the page does what its headers forbid."""
RECONNECTING = "() => document.getElementById('state').dataset.state === 'reconnecting'"
"""For `becomes_true`."""
LAPTOP: ViewportSize = {"width": 1280, "height": 800}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PHONE: ViewportSize = {"width": 390, "height": 844}


def question() -> np.ndarray:
    """Return a recording of a question about the weather, at 48 kHz."""
    try:
        recordings = read_set(speech_folder(), "assistant_utterances")
    except RecordingsMissing as error:
        pytest.skip(str(error))
    return next(r for r in recordings if r.path.stem == "azure_whatstheweatherlike").load(RATE)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), np.float32)


def noise(seconds: float) -> np.ndarray:
    """Return what the scripted VAD takes for speech."""
    return np.random.default_rng(0).normal(0.0, 0.2, int(seconds * RATE)).astype(np.float32)


class Chromium:
    """The browser of this worker of the tests, which is started once.

    Its microphone is a file that is read whenever a page opens it, so each test writes its own. All pages
    share one process, which an empty page keeps: to start a process takes longer than to load the page.
    """

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None
        self._driver: Playwright | None = None
        self._context: BrowserContext | None = None

    @cached_property
    def _folder(self) -> TemporaryDirectory[str]:
        return TemporaryDirectory()  # not where this file is imported: workers are forks of one process

    @property
    def microphone(self) -> Path:
        """The file that is the microphone."""
        return Path(self._folder.name, "microphone.wav")

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a test in the loop that the browser's driver belongs to."""
        self._loop = self._loop or asyncio.Runner()
        self._loop.run(coroutine)

    async def page(self) -> Page:
        """Return a new page, which knows nothing of those before; start the browser where it does not run."""
        assert self._loop and asyncio.get_running_loop() is self._loop.get_loop(), "call it within run"
        if self._context is None or not self._running():
            self._driver = self._driver or await async_playwright().start()
            flags = [*FLAGS, f"--use-file-for-fake-audio-capture={self.microphone}%noloop"]
            browser = await self._driver.chromium.launch(executable_path=CHROMIUM, args=flags)
            self._context = await browser.new_context()
            await self._context.new_page()
        return await self._context.new_page()

    def _running(self) -> bool:
        return bool(self._context and self._context.browser and self._context.browser.is_connected())

    def close(self) -> None:
        """End the browser and its driver."""

        async def end() -> None:
            if self._context is not None and self._context.browser is not None:
                await self._context.browser.close()
            if self._driver is not None:
                await self._driver.stop()

        if self._loop is not None:
            self._loop.run(end())
            self._loop.close()
            self._folder.cleanup()


CHROMIUM_HERE = Chromium()
run = CHROMIUM_HERE.run


@asynccontextmanager
async def browsing(
    folder: Path,
    microphone: list[np.ndarray] | None,
    *,
    viewport: ViewportSize | None = None,
    still: bool = True,
) -> AsyncIterator[tuple[Page, list[str]]]:
    """Open Chromium and yield a blank page and the errors it will have had, violations of its policy too.

    Call it within ``run``. microphone: what it hears, once; None for one that is refused. still: whether the
    user wants no animations, which take processor time. A test that fails leaves a picture of the page in
    ``folder``.
    """
    errors: list[str] = []
    page = await CHROMIUM_HERE.page()
    page.set_default_timeout(1000 * PATIENCE)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if POLICY in message.text else None)
    try:
        await page.set_viewport_size(viewport or LAPTOP)
        await page.emulate_media(reduced_motion="reduce" if still else None)
        if microphone is not None:
            pcm = np.concatenate(microphone)
            soundfile.write(CHROMIUM_HERE.microphone, pcm, RATE, subtype="PCM_16")
            await page.context.grant_permissions(["microphone"])
        yield page, errors
    except BaseException:
        await page.screenshot(path=folder / "page.png")
        raise
    finally:
        await page.context.set_offline(False)
        await page.context.clear_permissions()
        await page.context.clear_cookies()
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "local_storage"})
        await page.close()


async def set_font_size(page: Page, pixels: int) -> None:
    """Change the browser's own setting for the size of text, which is 16 pixels at first.

    Returns when the page has text of this size, without which it ends with an error.
    """
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Page.setFontSizes", {"fontSizes": {"standard": pixels}})
    await becomes_true(page, "size => getComputedStyle(document.body).fontSize === size", f"{pixels}px")


async def becomes_true(page: Page, condition: str, argument: object = None) -> Any:
    """Wait until a condition holds, which the page asks at each frame, and return its value.

    ``wait_for_selector`` asks twice a second and may miss a brief state. ``wait_for_function`` evaluates its
    text each time, which the page's policy forbids at every time but the first.

    condition: a function in JavaScript, which takes the argument.

    Raises `TimeoutError` after `PATIENCE` seconds.
    """
    loop = f"""argument => new Promise(done => {{
        const condition = {condition};
        const look = () => {{
            const value = condition(argument);
            value ? done(value) : requestAnimationFrame(look);
        }};
        look();
    }})"""
    async with asyncio.timeout(PATIENCE):
        return await page.evaluate(loop, argument)


class Wire:
    """A TCP relay in front of a server: a wire that can be cut and mended.

    swallows: whether the server's messages are lost without an error.
    """

    def __init__(self, target: int) -> None:
        self.swallows = False
        self._refuses = False
        self._refused = asyncio.Event()
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None, "open() comes first"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def open(self) -> None:
        """Take connections, at a port that stays the same while the wire is cut."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)

    async def close(self) -> None:
        """Break off all connections and leave the port."""
        await self.cut(refuse=True)
        if self._server:
            self._server.close()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def mend(self) -> None:
        """Take connections again."""
        self._refuses = False

    async def cut(self, *, refuse: bool = False) -> None:
        """Break off all connections; refuse: and each new one, until the wire is mended."""
        self._refuses = refuse
        self._refused.clear()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def is_missed(self) -> None:
        """Wait until a client has noticed the cut: it tried to connect again, and was refused."""
        async with asyncio.timeout(PATIENCE):
            await self._refused.wait()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            self._refused.set()
            return
        if task := asyncio.current_task():
            self._relays.add(task)
            task.add_done_callback(self._relays.discard)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, back}
        if self._refuses:
            await self.cut(refuse=True)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer, down=True))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, down: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(2**16):
                if down and self.swallows:
                    continue
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        with suppress(OSError):
            writer.close()


@asynccontextmanager
async def wire_to(port: int) -> AsyncIterator[Wire]:
    """Stand between the browser and the server at ``port``."""
    wire = Wire(port)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()
