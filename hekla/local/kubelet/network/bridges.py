"""The network interfaces of a cluster's pods: bridges, the link to the machine, and a link for each
pod.

All of them are in namespaces that this process holds; when it ends, the kernel removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hekla.local.kubelet.network import names, netlink
from hekla.local.kubelet.network.netlink import Netlink

SERVICE_NETWORK = ("10.96.0.0", 16)
SUBNET_PREFIX = 20
SUBNET_COUNT = 192
"""Of 4,094 pods each, from 10.244.0.0 to 10.255.240.0."""
MAX_BRIDGE_PORTS = 1000
"""Pods on one bridge: the kernel allows 1,024 ports. Further bridges are attached to the first."""
EGRESS_PORT = 15001
"""Connections that leave the cluster are redirected to this port, in a namespace without other
listeners."""


def dotted(number: int) -> str:
    """An IPv4 address as text, from its number."""
    return socket.inet_ntoa(number.to_bytes(4, "big"))


def numeric(address: str) -> int:
    """An IPv4 address as a number, from its text."""
    return int.from_bytes(socket.inet_aton(address), "big")


def hardware(address: str) -> bytes:
    """The MAC address for an IP address. It is derived from the IP address, so that ARP caches of
    neighbours stay valid."""
    return bytes([0x0A, 0x58]) + socket.inet_aton(address)


def subnet(index: int) -> int:
    """The first address of a subnet."""
    return (10 << 24) + ((244 + index // 16) << 16) + ((index % 16) << 12)


def routes(lines: Iterable[str]) -> list[tuple[int, int]]:
    """(network, mask) of the routes in /proc/net/route, except the default route."""
    found = []
    for line in lines:
        words = line.split()
        if len(words) > 7 and words[1] != "Destination" and int(words[7], 16):
            found.append(
                tuple(int.from_bytes(bytes.fromhex(words[at])[::-1], "big") for at in (1, 7))
            )
    return [(network, mask) for network, mask in found]


def dns_servers(servers: Iterable[str]) -> list[tuple[int, int]]:
    """(address, mask) of the machine's DNS servers: behind its default gateway, no route shows
    them."""
    found = []
    for server in servers:
        with contextlib.suppress(OSError):  # not an IPv4 address
            found.append((numeric(server), 0xFFFFFFFF))
    return found


def is_free(index: int, taken: Iterable[tuple[int, int]]) -> bool:
    """Whether a subnet does not overlap with a network that the machine can reach."""
    base, own = subnet(index), (0xFFFFFFFF << (32 - SUBNET_PREFIX)) & 0xFFFFFFFF
    return not any((base & mask & own) == (network & mask & own) for network, mask in taken)


def label(root: Path) -> str:
    """The alias of an interface of a directory's network; the kernel allows 255 bytes."""
    path = str(root)
    return path if len(os.fsencode(path)) < 200 else hashlib.sha256(os.fsencode(path)).hexdigest()


def abandoned(owner: str, own: Path) -> bool:
    """Whether the daemon of an interface's alias has died.  `own` is the directory of this daemon,
    which has its lock."""
    if owner == label(own):
        return True
    if not owner.startswith("/"):  # no alias yet, or the path is too long
        return False
    try:
        lock = os.open(Path(owner) / "network.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # the directory is not visible from here
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def stop_forwarding(route: Netlink) -> None:
    """Set all bridges of a namespace down before the namespace ends. The kernel removes its rules
    first and its interfaces after them, and would forward without rules for some milliseconds."""
    with contextlib.suppress(OSError):  # there are no more
        for number in itertools.count():
            route.ask(netlink.down(f"br{number}"))


class Bridges:
    """The interfaces of a directory's network. The process must be in the machine's namespace when
    this is created, and is in `hub` afterwards."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        """The machine's namespace."""
        self.hub = netlink.new_namespace()
        """The namespace of the bridges."""
        self._route = Netlink()
        self.pods: dict[str, tuple[int, int]] = {}
        """uid -> (descriptor of the namespace, number of the bridge)."""
        self._bridges: list[int] = []
        """Indices of the bridges; the gateway's address is on the first."""
        self._load: Counter[int] = Counter()
        """Number of pods by number of the bridge."""
        self._numbers = 0
        self.way_out = ""
        """Why pods cannot reach networks outside the cluster; empty if they can."""
        self.base = self._build()
        """The first address of the subnet, as a number."""
        self.gateway, self.host = dotted(self.base + 1), dotted(self.base + 2)
        self.last = dotted(self.base + (1 << (32 - SUBNET_PREFIX)) - 1)
        """The last address of the subnet."""

    def inside(self, address: str) -> bool:
        """Whether an address is that of a pod, which is reached in the hub; all others are reached
        in the machine's namespace."""
        return self.base <= numeric(address) < self.base + (1 << (32 - SUBNET_PREFIX))

    def _build(self) -> int:
        route = self._route
        self._add_bridge()
        route.ask(netlink.up(1), netlink.local_route(*SERVICE_NETWORK, 1))
        index = self._connect_machine()
        base = subnet(index)
        gateway = dotted(base + 1)
        route.ask(
            netlink.hardware(self._bridges[0], hardware(gateway)),
            netlink.address(self._bridges[0], gateway, SUBNET_PREFIX),
        )
        try:
            netlink.redirect([(dotted(base), SUBNET_PREFIX), SERVICE_NETWORK], EGRESS_PORT)
        except OSError as error:
            self.way_out = f"the kernel does not redirect connections: {error.strerror}"
        return base

    def _add_bridge(self) -> int:
        """Add a bridge that is attached to the first. Returns its number."""
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
        """Create the link to the machine. Returns the number of the subnet; the name of the
        interface reserves it."""
        netlink.set_namespace(self.machine)
        try:
            self._clear()
            with open("/proc/thread-self/net/route") as file:
                lines = file.readlines()
        finally:
            netlink.set_namespace(self.hub)
        taken = [*routes(lines), *dns_servers(names.host_servers())]
        first = self._preferred_subnet()
        for step in range(SUBNET_COUNT):
            index = (first + step) % SUBNET_COUNT
            if not is_free(index, taken):
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
                    netlink.address(end, dotted(subnet(index) + 2), SUBNET_PREFIX),
                )
                outer.close()
            finally:
                netlink.set_namespace(self.hub)
            return index
        raise OSError(
            0,
            f"all {SUBNET_COUNT} subnets from 10.244.0.0 to 10.255.240.0 are taken on this machine",
        )

    def _clear(self) -> None:
        """Remove the links of daemons that have died. The kernel does that too, but later; until
        then the subnet of this directory would count as used, and its pods would get a network
        without their addresses."""
        machine = Netlink()
        try:
            for file in Path("/sys/class/net").glob("hekla*/ifalias"):
                with contextlib.suppress(OSError):  # it has just been removed
                    if abandoned(file.read_text().rstrip("\n"), self.root):
                        machine.ask(netlink.delete(socket.if_nametoindex(file.parent.name)))
        finally:
            machine.close()

    def _preferred_subnet(self) -> int:
        """The subnet that the directory's pods had before, else one that other directories are
        unlikely to choose."""
        try:
            base = numeric(json.loads((self.root / "network.json").read_text())["base"])
            return ((base >> 16 & 0xFF) - 244) * 16 + (base >> 12 & 15)
        except (OSError, ValueError, KeyError, TypeError):
            return hashlib.sha256(os.fsencode(self.root)).digest()[0] % SUBNET_COUNT

    def attach(self, uid: str, address: str, pids: list[int]) -> str:
        """The path of a pod's namespace, which is created if it does not exist. `pids` may still
        run in one that an earlier daemon created."""
        if uid not in self.pods:
            number = next(
                (n for n in range(len(self._bridges)) if self._load[n] < MAX_BRIDGE_PORTS), None
            )
            if number is None:
                number = self._add_bridge()
            self.pods[uid] = (
                self._connect_pod(address, self._existing_namespace(pids), self._bridges[number]),
                number,
            )
            self._load[number] += 1
        return f"/proc/{os.getpid()}/fd/{self.pods[uid][0]}"

    def _existing_namespace(self, pids: list[int]) -> int | None:
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
        """Create a pod's link to a bridge, in this namespace or a new one. Returns the namespace."""
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
                    netlink.address(own, address, SUBNET_PREFIX),
                    netlink.default_route(self.gateway),
                )
            finally:
                inner.close()
        finally:
            netlink.set_namespace(self.hub)
        return namespace

    def close(self) -> None:
        """Disconnect all pods, at the end of the process."""
        stop_forwarding(self._route)

    def detach(self, uid: str) -> None:
        """Release a pod's namespace, if it has one."""
        found = self.pods.pop(uid, None)
        if found is not None:
            os.close(found[0])
            self._load[found[1]] -= 1


def _remove_link() -> None:
    """Remove the link of a dead daemon from this thread's namespace, unless the kernel has done so."""
    inner = Netlink()
    try:
        inner.ask(netlink.delete(socket.if_nametoindex("eth0")))
    except OSError:  # there is no link
        pass
    finally:
        inner.close()
