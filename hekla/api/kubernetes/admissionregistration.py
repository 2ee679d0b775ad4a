"""Registrations of admission webhooks.  Only the programs that register themselves touch them, so
webhooks stay trees."""

from __future__ import annotations

from typing import Any

from hekla.api.kinds import Kind
from hekla.api.meta import Object, always

GROUP = "admissionregistration.k8s.io"


class MutatingWebhookConfiguration(Object):
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("MutatingWebhookConfiguration")
    webhooks: list[dict[str, Any]] = []


class ValidatingWebhookConfiguration(Object):
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("ValidatingWebhookConfiguration")
    webhooks: list[dict[str, Any]] = []


MUTATING_WEBHOOK_CONFIGURATION = Kind(
    GROUP,
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
    type=MutatingWebhookConfiguration,
)
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    GROUP,
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
    type=ValidatingWebhookConfiguration,
)
