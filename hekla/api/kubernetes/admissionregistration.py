"""Registrations of admission webhooks.  Only the programs that register themselves touch them, so
webhooks stay trees."""

from __future__ import annotations

from typing import Any

from hekla.api.kinds import kind_of
from hekla.api.meta import Object, always

API_VERSION = "admissionregistration.k8s.io/v1"


class MutatingWebhookConfiguration(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("MutatingWebhookConfiguration")
    webhooks: list[dict[str, Any]] = []


class ValidatingWebhookConfiguration(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("ValidatingWebhookConfiguration")
    webhooks: list[dict[str, Any]] = []


MUTATING_WEBHOOK_CONFIGURATION = kind_of(
    MutatingWebhookConfiguration, "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING_WEBHOOK_CONFIGURATION = kind_of(
    ValidatingWebhookConfiguration, "validatingwebhookconfigurations", namespaced=False
)
