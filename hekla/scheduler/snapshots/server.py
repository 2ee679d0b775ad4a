"""`GET /snapshot` of the scheduler: who asks is known to the API server and may do so.

The server is on TLS with a certificate that it makes for itself, and says where it is, with its
authority, in a ConfigMap, so that `vcctl` finds it and knows that it is the one.  Who may read that and
has the right `get` on the path `/snapshot` is answered; see decision 0374.
"""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
import time
from pathlib import Path

import msgspec

from hekla.api.kubernetes import core
from hekla.api.names import SNAPSHOT_CONFIG_MAP, SNAPSHOT_PATH, SNAPSHOT_SERVER
from hekla.kube.client import Client
from hekla.kube.connection.delegation import Delegation, Refused
from hekla.kube.connection.serving import context_of, make
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.health import split_address
from hekla.kube.http.client import TransportError
from hekla.kube.http.message import Answer, Request, Response, Stream
from hekla.kube.http.server import Body, Server, serve
from hekla.scheduler.snapshots.snapshot import Snapshots

log = logging.getLogger(__name__)

LIFETIME = datetime.timedelta(days=3650)
"""Of the certificate; its key is in this process alone and goes with it."""
MOST_AT_ONCE = 2
"""Snapshots that are made at one time."""
CLIENTS_NAMESPACE, CLIENTS_NAME, CLIENTS_KEY = (
    "kube-system",
    "extension-apiserver-authentication",
    "client-ca-file",
)
"""Where a cluster says which authority signs its users' certificates."""
REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
           429: "TooManyRequests", 503: "ServiceUnavailable"}  # fmt: skip


def refusal(code: int, message: str) -> Response:
    """A Status, as API servers answer."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS[code],
        "code": code,
    }
    headers = {"Retry-After": "2"} if code == 429 else None
    return Response(code, msgspec.json.encode(status), headers=headers)


class SnapshotServer:
    """Serves the snapshots of one scheduler."""

    def __init__(self, client: Client, snapshots: Snapshots, namespace: str) -> None:
        self.client = client
        self.snapshots = snapshots
        self.namespace = namespace
        self.delegation = Delegation(client)
        self.making = 0
        self.server: Server | None = None

    async def start(self, address: str, clients: str = "") -> None:
        """Listen, and say where.  `clients`: a file with the authority of users' certificates, else
        what the cluster says.  Raises OSError."""
        host, port = split_address(address)
        pair = make(
            [SNAPSHOT_SERVER],
            f"{SNAPSHOT_SERVER} authority",
            datetime.datetime.now(datetime.UTC),
            LIFETIME,
        )
        context = context_of(pair)
        authority = Path(clients).read_text() if clients else await self._authority_of_clients()
        if authority:
            context.load_verify_locations(cadata=authority)
            context.verify_mode = ssl.CERT_OPTIONAL
        self.server = await serve(self.answer, host=host, port=port, ssl=context)
        where = host or socket.gethostbyname(socket.gethostname())
        where = f"[{where}]" if ":" in where else where
        await self._publish(f"{where}:{self.server.port}", pair.authority.decode())
        log.info("snapshots at %s port %d", host or "all addresses", self.server.port)

    async def close(self) -> None:
        if self.server is not None:
            await self.server.close(grace=0.1)

    async def answer(self, request: Request) -> Answer:
        """The answer to one request."""
        if request.path != SNAPSHOT_PATH:
            return refusal(404, f"{request.path}: there is {SNAPSHOT_PATH} alone here")
        if request.method != "GET":
            return refusal(405, f"{request.method} {SNAPSHOT_PATH}: it is read with GET")
        try:
            user = await self.delegation.admit(request, "get")
        except Refused as error:
            return refusal(error.code, str(error))
        if self.making >= MOST_AT_ONCE:
            return refusal(429, f"{self.making} snapshots are being made; ask again in a moment")
        return Stream(
            lambda body: self._write(body, user.name), content_type="application/octet-stream"
        )

    async def _write(self, body: Body, user: str) -> None:
        self.making += 1
        began, size = time.monotonic(), 0
        try:
            async for piece in self.snapshots.pieces():
                size += len(piece)
                body.write(piece)
                await body.drain()
        except (ApiError, TransportError) as error:
            log.warning("a snapshot for %s broke off: %s", user, error)
            body.abort()
            return
        finally:
            self.making -= 1
        log.info("a snapshot for %s: %d bytes in %.1f s", user, size, time.monotonic() - began)

    async def _authority_of_clients(self) -> str:
        """The authority that signs users' certificates; empty where the cluster does not say, so
        that tokens alone are understood."""
        try:
            found = await self.client.get(core.CONFIG_MAP.untyped, CLIENTS_NAME, CLIENTS_NAMESPACE)
        except (ApiError, TransportError) as error:
            log.info("snapshots are for users with tokens alone: %s", error)
            return ""
        return str((found.get("data") or {}).get(CLIENTS_KEY) or "")

    async def _publish(self, address: str, authority: str) -> None:
        data = {"address": address, "authority": authority, "pod": socket.gethostname()}
        try:
            try:
                await self.client.patch(
                    core.CONFIG_MAP, SNAPSHOT_CONFIG_MAP, {"data": data}, self.namespace
                )
            except NotFound:
                body = {
                    "metadata": {"name": SNAPSHOT_CONFIG_MAP, "namespace": self.namespace},
                    "data": data,
                }
                await self.client.create(core.CONFIG_MAP.untyped, body, self.namespace)
        except (ApiError, TransportError) as error:
            log.warning(
                "vcctl cannot find the snapshots of this scheduler: ConfigMap %s/%s cannot be written: %s",
                self.namespace,
                SNAPSHOT_CONFIG_MAP,
                error,
            )
