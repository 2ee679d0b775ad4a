"""One webhook as its configuration describes it, and the kept-alive connections to those that are
called."""

from __future__ import annotations

import base64
import binascii
import ssl
from urllib.parse import urlsplit

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.kube.http.client import HttpClient, Target
from hekla.local.apiserver.admission.matching import Conditions
from hekla.local.apiserver.admission.service_endpoints import NoEndpoint, endpoint_of
from hekla.local.apiserver.objects.expressions import Unusable
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Row

POOL = 64
NAMESPACES = 1000
"""For which a webhook remembers whether it selects them."""


class Unreachable(Exception):
    """A call that failed; what becomes of it the failure policy says."""


class Hook:
    """A webhook of a configuration."""

    __slots__ = (
        "client_config",
        "conditions",
        "configuration",
        "ignores_failure",
        "kind",
        "match_policy",
        "name",
        "namespace_selector",
        "namespaces",
        "object_selector",
        "place",
        "reinvoke",
        "rules",
        "side_effects",
        "timeout",
        "unusable",
        "version",
    )

    def __init__(
        self, configuration: str, tree: Json, place: int = 0, kind: str = "validating"
    ) -> None:
        self.configuration = configuration
        self.place = place
        self.kind = kind
        self.match_policy: str = tree.get("matchPolicy") or ""
        self.name: str = tree.get("name") or ""
        self.rules: list[Json] = tree.get("rules") or []
        self.client_config: Json = tree.get("clientConfig") or {}
        self.namespace_selector: Json = tree.get("namespaceSelector") or {}
        self.object_selector: Json = tree.get("objectSelector") or {}
        self.namespaces: BoundedCache[str, tuple[Row | None, bool]] = BoundedCache(NAMESPACES)
        """By name, a namespace as it was when it was last asked about, and whether it is selected.
        """
        self.unusable = ""
        self.conditions = Conditions(())
        try:
            self.conditions = Conditions(tree.get("matchConditions") or ())
        except Unusable as error:
            self.unusable = str(error)  # stored by a server that knew another CEL
        self.ignores_failure = tree.get("failurePolicy") == "Ignore"
        self.timeout = float(tree.get("timeoutSeconds") or 10)
        self.side_effects = tree.get("sideEffects") or "Unknown"
        self.reinvoke = tree.get("reinvocationPolicy") == "IfNeeded"
        versions = tree.get("admissionReviewVersions") or ["v1"]
        self.version = next((version for version in versions if version in ("v1", "v1beta1")), "v1")


class HookClients:
    """HTTP clients by where they go and whom they trust."""

    HEADERS = b"Content-Type: application/json\r\nAccept: application/json, */*\r\nUser-Agent: kube-apiserver-admission\r\n"

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._clients: dict[tuple[str, int, str, str], HttpClient] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    def of(self, hook: Hook) -> tuple[HttpClient, str, str]:
        """The client, the path and the URL as errors show it.  Raises Unreachable."""
        config = hook.client_config
        timeout = f"timeout={int(hook.timeout)}s"
        if config.get("url"):
            url = urlsplit(config["url"])
            host, port, name = url.hostname or "", url.port or 443, ""
            path = f"{url.path or '/'}?{timeout}"
            shown = f"https://{url.netloc}{path}"
        else:
            service = config.get("service") or {}
            namespace, svc, wanted = (
                service.get("namespace") or "",
                service.get("name") or "",
                service.get("port") or 443,
            )
            name = f"{svc}.{namespace}.svc"
            try:
                host, port = endpoint_of(self.registry, namespace, svc, wanted)
            except NoEndpoint as error:
                raise Unreachable(f"failed to call webhook: {error}") from error
            path = f"/{(service.get('path') or '/').lstrip('/')}?{timeout}"
            shown = f"https://{name}:{wanted}{path}"
        bundle = config.get("caBundle") or ""
        key = (host, port, name, bundle)
        client = self._clients.get(key)
        if client is None:
            context = self._context(bundle)
            client = self._clients[key] = HttpClient(
                Target(host, port, tls=lambda: context, server_name=name), pool=POOL
            )
        return client, path, shown

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            try:
                pem = base64.b64decode(bundle).decode("ascii") if bundle else None
                context = ssl.create_default_context(cadata=pem)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
                raise Unreachable(f"unable to load root certificates: {error}") from error
            self._contexts[bundle] = context
        return context


def worded(error: Exception, host: str, port: int) -> str:
    """A failure of the network in the words that users of Kubernetes know."""
    text = str(error)
    lower = text.lower()
    if "refused" in lower:
        return f"dial tcp {host}:{port}: connect: connection refused"
    if "self-signed" in lower or "self signed" in lower or "unable to get local issuer" in lower:
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if "hostname mismatch" in lower or "certificate verify failed" in lower:
        return f"tls: failed to verify certificate: x509: {text}"
    return text
