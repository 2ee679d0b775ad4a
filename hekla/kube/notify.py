"""Tells whoever started this process that it is ready: systemd's protocol, which the local
cluster's supervisor speaks too."""

from __future__ import annotations

import os
import socket


def ready() -> None:
    """Says `READY=1` on the datagram socket that NOTIFY_SOCKET names; does nothing where nobody
    asked to be told."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        try:
            listener.sendto(f"READY=1\nMAINPID={os.getpid()}".encode(), address)
        except OSError:
            return  # whoever asked has gone; that is no reason to stop
