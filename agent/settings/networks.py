"""Lists of addresses and networks in settings."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network


def networks(text: str) -> list[IPv4Network | IPv6Network]:
    """Return the addresses and networks in a setting, which blanks or commas separate. Raises ValueError."""
    return [ip_network(one) for one in text.replace(",", " ").split()]


def list_of_networks(text: str) -> str:
    """Return addresses and networks, separated by blanks. Raises ValueError."""
    networks(text)
    return " ".join(text.replace(",", " ").split())
