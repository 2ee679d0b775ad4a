"""One aggregated API as its APIService describes it, and what is known of the server behind it."""

from __future__ import annotations

import base64
import binascii
import ssl
from pathlib import Path
from typing import NamedTuple

from hekla.api.trees import Json
from hekla.local.apiserver.admission.service_endpoints import NoEndpoint, endpoint_of
from hekla.local.apiserver.request.proxy import Destination
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Row


class FrontProxy(NamedTuple):
    """By which certificate the servers behind know this one."""

    certificate: Path
    key: Path


class Condition(NamedTuple):
    """The condition Available of an APIService."""

    available: bool
    reason: str
    message: str


PASSED = Condition(True, "Passed", "all checks passed")
UNKNOWN = Condition(False, "NotChecked", "the server behind has not been asked yet")


class Backend:
    """A group and version that another server answers."""

    def __init__(self, row: Row, proxy: FrontProxy | None) -> None:
        spec: Json = row.tree()["spec"]
        service: Json = spec["service"]
        self.name = row.name
        self.uid = row.uid
        self.group: str = spec.get("group") or ""
        self.version: str = spec.get("version") or ""
        self.priority: tuple[int, int] = (
            spec.get("groupPriorityMinimum") or 0,
            spec.get("versionPriority") or 0,
        )
        self.namespace: str = service.get("namespace") or ""
        self.service: str = service.get("name") or ""
        self.port: int = service.get("port") or 443
        self.spec = spec
        self.condition = UNKNOWN
        self.resources: list[Json] = []
        """APIResources, as the server behind listed them last."""
        self._proxy = proxy
        self._tls: ssl.SSLContext | None = None

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    def destination(self, registry: Registry) -> Destination:
        """Where its server answers now.  Raises NoEndpoint."""
        host, port = endpoint_of(registry, self.namespace, self.service, self.port)
        if self._tls is None:
            self._tls = self._context()
        return Destination(host, port, self._tls, f"{self.service}.{self.namespace}.svc")

    def _context(self) -> ssl.SSLContext:
        """Trusts what the APIService says, and shows the front proxy's certificate."""
        try:
            if self.spec.get("insecureSkipTLSVerify"):
                context = ssl._create_unverified_context()
            else:
                bundle = self.spec.get("caBundle") or ""
                pem = base64.b64decode(bundle).decode("ascii") if bundle else None
                context = ssl.create_default_context(cadata=pem)
            if self._proxy is not None:
                context.load_cert_chain(self._proxy.certificate, self._proxy.key)
        except (OSError, binascii.Error, UnicodeDecodeError) as error:
            why = f"unable to load root certificates: {error}"
            raise NoEndpoint("FailedDiscoveryCheck", why) from error
        return context
