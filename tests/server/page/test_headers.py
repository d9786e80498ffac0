"""What the server lets a browser do with its answers, and which names an anonymous page may read."""

import http.client
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from starlette.routing import Mount, Route
from support.browsing import CHROMIUM, browsing, noise, run, silence
from support.patience import PATIENCE
from support.serving import Server, serving

from rejoinder.agent.config import Settings
from rejoinder.agent.model_names import known_as
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.server import Server as Program

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "media-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
}
INJECT = """() => new Promise((resolve) => {
  document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
  const script = document.createElement("script");
  script.textContent = "window.injected = true";
  document.body.append(script); // which runs it, where it may run
  if (window.injected) resolve("it runs");
})"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm="scripted:llm|All is well.|") as running:
        yield running


ALL = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
}
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def expect(received: Message) -> None:
    assert {name: received.get_all(name) for name in ALL} == {name: [value] for name, value in ALL.items()}
    assert set(received["Content-Security-Policy"].split("; ")) == POLICY
    assert "Strict-Transport-Security" not in received, "this server has no TLS"


def every_path() -> list[str]:
    """Return a path of each route of the application."""
    app = Program(Settings(metrics=True), lambda *_: None, lambda _: None).app()
    paths = [route.path for route in app.routes if isinstance(route, Route | Mount)]
    return sorted({re.sub(r"\{[^}]*\}", "x", path) for path in paths} | {"/page/app.js", "/nothing-here"})


def headers(server: Server, path: str, method: str = "GET", **more: str) -> Message:
    try:
        request = urllib.request.Request(server.http + path, method=method, headers=more)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.headers  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        with error:
            return error.headers


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_answer_says_what_a_browser_may_do_with_it(server: Server, method: str) -> None:
    paths = every_path()
    assert {"/", "/healthz", "/metrics", "/v1/models", "/v1/realtime", "/v1/chat/completions"} <= set(paths)
    for path in paths:
        expect(headers(server, path, method))


def test_refusals_say_it_too(server: Server) -> None:
    expect(headers(server, "/", **{"Too-Long": "x" * 9000}))
    for path, origin in (("/v1/realtime", "http://evil.example"), ("/v1/pcm", "null"), ("/nothing", "")):
        port = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        with port, port.makefile("rb") as answer:
            lines = {**UPGRADE, "Host": f"127.0.0.1:{server.port}", **({"Origin": origin} if origin else {})}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            port.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            assert answer.readline().split()[1] in (b"403", b"404")
            expect(http.client.parse_headers(answer))


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_whole_call_keeps_to_the_policy_and_an_injected_script_does_not_run(
    server: Server, tmp_path: Path
) -> None:
    """``browsing`` counts a violation of the policy among the page's errors."""

    async def act() -> None:
        microphone = [silence(1), noise(1), silence(30)]
        async with browsing(tmp_path, microphone) as (page, errors):
            await page.goto(server.http)
            await page.click("#talk")
            await page.wait_for_selector(".entry.agent:has-text('All is well.')")
            await page.wait_for_selector("#waterfall .total")
            await page.click("#talk")
            await page.wait_for_selector("#state[data-state=idle]")
            assert errors == []
            assert await page.evaluate(INJECT) == "script-src-elem"
            assert len(errors) == 1 and "Content Security Policy" in errors[0]

    run(act())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("whisper:tiny.en", "whisper-tiny.en"),
        ("whisper:/home/one/of-mine@de", "of-mine"),
        ("ort:smollm2-135m-instruct", "smollm2-135m-instruct"),
        ("openai:http://me:secret@10.0.0.1/v1?key=secret#meta/llama3.2", "meta/llama3.2"),
        ("piper:en_US-joe-medium", "piper-en_US-joe-medium"),
        ("hibari:heart", "hibari heart"),
        ("hibari", "hibari"),
        ("vllm:Qwen/Qwen3-8B", "Qwen3-8B"),
        ("scripted:llm|The secret is out.", "scripted"),
        ("of-others:https://10.0.0.1/v1?key=secret", "of-others"),
    ],
)
def test_models_are_called_by_names_that_tell_no_place_and_no_secret(spec: str, name: str) -> None:
    assert known_as(spec) == name


def test_client_with_access_reads_the_names_of_the_models(tmp_path: Path) -> None:
    with serving(tmp_path, llm="scripted:llm|The secret is out.") as server:
        (model,) = server.get("/v1/models")["data"]
        assert model["models"] == {"llm": "scripted", "stt": "scripted", "tts": "scripted"}
        rebound = urllib.request.Request(f"{server.http}/v1/models", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(rebound, timeout=PATIENCE)
        refused.value.close()


def test_client_without_a_key_reads_no_names(tmp_path: Path) -> None:
    with serving(tmp_path, api_keys=hashed("rj_a-key")) as server:
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            server.get("/v1/models")
        with refused.value as answer:
            assert b"scripted" not in answer.read()
