"""Addresses of clients: which ones count together, and which ones have no limits."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from rejoinder.agent.wires.call_log import MAX_HOST

IPV6_BITS = 64
"""Length of the prefix that one customer of a provider has (RFC 6177). Its addresses count together."""


def grouped(host: str, exempt: Sequence[IPv4Network | IPv6Network]) -> str:
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
