"""A port for a program that has to be told one, and starts to listen on it a moment later."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

LOWEST, HIGHEST = 20_000, 29_999
"""Below the ports of services on nodes (30000 to 32767) and those that Linux gives to whoever asks
for any (from 32768)."""
GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


_told: set[int] = set()
"""What has been given: between two calls nobody may have begun to listen yet, and a cluster asks
for several."""


def free_port() -> int:
    """A port on which nobody listens, and which the system gives to no other connection or listener
    in between."""
    with contextlib.suppress(OSError):
        if int(GIVEN.read_text().split()[0]) <= HIGHEST:
            return _bound(0)  # here it gives those too
    while True:
        # A seeded one would give two tests the same.
        port = random.SystemRandom().randint(LOWEST, HIGHEST)
        if port not in _told:
            with contextlib.suppress(OSError):  # somebody is there
                _told.add(_bound(port))
                return port


def adjacent_ports(count: int) -> int:
    """The first of so many free ports, one after another."""
    while True:
        first = free_port()
        with contextlib.suppress(OSError):
            for port in range(first + 1, first + count):
                _bound(port)
            _told.update(range(first, first + count))
            return first


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.bind(("", port))
        return int(probe.getsockname()[1])
