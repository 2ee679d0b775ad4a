"""What every daemon shares: flags, log, signals, event loop, health, the connection and leader
election.

A daemon module declares its own flags as data, an async `run(daemon)`, and

    def main(argv: list[str]) -> int:
        return daemon.main("controllers", FLAGS, argv, run)

`run` is called when the API server answers (and, with election, when this process leads) and is
cancelled by SIGTERM, SIGINT or the loss of the lease.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hekla import __version__
from hekla.kube import log as logs
from hekla.kube import openfiles
from hekla.kube.client import Client
from hekla.kube.connection.config import ConfigError, load
from hekla.kube.connection.tls import TlsError, load_files
from hekla.kube.errors import ApiError
from hekla.kube.flags import (
    NUMBER,
    SECONDS,
    TEXT,
    WHOLE,
    YES_NO,
    YES_NO_MAP,
    Flag,
    FlagError,
    HelpWanted,
    Options,
    known_names,
    one_of,
    parse,
)
from hekla.kube.health import Health, address_problem
from hekla.kube.http.client import TransportError
from hekla.kube.leader import Durations, LeaderElection, LeadershipLost

__all__ = [
    "GATES",
    "Daemon",
    "DaemonError",
    "Options",
    "connection_flags",
    "gate",
    "gate_flags",
    "health_flags",
    "leader_flags",
    "main",
    "metrics_flags",
    "wait_for_server",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

SERVER_PERIOD = 0.25
"""Seconds between two attempts to reach an API server that does not answer yet."""
FIRST_WORD, NEXT_WORDS = 1.0, 15.0
"""Seconds of waiting before it is logged, and between further messages."""
GARBAGE_THRESHOLD = 50_000
"""New objects before the garbage collector runs: caches hold millions that are no garbage."""

GATES = {
    "WorkLoadSupport": True,
    "VolcanoJobSupport": True,
    "PodDisruptionBudgetsSupport": True,
    "QueueCommandSync": True,
    "PriorityClass": True,
    "CSIStorage": False,
    "ResourceTopology": True,
    "CronVolcanoJobSupport": True,
    "SchedulingGatesQueueAdmission": False,
    "StorageCapacityScoring": False,
    "DRADeviceTaintRules": False,
}
"""Feature gates and their defaults (operations 3.2)."""


class DaemonError(Exception):
    """The daemon cannot run; the message says why.  Exit code 1."""


# flags


def connection_flags(qps: float = 50.0, burst: int = 100) -> tuple[Flag, ...]:
    return (
        Flag("kubeconfig", TEXT, "", "path to the kubeconfig file (else KUBECONFIG, ~/.kube/config, in-cluster)"),
        Flag("master", TEXT, "", "the address of the Kubernetes API server (overrides any value in kubeconfig)"),
        Flag("kube-api-qps", NUMBER, qps, "requests a second to the API server; 0 or less: no limit"),
        Flag("kube-api-burst", WHOLE, burst, "requests at once to the API server"),
    )  # fmt: skip


def health_flags() -> tuple[Flag, ...]:
    return (
        Flag("enable-healthz", YES_NO, False, "answer /healthz at --healthz-address"),
        Flag("healthz-address", TEXT, ":11251", "the address of the health server", check=address_problem),
        Flag("ca-cert-file", TEXT, "", "certificate authority of the clients of the health server"),
        Flag("tls-cert-file", TEXT, "", "certificate of the HTTPS server"),
        Flag("tls-private-key-file", TEXT, "", "key of the HTTPS server's certificate"),
    )  # fmt: skip


def metrics_flags(address: str = ":8080") -> tuple[Flag, ...]:
    return (
        Flag("enable-metrics", YES_NO, False, "answer /metrics at --listen-address"),
        Flag("listen-address", TEXT, address, "the address of the metrics server", check=address_problem),
        Flag("enable-pprof", YES_NO, False, "accepted for compatibility; there is no pprof in Python"),
    )  # fmt: skip


def leader_flags(name: str, namespace: str = "volcano-system") -> tuple[Flag, ...]:
    standard = Durations()
    return (
        Flag("leader-elect", YES_NO, True, "work only while holding a lease, so that of several copies one works"),
        Flag("leader-elect-lease-duration", SECONDS, standard.lease, "how long others wait for a leader that is silent"),
        Flag("leader-elect-renew-deadline", SECONDS, standard.renew, "how long a leader tries to renew before it gives up"),
        Flag("leader-elect-retry-period", SECONDS, standard.retry, "how long to wait between two tries"),
        Flag("leader-elect-resource-lock", TEXT, "leases", "what kind of object the lock is; always leases", check=one_of("leases")),
        Flag("leader-elect-resource-name", TEXT, name, "name of the lease"),
        Flag("leader-elect-resource-namespace", TEXT, namespace, "namespace of the lease"),
        Flag("lock-object-namespace", TEXT, "", "deprecated; overrides --leader-elect-resource-namespace when given"),
    )  # fmt: skip


def gate_flags() -> tuple[Flag, ...]:
    return (
        Flag("feature-gates", YES_NO_MAP, GATES, "comma-separated Name=true|false pairs", check=known_names(*GATES)),
    )  # fmt: skip


VERSION_FLAG = Flag("version", YES_NO, False, "print the version and exit")


def home_namespace(options: Options) -> str:
    """The namespace of what daemons write for each other, such as their leases."""
    namespace: str = options.lock_object_namespace or options.leader_elect_resource_namespace
    return namespace


def gate(options: Options, name: str) -> bool:
    """Whether a feature gate is on."""
    return bool({**GATES, **options.feature_gates}[name])


# running


class Daemon:
    """A running daemon: its options, client and health."""

    def __init__(self, program: str, options: Options) -> None:
        self.program = program
        self.options = options
        self.health = Health()
        self.election: LeaderElection | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            raise RuntimeError(f"{self.program} was started without a connection to an API server")
        return self._client

    def connect(self, pool: int) -> None:
        """Create the client that the flags describe.  Raises ConfigError."""
        options = self.options
        connection = load(options.kubeconfig or None, master=options.master)
        log.info("API server %s (%s)", connection.target, connection.source)
        self._client = Client(
            connection,
            user_agent=f"hekla-{self.program}/{__version__}",
            pool=pool,
            yielding=True,
            qps=options.kube_api_qps,
            burst=options.kube_api_burst,
        )

    async def close(self) -> None:
        await self.health.close()
        if self._client is not None:
            await self._client.close()


Run = Callable[[Daemon], Awaitable[None]]


def main(
    program: str,
    flags: Sequence[Flag],
    argv: Sequence[str],
    run: Run,
    *,
    connect: bool = True,
    pool: int = 32,
    prepare: Callable[[Daemon], None] | None = None,
    listen: Run | None = None,
) -> int:
    """Run a daemon to its end; returns the exit code.

    `flags`: the daemon's own flags and the groups above that it wants; those of the log and
    --version are added.  `connect`: whether it needs an API server (the API server itself does
    not).  `prepare` is called before the daemon waits to lead, and `listen` where it has ports of its
    own to open then.
    """
    try:
        options = parse((*flags, *logs.FLAGS, VERSION_FLAG), argv, program=f"hekla {program}")
        if options.version:
            print(f"hekla {program} {__version__}")
            return 0
        if too_few := openfiles.problem():
            raise FlagError(too_few)
        logs.set_up(options, program)
    except HelpWanted as text:
        print(text)
        return 0
    except FlagError as error:
        print(f"hekla {program}: {error}", file=sys.stderr)
        return 1
    daemon = Daemon(program, options)
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)
    try:
        if connect:
            daemon.connect(pool)
        if prepare is not None:
            prepare(daemon)
        return run_loop(_live(daemon, run, listen))
    except (ConfigError, DaemonError, LeadershipLost) as error:
        log.critical("%s", error)
        if not options.logtostderr:
            print(f"hekla {program}: {error}", file=sys.stderr)
        return 1
    except Exception:  # the last word of a daemon, in its own log
        log.critical("%s has failed", program, exc_info=True)
        return 1


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop if that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)


async def _live(daemon: Daemon, run: Run, listen: Run | None) -> int:
    work = asyncio.ensure_future(_work(daemon, run, listen))
    stopped_by = _on_signals(work)
    try:
        await work
        return 0
    except asyncio.CancelledError:
        if not stopped_by:
            raise
        log.info("%s has stopped (%s)", daemon.program, stopped_by[0])
        return 0
    finally:
        await daemon.close()


async def _work(daemon: Daemon, run: Run, listen: Run | None) -> None:
    await _listen(daemon)
    if listen is not None:
        await listen(daemon)
    if daemon._client is not None:
        await wait_for_server(daemon.client)
    options = daemon.options
    if not getattr(options, "leader_elect", False):
        await run(daemon)
        return
    durations = Durations(
        options.leader_elect_lease_duration,
        options.leader_elect_renew_deadline,
        options.leader_elect_retry_period,
    )
    if problem := durations.problem():
        raise DaemonError(f"--leader-elect-*: {problem}")
    daemon.election = LeaderElection(
        daemon.client,
        options.leader_elect_resource_name,
        home_namespace(options),
        durations=durations,
    )
    await daemon.election.run(lambda: run(daemon))


async def _listen(daemon: Daemon) -> None:
    options = daemon.options
    metrics = getattr(options, "enable_metrics", False) and options.listen_address
    health = getattr(options, "enable_healthz", False) and options.healthz_address
    address = ""
    try:
        if metrics:
            address = f"--listen-address {metrics}"
            await daemon.health.listen(metrics, metrics=True)
        if health and health != metrics:
            address = f"--healthz-address {health}"
            await daemon.health.listen(health, metrics=False, tls=_health_tls(options))
    except OSError as error:
        raise DaemonError(
            f"{address}: {os.strerror(error.errno) if error.errno else error}"
        ) from None


def _health_tls(options: Options) -> ssl.SSLContext | None:
    """A TLS context if authority, certificate and key are all given (operations 3.5)."""
    files = {
        name: getattr(options, name.replace("-", "_"))
        for name in ("ca-cert-file", "tls-cert-file", "tls-private-key-file")
    }
    if not all(files.values()):
        return None
    for name, path in files.items():
        if not Path(path).exists():
            raise DaemonError(f"--{name}: {path}: no such file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        load_files(
            context, files["tls-cert-file"], files["tls-private-key-file"], files["ca-cert-file"]
        )
    except TlsError as error:
        raise DaemonError(f"--tls-cert-file and its companions: {error}") from None
    return context


async def wait_for_server(client: Client) -> None:
    """Wait until the API server answers, and log it when that takes a while.  Raises DaemonError if
    the server refuses our credentials."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    mention = began + FIRST_WORD
    while True:
        try:
            await client.request("GET", "/readyz", timeout=5.0)
            return
        except TransportError as error:
            reason = str(error)
        except ApiError as error:
            if error.code in (401, 403):
                raise DaemonError(
                    f"{client.connection.target}: {error} (credentials of {client.connection.source})"
                ) from None
            reason = f"{client.connection.target}: not ready: {error}"
        if loop.time() >= mention:
            log.warning(
                "waiting for the API server, for %.0f s now: %s", loop.time() - began, reason
            )
            mention = loop.time() + NEXT_WORDS
        await asyncio.sleep(SERVER_PERIOD)


def _on_signals(work: asyncio.Future[None]) -> list[str]:
    """Cancel the work at the first SIGTERM or SIGINT; a second one ends the process at once.
    Returns the list to which received signals' names are added."""
    seen: list[str] = []
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        seen.append(number.name)
        if len(seen) > 1:
            os._exit(128 + number)
        work.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return seen
