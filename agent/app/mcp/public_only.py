"""HTTP to public addresses only, for URLs that strangers name (server-side request forgery)."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import anyio
import httpx2

NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway turns into the IPv4 address in their last 32 bits (RFC 6052)."""
NOT_PUBLIC = "{host} has no public address, and this server's operator allows no other"
"""Error message. It does not tell a name that is unknown from one of a private address."""


def is_public(text: str) -> bool:
    """Return whether an address belongs to a host in the Internet, whatever its notation.

    Private, loopback, link-local, shared, multicast and reserved addresses do not, nor do IPv6 addresses that
    lead to such an IPv4 address, or site-local ones, the private ones until RFC 3879. Raises ValueError for
    what is no address.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        teredo = address.teredo[1] if address.teredo else None
        inner = address.ipv4_mapped or address.sixtofour or teredo
        if address in NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if address.is_site_local:  # ``is_global`` holds for them
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


async def public_addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the order of the system's resolver.

    Raises ConnectError where it has none, or one that is not public. Cancelling leaves the system's request
    to end by itself.
    """
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    if not addresses or not all(map(is_public, addresses)):
        raise httpx2.ConnectError(NOT_PUBLIC.format(host=host))
    return addresses


class PublicTransport(httpx2.AsyncBaseTransport):
    """Resolves the host of each request itself, and connects to the address that it has checked.

    So neither a redirect nor a name whose address changes between two requests (DNS rebinding) leads into the
    operator's network. TLS still verifies the name.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its answer. Raises ConnectError for a host without public addresses.

        Cancelling closes the request's connection.
        """
        url = request.url
        host = url.raw_host.decode("ascii").strip("[]")
        failed: httpx2.TransportError | None = None
        for address in await public_addresses(host, url.port or {"http": 80, "https": 443}[url.scheme]):
            direct = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # with the name in Host
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._transport.handle_async_request(direct)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:  # nothing of the body is sent yet
                failed = error
        assert failed is not None  # there is an address
        raise failed

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some open."""
        await self._transport.aclose()
