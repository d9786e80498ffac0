"""MCP servers that strangers name: no request leaves for a private address, however it is written."""

from __future__ import annotations

import asyncio
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import trustme

from rejoinder.agent.app.mcp import public_only
from rejoinder.agent.app.mcp.public_only import PublicTransport, is_public, public_addresses


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("127.0.0.1", False),
        ("127.8.9.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("192.0.2.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("fec0::1", False),
        ("feff::1", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("2001:db8::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::808:808", True),
        ("2002:7f00:1::", False),
        ("2002:a9fe:a9fe::1", False),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", False),
    ],
)
def test_address_is_public_or_not(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "::1", "nothing.invalid"]
)
def test_host_of_this_machine_and_unknown_host_have_the_same_error(host: str) -> None:
    with pytest.raises(httpx2.ConnectError, match="has no public address"):
        asyncio.run(public_addresses(host, 80))


class Door(http.server.BaseHTTPRequestHandler):
    """A server that writes down who asked, and redirects to where it is told to."""

    asked: list[tuple[str, str]]
    elsewhere = ""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Host"]))
        self.send_response(302 if self.elsewhere else 200)
        if self.elsewhere:
            self.send_header("Location", self.elsewhere)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def door(
    context: ssl.SSLContext | None = None, elsewhere: str = ""
) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Serve; yields the port and what was asked, each with its Host header."""
    asked: list[tuple[str, str]] = []
    handler = type("OneDoor", (Door,), {"asked": asked, "elsewhere": elsewhere})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(url: str, verify: ssl.SSLContext | bool = True, follow: bool = False) -> httpx2.Response:
    async def run() -> httpx2.Response:
        transport = PublicTransport(httpx2.AsyncHTTPTransport(verify=verify))
        async with httpx2.AsyncClient(transport=transport, follow_redirects=follow) as client:
            return await client.get(url)

    return asyncio.run(run())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "2130706433"])
def test_private_server_gets_no_request(host: str) -> None:
    with door() as (port, asked), pytest.raises(httpx2.ConnectError, match="has no public address"):
        get(f"http://{host}:{port}/secret")
    assert asked == []


def test_redirect_leads_to_no_private_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands for the Internet here, and 127.0.0.2 for the operator's network."""
    monkeypatch.setattr(public_only, "is_public", lambda address: address == "127.0.0.1")
    with door() as (inside, secrets), door(None, f"http://127.0.0.2:{inside}/") as (port, asked):
        with pytest.raises(httpx2.ConnectError, match="has no public address"):
            get(f"http://127.0.0.1:{port}/", follow=True)
    assert len(asked) == 1 and secrets == []


def test_connection_goes_to_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves to another address the second time (DNS rebinding) gains nothing by it."""
    authority, looks = trustme.CA(), 0
    mine = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("rebinding.example").configure_cert(mine)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    resolve = socket.getaddrinfo

    def rebinding(host: bytes, port: int, *given: int, **named: int) -> list[object]:
        nonlocal looks
        if host == b"rebinding.example":
            looks += 1
            host = b"127.0.0.1" if looks == 1 else b"127.0.0.2"
        return list(resolve(host, port, *given, **named))

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(public_only, "is_public", lambda address: address == "127.0.0.1")
    with door(mine) as (port, asked):
        assert get(f"https://rebinding.example:{port}/a", trusting).status_code == 200
        assert asked == [("/a", f"rebinding.example:{port}")] and looks == 1
        with pytest.raises(httpx2.ConnectError, match="has no public address"):
            get(f"https://rebinding.example:{port}/b", trusting)
        with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate"):
            get(f"https://127.0.0.1:{port}/c", trusting)
    assert len(asked) == 1
