"""`hekla admission`: the webhook server as a process.  Reference: api-and-admission 5.1.

It listens before it registers, so that the API server never calls a server that is not there.  Then
one loop keeps the webhook configurations, the certificates and the resource groups up to date.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hekla.admission.certificates import Files, Own, Source, bundle, stamp_of
from hekla.admission.lookups import CachedLookup
from hekla.admission.registration import Where, register
from hekla.admission.registry import ADMISSIONS, Admission
from hekla.admission.review import (
    DEFAULT_SCHEDULER,
    POD_LEVEL_RESOURCES_SINCE,
    ResourceGroup,
    Settings,
    Verdict,
)
from hekla.admission.reviews import Request
from hekla.admission.rules import groups
from hekla.admission.server import ReviewServer
from hekla.api.sizes import MOST_PODS, MOST_TASKS
from hekla.kube import daemon as daemons
from hekla.kube import notify
from hekla.kube.connection.serving import CertificateError, context_of, show
from hekla.kube.daemon import Daemon, DaemonError
from hekla.kube.errors import ApiError
from hekla.kube.events import Recorder
from hekla.kube.flags import SECONDS, TEXT, TEXTS, WHOLE, YES_NO, Flag, Options, at_least, between
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

DEFAULT_PATHS = "/jobs/mutate,/jobs/validate,/podgroups/mutate,/pods/validate,/pods/mutate,/queues/mutate,/queues/validate"
LOOK_SECONDS = 1.0
"""Between two looks at the files."""
REGISTER_SECONDS = 120.0
"""Between two looks at the configurations, which somebody may have changed or deleted."""
RETRY_SECONDS = 1.0

FLAGS = (
    *daemons.connection_flags(),
    *(flag for flag in daemons.health_flags() if flag.name not in ("ca-cert-file", "tls-cert-file", "tls-private-key-file")),
    *(flag if flag.name != "leader-elect" else Flag("leader-elect", YES_NO, False, "serve only while holding a lease")
      for flag in daemons.leader_flags("volcano-admission")),
    *daemons.metrics_flags(""),
    *daemons.gate_flags(),
    Flag("tls-cert-file", TEXT, "", "certificate of the webhook server; without certificate, key and authority it makes its own"),
    Flag("tls-private-key-file", TEXT, "", "key of the webhook server's certificate"),
    Flag("ca-cert-file", TEXT, "", "authority of the certificate, announced to the API server"),
    Flag("bind-address", TEXT, "", "the address to serve at: all addresses, or that of --webhook-url where it is of this machine"),
    Flag("port", WHOLE, 8443, "the port to serve at; 0: any free one, which then stands in the URL", check=between(0, 65535)),
    Flag("webhook-namespace", TEXT, "", "namespace of the service that leads here"),
    Flag("webhook-service-name", TEXT, "", "name of the service that leads here"),
    Flag("webhook-url", TEXT, "", "the URL that leads here"),
    Flag("enabled-admission", TEXT, DEFAULT_PATHS, "the paths to serve, separated by commas"),
    Flag("scheduler-name", TEXTS, [DEFAULT_SCHEDULER], "names of our schedulers; the first one is written into jobs that name none"),
    Flag("admission-conf", TEXT, "", "file with the resource groups that pods are sorted into"),
    Flag("graceful-shutdown-time", SECONDS, 30.0, "how long reviews may take to end when the process is told to stop"),
    Flag("enable-queue-allocated-pods-check", YES_NO, False, "refuse to delete queues that hold pods"),
    Flag("max-queue-depth", WHOLE, 5, "how deep the tree of queues may be"),
    Flag("max-job-pods", WHOLE, MOST_PODS, "pods that a job may have, of all its tasks together; 0: any number", check=at_least(0)),
    Flag("max-job-tasks", WHOLE, MOST_TASKS, "tasks that a job, and flows that a JobFlow may have; 0: any number", check=at_least(0)),
    Flag("enable-root-queue-protection", YES_NO, True, "refuse changes of the root queue's resources"),
)  # fmt: skip


def main(argv: list[str]) -> int:
    return daemons.main("admission", FLAGS, argv, run, pool=8)


async def run(daemon: Daemon) -> None:
    service = Service(daemon)
    try:
        await service.start()
        await service.keep()
    finally:
        await service.stop()


def enabled_admissions(text: str) -> list[Admission]:
    """The paths of the flag.  Raises DaemonError for an unknown one."""
    found = []
    for path in (part.strip() for part in text.split(",")):
        if path and path not in ADMISSIONS:
            raise DaemonError(f"enabled admission {path} not found on the admission registered map")
        if path:
            found.append(ADMISSIONS[path])
    return found


def settings_of(options: Options, pod_level_resources: bool) -> Settings:
    return Settings(
        scheduler_names=tuple(options.scheduler_name),
        max_queue_depth=options.max_queue_depth,
        queue_allocated_pods_check=options.enable_queue_allocated_pods_check,
        root_queue_protection=options.enable_root_queue_protection,
        pod_level_resources=pod_level_resources,
        scheduling_gates=daemons.gate(options, "SchedulingGatesQueueAdmission"),
        resource_groups=resource_groups(options.admission_conf),
        max_job_pods=options.max_job_pods,
        max_job_tasks=options.max_job_tasks,
    )


def resource_groups(path: str) -> tuple[ResourceGroup, ...] | None:
    """The groups at the start; without a readable file there are none, and pods are not changed."""
    if not path:
        return None
    try:
        return groups.load(Path(path))
    except groups.BadConfiguration as error:
        log.error("%s; pods are not sorted into resource groups", error)
        return None


def certificate_source(options: Options, where: Where) -> Source:
    """Certificates from files (all three or none), or self-made ones for the names by which the API
    server reaches us."""
    given = {
        name: getattr(options, name.replace("-", "_"))
        for name in ("tls-cert-file", "tls-private-key-file", "ca-cert-file")
    }
    missing = [f"--{name}" for name, path in given.items() if not path]
    if not missing:
        return Files(given["tls-cert-file"], given["tls-private-key-file"], given["ca-cert-file"])
    if len(missing) < len(given):
        raise DaemonError(
            f"certificate, key and authority are given together or not at all; missing: {', '.join(missing)}"
        )
    if where.url:
        return Own([urlsplit(where.url).hostname or "localhost"])
    names = (
        f"{where.service}.{where.namespace}.svc",
        f"{where.service}.{where.namespace}",
        where.service,
    )
    return Own(names)


class Service:
    """The running server, and everything that is kept up to date around it."""

    def __init__(self, daemon: Daemon) -> None:
        options = daemon.options
        self.daemon = daemon
        self.admissions = enabled_admissions(options.enabled_admission)
        if not options.webhook_url and not (
            options.webhook_namespace and options.webhook_service_name
        ):
            raise DaemonError(
                "failed to start webhooks as both 'url' and 'namespace/name' of webhook are empty"
            )
        self.where = Where(
            options.webhook_url, options.webhook_namespace, options.webhook_service_name
        )
        self.source = certificate_source(options, self.where)
        try:
            self.pair = self.source.first()
            self.context = context_of(self.pair)
        except CertificateError as error:
            raise DaemonError(str(error)) from error
        self.authority = self.pair.authority
        served = {admission.resource for admission in self.admissions}
        self.lookup = CachedLookup(
            daemon.client, topologies="hypernodes" in served, reservations="reservations" in served
        )
        self.recorder = Recorder(daemon.client, "volcano-admission")
        self.server: ReviewServer | None = None
        self.registered = False
        self._groups_stamp = stamp_of(Path(options.admission_conf))

    async def start(self) -> None:
        options = self.daemon.options
        self.daemon.health.ready["registered"] = self._ready
        await self.lookup.start()
        settings = settings_of(options, await self._pod_level_resources())
        paths = [admission.path for admission in self.admissions]
        self.server = ReviewServer(paths, self.lookup, settings, self._record)
        host = options.bind_address or _address(self.where.url)
        try:
            await self.server.listen_tcp(host, options.port, self.context)
        except OSError as error:
            raise DaemonError(
                f"cannot serve at {host or 'all addresses'} port {options.port}: {error.strerror or error}"
            ) from error
        log.info("reviews of %s at port %d", ", ".join(paths) or "nothing", self.server.port)
        if self.where.url and not options.port:
            self.where = Where(
                _with_port(self.where.url, self.server.port),
                self.where.namespace,
                self.where.service,
            )
        await self._announce(self.pair.authority)

    async def keep(self) -> None:
        """Look after everything until told to stop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + REGISTER_SECONDS
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (
                await self._renew_certificates()
                or self._reload_groups()
                or loop.time() >= due
                or not self.registered
            ):
                await self._register()
                due = loop.time() + REGISTER_SECONDS

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.close(self.daemon.options.graceful_shutdown_time)
        await self.lookup.stop()
        await self.recorder.close()

    def _ready(self) -> str | None:
        return None if self.registered else "the webhooks are not registered yet"

    async def _pod_level_resources(self) -> bool:
        """Pod-level resources follow the version of the cluster."""
        try:
            version = (await self.daemon.client.request("GET", "/version")).body.decode()
        except (ApiError, TransportError) as error:
            log.warning("cannot read the cluster's version (%s); taking it for a recent one", error)
            return True
        minor = re.search(r'"minor":\s*"([0-9]+)', version)
        return minor is None or int(minor[1]) >= POD_LEVEL_RESOURCES_SINCE

    async def _announce(self, authority: bytes) -> None:
        self.authority = authority
        await self._register()

    def _announced(self, before: bytes) -> bytes:
        """Certificates of our own stand beside those of before and of other copies of this server;
        given ones replace."""
        if not isinstance(self.source, Own):
            return self.authority
        return bundle(before, self.authority, datetime.datetime.now(datetime.UTC))

    async def _register(self) -> None:
        assert self.server is not None
        try:
            await register(
                self.daemon.client,
                self.admissions,
                self.where,
                self._announced,
                self.server.settings,
            )
            if not self.registered:
                log.info("the webhooks are registered")
                notify.ready()
            self.registered = True
        except (ApiError, TransportError) as error:
            self.registered = False
            log.warning("cannot register the webhooks, trying again: %s", error)

    async def _renew_certificates(self) -> bool:
        try:
            pair = self.source.renewed(datetime.datetime.now(datetime.UTC))
            if pair is None:
                return False
            await self._announce(pair.authority)
            if not self.registered:
                await self._until_registered()
            show(self.context, pair)
        except CertificateError as error:
            log.error("%s; the certificate in use stays", error)
            return False
        self.pair = pair
        log.info("the certificate has been replaced")
        return False  # announced already

    async def _until_registered(self) -> None:
        while not self.registered:
            await asyncio.sleep(RETRY_SECONDS)
            await self._register()

    def _reload_groups(self) -> bool:
        """Read the resource groups again if their file has changed; whether they are others now."""
        assert self.server is not None
        path = self.daemon.options.admission_conf
        stamp = stamp_of(Path(path))
        if (
            self.server.settings.resource_groups is None
            or stamp is None
            or stamp == self._groups_stamp
        ):
            return False
        self._groups_stamp = stamp
        try:
            loaded = groups.load(Path(path))
        except groups.BadConfiguration as error:
            log.error("%s; the resource groups in force stay", error)
            return False
        changed = loaded != self.server.settings.resource_groups
        self.server.settings = dataclasses.replace(self.server.settings, resource_groups=loaded)
        log.info("%d resource groups are in force", len(loaded))
        return changed

    def _record(self, request: Request, verdict: Verdict) -> None:
        pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **(request.object or {})}
        self.recorder.event(pod, "Warning", "Admit", verdict.message)


def _address(url: str) -> str:
    """The address to listen at: on this machine alone beside a local API server, every address in a
    cluster."""
    host = urlsplit(url).hostname or ""
    return host if host in ("127.0.0.1", "::1", "localhost") else ""


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path}"
