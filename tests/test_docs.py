"""Every snippet of code in the documentation runs as its reader would run it (see ``snippets``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
from support import speech
from support.browsing import noise
from support.paths import ROOT
from support.serving import serving
from support.snippets import FILES, PAGES, Place, Snippet, Wrong, check, found_in

from rejoinder.models.loading import Specs
from rejoinder.models.specs import ROLES

LINE = "Hm. @weather {}"
"""What the scripted language model says first: it calls a tool where there are any."""


def marked(snippet: Snippet) -> pytest.ParameterSet:
    real = snippet.kind == "python" and "Specs()" in snippet.code
    return pytest.param(snippet, id=snippet.place, marks=[pytest.mark.weights] if real else [])


SNIPPETS = [snippet for page in PAGES for snippet in found_in(page)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("snippets")
    for file in FILES:
        (folder / file).touch()
    for part in ("deploy", "examples"):
        (folder / part).symlink_to(ROOT / part)
    with serving(folder, llm=f"scripted:llm|{LINE}|Sunny.") as server:
        yield Place(f"127.0.0.1:{server.port}", folder)
        server.wait_idle()


@pytest.mark.parametrize("snippet", [*map(marked, SNIPPETS)])
def test_snippet(snippet: Snippet, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)  # no configuration lies there
    question = noise(1.0)
    if "Specs()" in snippet.code:
        speech.need(*(getattr(Specs(), role) for role in ROLES))
        spoken = speech.recordings("phone_prompts_8k")
        question = next(one for one in spoken if "weather" in one.path.stem).load(16_000)
    soundfile.write("question.wav", question, 16_000, subtype="PCM_16")
    try:
        assert "NothingSaid" not in check(snippet, place)
    except Wrong as wrong:
        pytest.fail(f"{snippet.place}: {wrong}", pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """The build of the site checks the others, and anchors."""
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    files = [link for link in links if not re.match(r"\w+:", link)]
    assert [link for link in files if not (page.parent / link).exists()] == []


def test_all_kinds_of_snippets_are_found() -> None:
    assert {snippet.kind.partition(" ")[0] for snippet in SNIPPETS} >= {
        "python",
        "js",
        "sh",
        "console",
        "toml",
        "text",
    }


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        ("", "print('hello')", "its info string '' is none of python, js"),
        ("output", "hello", "its info string 'output' is none of"),
        ("python", "print(pcm)", "NameError: name 'pcm' is not defined"),
        ("python", "match event: ...", "SyntaxError"),
        ("python", "import sys\nsys.argv[4]", "IndexError"),
        ("python", "for word in (): print(word)", "it prints nothing"),
        ("python of=examples/pcm.py", "async with connect(url):", "expected an indented block"),
        ("python of=examples/pcm.py", "connekt()  # nowhere", "examples/pcm.py has no connekt"),
        ("python of=examples/pcn.py", "connect()", "there is no examples/pcn.py"),
        ("js", "const = 1;", "SyntaxError"),
        ("js of=tests/clients/openai_node.mjs", "new OpenAY({});", "has no OpenAY"),
        ("sh", "rejoinder serve --lm x", "No such option: --lm"),
        ("sh", ".venv/bin/rejoinder bench nothing", "No such command 'nothing'"),
        ("sh", "rejoinder plan --calls many --from load.json", "many.*should be a valid integer"),
        ("sh", "rejoinder ask", "Missing argument 'question'"),
        ("sh", "rejoinder serve --profile none-such", "none-such"),
        ("sh", "REJOINDER_WHYOMING_PORT=1 rejoinder serve", "REJOINDER_WHYOMING_PORT"),
        ("sh", "export REJOINDER_WHYOMING_PORT=1", "REJOINDER_WHYOMING_PORT"),
        ("sh", "export REJOINDER_PORT=many", "many"),
        ("sh", "make nothing", "No rule to make target"),
        ("sh", "make run EKSTRAS=hibari", "knows no EKSTRAS"),
        ("sh", "pip install -e '.[nothing]'", "there is no extra nothing"),
        ("sh", "true && python examples/nothing.py", "true: how is this command to be checked"),
        ("sh", "make test && python examples/nothing.py", "there is no examples/nothing.py"),
        ("sh", "pytest tests/nothing*.py", r"there is no tests/nothing\*\.py"),
        ("sh", "curl -s 'http://127.0.0.1:8080/", "it does not end"),
        ("console", "curl -s http://127.0.0.1:8080/", r"no line begins with \$"),
        ("console", "$ make nothing\nwhat it prints", "No rule to make target"),
        ("toml", "patients = 4", "patients"),
        (
            "toml of=pyproject.toml",
            "[project.entry-points.models]",
            "pyproject.toml has no .project.entry-po",
        ),
        ("json", '{"a": 1,}', "Expecting property name|Illegal trailing comma"),
        ("json of=realtime", '{"type": "response.create"}\n{"type": "response.nothing"}', "response.nothing"),
        ("json of=pcm", '{"type": "text"}', "text"),
        ("json of=carrier", "{}", "carrier is no wire"),
        ("mermaid", "flowchart LR\n    a --> pipeline/nothing.py", "there is no pipeline/nothing.py"),
    ],
)
def test_a_snippet_that_does_not_run_is_reported(kind: str, code: str, reason: str, place: Place) -> None:
    with pytest.raises(Wrong, match=reason):
        check(Snippet("page.md", 1, kind, code), place)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("python", "import urllib.request as r\nprint(r.urlopen('http://127.0.0.1:8091/healthz').status)"),
        ("sh", "REJOINDER_PORT=8090 .venv/bin/rejoinder serve --llm openai:http://localhost/v1#m  # comment"),
        ("console", "$ curl -s \\\n  http://127.0.0.1:8080/healthz\n{}"),
        ("json of=realtime", '{"type": "response.create"}\n{"type": "response.cancel"}'),
        ("json", '{\n  "a": 1\n}'),
        ("text", "$ nothing"),
        ("in the text", "rejoinder ask"),
    ],
)
def test_a_snippet_that_runs_passes(kind: str, code: str, place: Place) -> None:
    check(Snippet("page.md", 1, kind, code), place)


def test_code_is_found_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.snippets.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\nText\nwith `make run` and `make`.\n\n    make test\n\n"
        "```toml\nport = 1\n```\n\n| a |\n|---|\n| `rejoinder key` |\n"
    )
    assert [(one.place, one.kind, one.code) for one in found_in(page)] == [
        ("page.md:4", "in the text", "make run"),
        ("page.md:6", "sh", "make test\n"),
        ("page.md:8", "toml", "port = 1\n"),
        ("page.md:14", "in the text", "rejoinder key"),
    ]


@pytest.mark.parametrize("line", ["rejoinder bench --clips 44", "rejoinder bench load", "rejoinder demo"])
def test_commands_of_a_page_are_parsed_and_not_run(
    line: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.run", lambda coroutine: pytest.fail("the command ran"))
    check(Snippet("page.md", 1, "sh", line), place)
