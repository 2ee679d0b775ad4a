"""The network daemon: a process that holds the namespaces of the pods and the bridges between them.

It is separate from the kubelet, because the kubelet may be killed at any moment without interrupting
connections between pods. Everything that it creates in the kernel ends with it: when the last
descriptor of a namespace is closed, its interfaces vanish, also the machine's end of the link. It
ends on request, or when neither a kubelet nor a container of its directory runs.

The kubelet sends it JSON objects over a Unix socket in its directory, one a line: `{"id": 1, "do":
"attach", "uid": "...", ...}`; the answer is `{"id": 1, ...}` or `{"id": 1, "error": "..."}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from hekla.api.trees import Json
from hekla.local.kubelet.network.bridges import SUBNET_PREFIX, Bridges, dotted
from hekla.local.kubelet.network.filtering import Filter
from hekla.local.kubelet.network.policies import Verdicts, group_of
from hekla.local.kubelet.network.service_proxy import ServiceProxy

log = logging.getLogger("network")

CHECK_INTERVAL = 15.0
"""Seconds between checks whether the network is still needed."""


class NetworkDaemon:
    """The network of one kubelet's directory. The process must be in the machine's namespace when
    this is created."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bridges = Bridges(root)
        self.base = dotted(self._bridges.base)
        self.proxy = ServiceProxy(self._bridges)
        self._filter = Filter(self._bridges.host, self._bridges.last)
        self._unfiltered = self._filter.prepare()
        """Why network policies are not enforced; empty if they are."""
        self._agents = 0
        self.ended = asyncio.Event()

    def _attach(self, message: Json) -> str:
        uid, address = message["uid"], message["address"]
        new = uid not in self._bridges.pods
        path = self._bridges.attach(uid, address, message.get("pids", []))
        if new:
            self.proxy.add_host_ports(uid, address, message.get("hostPorts", []))
        return path

    def close(self) -> None:
        """Disconnect all pods, at the end of the process."""
        self._bridges.close()

    def _detach(self, uid: str) -> None:
        self._bridges.detach(uid)
        self.proxy.remove_host_ports(uid)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one kubelet, line by line, until it disconnects."""
        self._agents += 1
        try:
            while line := await reader.readline():
                message = json.loads(line)
                try:
                    answer = await self._handle(message)
                except (OSError, KeyError, ValueError) as error:
                    answer = {"error": str(error)}
                writer.write(json.dumps({"id": message.get("id"), **answer}).encode() + b"\n")
        except (OSError, ValueError) as error:
            log.info("a kubelet has gone: %s", error)
        finally:
            self._agents -= 1
            writer.close()

    async def _handle(self, message: Json) -> Json:
        match message["do"]:
            case "attach":
                return {"path": self._attach(message)}
            case "detach":
                self._detach(message["uid"])
            case "keep":
                for uid in set(self._bridges.pods) - set(message["uids"]):
                    self._detach(uid)
            case "names":
                await self.proxy.replace(message["namespace"], message["services"], message["pods"])
            case "policies":
                if self._unfiltered:
                    raise OSError(0, self._unfiltered)
                groups = [group_of(tree) for tree in message["groups"]]
                self._filter.replace(groups)
                self.proxy.verdicts = Verdicts(groups)
            case "hello":
                return {
                    "base": self.base,
                    "prefix": SUBNET_PREFIX,
                    "gateway": self._bridges.gateway,
                    "host": self._bridges.host,
                    "wayOut": self._bridges.way_out,
                    "pid": os.getpid(),
                    "namespace": f"/proc/{os.getpid()}/fd/{self._bridges.hub}",
                }
            case "end":
                self.ended.set()
        return {}

    async def watch(self) -> None:
        """Returns when the network is no longer needed."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if not self._agents and not any_container(self._root):
                self.ended.set()
                return


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
    """Run the network daemon of a directory."""
    daemon = NetworkDaemon(root)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.ended.set)
    await daemon.proxy.serve_names()
    daemon.proxy.open_way_out()
    known = {"base": daemon.base, "pid": os.getpid()}
    temporary = root / ".network.json"
    temporary.write_text(json.dumps(known))
    os.replace(temporary, root / "network.json")
    (root / "network.sock").unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    # Relative, because the absolute path may be too long for a socket.
    listening.bind("network.sock")
    os.chmod("network.sock", 0o600)
    server = await asyncio.start_unix_server(daemon.converse, sock=listening, limit=1 << 24)
    watch = loop.create_task(daemon.watch())
    # The kubelet that started this may have been killed; the next one finds it.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, b"ready\n")
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    await daemon.ended.wait()
    watch.cancel()
    server.close()
    (root / "network.sock").unlink(missing_ok=True)
    daemon.close()
    os._exit(0)  # without waiting for connections that are still open


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
