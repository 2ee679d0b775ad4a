"""The node's HTTP endpoint, which the API server calls: logs of containers, commands in them, the
list of pods, what they use, metrics, health.  Reference: local-cluster 8.9, 8.10."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from hekla.api.kubernetes import core
from hekla.api.text.times import microseconds
from hekla.kube.connection.tls import load_files
from hekla.kube.http.message import Answer
from hekla.kube.http.server import Request, Response, Stream, Upgrade
from hekla.local.kubelet.callers import Callers, is_api_server
from hekla.local.kubelet.records import PodDirectory, Slot
from hekla.local.kubelet.runtime.interleaved_logs import read
from hekla.local.kubelet.runtime.launching import SPLIT_LOG_STREAMS
from hekla.local.kubelet.runtime.logs import Clock, Options
from hekla.local.kubelet.streaming import console
from hekla.local.kubelet.streaming.streaming import Streaming
from hekla.local.kubelet.usage.exposition import cadvisor, resource
from hekla.local.kubelet.usage.snapshot import Snapshot
from hekla.local.kubelet.usage.summary import summary

PLAIN = "text/plain"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
USAGE = (["stats", "summary"], ["metrics", "resource"], ["metrics", "cadvisor"])
STREAMS = {"exec": 4, "attach": 4, "portForward": 3}
"""Requests that become a connection of their own, with the number of segments of their path."""
NO_AUTHORITY = "this node's endpoint runs commands only for those whom it knows; start the kubelet with --client-ca-file"
ONE_LOG = f'both streams of this container share one log: ask for stream=All, or annotate the pod with {SPLIT_LOG_STREAMS}: "true"'


def text(status: int, message: str) -> Response:
    return Response(status, message.encode(), PLAIN)


class Endpoint:
    """The node's own small HTTP service.  Without `callers` it cannot know who asks: then everyone
    is told what the node knows, and nobody runs a command."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        find: Callable[[str, str], core.Pod | None],
        pods: Callable[[], list[core.Pod]],
        usage: Callable[[], Awaitable[Snapshot]],
        metrics: Mapping[str, Callable[[], bytes]],
        callers: Callers | None,
    ) -> None:
        self._root = root
        self._clock = clock
        self._find = find
        self._pods = pods
        self._usage = usage
        self._metrics = metrics
        """What is told of the kubelet itself, by path."""
        self._callers = callers
        self.streaming = Streaming(root, clock)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        parts = request.path.strip("/").split("/")
        if self._callers is None or parts == ["healthz"] or is_api_server(request.peer):
            return self.answer(parts, request)
        return self.admit(self._callers, parts, request)

    async def admit(self, callers: Callers, parts: list[str], request: Request) -> Answer:
        """The answer to one whom the API server knows and lets."""
        refusal = await callers.refusal(request)
        if refusal is not None:
            return refusal
        found = self.answer(parts, request)
        return await found if isinstance(found, Awaitable) else found

    def answer(self, parts: list[str], request: Request) -> Answer | Awaitable[Answer]:
        """The answer to one who may ask."""
        if request.method in ("GET", "POST") and len(parts) == STREAMS.get(parts[0]):
            return self.stream(parts, request)
        if request.method != "GET":
            return text(405, f"{request.method} is not served here")
        if parts == ["healthz"]:
            return text(200, "ok")
        if parts == ["pods"]:
            body = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": self._pods()}
            return Response(200, msgspec.json.encode(body))
        if parts[0] == "containerLogs" and len(parts) == 4:
            return self.log(parts[1], parts[2], parts[3], request)
        if parts in USAGE:
            return self.usage(parts[1], request)
        if told := self._metrics.get("/".join(parts)):
            return Response(200, told(), EXPOSITION)
        return text(404, "404 page not found")

    async def usage(self, form: str, request: Request) -> Answer:
        """What the node and its pods use, in one of a kubelet's three forms."""
        found = await self._usage()
        if form == "summary":
            body = summary(found, request.flag("only_cpu_and_memory"))
            return Response(200, msgspec.json.encode(body))
        return Response(200, resource(found) if form == "resource" else cadvisor(found), EXPOSITION)

    def stream(self, parts: list[str], request: Request) -> Response | Upgrade:
        """exec, attach and port-forward."""
        if self._callers is None and not is_api_server(request.peer):
            return text(401, NO_AUTHORITY)
        pod = self._find(parts[1], parts[2])
        if pod is None:
            return text(404, f'pod "{parts[2]}" not found on this node')
        return self.streaming.answer(parts[0], pod, parts[3] if len(parts) == 4 else "", request)

    def log(self, namespace: str, name: str, container: str, request: Request) -> Response | Stream:
        """The log of one container of a pod of this node."""
        pod = self._find(namespace, name)
        if pod is None:
            return text(404, f'pod "{name}" not found on this node')
        directory = PodDirectory(self._root, pod.metadata.uid)
        slots = [
            slot
            for slot in directory.slots()
            if slot.container == container and slot.claim() is not None
        ]
        previous = request.flag("previous")
        if previous:
            slots = slots[:-1]
        if not slots:
            if previous:
                return text(
                    400, f'previous terminated container "{container}" in pod "{name}" not found'
                )
            return text(
                400,
                f'container "{container}" in pod "{name}" is waiting to start: {waiting(pod, container)}',
            )
        try:
            options = options_of(request)
        except ValueError as error:
            return text(400, str(error))
        if options.stream != "All" and not slots[-1].split:
            return text(400, ONE_LOG)
        return Stream.of(self._stream(slots[-1], options), PLAIN)

    def _stream(self, slot: Slot, options: Options) -> AsyncIterator[bytes]:
        return read(slot, options, self._clock, lambda: running(slot))


def running(slot: Slot) -> bool:
    """Whether the container may still write."""
    claim = slot.claim()
    return (slot.exit() is None and claim is not None and claim.alive()) or console.draining(slot)


def waiting(pod: core.Pod, container: str) -> str:
    """Why a container has no log yet, as kubectl words it."""
    for status in [*pod.status.container_statuses, *pod.status.init_container_statuses]:
        if status.name == container and status.state.waiting is not None:
            reason = status.state.waiting.reason
            return {
                "ErrImagePull": "image can't be pulled",
                "ImagePullBackOff": "trying and failing to pull image",
            }.get(reason, reason)
    return "ContainerCreating"


def options_of(request: Request) -> Options:
    """The options of a log request.  Raises ValueError, whose text says what is wrong."""

    def whole(name: str) -> int | None:
        value = request.option(name)
        if not value:
            return None
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f'{name}: "{value}" is no whole number') from None
        if number < 0:
            raise ValueError(f"{name}: {number} must be greater than or equal to 0")
        return number

    since: int | None = None
    if (seconds := whole("sinceSeconds")) is not None:
        since = time.time_ns() - seconds * 1_000_000_000
    elif moment := request.option("sinceTime"):
        # Whole microseconds, rounded down: as a float the time of a line would come out a little
        # after the line.
        since = microseconds(moment) * 1000
    stream = request.option("stream") or "All"
    return Options(
        request.flag("follow"),
        whole("tailLines"),
        since,
        request.flag("timestamps"),
        whole("limitBytes"),
        stream,
    )


def server_tls(certificate: str, key: str, authority: str) -> ssl.SSLContext | None:
    """HTTPS when there is a certificate; with an authority, clients may show certificates that it has
    signed.  Raises TlsError."""
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_files(context, certificate, key, authority)
    if authority:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def self_signed(directory: Path) -> tuple[str, str]:
    """(certificate, key) of this kubelet's own making, for API servers that do not care who signed
    them, as most do not."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    certificate, key_file = directory / "endpoint.crt", directory / "endpoint.key"
    if certificate.exists() and key_file.exists():
        return str(certificate), str(key_file)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hekla-kubelet")])
    now = datetime.now().astimezone()
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return str(certificate), str(key_file)
