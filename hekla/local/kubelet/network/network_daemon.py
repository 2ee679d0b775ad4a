"""The process that is a cluster's network: it holds the namespaces of the pods and the bridge
between them.

It stands beside the agent, because the agent may be killed at any moment and connections between
pods must not notice.  All that it has made in the kernel goes with it: when the last descriptor of
a namespace is closed, its interfaces vanish, the machine's end of the cable among them.  It ends
when it is told to, or when neither an agent nor a container of its directory is left.

The agent speaks to it over a Unix socket in its directory, a JSON object a line: `{"id": 1, "do":
"attach", "uid": "...", ...}`, answered by `{"id": 1, ...}` or `{"id": 1, "error": "..."}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hekla.api.trees import Json
from hekla.local.kubelet.network import names, netlink
from hekla.local.kubelet.network.filtering import Filter
from hekla.local.kubelet.network.names import Port, Service, Zone
from hekla.local.kubelet.network.netlink import Netlink
from hekla.local.kubelet.network.policies import Verdicts, group_of
from hekla.local.kubelet.network.relay import (
    Choice,
    Exchange,
    Listener,
    Namespaces,
    Target,
    original,
)

log = logging.getLogger("network")

SERVICES = ("10.96.0.0", 16)
PREFIX = 20
SUBNETS = 192
"""Of 4,094 pods each, from 10.244.0.0 to 10.255.240.0."""
LOOK_EVERY = 15.0
"""Seconds between looks whether anybody still needs the network."""
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
    """The hardware address of who has this address: it follows from it, so that a neighbour's
    memory of it stays true."""
    return bytes([0x0A, 0x58]) + socket.inet_aton(address)


def subnet(index: int) -> int:
    """The first address of a subnet."""
    return (10 << 24) + ((244 + index // 16) << 16) + ((index % 16) << 12)


def routed(lines: Iterable[str]) -> list[tuple[int, int]]:
    """(network, mask) of what /proc/net/route leads anywhere but to the default gateway."""
    found = []
    for line in lines:
        words = line.split()
        if len(words) > 7 and words[1] != "Destination" and int(words[7], 16):
            found.append(
                tuple(int.from_bytes(bytes.fromhex(words[at])[::-1], "big") for at in (1, 7))
            )
    return [(network, mask) for network, mask in found]


def asked(servers: Iterable[str]) -> list[tuple[int, int]]:
    """(address, mask) of the servers that the machine asks for names: behind its default gateway,
    no other route tells of them."""
    found = []
    for server in servers:
        with contextlib.suppress(OSError):  # it is no address
            found.append((numeric(server), 0xFFFFFFFF))
    return found


def free(index: int, taken: Iterable[tuple[int, int]]) -> bool:
    """Whether nothing that the machine reaches elsewhere is in a subnet."""
    base, own = subnet(index), (0xFFFFFFFF << (32 - PREFIX)) & 0xFFFFFFFF
    return not any((base & mask & own) == (network & mask & own) for network, mask in taken)


def target_of(target: Target, protocol: str) -> tuple[str, str, int]:
    """As policies ask for it."""
    return target[0], protocol, target[1]


def always(targets: list[Target]) -> Callable[[Target, socket.socket], list[Target]]:
    """The choice of who has none."""
    return lambda _, __: targets


def label(root: Path) -> str:
    """What the interface of a directory's network is marked with; the kernel allows 255 bytes."""
    path = str(root)
    return path if len(os.fsencode(path)) < 200 else hashlib.sha256(os.fsencode(path)).hexdigest()


def abandoned(owner: str, own: Path) -> bool:
    """Whether the daemon that an interface is marked for has died.  `own` is the directory of this
    one, which has its lock."""
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


MOST_LISTENERS = 16_384


def room_for_listeners() -> int:
    """How many ports of services are listened at: each is an open file, and half of those are for
    the pods and their connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return min(MOST_LISTENERS, soft // 2) if soft > 0 else MOST_LISTENERS


class NetworkDaemon:
    """The network of one agent's directory.  The process must be in the machine's namespace when
    this is made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.hub = netlink.new_namespace()
        self.namespaces = Namespaces(self.hub, self.machine)
        self.route = Netlink()
        self.pods: dict[str, tuple[int, int]] = {}
        """By uid: (descriptor of the namespace, number of the bridge)."""
        self.bridges: list[int] = []
        """Indices of the bridges; the gateway's address is on the first."""
        self.load: Counter[int] = Counter()
        """Pods by number of the bridge."""
        self.ports: dict[str, list[Listener]] = {}
        """Host ports, by the uid of their pod."""
        self.zone = Zone()
        self.most_listeners = room_for_listeners()
        self.listeners: dict[tuple[str, str, int], tuple[Choice, Callable[[], None]]] = {}
        """By (protocol, address, port): where a service's connections go, and how to stop."""
        self.of_namespace: dict[str, set[tuple[str, str, int]]] = {}
        self.agents = 0
        self.ended = asyncio.Event()
        self._numbers = 0
        self.way_out = ""
        """Why pods cannot reach the network beyond the machine; empty when they can."""
        self.base = self._build()
        self.gateway, self.host = dotted(self.base + 1), dotted(self.base + 2)
        self.filter = Filter(self.host, dotted(self.base + (1 << (32 - PREFIX)) - 1))
        self.unfiltered = self.filter.prepare()
        """Why network policies are not enforced; empty when they are."""
        self.verdicts = Verdicts(())

    # --- what the kernel holds --------------------------------------------------------------------

    def _build(self) -> int:
        route = self.route
        self._add_bridge()
        route.ask(netlink.up(1), netlink.local_route(*SERVICES, 1))
        index = self._connect_machine()
        base = subnet(index)
        gateway = dotted(base + 1)
        route.ask(
            netlink.hardware(self.bridges[0], hardware(gateway)),
            netlink.address(self.bridges[0], gateway, PREFIX),
        )
        try:
            netlink.redirect([(dotted(base), PREFIX), SERVICES], WAY_OUT)
        except OSError as error:
            self.way_out = f"the kernel does not redirect connections: {error.strerror}"
        return base

    def _add_bridge(self) -> int:
        """Makes one more bridge, hung below the first; gives its number."""
        number = len(self.bridges)
        self.route.ask(netlink.bridge(f"br{number}"))
        made = socket.if_nametoindex(f"br{number}")
        self.route.ask(netlink.up(made))
        if self.bridges:
            self.route.ask(netlink.pair(f"down{number}", self.bridges[0], f"up{number}", self.hub))
            self.route.ask(netlink.join(socket.if_nametoindex(f"up{number}"), made))
        self.bridges.append(made)
        return number

    def _connect_machine(self) -> int:
        """Lays the cable to the machine; gives the number of the subnet.  Its interface's name is
        the claim on the subnet."""
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
                self.route.ask(netlink.pair("machine", self.bridges[0], name, self.machine))
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
        """Takes away the links of daemons that have died.  The kernel does that too, but in its
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
        """The subnet that the directory's pods had before, else one that other directories hardly
        choose."""
        try:
            base = numeric(json.loads((self.root / "network.json").read_text())["base"])
            return ((base >> 16 & 0xFF) - 244) * 16 + (base >> 12 & 15)
        except (OSError, ValueError, KeyError, TypeError):
            return hashlib.sha256(os.fsencode(self.root)).digest()[0] % SUBNETS

    def attach(self, uid: str, address: str, pids: list[int], host_ports: list[list[Any]]) -> str:
        """The namespace of a pod as a path, made where it is missing.  `pids` may still live in one
        that an earlier daemon made."""
        if uid not in self.pods:
            number = next((n for n in range(len(self.bridges)) if self.load[n] < PORTS), None)
            if number is None:
                number = self._add_bridge()
            self.pods[uid] = (
                self._connect_pod(address, self._left(pids), self.bridges[number]),
                number,
            )
            self.load[number] += 1
            self._host_ports(uid, address, host_ports)
        return f"/proc/{os.getpid()}/fd/{self.pods[uid][0]}"

    def _left(self, pids: list[int]) -> int | None:
        """A namespace that one of the processes still lives in; never the machine's, which is not
        ours to put a cable into."""
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
        self._numbers += 1
        try:
            if namespace is None:
                namespace = netlink.new_namespace()
            else:
                netlink.set_namespace(namespace)
                _remove_link()
            self.route.ask(
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
        found = self.pods.pop(uid, None)
        if found is not None:
            os.close(found[0])
            self.load[found[1]] -= 1
        for listener in self.ports.pop(uid, ()):
            listener.close()

    # --- services ---------------------------------------------------------------------------------

    def inside(self, address: str) -> bool:
        """Whether an address is a pod's: such are reached in the hub, all others in the machine's
        namespace."""
        return self.base <= numeric(address) < self.base + (1 << (32 - PREFIX))

    def permitted(
        self, source: str, targets: list[Target], protocol: str, door: Target | None = None
    ) -> list[Target]:
        """Where a connection may go on to, by the network policies.  `door` is the address that it
        was for, where that is another's: what is beyond the pods is also known by it.  The machine
        itself may reach every pod, as a node may.
        """
        if not self.inside(source) or source == self.host:
            return targets
        allow = self.verdicts.allow
        return [
            target
            for target in targets
            if allow(source, *target_of(target, protocol))
            or (
                door is not None
                and not self.inside(target[0])
                and allow(source, *target_of(door, protocol))
            )
        ]

    def _host_ports(self, uid: str, address: str, wanted: list[list[Any]]) -> None:
        for host_ip, host_port, port in wanted:
            where = "127.0.0.1" if host_ip in ("", "0.0.0.0") else str(host_ip)
            try:
                listening = self._bound(socket.SOCK_STREAM, where, int(host_port), machine=True)
            except OSError as error:
                log.warning("host port %s of pod %s: %s", host_port, uid, error.strerror)
                continue
            self.ports.setdefault(uid, []).append(
                Listener(self.namespaces, listening, always([(address, int(port))]), self.inside)
            )

    def _bound(self, kind: int, address: str, port: int, *, machine: bool) -> socket.socket:
        made = self.namespaces.socket(kind, machine=machine)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
        except OSError:
            made.close()
            raise
        return made

    async def tell(self, namespace: str, services: list[Json], pods: list[list[str]]) -> None:
        """All services and named pods of a namespace, as they are from now on."""
        known = []
        wanted: dict[tuple[str, str, int], tuple[list[Target], bool]] = {}
        for service in services:
            address = service.get("address", "")
            ports = service.get("ports", [])
            known.append(
                Service(
                    service["name"],
                    address,
                    service.get("external", ""),
                    [Port(p["name"], p["port"], p["protocol"]) for p in ports],
                    []
                    if address
                    else [(ip, hostname) for ip, hostname in service.get("endpoints", [])],
                )
            )
            for port in ports if address else ():
                targets = [(ip, int(number)) for ip, number in port["targets"]]
                wanted[port["protocol"], address, port["port"]] = (
                    targets,
                    bool(service.get("sticky")),
                )
                if port.get("nodePort"):
                    wanted[port["protocol"], "127.0.0.1", port["nodePort"]] = (
                        targets,
                        bool(service.get("sticky")),
                    )
        self.zone.replace(namespace, known, [(a, b, c) for a, b, c in pods])
        for key in self.of_namespace.get(namespace, set()) - set(wanted):
            self.listeners.pop(key)[1]()
        self.of_namespace[namespace] = set()
        for key, (targets, sticky) in wanted.items():
            if key in self.listeners:
                self.listeners[key][0].targets = targets
                self.of_namespace[namespace].add(key)
            elif self._may_serve(namespace) and await self._serve(key, Choice(targets, sticky)):
                self.of_namespace[namespace].add(key)
        if len(self.of_namespace[namespace]) < len(wanted):
            log.warning(
                "%d of %d ports of services in %s are not served",
                len(wanted) - len(self.of_namespace[namespace]),
                len(wanted),
                namespace,
            )

    def _may_serve(self, namespace: str) -> bool:
        """Whether one more listener leaves files enough for the pods, and for the services of other
        namespaces."""
        return (
            len(self.listeners) < self.most_listeners
            and len(self.of_namespace[namespace]) < self.most_listeners // 4
        )

    async def _serve(self, key: tuple[str, str, int], choice: Choice) -> bool:
        protocol, address, port = key
        kind = socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM
        try:
            bound = self._bound(kind, address, port, machine=address == "127.0.0.1")
        except OSError as error:
            log.warning("%s port %s of %s: %s", protocol, port, address, error.strerror)
            return False

        def onward(source: str) -> list[Target]:
            return self.permitted(source, choice.order(source), protocol, (address, port))

        if protocol == "UDP":
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: Exchange(self.namespaces, lambda peer: onward(peer[0]), self.inside),
                sock=bound,
            )
            self.listeners[key] = (choice, transport.close)
        else:
            listener = Listener(
                self.namespaces, bound, lambda peer, _: onward(peer[0]), self.inside
            )
            self.listeners[key] = (choice, listener.close)
        return True

    async def serve_names(self) -> None:
        def may_ask(source: str, protocol: str) -> bool:
            return bool(self.permitted(source, [(self.gateway, 53)], protocol))

        server = names.Server(self.zone, self.namespaces, names.host_servers, may_ask)
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(
            lambda: names.Datagrams(server),
            sock=self._bound(socket.SOCK_DGRAM, self.gateway, 53, machine=False),
        )
        stream = self._bound(socket.SOCK_STREAM, self.gateway, 53, machine=False)
        self._names = await asyncio.start_server(
            lambda r, w: names.streams(server, r, w), sock=stream
        )

    def open_way_out(self) -> None:
        if not self.way_out:
            bound = self._bound(socket.SOCK_STREAM, self.gateway, WAY_OUT, machine=False)

            def onward(peer: Target, connection: socket.socket) -> list[Target]:
                target = original(connection)
                return (
                    []
                    if target is None or target == (self.gateway, WAY_OUT)
                    else self.permitted(peer[0], [target], "TCP")
                )

            self._way_out = Listener(self.namespaces, bound, onward, lambda _: False)

    # --- the agent --------------------------------------------------------------------------------

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.agents += 1
        try:
            while line := await reader.readline():
                message = json.loads(line)
                try:
                    told = await self.obey(message)
                except (OSError, KeyError, ValueError) as error:
                    told = {"error": str(error)}
                writer.write(json.dumps({"id": message.get("id"), **told}).encode() + b"\n")
        except (OSError, ValueError) as error:
            log.info("an agent has gone: %s", error)
        finally:
            self.agents -= 1
            writer.close()

    async def obey(self, message: Json) -> Json:
        match message["do"]:
            case "attach":
                return {
                    "path": self.attach(
                        message["uid"],
                        message["address"],
                        message.get("pids", []),
                        message.get("hostPorts", []),
                    )
                }
            case "detach":
                self.detach(message["uid"])
            case "keep":
                for uid in set(self.pods) - set(message["uids"]):
                    self.detach(uid)
            case "names":
                await self.tell(message["namespace"], message["services"], message["pods"])
            case "policies":
                if self.unfiltered:
                    raise OSError(0, self.unfiltered)
                groups = [group_of(tree) for tree in message["groups"]]
                self.filter.replace(groups)
                self.verdicts = Verdicts(groups)
            case "hello":
                return {
                    "base": dotted(self.base),
                    "prefix": PREFIX,
                    "gateway": self.gateway,
                    "host": self.host,
                    "wayOut": self.way_out,
                    "pid": os.getpid(),
                }
            case "end":
                self.ended.set()
        return {}

    async def watch(self) -> None:
        """Ends when nobody is left who needs the network."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if not self.agents and not any_container(self.root):
                self.ended.set()
                return


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


def any_container(root: Path) -> bool:
    """Whether a container of the directory still runs."""
    for claim in root.glob("pods/*/containers/*/*/claim"):
        try:
            pid, start = claim.read_text().split()
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
        except (OSError, ValueError):
            continue
        if (
            fields[19].decode() == start.partition("@")[0]
            and not (claim.parent / "exit").read_bytes().strip()
        ):
            return True
    return False


async def run(root: Path) -> None:
    daemon = NetworkDaemon(root)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.ended.set)
    await daemon.serve_names()
    daemon.open_way_out()
    told = {"base": dotted(daemon.base), "pid": os.getpid()}
    temporary = root / ".network.json"
    temporary.write_text(json.dumps(told))
    os.replace(temporary, root / "network.json")
    (root / "network.sock").unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(
        "network.sock"
    )  # relative, because a path to it may be longer than a socket's may be
    os.chmod("network.sock", 0o600)
    server = await asyncio.start_unix_server(daemon.converse, sock=listening, limit=1 << 24)
    watch = loop.create_task(daemon.watch())
    with contextlib.suppress(
        BrokenPipeError
    ):  # who started this may have been killed meanwhile; the next one finds it
        os.write(1, b"ready\n")
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    await daemon.ended.wait()
    watch.cancel()
    server.close()
    (root / "network.sock").unlink(missing_ok=True)
    os._exit(0)  # connections that are being carried have nobody to say good-bye to


def main(argv: list[str]) -> int:
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    root = Path(argv[0])
    os.umask(0o077)
    os.chdir(root)
    lock = os.open("network.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("another daemon has the network of this directory", flush=True)
        return 3
    asyncio.run(run(root))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
