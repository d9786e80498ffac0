"""TLS by flags: real handshakes, a certificate that is replaced while a call goes on, and wrong files."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import resource
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from support.certificates import Authority, replace
from support.serving import LINE, PATIENCE, Server, run_command, serving
from websockets.sync.client import ClientConnection, connect

from rejoinder.agent.cli.doctor.files import check_files
from rejoinder.agent.client.call import connect as call_to
from rejoinder.agent.client.events import AgentSaid, ReplyDone
from rejoinder.agent.config import Settings
from rejoinder.agent.server.descriptors import Shortage
from rejoinder.agent.server.http.headers import STRICT_TRANSPORT, headers
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.operating import arrivals, followed, server_loop
from rejoinder.agent.server.operating.arrivals import Arrivals
from rejoinder.agent.server.operating.followed import FollowedFiles
from rejoinder.agent.server.operating.tls import Certificate, ClosableTransport, open_certificate

NAME = "agent.example"
CONNECTS_PER_S = 30


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


class Files:
    """A certificate and its key in two files, and the clients' trust in it."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.cert, self.key, self.trusted = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        self._authority = authority
        self.trusted.write_bytes(authority.pem)
        self.client = ssl.create_default_context(cafile=str(self.trusted))
        self.issue()

    def issue(self, of_rsa: bool = False) -> int:
        """Write a new certificate with its key; return its serial number."""
        cert, key = self._authority.issue(NAME, of_rsa)
        replace(self.key, key)
        replace(self.cert, cert)
        return self.serial(cert)

    def serial(self, pem: bytes) -> int:
        return x509.load_pem_x509_certificate(pem).serial_number

    def shown(self, port: int) -> int:
        """Return the serial number of the certificate that a new handshake shows."""
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            self.client.wrap_socket(plain, server_hostname=NAME) as secured,
        ):
            return self.serial(ssl.DER_cert_to_PEM_cert(secured.getpeercert(True) or b"").encode())

    def get(self, port: int, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of a request."""
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=self.client, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()


def until(true: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Files:
    return Files(tmp_path_factory.mktemp("certificate"), authority)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tls")
    given = {"tls-cert": str(files.cert), "tls-key": str(files.key)}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("REJOINDER_MAX_CONNECTS_PER_S", str(CONNECTS_PER_S))
        patch.setenv("REJOINDER_TRUSTED_PROXIES", "192.0.2.1")  # proxies do not wait
        server = stack.enter_context(serving(folder, wait=False, **given))

        def ready() -> bool:
            try:
                return files.get(server.port, "/readyz")[0] == 200
            except OSError:
                return False

        until(ready, 120.0)
        yield server


def call(server: Server, files: Files) -> ClientConnection:
    url = f"wss://127.0.0.1:{server.port}/v1/realtime?model=default"
    return connect(
        url, ssl=files.client, proxy=None, max_size=None, ping_interval=None, open_timeout=PATIENCE
    )


def answered(socket: ClientConnection) -> None:
    """Let a call write an answer."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
    socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    socket.send(json.dumps({"type": "response.create"}))
    while (event := json.loads(socket.recv(timeout=PATIENCE)))["type"] != "response.done":
        pass
    assert event["response"]["status"] == "completed"


def test_call_goes_on_while_the_certificate_is_replaced(server: Server, files: Files) -> None:
    """Also by one whose key is of another type, beside which OpenSSL would keep the old one."""
    with call(server, files) as socket:
        answered(socket)
        for of_rsa in (False, True, False):
            issued = files.issue(of_rsa)
            until(lambda issued=issued: files.shown(server.port) == issued)  # type: ignore[misc]
            answered(socket)  # the connection of the first certificate


def test_wrong_files_are_not_used_until_they_are_right(server: Server, files: Files) -> None:
    before = files.shown(server.port)
    right = files.key.read_bytes()
    files.key.write_text("-----BEGIN nonsense")
    os.kill(server.process.pid, signal.SIGHUP)
    until(lambda: "TLS certificate not read again" in server.log.read_text())
    assert files.shown(server.port) == before
    files.key.write_bytes(right)
    os.kill(server.process.pid, signal.SIGHUP)
    until(lambda: "TLS certificate read again" in server.log.read_text().rpartition("not read again")[2])
    assert files.shown(server.port) == before


def test_own_client_calls_by_wss(server: Server, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rejoinder talk --url`` and the benches use this client."""
    monkeypatch.setenv("SSL_CERT_FILE", str(files.trusted))

    async def run() -> str:
        async with asyncio.timeout(PATIENCE), call_to(f"wss://127.0.0.1:{server.port}/v1/realtime") as call:
            await call.add_text("Hello.")
            await call.respond()
            said = ""
            async for event in call:
                match event:
                    case AgentSaid(text=text):
                        said += text
                    case ReplyDone():
                        return said
        raise AssertionError("the call ended without a reply")

    assert asyncio.run(run()).strip() == LINE.strip()


def test_page_is_served_by_https(server: Server, files: Files) -> None:
    status, received, body = files.get(server.port, "/")
    assert status == 200 and b"<title>" in body
    assert "Strict-Transport-Security" not in received, "this machine has other ports without TLS"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(server: Server, files: Files, version: ssl.TLSVersion) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = version
    with pytest.warns(DeprecationWarning):
        old.maximum_version = version
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain)


def test_plain_http_gets_no_page(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        try:
            received = plain.recv(4096)
        except ConnectionResetError:
            received = b""
        assert b"HTTP" not in received


def test_strict_transport_is_for_hosts_that_other_machines_reach() -> None:
    assert STRICT_TRANSPORT in headers(tls=True) and STRICT_TRANSPORT not in headers(tls=False)


def test_client_that_never_ends_its_handshake_is_dropped(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_loop, "HANDSHAKE_SECONDS", 0.1)

    async def run() -> bytes:
        certificate = Certificate(files.cert, files.key)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=certificate.context)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            async with asyncio.timeout(PATIENCE):
                return await reader.read()
        finally:
            writer.close()
            server.close()

    with asyncio.Runner(loop_factory=server_loop.ServerLoop) as runner:
        assert runner.run(run()) == b""


def test_connections_count_before_their_handshake(server: Server, files: Files) -> None:
    with ExitStack() as stack:
        address, began = ("127.0.0.1", server.port), time.monotonic()
        over = CONNECTS_PER_S // 2
        for _ in range(arrivals.BURST_CONNECTS + over):
            stack.enter_context(socket.create_connection(address, PATIENCE))
        assert files.get(server.port, "/healthz")[0] == 200
        assert time.monotonic() - began > over / CONNECTS_PER_S


class Answering(asyncio.Protocol):
    """Answers whatever comes, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"answer to " + data)
        self.transport.close()


def test_handshakes_over_the_rate_do_not_begin_before_their_turn(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second client's turn would come after 1,000 s; the third one's comes."""
    monkeypatch.setattr(server_loop, "HANDSHAKE_SECONDS", PATIENCE)
    monkeypatch.setattr(arrivals, "BURST_CONNECTS", 1)
    monkeypatch.setattr(arrivals, "QUEUE_SECONDS", 1e6)

    async def ask(address: tuple[str, int]) -> bytes:
        reader, writer = await asyncio.open_connection(*address, ssl=files.client, server_hostname=NAME)
        writer.write(b"hello")
        try:
            return await reader.read()
        finally:
            writer.close()

    async def said_to(address: tuple[str, int]) -> bytes:
        """Begin a handshake, and return all that the server says."""
        out = ssl.MemoryBIO()
        handshake = files.client.wrap_bio(ssl.MemoryBIO(), out, server_hostname=NAME)
        with pytest.raises(ssl.SSLWantReadError):
            handshake.do_handshake()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(out.read())
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def run() -> None:
        certificate = Certificate(files.cert, files.key)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, server_loop.ServerLoop)
        loop.arrivals = rate = Arrivals(0.001)
        server = await loop.create_server(Answering, "127.0.0.1", 0, ssl=certificate.context)
        address = server.sockets[0].getsockname()
        async with asyncio.timeout(PATIENCE):
            assert await ask(address) == b"answer to hello"
            monkeypatch.setattr(server_loop, "HANDSHAKE_SECONDS", 1.0)
            assert await said_to(address) == b"", "no handshake, until it is dropped"
            monkeypatch.setattr(server_loop, "HANDSHAKE_SECONDS", PATIENCE)
            third = asyncio.create_task(ask(address))
            while not loop.gates:  # noqa: ASYNC110 - the server's side of a connection
                await asyncio.sleep(0.01)
            rate._left = 1.0
            rate._next()
            assert await third == b"answer to hello"
        assert not loop.gates
        server.close()

    with asyncio.Runner(loop_factory=server_loop.ServerLoop) as runner:
        runner.run(run())


def test_shortage_of_descriptors_drops_a_waiting_handshake_and_makes_room(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "BURST_CONNECTS", 1)
    monkeypatch.setattr(arrivals, "QUEUE_SECONDS", 1e6)

    async def wait_for(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""

    async def run() -> None:
        certificate = Certificate(files.cert, files.key)
        loop, relieved = asyncio.get_running_loop(), asyncio.Event()
        assert isinstance(loop, server_loop.ServerLoop)
        loop.set_exception_handler(Shortage(relieved.set).handle)
        loop.arrivals = rate = Arrivals(0.001)
        server = await loop.create_server(Answering, "127.0.0.1", 0, ssl=certificate.context)
        address = server.sockets[0].getsockname()
        async with asyncio.timeout(PATIENCE):
            clients = [
                await asyncio.open_connection(*address) for _ in range(3)
            ]  # the first one's turn is now
            while len(loop.gates) < 2:  # noqa: ASYNC110 - the server's side of a connection
                await asyncio.sleep(0.01)
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            os.close(lowest := os.dup(server.sockets[0].fileno()))
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
            try:
                for _ in range(2):
                    rate._left = 1.0
                    rate._next()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert [await wait_for(reader) for reader, _ in clients[1:]] == [b"", b""]
            await relieved.wait()
            rate._left = 1.0
            reader, writer = await asyncio.open_connection(*address, ssl=files.client, server_hostname=NAME)
            writer.write(b"hello")
            assert await reader.read() == b"answer to hello"
        for each in (writer, *(writer for _, writer in clients)):
            each.close()
        assert not loop.gates
        server.close()

    with asyncio.Runner(loop_factory=server_loop.ServerLoop) as runner:
        runner.run(run())


def test_connection_may_be_closed_twice(files: Files) -> None:
    """uvicorn closes a WebSocket's transport more than once, and timers look at it afterwards."""

    class Twice(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport = cast("asyncio.Transport", ClosableTransport(transport))
            transport.close()
            transport.close()
            done.set_result((transport.get_protocol(), transport.is_closing()))
            transport.resume_reading()
            transport.write(b"too late")
            transport.abort()

    async def run() -> tuple[object, bool]:
        nonlocal done
        done = asyncio.get_running_loop().create_future()
        certificate = Certificate(files.cert, files.key)
        server = await asyncio.get_running_loop().create_server(
            Twice, "127.0.0.1", 0, ssl=certificate.context
        )
        with suppress(OSError):
            _, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=files.client, server_hostname=NAME
            )
            writer.close()
        server.close()
        async with asyncio.timeout(PATIENCE):
            return await done

    done: asyncio.Future[tuple[object, bool]]
    protocol, closing = asyncio.run(run())
    assert isinstance(protocol, Twice) and closing


def test_mistakes_in_the_files_have_a_sentence(tmp_path: Path, authority: Authority, files: Files) -> None:
    other = Files(tmp_path, authority)
    none, words, locked = tmp_path / "none.pem", tmp_path / "words.pem", tmp_path / "locked.pem"
    words.write_text("these are words")
    key = load_pem_private_key(files.key.read_bytes(), None)
    form = Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(*form))
    for cert, private, sentence in (
        (none, files.key, "tls_cert: cannot read"),
        (files.cert, none, "tls_key: cannot read"),
        (words, files.key, "tls_cert: .* is not a PEM file"),
        (files.cert, other.key, "does not belong to the first certificate"),
        (files.cert, locked, "the private key is encrypted"),
        (files.cert, None, "and its private key, or set tls_key"),
        (files.key, files.cert, "are not a certificate and its key"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Certificate(cert, private)
    together = tmp_path / "both.pem"
    together.write_bytes(files.key.read_bytes() + files.cert.read_bytes())
    assert open_certificate(Settings(tls_cert=str(together))) is not None
    assert open_certificate(Settings()) is None


def test_doctor_reports_the_files(tmp_path: Path, files: Files) -> None:
    keys = tmp_path / "keys"
    keys.write_text(hashed("a key"))
    given = {"tls_cert": str(files.cert), "tls_key": str(files.key), "api_keys_file": str(keys)}
    assert [(one.part, one.state) for one in check_files(Settings(**given))] == [
        ("certificate", "ok"),
        ("API keys", "ok"),
    ]
    keys.write_text("")
    broken = list(check_files(Settings(**{**given, "tls_key": str(tmp_path / "none.pem")})))
    assert [one.state for one in broken] == ["broken", "broken"] and all(one.needed for one in broken)
    assert "tls_key: cannot read" in broken[0].detail and "has no key" in broken[1].detail
    assert list(check_files(Settings())) == []


def test_mismatched_pair_leaves_the_context_as_it_is(tmp_path: Path, authority: Authority) -> None:
    """OpenSSL has replaced the certificate when it notices that the key is of another one."""
    files = Files(tmp_path, authority)
    certificate = Certificate(files.cert, files.key)
    shown, key = files.serial(files.cert.read_bytes()), files.key.read_bytes()
    files.issue()
    files.key.write_bytes(key)
    with pytest.raises(ValueError, match="does not belong"):
        certificate.read()
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificate.context.wrap_bio(here, there, server_side=True)
    client = files.client.wrap_bio(there, here, server_hostname=NAME)
    for _ in range(4):
        for end in (client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    pem = ssl.DER_cert_to_PEM_cert(client.getpeercert(True) or b"")
    assert files.serial(pem.encode()) == shown


def test_file_that_vanishes_while_it_is_read_has_a_sentence(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path, authority)
    certificate = Certificate(files.cert, files.key)
    read_bytes = Path.read_bytes

    def read_and_delete(path: Path) -> bytes:
        text = read_bytes(path)
        path.unlink()
        return text

    monkeypatch.setattr(Path, "read_bytes", read_and_delete)
    with pytest.raises(ValueError, match=r"tls_cert, tls_key: cannot read .*cert\.pem"):
        certificate.read()


def test_wrong_file_is_logged_once_and_taken_when_it_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file"
    path.write_text("right")
    taken: list[str] = []

    def read() -> None:
        text = path.read_text()
        if "wrong" in text:
            raise ValueError("it is wrong")
        taken.append(text)

    files = FollowedFiles("the file", [path], read)
    files.look()
    assert taken == []
    path.write_text("wrong for now")
    files.look()
    files.look()
    assert taken == [] and caplog.text.count("it is wrong") == 1
    path.write_text("right again, and longer")
    files.look()
    files.look()
    assert taken == ["right again, and longer"]
    path.unlink()
    assert followed.stamp([path]) == [None]
    files.look()
    assert "No such file" in caplog.text, "an error that the function does not translate ends no task"


@pytest.mark.server
def test_command_line_explains_a_wrong_certificate(tmp_path: Path) -> None:
    failed = run_command("serve", "--port", "0", "--tls-cert", str(tmp_path / "no.pem"), folder=tmp_path)
    assert failed.returncode == 1 and "tls_cert: cannot read" in failed.stderr.replace("\n", " ")
    failed = run_command("serve", "--port", "0", "--tls-key", str(tmp_path / "no.pem"), folder=tmp_path)
    assert failed.returncode == 2 and "set tls_cert too" in failed.stderr
