"""The images: built from Debian's packages, and run as they are meant to run."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.paths import ROOT
from support.ports import unused_port
from support.serving import PATIENCE, Server, Talk

from rejoinder.agent.cli.weights import default_set
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.fetch import cache_dir

pytestmark = [pytest.mark.images, pytest.mark.weights]

BASE = "localhost/debian:trixie"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
HARDENED = (
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
)
"""The same as in deploy/compose.yaml and in the chart."""
READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class Podman:
    """podman with a storage of its own, in a folder of the tests."""

    folder: Path
    built: set[str] = field(default_factory=set)

    def line(self, *arguments: object) -> list[str]:
        # crun refuses hybrid control groups, and runc does not.
        options = [f"--{name}={self.folder / name}" for name in ("root", "runroot", "tmpdir")]
        return ["podman", "--runtime=runc", "--cgroup-manager=cgroupfs", *options, *map(str, arguments)]

    def run(self, *arguments: object, fails: bool = False) -> str:
        """Return what a command prints; it has to succeed, or else to fail."""
        ran = subprocess.run(
            self.line(*arguments), capture_output=True, text=True, cwd=ROOT, timeout=900, check=False
        )
        assert (ran.returncode != 0) == fails, (ran.stdout + ran.stderr)[-4000:]
        return ran.stdout + ran.stderr

    def build(self, target: str) -> str:
        """Return the name of the image of a target. It is built once: cached steps take a minute, too.

        pip gets the authorities of this machine, because its registry may be behind a proxy.
        """
        name = f"localhost/rejoinder:{target}"
        if name in self.built:
            return name
        pip = self.folder / "pip.conf"
        pip.write_text("[global]\ncert = /authorities.crt\n")
        self.run(
            "build",
            "--isolation=chroot",
            "--format=docker",
            "--layers",
            f"--build-arg=BASE={BASE}",
            f"--volume={CERTIFICATES}:/authorities.crt:ro",
            f"--volume={pip}:/etc/pip.conf:ro",
            "--file=deploy/images/Containerfile",
            f"--target={target}",
            f"--tag=rejoinder:{target}",
            ".",
        )
        self.built.add(name)
        return name

    @contextmanager
    def serving(self, image: str, *options: object) -> Iterator[Server]:
        """Run a hardened server on loopback until the block ends; it has to end on SIGTERM, with status 0."""
        port, log = unused_port(), self.folder / f"{image.rpartition(':')[2]}.log"
        limits = [f"--ulimit={name}={_least(kind)}" for name, kind in LIMITS.items()]
        environment = ["--env=REJOINDER_HOST=127.0.0.1", f"--env=REJOINDER_PORT={port}"]
        command = self.line(
            *("run", "--rm", "--name=server", "--network=host", "--no-healthcheck"),
            *(*HARDENED, *limits, *environment, *options, image),
        )
        with log.open("w") as written:
            running = subprocess.Popen(command, stdout=written, stderr=written, stdin=subprocess.DEVNULL)
        server = Server(port, running, log)
        try:
            _await_ready(server)
            yield server
            self.run("stop", "--time=60", "server")
            assert running.wait(60.0) == 0, log.read_text()[-2000:]
        finally:
            if running.poll() is None:
                self.run("kill", "server")
                running.wait()


LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
"""podman would raise these two, for which it may lack the right."""


def _least(kind: int) -> str:
    number = min(4096, resource.getrlimit(kind)[1] % 2**63)  # RLIM_INFINITY is -1
    return f"{number}:{number}"


def _await_ready(server: Server) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until and server.process.poll() is None:
        try:
            if server.get("/readyz") == {"status": "ready"}:
                return
        except OSError:  # not there yet, or 503
            time.sleep(0.2)
    raise AssertionError(f"the container is not ready: {server.log.read_text()[-4000:]}")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """podman with Debian as it is in Debian's archive; no registry of images is needed."""
    for tool in ("podman", "runc", "mmdebstrap"):
        assert shutil.which(tool), f"{tool} is not installed: apt-get install podman runc mmdebstrap"
    podman = Podman(tmp_path_factory.mktemp("podman"))
    debian = podman.folder / "debian.tar"
    # Packages of the Containerfile that are there already need no download by its own steps.
    making = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates,python3,python3-venv"]
    subprocess.run([*making, "trixie", debian, "http://deb.debian.org/debian"], check=True, timeout=300)
    podman.run("import", debian, BASE)
    debian.unlink()
    yield podman
    podman.run("rmi", "--all", "--force")


def says_something(server: Server) -> None:
    """Ask in text, and get an answer in sound."""
    content = [{"type": "input_text", "text": "Say hello."}]
    with Talk(server) as talk:
        talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        talk.send("response.create")
        assert talk.until("response.done", 2 * PATIENCE)["response"]["status"] == "completed"
        assert sum(len(e["delta"]) for e in talk.seen if e["type"].endswith("audio.delta")) > 10_000


def test_an_image_with_weights_needs_nothing_to_answer(podman: Podman) -> None:
    image = podman.build("cpu-weights")
    [about] = json.loads(podman.run("inspect", image))
    assert about["Config"]["User"] == "10001:10001"
    assert about["Config"]["StopSignal"] == "SIGTERM"
    with podman.serving(image) as server:
        says_something(server)
        assert podman.run("exec", "server", "id", "-u").strip() == "10001"
        kind, *check = about["Healthcheck"]["Test"]
        assert kind == "CMD"
        podman.run("exec", "server", *(part.replace("8080", str(server.port)) for part in check))
        podman.run("exec", "server", "touch", "/opt/rejoinder/file", fails=True)
        podman.run("exec", "server", "touch", "/models/file", fails=True)
        status = podman.run("exec", "server", "cat", "/proc/1/status")
        assert "NoNewPrivs:\t1" in status and "CapEff:\t0000000000000000" in status


def test_weights_come_from_a_volume(podman: Podman, tmp_path: Path) -> None:
    """The volume begins with the weights as they are fetched; the server writes what it makes out of them."""
    for name in default_set():
        files = {file.name for file in catalog()[name].files}
        (tmp_path / "weights" / name).mkdir(parents=True)
        for file in files:
            shutil.copy2(cache_dir() / name / file, tmp_path / "weights" / name / file)
    with podman.serving(podman.build("cpu"), f"--volume={tmp_path}:/models:U") as server:
        says_something(server)
    assert list(tmp_path.glob("weights/piper-*/*.parts*")) and list(
        tmp_path.glob("weights/qwen2.5-*/*.onnx*")
    )


def test_a_server_without_weights_says_what_to_do(podman: Podman) -> None:
    image = podman.build("cpu")
    limits = [f"--ulimit={name}={_least(kind)}" for name, kind in LIMITS.items()]
    options = ["--network=host", "--no-healthcheck", *HARDENED, *limits, "--env=REJOINDER_HOST=127.0.0.1"]
    said = podman.run("run", "--rm", *options, "--env=REJOINDER_PORT=0", image, fails=True)
    assert "rejoinder models fetch" in said
