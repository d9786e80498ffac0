"""Addresses of clients: which ones count together, and which ones the limits leave out."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

from rejoinder.agent.wires.call_log import MAX_HOST

IPV6_BITS = 64
"""Length of the prefix that one customer of a provider has (RFC 6177). Its addresses count together."""

FORWARDED = (b"forwarded", b"x-forwarded-for")
"""Headers that a proxy adds to a request: RFC 7239, and the older one."""
MAPPED_BITS = 96
"""Length of the prefix before an IPv4 address in an IPv6 address."""


def networks(text: str) -> list[IPv4Network | IPv6Network]:
    """Return the addresses and networks in a setting, which blanks or commas separate. Raises ValueError."""
    return [ip_network(one) for one in text.replace(",", " ").split()]


def on_both_stacks(text: str) -> list[str]:
    """Return the addresses and networks in a setting, those of IPv4 also as IPv6 sockets show them.

    A socket that is open for both shows the IPv4 address a.b.c.d as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
    Raises ValueError.
    """
    found: list[str] = []
    for network in networks(text):
        found.append(str(network))
        if isinstance(network, IPv4Network):
            mapped = f"::ffff:{network.network_address}"
            found.append(f"{mapped}/{MAPPED_BITS + network.prefixlen}")
    return found


def grouped(host: str, exempt: list[IPv4Network | IPv6Network]) -> str:
    """Return the name under which a client's address is counted, "" for one that is not.

    host: an address, or whatever else a proxy has sent. exempt: networks whose clients are not counted.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host[:MAX_HOST]
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if any(address in network for network in exempt):
        return ""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), IPV6_BITS), strict=False))
    return str(address)


def client_group(scope: Scope, exempt: list[IPv4Network | IPv6Network]) -> str:
    """Return the name under which the client of a connection is counted, "" for one that is not."""
    return grouped(scope["client"][0], exempt) if scope.get("client") else ""


def is_from_here(scope: Scope) -> bool:
    """Return whether a request comes from this machine, and not through a proxy on it."""
    if any(name in FORWARDED for name, _ in scope["headers"]) or not scope.get("client"):
        return False
    try:
        address = ip_address(scope["client"][0])
    except ValueError:  # a proxy has sent a name
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
