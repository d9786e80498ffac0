"""A server on loopback that answers as the Hugging Face hub does, with its CDN on another origin.

The hub redirects a large file to its CDN and tells size, sha256 and commit in headers of that answer
(huggingface_hub/file_download.py, get_hf_file_metadata; huggingface_hub/utils/_http.py, hf_raise_for_status).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0" * 40


@dataclass
class Repository:
    """A repository of the hub.

    files: by name. told: the sha256 that the hub tells of a file, where that is not its own. token: the one
    that may read it; "" for everybody. gated: whether its licence has to be accepted. status: what each
    request for a file is answered. cut: files whose next download breaks off in the middle.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    token: str = ""
    gated: bool = False
    status: int = 0
    cut: set[str] = field(default_factory=set)


@dataclass
class Hub:
    """A running hub. requests: (host, method, path, token, range) of each request."""

    repositories: dict[str, Repository]
    url: str = ""
    cdn: str = ""
    requests: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    def of(self, host: str, part: str) -> list[tuple[str, str]]:
        """The tokens and ranges of the requests to "hub" or "cdn" whose path has this part."""
        return [
            (token, span) for where, _, path, token, span in self.requests if where == host and part in path
        ]


class Answering(BaseHTTPRequestHandler):
    hub: Hub
    host: str

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        span = self.headers.get("Range", "")
        self.hub.requests.append((self.host, self.command, self.path, token, span))
        self.close_connection = True
        organisation, name, *rest = self.path.partition("?")[0].strip("/").split("/")
        repository = self.hub.repositories.get(f"{organisation}/{name}")
        if self.host == "cdn":
            assert repository is not None
            return self.deliver(repository, "/".join(rest), span)
        file = "/".join(rest[2:])
        if repository is None or (repository.token and not token):
            return self.refuse(401, "RepoNotFound")
        if repository.token and token != repository.token:
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if repository.gated:
            return self.refuse(403 if token else 401, "GatedRepo")
        if repository.status:
            return self.refuse(repository.status, "")
        if file not in repository.files:
            return self.refuse(404, "EntryNotFound")
        content = repository.files[file]
        self.send_response(302)
        self.send_header("Location", f"{self.hub.cdn}/{organisation}/{name}/{file}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-Size", str(len(content)))
        self.send_header("X-Linked-Etag", f'"{repository.told.get(file, sha256(content))}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def refuse(self, status: int, code: str, message: str = "") -> None:
        self.send_response(status)
        for name, value in (("X-Error-Code", code), ("X-Error-Message", message)):
            if value:
                self.send_header(name, value)
        if status == 429:
            self.send_header("Retry-After", "17")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def deliver(self, repository: Repository, file: str, span: str) -> None:
        content = repository.files[file]
        start = int(span.removeprefix("bytes=").split("-")[0]) if span else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            end = len(content) // 2 if file in repository.cut else len(content)
            repository.cut.discard(file)
            self.wfile.write(content[start:end])


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def running(repositories: dict[str, Repository]) -> Iterator[Hub]:
    """Run a hub and its CDN until the block ends."""
    hub = Hub(repositories)
    servers = []
    for host in ("hub", "cdn"):
        handler = type("Handler", (Answering,), {"hub": hub, "host": host})
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
    hub.url, hub.cdn = (
        f"http://127.0.0.1:{servers[0].server_port}",
        f"http://localhost:{servers[1].server_port}",
    )
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
