"""Reports readiness to the parent process, by the protocol of systemd, which the local cluster's
supervisor speaks too."""

from __future__ import annotations

import os
import socket


def ready() -> None:
    """Send `READY=1` to the datagram socket in NOTIFY_SOCKET; without that variable, do nothing."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        try:
            listener.sendto(f"READY=1\nMAINPID={os.getpid()}".encode(), address)
        except OSError:
            return  # the parent is gone, which is no reason to stop
