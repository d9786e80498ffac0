"""The proxies whose header X-Forwarded-For the server uses."""

from __future__ import annotations

from ipaddress import IPv4Network

from rejoinder.agent.settings.networks import networks

MAPPED_BITS = 96
"""Length of the prefix before an IPv4 address in an IPv6 address."""


def on_both_stacks(text: str) -> list[str]:
    """Return the addresses and networks in a setting, those of IPv4 also as IPv6 sockets show them.

    A socket that is open for both shows the IPv4 address a.b.c.d as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
    """
    found: list[str] = []
    for network in networks(text):
        found.append(str(network))
        if isinstance(network, IPv4Network):
            found.append(f"::ffff:{network.network_address}/{MAPPED_BITS + network.prefixlen}")
    return found
