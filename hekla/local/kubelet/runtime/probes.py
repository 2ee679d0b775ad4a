"""Probes and lifecycle hooks of containers. Reference: local-cluster 8.6."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from hekla.api.kubernetes import core
from hekla.local.kubelet.runtime.grpc import HealthError, health
from hekla.local.kubelet.runtime.runtime import Instance, children_of

SPAWNER = Path(__file__).with_name("spawner.py")
COMMAND_START_CHECKS = 100
"""How often it is checked, each hundredth of a second, whether the command has started below its
shim."""
MAX_REDIRECTS = 10
MAX_OUTPUT_BYTES = 10 * 1024
"""How much of a response or output is kept for messages."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt."""

    good: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The container that is probed."""

    instance: Instance
    address: str
    ports: dict[str, int]
    rewrite: Callable[[str], str] = str
    """Replaces volume paths by this machine's, for containers without their own view of the files.
    """


def port_number(port: int | str | None, ports: dict[str, int]) -> int:
    """A port by its number, or its name in the container. Raises ValueError."""
    if isinstance(port, int):
        return port
    if port in ports:
        return ports[str(port)]
    return int(port or 0)


async def run_inside(instance: Instance, command: list[str], timeout: float) -> Outcome:
    """Run a command in the container; successful if it exits with 0 in time."""
    for _ in range(COMMAND_START_CHECKS):
        pids = children_of(instance.claim.pid)
        if pids or instance.exit is not None:
            break
        await asyncio.sleep(0.01)  # the shim has started, the command has not yet
    if not pids:
        return Outcome(False, "container not running")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(SPAWNER),
        "join",
        str(pids[0]),
        str(instance.slot.directory),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(timeout):
            output, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return Outcome(
            False, f'command timed out: "{" ".join(command)}" timed out after {timeout:g}s'
        )
    return Outcome(process.returncode == 0, output[:MAX_OUTPUT_BYTES].decode(errors="replace"))


async def connect(host: str, port: int, timeout: float) -> Outcome:
    """Whether a TCP connection can be made."""
    try:
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        return Outcome(False, f"dial tcp {host}:{port}: {reason(error, timeout)}")
    writer.close()
    return Outcome(True)


def reason(error: Exception, timeout: float) -> str:
    """Why an attempt failed, as text."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g}s"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


async def http_get(action: core.HTTPGetAction, target: Target, timeout: float) -> Outcome:
    """An HTTP GET; successful from 200 to 399. Redirects are followed on the same host."""
    try:
        port = port_number(action.port, target.ports)
    except ValueError:
        return Outcome(False, f'the container has no port named "{action.port}"')
    host, path, secure = action.host or target.address, action.path or "/", action.scheme == "HTTPS"
    url = f"{'https' if secure else 'http'}://{host}:{port}{path}"
    given = {header.name: header.value for header in action.http_headers}
    try:
        async with asyncio.timeout(timeout):
            for _ in range(MAX_REDIRECTS):
                status, location = await fetch(host, port, path, secure, given)
                following = urlsplit(
                    urljoin(f"{'https' if secure else 'http'}://{host}:{port}{path}", location)
                )
                if not (300 <= status < 400 and location) or following.hostname != host:
                    return Outcome(
                        200 <= status < 400, f"HTTP probe failed with statuscode: {status}"
                    )
                secure = following.scheme == "https"
                port = following.port or (443 if secure else 80)
                path = (following.path or "/") + (f"?{following.query}" if following.query else "")
    except (OSError, TimeoutError) as error:
        return Outcome(False, f'Get "{url}": {reason(error, timeout)}')
    except (ValueError, IndexError):
        return Outcome(False, f"{host}:{port} does not speak HTTP")
    return Outcome(False, f'Get "{url}": stopped after {MAX_REDIRECTS} redirects')


async def fetch(
    host: str, port: int, path: str, secure: bool, given: Mapping[str, str]
) -> tuple[int, str]:
    """(status, Location) of one GET. Raises OSError, ValueError, IndexError."""
    headers = {
        "Host": f"{host}:{port}",
        "User-Agent": "kube-probe/1.36",
        "Accept": "*/*",
        "Connection": "close",
        **given,
    }
    request = f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1\r\n"
    request += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    context = ssl._create_unverified_context() if secure else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(request.encode())
        status = int((await reader.readline()).split()[1])
        location = ""
        while 300 <= status < 400 and (line := (await reader.readline()).strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"location":
                location = value.strip().decode("latin-1")
    finally:
        writer.close()
    return status, location


async def grpc_health(host: str, port: int, service: str, timeout: float) -> Outcome:
    """Successful if the server answers SERVING."""
    try:
        async with asyncio.timeout(timeout):
            said = await health(host, port, service)
    except TimeoutError:
        return Outcome(
            False, f'timeout: failed to connect service "{host}:{port}" within {timeout:g}s'
        )
    except (OSError, HealthError) as error:
        return Outcome(False, f"error: {reason(error, timeout)}")
    return (
        Outcome(True)
        if said == "SERVING"
        else Outcome(False, f'service unhealthy (responded with "{said}")')
    )


async def attempt(
    probe: core.Probe | core.LifecycleHandler, target: Target, timeout: float
) -> Outcome:
    """One attempt of a probe or hook."""
    if probe.exec is not None:
        return await run_inside(
            target.instance, [target.rewrite(word) for word in probe.exec.command], timeout
        )
    if probe.http_get is not None:
        return await http_get(probe.http_get, target, timeout)
    if probe.tcp_socket is not None:
        try:
            port = port_number(probe.tcp_socket.port, target.ports)
        except ValueError:
            return Outcome(False, f'the container has no port named "{probe.tcp_socket.port}"')
        return await connect(probe.tcp_socket.host or target.address, port, timeout)
    if isinstance(probe, core.Probe) and probe.grpc is not None:
        return await grpc_health(target.address, probe.grpc.port, probe.grpc.service or "", timeout)
    if isinstance(probe, core.LifecycleHandler) and probe.sleep is not None:
        await asyncio.sleep(min(probe.sleep.seconds, timeout))
    return Outcome(True)


@dataclass(slots=True)
class Prober:
    """The probes of one instance of a container, until it is stopped.

    `on_result(kind, good, text)` is called for each change of state: startup and readiness true or
    false, liveness false. `on_failure(kind, text)` is called for each failed attempt.
    """

    container: core.Container
    target: Target
    on_result: Callable[[str, bool, str], None]
    on_failure: Callable[[str, str], None]
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts by kind and result; the container's, through all its instances."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, started: bool) -> None:
        """Begin to probe. `started`: there is no startup probe, or it has succeeded before."""
        container = self.container
        if started:
            self.started.set()
        kinds = (
            ("startup", None if started else container.startup_probe),
            ("liveness", container.liveness_probe),
            ("readiness", container.readiness_probe),
        )
        self.tasks = [
            asyncio.create_task(self._repeat(kind, probe))
            for kind, probe in kinds
            if probe is not None
        ]

    def stop(self) -> None:
        """Stop probing."""
        for task in self.tasks:
            task.cancel()
        self.tasks = []

    async def _repeat(self, kind: str, probe: core.Probe) -> None:
        if kind != "startup":
            await self.started.wait()
        await asyncio.sleep(
            self.target.instance.started + probe.initial_delay_seconds - time.time()
        )
        good_needed = max(1, probe.success_threshold)
        bad_needed = max(1, probe.failure_threshold or 3)
        run_of, length = True, 0
        told: bool | None = None
        while True:
            outcome = await attempt(probe, self.target, max(1, probe.timeout_seconds))
            self.counts[kind, "successful" if outcome.good else "failed"] += 1
            if not outcome.good:
                self.on_failure(kind, outcome.text)
            length = length + 1 if outcome.good == run_of else 1
            run_of = outcome.good
            if length >= (good_needed if run_of else bad_needed) and told != run_of:
                told = run_of
                if kind == "startup" and run_of:
                    self.started.set()
                self.on_result(kind, run_of, outcome.text)
                if (kind == "startup" and run_of) or (kind != "readiness" and not run_of):
                    return
            await asyncio.sleep(max(1, probe.period_seconds or 10))
