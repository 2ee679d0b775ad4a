"""Where the configuration comes from: a ConfigMap, and the labels of the node (reference: agent 3).

Whatever happened is said in an event on the agent's own pod, and on the node where it has none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec

from hekla.agent.agent import Agent
from hekla.agent.configuration import (
    DEFAULTS,
    ColocationConfig,
    ConfigurationError,
    Document,
    aggregate,
    merge,
    read,
    validate,
    written,
)
from hekla.agent.pods import Node
from hekla.api import names
from hekla.api.kubernetes import core
from hekla.kube.cache import Cache
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Severity
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

NAME, KEY = "volcano-agent-configuration", "colocation-config"
GET_TIMEOUT = 5.0
CREATE_PERIOD, CREATE_PATIENCE = 0.2, 60.0
FIRST_RETRY, LONGEST_RETRY = 0.5, 1000.0
LABELS = (names.COLOCATION, names.OVERSUBSCRIPTION, names.COLOCATION_POLICY)
"""Labels of the node by which the configuration changes."""
DEFAULT_DOCUMENT = Document(global_config=DEFAULTS)


class StartError(Exception):
    """The agent cannot start with what the ConfigMap holds; the text says why."""


class Reloader:
    """Keeps the agent's configuration that of the ConfigMap and the node's labels."""

    def __init__(
        self, agent: Agent, namespace: str, pod: str = "", first: Document = DEFAULT_DOCUMENT
    ) -> None:
        """`pod`: the agent's own; "" where it runs outside of one.  `first`: what the ConfigMap is
        made with."""
        self._agent = agent
        self._namespace = namespace
        self._pod = pod
        self._first = first
        self._own: Any = None
        self._newest: core.ConfigMap | None = None
        """The last that there was."""
        self._changed = asyncio.Event()
        self._config_map: Cache[core.ConfigMap] = Cache(
            agent.client, core.CONFIG_MAP, namespace=namespace, fields=f"metadata.name={NAME}"
        )
        self._config_map.on_change(self._document_changed)
        agent.nodes.on_change(self._node_changed)

    async def prepare(self) -> None:
        """See that the ConfigMap is there and whole.  Raises StartError."""
        client = self._agent.client
        try:
            async with asyncio.timeout(GET_TIMEOUT):
                found = await client.get(core.CONFIG_MAP, NAME, self._namespace)
        except NotFound:
            await self._create()
            return
        except (ApiError, TransportError, TimeoutError) as error:
            raise StartError(
                f"ConfigMap {self._where} cannot be read: {error or 'too slow'}"
            ) from None
        try:
            document, _ = self._read(found)
        except ConfigurationError as error:
            raise StartError(
                f"failed to unmarshal old configMap data: {error} (ConfigMap {self._where})"
            ) from None
        if document.global_config is None:
            raise StartError("empty glaobal config")
        await self._complete(found, document, document.global_config)

    def _read(self, found: core.ConfigMap) -> tuple[Document, list[str]]:
        if KEY not in found.data:
            raise ConfigurationError(f"ConfigMap {self._where} has no key {KEY}")
        return read(found.data[KEY])

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{NAME}"

    async def _create(self) -> None:
        body = {
            "metadata": {"name": NAME, "namespace": self._namespace},
            "data": {KEY: written(self._first)},
        }
        began = time.monotonic()
        while True:
            try:
                await self._agent.client.create(core.CONFIG_MAP, body, self._namespace)
                return
            except AlreadyExists:
                return  # another node's agent was faster
            except (ApiError, TransportError) as error:
                if time.monotonic() - began > CREATE_PATIENCE:
                    raise StartError(
                        f"ConfigMap {self._where} cannot be created: {error}"
                    ) from None
            await asyncio.sleep(CREATE_PERIOD)

    async def _complete(
        self, found: core.ConfigMap, document: Document, config: ColocationConfig
    ) -> None:
        """Older documents lack two sections, which are filled in for their readers."""
        if config.over_subscription_config is not None and config.evicting_config is not None:
            return
        document.global_config = msgspec.structs.replace(
            config,
            over_subscription_config=config.over_subscription_config
            or DEFAULTS.over_subscription_config,
            evicting_config=config.evicting_config or DEFAULTS.evicting_config,
        )
        try:
            await self._agent.client.patch(
                core.CONFIG_MAP,
                NAME,
                {
                    "metadata": {"resourceVersion": found.metadata.resource_version},
                    "data": {KEY: written(document)},
                },
                self._namespace,
            )
        except Conflict:
            log.debug("somebody else has written ConfigMap %s meanwhile", self._where)
        except (ApiError, TransportError) as error:
            raise StartError(f"ConfigMap {self._where} cannot be completed: {error}") from None

    # running

    async def run(self) -> None:
        """Apply the configuration whenever it or the labels change, until cancelled."""
        await self._find_own()
        await self._config_map.start()
        delay = FIRST_RETRY
        try:
            await self._config_map.synced()
            while True:
                self._changed.clear()
                if await self._reload():
                    delay = FIRST_RETRY
                    await self._changed.wait()
                    continue
                try:
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
                    delay = FIRST_RETRY
                except TimeoutError:
                    delay = min(delay * 2, LONGEST_RETRY)
        finally:
            await self._config_map.stop()

    async def _reload(self) -> bool:
        """Whether the configuration is in force."""
        node = self._agent.node
        if node is None:
            log.info("node %s is not there yet", self._agent.settings.node_name)
            return True
        try:
            document, unknown = (
                self._read(self._newest) if self._newest is not None else (self._first, [])
            )
            config = merge(document, node.metadata.labels)
            if document.global_config is not None:
                validate(config)
            ignored = await self._agent.refresh(config)
        except ConfigurationError as error:
            return self._refused(f"({error}){f'; {error.found}' if error.found else ''}")
        except Exception as error:  # a bug of ours, which must not end the others' work
            log.exception("the configuration cannot be taken over")
            return self._refused(f"({type(error).__name__}: {error})")
        if unknown:
            ignored.append(f"not known: {', '.join(unknown)}")
        if ignored:
            self._say("Warning", "ConfigIgnored", f"Ignored of the config: {aggregate(ignored)}")
        self._agent.metrics.applied(True)
        self._say("Normal", "ConfigApplySuccess", "Successfully applied config")
        return True

    def _refused(self, why: str) -> bool:
        self._agent.metrics.applied(False)
        self._say("Warning", "ConfigApplyFailed", f"Failed to apply config{why}")
        return False

    def _say(self, type: Severity, reason: str, message: str) -> None:
        log.log(logging.WARNING if type == "Warning" else logging.INFO, "%s", message)
        about = self._own if self._own is not None else self._agent.node
        self._agent.recorder.event(about, type, reason, message)

    async def _find_own(self) -> None:
        if not self._pod:
            return
        try:
            self._own = await self._agent.client.get(core.POD, self._pod, self._namespace)
        except (ApiError, TransportError) as error:
            log.warning(
                "the agent's pod %s/%s cannot be read, events are on the node: %s",
                self._namespace,
                self._pod,
                error,
            )

    def _document_changed(self, old: core.ConfigMap | None, new: core.ConfigMap | None) -> None:
        if new is None:
            log.warning("ConfigMap %s is gone; what it said stays in force", self._where)
            return
        self._newest = new
        if old is None or old.data != new.data:
            self._changed.set()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None and (
            old is None
            or any(old.metadata.labels.get(one) != new.metadata.labels.get(one) for one in LABELS)
        ):
            self._changed.set()
