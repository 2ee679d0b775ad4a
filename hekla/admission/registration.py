"""Telling the API server about the webhooks, and keeping that true.

In a cluster whose chart made the configurations only the authority in them is ours to write.  Where
nobody made them (the local cluster, or a bare installation) they are written whole.  Reference:
api-and-admission 5.2, operations 4.1.

Every pod that anybody creates would pay for a pod webhook, so these two are kept as narrow as loses
nothing: see docs/decisions/0230.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hekla.admission.registry import Admission
from hekla.admission.review import Settings
from hekla.admission.rules.pods import BUDGETS
from hekla.api.kinds import Kind
from hekla.api.kubernetes.admissionregistration import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from hekla.api.names import NAMESPACE_NAME
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict, NotFound

log = logging.getLogger(__name__)

Tree = dict[str, Any]
Announce = Callable[[bytes], bytes]
"""Which authorities to announce, given those that are announced: other copies of this server have
theirs among them."""

TIMEOUT_SECONDS = 10
SERVICE_PORT = 443
EXEMPT_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Where:
    """How the API server reaches the webhooks: by a URL or a Service."""

    url: str = ""
    namespace: str = ""
    service: str = ""

    def client_config(self, admission: Admission, authority: bytes) -> Tree:
        bundle = base64.b64encode(authority).decode()
        if self.url:
            return {"url": self.url.rstrip("/") + admission.path, "caBundle": bundle}
        service = {
            "namespace": self.namespace,
            "name": self.service,
            "path": admission.path,
            "port": SERVICE_PORT,
        }
        return {"service": service, "caBundle": bundle}


def kind_of(admission: Admission) -> Kind[Tree]:
    kinds = (MUTATING_WEBHOOK_CONFIGURATION.untyped, VALIDATING_WEBHOOK_CONFIGURATION.untyped)
    return kinds[admission.mutate is None]


def wanted(admission: Admission, settings: Settings) -> bool:
    """Whether the path has anything to do: the one for pods needs resource groups or the gate."""
    if admission.path != "/pods/mutate":
        return True
    return settings.resource_groups is not None and bool(
        settings.resource_groups or settings.scheduling_gates
    )


def webhook(admission: Admission, where: Where, authority: bytes, settings: Settings) -> Tree:
    hook: Tree = {
        "name": admission.webhook,
        "clientConfig": where.client_config(admission, authority),
        "rules": [
            {
                "operations": list(admission.operations),
                "apiGroups": [admission.group],
                "apiVersions": [admission.version],
                "resources": [admission.resource],
                "scope": "*",
            }
        ],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": admission.side_effects,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
        "objectSelector": {},
    }
    if admission.mutate is not None:
        hook["reinvocationPolicy"] = "Never"
    if admission.namespace_selector:
        exempt = list(dict.fromkeys(name for name in (where.namespace, EXEMPT_NAMESPACE) if name))
        expression = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": exempt}
        hook["namespaceSelector"] = {"matchExpressions": [expression]}
    if admission.path == "/pods/validate":
        hook["matchConditions"] = pod_conditions(settings)
    return hook


def pod_conditions(settings: Settings) -> list[Tree]:
    """Match conditions for the pods that /pods/validate can refuse: pods of our schedulers with a
    budget annotation.

    An API server that does not know these conditions drops them and asks about every pod, which is
    slower and as correct.
    """
    schedulers = ", ".join(f"'{name}'" for name in settings.scheduler_names)
    budgets = " || ".join(f"'{key}' in object.metadata.annotations" for key in BUDGETS)
    return [
        {
            "name": "batch-scheduler",
            "expression": f"has(object.spec.schedulerName) && object.spec.schedulerName in [{schedulers}]",
        },
        {
            "name": "disruption-budget",
            "expression": f"has(object.metadata.annotations) && ({budgets})",
        },
    ]


async def register(
    client: Client,
    admissions: Iterable[Admission],
    where: Where,
    announce: Announce,
    settings: Settings,
) -> None:
    """Write every webhook configuration.  Raises ApiError or TransportError; a second call
    continues."""
    for admission in admissions:
        if wanted(admission, settings):
            await _ensure(client, admission, where, announce, settings)
        else:
            await _withdraw(client, admission)


def _announced(found: Tree) -> bytes:
    """The authorities that the API server trusts for a path at present."""
    bundles = (
        (hook.get("clientConfig") or {}).get("caBundle") or ""
        for hook in found.get("webhooks") or ()
    )
    return base64.b64decode(next(filter(None, bundles), ""))


async def _ensure(
    client: Client, admission: Admission, where: Where, announce: Announce, settings: Settings
) -> None:
    kind, name = kind_of(admission), admission.configuration
    try:
        found = await client.get(kind, name)
    except NotFound:
        hook = webhook(admission, where, announce(b""), settings)
        tree = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "webhooks": [hook],
        }
        try:
            await client.create(kind, tree)
            log.info("registered %s", name)
        except AlreadyExists:
            # Another copy of this server was quicker.
            await _ensure(client, admission, where, announce, settings)
        return
    hook = webhook(admission, where, announce(_announced(found)), settings)
    whole = bool(where.url)
    hooks = (
        [hook]
        if whole
        else [
            _with_authority(old, hook["clientConfig"]["caBundle"])
            for old in found.get("webhooks") or []
        ]
    )
    if not _differs(found.get("webhooks") or [], hooks):
        return
    try:
        await client.update(kind, {**found, "webhooks": hooks})
        log.info("brought %s up to date", name)
    except Conflict:
        await _ensure(client, admission, where, announce, settings)


def _with_authority(hook: Tree, bundle: str) -> Tree:
    return {**hook, "clientConfig": {**(hook.get("clientConfig") or {}), "caBundle": bundle}}


def _differs(found: list[Tree], hooks: list[Tree]) -> bool:
    """Whether any of our fields differs; fields that the API server added do not count."""
    return len(found) != len(hooks) or any(
        old.get(key) != value
        for old, new in zip(found, hooks, strict=True)
        for key, value in new.items()
    )


async def _withdraw(client: Client, admission: Admission) -> None:
    try:
        await client.delete(kind_of(admission), admission.configuration)
        log.info("withdrew %s: nothing is configured for it", admission.configuration)
    except NotFound:
        pass
