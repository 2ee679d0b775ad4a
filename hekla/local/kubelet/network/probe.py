"""Tries whether pods can have their own network on this machine, and whether policies can be
enforced in it.

Prints a line for each: why not, or nothing. Leaves nothing behind.
"""

from __future__ import annotations

import errno
import socket

from hekla.local.kubelet.network import filtering, netlink
from hekla.local.kubelet.network.netlink import Netlink


def refused() -> str:
    """Why pods cannot have their own network; empty if they can."""
    try:
        outer = Netlink()
        try:
            outer.ask(netlink.delete(1 << 30))
        except OSError as error:
            if error.errno == errno.EPERM:
                return "this machine's network may not be touched (CAP_NET_ADMIN is missing)"
        outer.close()
        pod = netlink.new_namespace()
        netlink.new_namespace()  # the thread stays in it, and the bridge is there
        inner = Netlink()
        inner.ask(netlink.bridge("br0"))
        inner.ask(netlink.pair("pod", socket.if_nametoindex("br0"), "eth0", pod))
    except OSError as error:
        return error.strerror or str(error)
    return ""


if __name__ == "__main__":
    why = refused()
    print(why)
    print(why or filtering.unavailable())
