"""The objects that pods refer to, kept up to date by watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hekla.api import meta
from hekla.api.kubernetes import core
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.local.kubelet.background_tasks import BackgroundTasks


class Finder(Protocol):
    """Objects by namespace and name, as far as they are known."""

    def config_map(self, namespace: str, name: str) -> core.ConfigMap | None: ...
    def secret(self, namespace: str, name: str) -> core.Secret | None: ...
    def services(self, namespace: str) -> Iterable[core.Service]: ...
    def endpoints(self, namespace: str, name: str) -> core.Endpoints | None: ...
    def namespaces(self) -> Iterable[str]: ...


class Objects:
    """What pods refer to, kept up to date by watches."""

    def __init__(self, client: Client) -> None:
        self.config_maps: Cache[core.ConfigMap] = Cache(client, core.CONFIG_MAP)
        self.secrets: Cache[core.Secret] = Cache(client, core.SECRET)
        self.service_cache: Cache[core.Service] = Cache(
            client,
            core.SERVICE,
            indexes={"namespace": lambda service: [service.metadata.namespace]},
        )

        self._client = client
        self._endpoints: dict[str, Cache[core.Endpoints]] = {}
        """Of services without a selector, whose endpoints somebody else writes."""
        self.on_endpoints: Callable[[str], None] = lambda namespace: None
        self._tasks = BackgroundTasks()

    @property
    def caches(self) -> list[Cache[Any]]:
        return [self.config_maps, self.secrets, self.service_cache, *self._endpoints.values()]

    def endpoints(self, namespace: str, name: str) -> core.Endpoints | None:
        cache = self._endpoints.get(f"{namespace}/{name}")
        return cache.get(f"{namespace}/{name}") if cache is not None else None

    def namespaces(self) -> set[str]:
        return {service.metadata.namespace for service in self.service_cache.all()}

    def follow_endpoints(self, service: core.Service, wanted: bool) -> None:
        """Begins or ends to watch the endpoints of a service without a selector."""
        key = meta.key(service)
        if wanted and key not in self._endpoints and key != "default/kubernetes":
            namespace = service.metadata.namespace
            cache = Cache(
                self._client,
                core.ENDPOINTS,
                namespace=namespace,
                fields=f"metadata.name={service.metadata.name}",
            )
            cache.on_change(lambda old, new: self.on_endpoints(namespace))
            self._endpoints[key] = cache
            self._tasks.start(cache.start(), f"endpoints of {key}")
        elif not wanted and (gone := self._endpoints.pop(key, None)) is not None:
            self._tasks.start(gone.stop(), f"end of the endpoints of {key}")

    def config_map(self, namespace: str, name: str) -> core.ConfigMap | None:
        return self.config_maps.get(f"{namespace}/{name}")

    def secret(self, namespace: str, name: str) -> core.Secret | None:
        return self.secrets.get(f"{namespace}/{name}")

    def services(self, namespace: str) -> Iterable[core.Service]:
        return self.service_cache.by("namespace", namespace)
