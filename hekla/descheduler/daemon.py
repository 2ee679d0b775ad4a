"""`hekla descheduler`: cycles by an interval or a cron schedule, or one.

Flags and defaults are the original's (reference: descheduler 2); `--once` is ours, for a CronJob.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import time
from asyncio import sleep
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hekla import __version__
from hekla.api.text import schedule
from hekla.api.text.schedule import Schedule, ScheduleError
from hekla.descheduler.descheduler import COMPONENT, Descheduler, myself, own_namespace
from hekla.descheduler.kept_memory import KeptMemory
from hekla.descheduler.metrics import Metrics
from hekla.descheduler.policy.policy import PolicyError
from hekla.descheduler.policy.reader import read_file
from hekla.kube import notify
from hekla.kube.client import Client
from hekla.kube.connection.serving import context_of, make
from hekla.kube.connection.tls import TlsError, load_files
from hekla.kube.daemon import (
    Daemon,
    DaemonError,
    connection_flags,
    health_flags,
    leader_flags,
    metrics_flags,
)
from hekla.kube.daemon import main as run_daemon
from hekla.kube.errors import ApiError
from hekla.kube.events import Recorder
from hekla.kube.evictions import eviction_version
from hekla.kube.flags import SECONDS, TEXT, WHOLE, YES_NO, Flag, Options, at_least, between

log = logging.getLogger(__name__)

LIFETIME = datetime.timedelta(days=3650)
"""Of the certificate that the process makes for itself."""
HOMES = ("volcano-system", "kube-system")
"""Where a scheduler says where it is, if not in the descheduler's namespace: the chart's, and that of `hekla up`."""
LEASE = {
    "leader-elect": False,
    "leader-elect-lease-duration": 137.0,
    "leader-elect-renew-deadline": 107.0,
    "leader-elect-retry-period": 26.0,
}
ALIASES = {
    "client-connection-kubeconfig": "kubeconfig",
    "client-connection-qps": "kube-api-qps",
    "client-connection-burst": "kube-api-burst",
}
"""The original's names of the connection's flags -> those of the other daemons."""

METRICS = Metrics()

FLAGS = (
    *connection_flags(0, 0),
    *health_flags(),
    *metrics_flags(":8080"),
    *(replace(flag, default=LEASE.get(flag.name, flag.default)) for flag in leader_flags("vc-descheduler")),
    Flag("policy-config-file", TEXT, "", "the DeschedulerPolicy; it is read again before each cycle"),
    Flag("descheduling-interval", SECONDS, 0.0, "from the start of a cycle to that of the next; goes before cron",
         check=at_least(0)),
    Flag("descheduling-interval-cron-expression", TEXT, "", "when cycles start, as in '*/10 * * * *' or 'TZ=Europe/Oslo 0 3 * * *'"),
    Flag("once", YES_NO, False, "run one cycle and end"),
    Flag("dry-run", YES_NO, False, "say what would be evicted, and evict nothing"),
    Flag("disable-metrics", YES_NO, False, "do not answer /metrics"),
    Flag("secure-port", WHOLE, 10258, "HTTPS port of /healthz and /metrics; 0: none", check=between(0, 65535)),
    Flag("bind-address", TEXT, "0.0.0.0", "address of that port"),
)  # fmt: skip


def schedule_of(options: Options) -> Schedule | None:
    """The schedule of cycles; None where an interval, or --once, says when.  Raises DaemonError."""
    if options.once or options.descheduling_interval > 0:
        return None
    text = options.descheduling_interval_cron_expression
    if not text:
        raise DaemonError(
            "Both DeschedulingInterval and deschedulingIntervalCronExpression are not configured. "
            "At least one of these two parameter must be configured. Or run one cycle with --once."
        )
    try:
        return schedule.parse(text)
    except ScheduleError as error:
        raise DaemonError(
            f'invalid --descheduling-interval-cron-expression "{text}": {error}'
        ) from None


def prepare(daemon: Daemon) -> None:
    """What can be wrong without an API server is said at once, before anybody waits to lead."""
    options = daemon.options
    daemon.health.registry = METRICS.registry
    schedule_of(options)
    try:
        read_file(options.policy_config_file)
    except PolicyError as error:
        raise DaemonError(f"--policy-config-file: {error}") from None
    if options.dry_run and options.leader_elect:
        log.warning("DryRun is set to True. You need to disable it to use Leader Election.")
        daemon.options = options.changed(leader_elect=False)


async def work(daemon: Daemon) -> None:
    """Run cycles until the process is told to stop."""
    options = daemon.options
    await find_eviction_api(daemon.client)
    recorder = Recorder(daemon.client, COMPONENT)
    home = own_namespace() or options.leader_elect_resource_namespace
    me = myself(options.leader_elect_resource_name, options.leader_elect_resource_namespace)
    descheduler = Descheduler(
        daemon.client,
        recorder,
        METRICS,
        options.policy_config_file,
        dry_run=options.dry_run,
        me=me,
        kept=KeptMemory(daemon.client, f"{options.leader_elect_resource_name}-memory", home),
        homes=(home, *HOMES),
    )
    try:
        await descheduler.start()
        notify.ready()
        await keep_on(descheduler, options, schedule_of(options))
    finally:
        await descheduler.informers.stop()
        await recorder.close()


async def keep_on(
    descheduler: Descheduler,
    options: Options,
    cron: Schedule | None,
    clock: Callable[[], float] = time.time,
) -> None:
    """One cycle after the other, never two at a time.  Interval: from start to start, the first at
    once; cron: ticks that fall into a cycle are left out."""
    if options.once:
        if await descheduler.cycle() is None:
            raise DaemonError("the policy cannot be used")
        return
    if cron is None:
        due = clock()
        while True:
            await descheduler.cycle()
            due = max(due + options.descheduling_interval, clock())
            await sleep(max(due - clock(), 0.0))
    while True:
        tick = cron.next(clock())
        if tick is None:
            raise DaemonError("--descheduling-interval-cron-expression: that time never comes")
        log.info(
            "the next cycle is at %s", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(tick))
        )
        while (left := tick - clock()) > 0:
            await sleep(min(left, 60.0))
        await descheduler.cycle()


async def listen(daemon: Daemon) -> None:
    options = daemon.options
    if not options.secure_port:
        return
    context = context_of(
        make(
            ["localhost", options.bind_address],
            "vc-descheduler",
            datetime.datetime.now(datetime.UTC),
            LIFETIME,
        )
    )
    if options.tls_cert_file or options.tls_private_key_file:
        for name in (options.tls_cert_file, options.tls_private_key_file):
            if not Path(name).is_file():
                raise DaemonError(
                    f"--tls-cert-file and --tls-private-key-file: {name or 'one'} is not there"
                )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            load_files(context, options.tls_cert_file, options.tls_private_key_file)
        except TlsError as error:
            raise DaemonError(f"--tls-cert-file: {error}") from None
    host = f"[{options.bind_address}]" if ":" in options.bind_address else options.bind_address
    try:
        await daemon.health.listen(
            f"{host}:{options.secure_port}", metrics=not options.disable_metrics, tls=context
        )
    except OSError as error:
        raise DaemonError(f"--secure-port {options.secure_port}: {error}") from None


async def find_eviction_api(client: Client) -> None:
    """Raises DaemonError where pods cannot be evicted."""
    try:
        version = await eviction_version(client)
    except ApiError as error:
        raise DaemonError(f"what the API server serves cannot be read: {error}") from None
    if not version:
        raise DaemonError("the API server does not serve pods/eviction, so nothing can be evicted")


def renamed(argv: list[str]) -> list[str]:
    """The original's names of the connection's flags as ours."""
    words = []
    for word in argv:
        name, equals, value = word.removeprefix("--").partition("=")
        known = ALIASES.get(name.replace("_", "-")) if word.startswith("--") else None
        words.append(f"--{known}{equals}{value}" if known else word)
    return words


def main(argv: list[str]) -> int:
    """`hekla descheduler`."""
    if argv[:1] == ["version"]:
        print(f"Descheduler version {__version__}")
        return 0
    return run_daemon("descheduler", FLAGS, renamed(argv), work, prepare=prepare, listen=listen)
