"""The interfaces of a cluster's pods: the bridges, the link to the machine, and a link for each pod.

All of it lies in namespaces that this process holds: when it ends, the kernel takes it away.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hekla.local.kubelet.network import names, netlink
from hekla.local.kubelet.network.netlink import Netlink

SERVICES = ("10.96.0.0", 16)
PREFIX = 20
SUBNETS = 192
"""Of 4,094 pods each, from 10.244.0.0 to 10.255.240.0."""
PORTS = 1000
"""Pods on one bridge: the kernel allows 1,024 ports.  More bridges are hung below the first."""
WAY_OUT = 15001
"""Port at which connections that leave the cluster are taken over; in a namespace where nobody else
listens."""


def dotted(number: int) -> str:
    return socket.inet_ntoa(number.to_bytes(4, "big"))


def numeric(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")


def hardware(address: str) -> bytes:
    """The hardware address that belongs to an IP address.  It is derived from it, so that the ARP
    caches of neighbours stay valid."""
    return bytes([0x0A, 0x58]) + socket.inet_aton(address)


def subnet(index: int) -> int:
    """The first address of a subnet."""
    return (10 << 24) + ((244 + index // 16) << 16) + ((index % 16) << 12)


def routed(lines: Iterable[str]) -> list[tuple[int, int]]:
    """(network, mask) of the routes in /proc/net/route, except the default route."""
    found = []
    for line in lines:
        words = line.split()
        if len(words) > 7 and words[1] != "Destination" and int(words[7], 16):
            found.append(
                tuple(int.from_bytes(bytes.fromhex(words[at])[::-1], "big") for at in (1, 7))
            )
    return [(network, mask) for network, mask in found]


def asked(servers: Iterable[str]) -> list[tuple[int, int]]:
    """(address, mask) of the machine's DNS servers: behind its default gateway, no other route
    shows them."""
    found = []
    for server in servers:
        with contextlib.suppress(OSError):  # it is no address
            found.append((numeric(server), 0xFFFFFFFF))
    return found


def free(index: int, taken: Iterable[tuple[int, int]]) -> bool:
    """Whether a subnet overlaps with no network that the machine reaches otherwise."""
    base, own = subnet(index), (0xFFFFFFFF << (32 - PREFIX)) & 0xFFFFFFFF
    return not any((base & mask & own) == (network & mask & own) for network, mask in taken)


def label(root: Path) -> str:
    """The alias of the interface of a directory's network; the kernel allows 255 bytes."""
    path = str(root)
    return path if len(os.fsencode(path)) < 200 else hashlib.sha256(os.fsencode(path)).hexdigest()


def abandoned(owner: str, own: Path) -> bool:
    """Whether the daemon of an interface's alias has died.  `own` is the directory of this daemon,
    which has its lock."""
    if owner == label(own):
        return True
    if not owner.startswith("/"):  # not marked yet, or too long a path
        return False
    try:
        lock = os.open(Path(owner) / "network.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # not a directory that can be seen from here
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


class Bridges:
    """The interfaces of one directory's network.  The process must be in the machine's namespace
    when this is made, and is in `hub` afterwards."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        """The machine's namespace."""
        self.hub = netlink.new_namespace()
        """The namespace of the bridges."""
        self._route = Netlink()
        self.pods: dict[str, tuple[int, int]] = {}
        """By uid: (descriptor of the namespace, number of the bridge)."""
        self._bridges: list[int] = []
        """Indices of the bridges; the gateway's address is on the first."""
        self._load: Counter[int] = Counter()
        """Pods by number of the bridge."""
        self._numbers = 0
        self.way_out = ""
        """Why pods cannot reach the network beyond the machine; empty when they can."""
        self.base = self._build()
        """The first address of the subnet, as a number."""
        self.gateway, self.host = dotted(self.base + 1), dotted(self.base + 2)
        self.last = dotted(self.base + (1 << (32 - PREFIX)) - 1)
        """The last address of the subnet."""

    def inside(self, address: str) -> bool:
        """Whether an address is a pod's: such are reached in the hub, all others in the machine's
        namespace."""
        return self.base <= numeric(address) < self.base + (1 << (32 - PREFIX))

    def _build(self) -> int:
        route = self._route
        self._add_bridge()
        route.ask(netlink.up(1), netlink.local_route(*SERVICES, 1))
        index = self._connect_machine()
        base = subnet(index)
        gateway = dotted(base + 1)
        route.ask(
            netlink.hardware(self._bridges[0], hardware(gateway)),
            netlink.address(self._bridges[0], gateway, PREFIX),
        )
        try:
            netlink.redirect([(dotted(base), PREFIX), SERVICES], WAY_OUT)
        except OSError as error:
            self.way_out = f"the kernel does not redirect connections: {error.strerror}"
        return base

    def _add_bridge(self) -> int:
        """Make one more bridge, hung below the first.  Gives its number."""
        number = len(self._bridges)
        self._route.ask(netlink.bridge(f"br{number}"))
        made = socket.if_nametoindex(f"br{number}")
        self._route.ask(netlink.up(made))
        if self._bridges:
            self._route.ask(
                netlink.pair(f"down{number}", self._bridges[0], f"up{number}", self.hub)
            )
            self._route.ask(netlink.join(socket.if_nametoindex(f"up{number}"), made))
        self._bridges.append(made)
        return number

    def _connect_machine(self) -> int:
        """Make the link to the machine.  Gives the number of the subnet; the name of the
        interface is the claim on it."""
        netlink.set_namespace(self.machine)
        try:
            self._clear()
            with open("/proc/thread-self/net/route") as file:
                lines = file.readlines()
        finally:
            netlink.set_namespace(self.hub)
        taken = [*routed(lines), *asked(names.host_servers())]
        first = self._before()
        for step in range(SUBNETS):
            index = (first + step) % SUBNETS
            if not free(index, taken):
                continue
            name = f"hekla{index}"
            try:
                self._route.ask(netlink.pair("machine", self._bridges[0], name, self.machine))
            except FileExistsError:
                continue
            netlink.set_namespace(self.machine)
            try:
                outer = Netlink()
                end = socket.if_nametoindex(name)
                outer.ask(
                    netlink.mark(end, label(self.root)),
                    netlink.up(end),
                    netlink.address(end, dotted(subnet(index) + 2), PREFIX),
                )
                outer.close()
            finally:
                netlink.set_namespace(self.hub)
            return index
        raise OSError(
            0, f"all {SUBNETS} subnets from 10.244.0.0 to 10.255.240.0 are taken on this machine"
        )

    def _clear(self) -> None:
        """Remove the links of daemons that have died.  The kernel does that too, but in its
        own time; until then the subnet of this directory would count as taken, and its pods would
        get a network in which their addresses are not.
        """
        machine = Netlink()
        try:
            for file in Path("/sys/class/net").glob("hekla*/ifalias"):
                with contextlib.suppress(OSError):  # it has just vanished
                    if abandoned(file.read_text().rstrip("\n"), self.root):
                        machine.ask(netlink.delete(socket.if_nametoindex(file.parent.name)))
        finally:
            machine.close()

    def _before(self) -> int:
        """The subnet that the directory's pods had before, else one that other directories are
        unlikely to choose."""
        try:
            base = numeric(json.loads((self.root / "network.json").read_text())["base"])
            return ((base >> 16 & 0xFF) - 244) * 16 + (base >> 12 & 15)
        except (OSError, ValueError, KeyError, TypeError):
            return hashlib.sha256(os.fsencode(self.root)).digest()[0] % SUBNETS

    def attach(self, uid: str, address: str, pids: list[int]) -> str:
        """The path of a pod's namespace, which is made where it is missing.  `pids` may still run
        in one that an earlier daemon made."""
        if uid not in self.pods:
            number = next((n for n in range(len(self._bridges)) if self._load[n] < PORTS), None)
            if number is None:
                number = self._add_bridge()
            self.pods[uid] = (
                self._connect_pod(address, self._left(pids), self._bridges[number]),
                number,
            )
            self._load[number] += 1
        return f"/proc/{os.getpid()}/fd/{self.pods[uid][0]}"

    def _left(self, pids: list[int]) -> int | None:
        """A namespace in which one of the processes still runs; never the machine's, which must not
        get a link."""
        machine = os.fstat(self.machine)
        for pid in pids:
            try:
                found = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if not os.path.samestat(os.fstat(found), machine):
                return found
            os.close(found)
        return None

    def _connect_pod(self, address: str, namespace: int | None, bridge: int) -> int:
        """Make a pod's link to a bridge, in this namespace or a new one.  Gives the namespace."""
        self._numbers += 1
        try:
            if namespace is None:
                namespace = netlink.new_namespace()
            else:
                netlink.set_namespace(namespace)
                _remove_link()
            self._route.ask(
                netlink.pair(f"pod{self._numbers}", bridge, "eth0", namespace, hardware(address))
            )
            inner = Netlink()
            try:
                own = socket.if_nametoindex("eth0")
                inner.ask(
                    netlink.up(1),
                    netlink.up(own),
                    netlink.address(own, address, PREFIX),
                    netlink.default_route(self.gateway),
                )
            finally:
                inner.close()
        finally:
            netlink.set_namespace(self.hub)
        return namespace

    def detach(self, uid: str) -> None:
        """Let go of a pod's namespace, if it has one."""
        found = self.pods.pop(uid, None)
        if found is not None:
            os.close(found[0])
            self._load[found[1]] -= 1


def _remove_link() -> None:
    """Takes the link of a dead daemon out of this thread's namespace, if the kernel has not done
    so yet."""
    inner = Netlink()
    try:
        inner.ask(netlink.delete(socket.if_nametoindex("eth0")))
    except OSError:  # there is none
        pass
    finally:
        inner.close()
