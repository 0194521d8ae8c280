"""Whether an address to listen on means all addresses of a machine."""

from __future__ import annotations

import ipaddress
import socket


def is_any_address(host: str) -> bool:
    """Return whether a host means all addresses: ``0.0.0.0``, ``::``, or another spelling."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return not any(socket.inet_aton(host))
        except OSError:
            return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_unspecified or (mapped is not None and mapped.is_unspecified)
