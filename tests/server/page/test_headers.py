"""What the server lets a browser do with its answers, and which names an anonymous page may read."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from support.browsing import CHROMIUM, browsing, noise, run, silence
from support.patience import PATIENCE
from support.serving import Server, serving

from rejoinder.agent.model_names import known_as
from rejoinder.agent.server.keys import hashed

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


def headers(server: Server, path: str, method: str = "GET") -> Message:
    try:
        request = urllib.request.Request(server.http + path, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.headers  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:
        with error:
            return error.headers


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/", "GET"),
        ("/page/app.js", "GET"),
        ("/page/style.css", "GET"),
        ("/page/index.html", "GET"),
        ("/healthz", "GET"),
        ("/v1/models", "GET"),
        ("/v1/realtime", "GET"),
        ("/nothing-here", "GET"),
        ("/v1/chat/completions", "POST"),
    ],
)
def test_every_answer_says_what_a_browser_may_do_with_it(server: Server, path: str, method: str) -> None:
    received = headers(server, path, method)
    assert received.get_all("X-Content-Type-Options") == ["nosniff"]
    assert received.get_all("Referrer-Policy") == ["no-referrer"]
    assert set(received["Content-Security-Policy"].split("; ")) == POLICY
    assert "microphone=(self)" in received["Permissions-Policy"]


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
