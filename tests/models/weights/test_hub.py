"""Models of a server that answers as the hub does: files, refusals, and who gets the token."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.servers.hub import Hub, Repository, running, sha256

BRAIN = bytes(range(256)) * 2048  # 512 KiB, so that a download has a middle
HALF = len(BRAIN) // 2
TOKEN = "hf_test_token"
REPOSITORIES = {
    "maker/good": ("Model.Q4_K_M.gguf", Repository({"Model.Q4_K_M.gguf": BRAIN}, cut={"Model.Q4_K_M.gguf"})),
    "maker/changed": ("model.gguf", Repository({"model.gguf": BRAIN[::-1]})),
    "maker/gated": ("model.gguf", Repository({"model.gguf": BRAIN}, gated=True)),
    "maker/private": ("model.gguf", Repository({"model.gguf": BRAIN}, token=TOKEN)),
    "maker/closed": ("model.gguf", Repository({"model.gguf": BRAIN}, token="another")),
    "maker/renamed": ("model.gguf", Repository({"other.gguf": BRAIN})),
    "maker/busy": ("model.gguf", Repository({"model.gguf": BRAIN}, status=429)),
    "maker/forbidden": ("model.gguf", Repository({"model.gguf": BRAIN}, status=403)),
    "maker/broken": ("model.gguf", Repository({"model.gguf": BRAIN}, status=500)),
}
"""The repositories of the hub, with the file that the catalog wants of each."""
WRONG = "0" * 64
UNLISTED = Repository(
    {"deep/Tiny.gguf": BRAIN, "Wrong.gguf": BRAIN[::-1]}, told={"Wrong.gguf": WRONG}, token=TOKEN
)
COMMAND = """
import sys, time
from pathlib import Path
import huggingface_hub.constants
from rejoinder.agent.cli import weights as command
from rejoinder.models.weights import catalog, fetch
known = catalog.load(Path(sys.argv[1]))
fetch.catalog = command.catalog = lambda: known
huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 65536  # it resumes by whole chunks, of 10 MB otherwise
time.sleep = lambda seconds: None  # it asks a busy hub again, for 27 s in all
command.app(sys.argv[2:])
"""


@dataclass(frozen=True)
class Ran:
    """One run of the command. told: what it said of each model."""

    cache: Path
    hub: Hub
    code: int
    out: str
    told: dict[str, str]


def entry(repository: str, file: str) -> str:
    name = repository.partition("/")[2]
    return (
        f'[[weights]]\nname = "{name}"\npurpose = "to be small"\nlicence = "MIT"\ndefault = false\n'
        f'files = [{{ name = "{file}", size = {len(BRAIN)}, sha256 = "{sha256(BRAIN)}" }}]\n'
        f'[[weights.sources]]\nkind = "hub"\nrepository = "{repository}"\nrevision = "main"\n'
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """All repositories, one that is none, and two files that no catalog has, fetched by one command."""
    folder = tmp_path_factory.mktemp("hub")
    listed = {name: file for name, (file, _) in REPOSITORIES.items()} | {"maker/none": "model.gguf"}
    (folder / "catalog.toml").write_text("".join(entry(name, file) for name, file in listed.items()))
    names = [name.partition("/")[2] for name in listed]
    names += ["maker/unlisted/deep/Tiny.gguf", "maker/unlisted/Wrong.gguf", "maker/none/Model.gguf"]
    repositories = {name: repository for name, (_, repository) in REPOSITORIES.items()}
    with running({**repositories, "maker/unlisted": UNLISTED}) as hub:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(folder / "home")}
        environment |= {"REJOINDER_CACHE": str(folder), "HF_HUB_DISABLE_XET": "1"}
        environment |= {"NO_PROXY": "127.0.0.1,localhost"}
        # The client of the hub waits 10 s, which a busy machine may need.
        environment |= {"HF_HUB_DOWNLOAD_TIMEOUT": "120", "HF_HUB_ETAG_TIMEOUT": "120"}
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, str(folder / "catalog.toml"), "fetch", *names],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    told = dict(line.split(": ", 1) for line in lines)
    yield Ran(folder, hub, done.returncode, done.stdout, told)


def test_a_download_that_breaks_off_is_resumed_and_has_the_pinned_hash(ran: Ran) -> None:
    assert (ran.cache / "weights/good/Model.Q4_K_M.gguf").read_bytes() == BRAIN
    spans = [span for _, span in ran.hub.of("cdn", "/maker/good/") if span]
    assert spans == [f"bytes={HALF}-"]
    assert "good: ready, 524.3 kB" in ran.out and "good" not in ran.told


def test_the_token_goes_to_the_hub_and_to_no_other_host(ran: Ran) -> None:
    assert (ran.cache / "weights/private/model.gguf").read_bytes() == BRAIN
    assert {token for token, _ in ran.hub.of("hub", "/maker/private/")} == {TOKEN}
    assert {token for token, _ in ran.hub.of("cdn", "/")} == {""}
    assert TOKEN not in ran.out + str(ran.told)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("changed", f"model.gguf has sha256 {sha256(BRAIN[::-1])}, not {sha256(BRAIN)}"),
        ("gated", "maker/gated asks for its licence to be accepted: accept it on http://127.0.0.1:"),
        (
            "closed",
            "the hub does not know the token (401): set HF_TOKEN to a token of your account, or run:",
        ),
        ("none", "the hub has no maker/none, or it is private: check the name, or set HF_TOKEN"),
        ("renamed", "maker/renamed has no such file: look for its name on http://127.0.0.1:"),
        ("busy", "too many requests from here (429): try again in 17 s, or set HF_TOKEN"),
        ("forbidden", "the token may not read this repository (403)"),
        ("broken", "the hub answers 500: try again later"),
    ],
)
def test_a_refusal_says_what_was_wrong_and_what_to_do(ran: Ran, name: str, reason: str) -> None:
    assert ran.code == 1
    assert ran.told[name].startswith(f"cannot fetch model.gguf: hub maker/{name}@main: ")
    assert reason in ran.told[name] and "What to do: " in ran.told[name]
    assert not (ran.cache / "weights" / name / "model.gguf").exists()


def test_a_file_outside_the_catalog_has_the_hash_that_the_hub_tells(ran: Ran) -> None:
    (named,) = [line for line in ran.out.splitlines() if line.startswith("name it by: ")]
    spec = named.removeprefix("name it by: --llm llama:")
    assert Path(spec).read_bytes() == BRAIN and Path(spec).name == "Tiny.gguf"
    wrong = ran.told["maker/unlisted/Wrong.gguf"]
    assert wrong.startswith(f"Wrong.gguf has sha256 {sha256(BRAIN[::-1])}, not {WRONG} as the hub says")
    assert not [path for path in (ran.cache / "home").rglob("*") if path.name in ("Wrong.gguf", WRONG)]
    none = ran.told["maker/none/Model.gguf"]
    assert "the hub has no maker/none" in none and "copy the folder here" in none
