"""`hekla metrics-server`: measures nodes and pods, and registers itself as `metrics.k8s.io`.

Another metrics server may be installed in its place: an APIService that somebody else has made is left
alone.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

from hekla.api.kinds import Kind
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube import daemon as daemons
from hekla.kube import notify
from hekla.kube.client import Client
from hekla.kube.connection.tls import TlsError, load_files
from hekla.kube.daemon import Daemon, DaemonError, connection_flags
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.flags import SECONDS, TEXT, WHOLE, Flag, between
from hekla.kube.http.client import TransportError
from hekla.kube.http.server import serve
from hekla.local.metrics_server.api import GROUP, VERSION, MetricsApi
from hekla.local.metrics_server.collector import Collector

log = logging.getLogger("metrics-server")

NAMESPACE, NAME = "kube-system", "metrics-server"
OURS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "hekla"}
RETRY = 2.0
FLAGS = (
    *connection_flags(0, 0),
    Flag("metric-resolution", SECONDS, 5.0, "how often nodes are asked; usage is the mean of 15 s", check=between(1, 3600)),
    Flag("port", WHOLE, 0, "port on 127.0.0.1; 0 for any free one", check=between(0, 65535)),
    Flag("tls-cert-file", TEXT, "", "certificate of this server, for metrics-server.kube-system.svc"),
    Flag("tls-private-key-file", TEXT, "", "key of that certificate"),
    Flag("tls-ca-file", TEXT, "", "authority of that certificate, which the API server is told"),
    Flag("requestheader-client-ca-file", TEXT, "", "authority of the API server's certificate as a front proxy"),
)  # fmt: skip
API_SERVICE: Kind[dict[str, Any]] = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", False, dict[str, Any]
)


async def run(daemon: Daemon) -> None:
    options = daemon.options
    for name in (
        "tls_cert_file",
        "tls_private_key_file",
        "tls_ca_file",
        "requestheader_client_ca_file",
    ):
        if not getattr(options, name):
            raise DaemonError(f"--{name.replace('_', '-')} is wanted: a file in PEM")
    collector = Collector(daemon.client, options.metric_resolution)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        front_proxy = options.requestheader_client_ca_file
        load_files(context, options.tls_cert_file, options.tls_private_key_file, front_proxy)
        context.verify_mode = ssl.CERT_REQUIRED
        bundle = base64.b64encode(Path(options.tls_ca_file).read_bytes()).decode()
        server = await serve(
            MetricsApi(collector), host="127.0.0.1", port=options.port, ssl=context
        )
    except (OSError, TlsError) as error:
        raise DaemonError(f"--tls-cert-file and its companions, --port: {error}") from error
    try:
        await collector.start()
        asking = asyncio.create_task(collector.run(), name="ask nodes")
        await register(daemon.client, server.port, bundle)
        notify.ready()
        log.info("ready: %s/%s at 127.0.0.1:%d", GROUP, VERSION, server.port)
        await asking
    finally:
        await server.close(0.2)
        await collector.stop()


async def register(client: Client, port: int, bundle: str) -> None:
    """Tell the API server who answers for the group, until it has heard it."""
    while True:
        try:
            await ensure(client, core.SERVICE.untyped, service(port), NAMESPACE)
            await ensure(client, API_SERVICE, api_service(port, bundle))
            return
        except (ApiError, TransportError, OSError) as error:
            log.warning("%s/%s is not registered: %s", GROUP, VERSION, error)
            await asyncio.sleep(RETRY)


async def ensure(
    client: Client, kind: Kind[dict[str, Any]], wanted: Json, namespace: str = ""
) -> None:
    """Make an object, or bring it up to date where it is ours.  Raises ApiError."""
    name = wanted["metadata"]["name"]
    while True:
        with suppress(AlreadyExists):
            await client.create(kind, wanted, namespace)
            return
        with suppress(NotFound, Conflict):  # it has gone or changed meanwhile
            found = await client.get(kind, name, namespace)
            if (found["metadata"].get("labels") or {}).items() >= OURS.items():
                await client.update(kind, {**found, "spec": {**found["spec"], **wanted["spec"]}})
            else:
                log.info("%s %s is somebody else's and stays as it is", kind.kind, name)
            return


def service(port: int) -> Json:
    """Behind it is a process of this machine, which no endpoint may name."""
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    return {"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": OURS}, "spec": spec}


def api_service(port: int, bundle: str) -> Json:
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": NAME, "namespace": NAMESPACE, "port": port},
        "caBundle": bundle,
    }
    return {"metadata": {"name": f"{VERSION}.{GROUP}", "labels": OURS}, "spec": spec}


def main(argv: list[str]) -> int:
    return daemons.main("metrics-server", FLAGS, argv, run)
