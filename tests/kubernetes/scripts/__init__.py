"""The request scripts that were written by hand: each tells one story of the protocol to both
servers."""

from __future__ import annotations

from tests.kubernetes.exchange import Script
from tests.kubernetes.samples import SAMPLES
from tests.kubernetes.scripts import (
    access,
    definitions,
    kinds,
    lists,
    objects,
    oddities,
    pods,
    protocol,
    writing,
)


def scripts() -> list[Script]:
    """All of them."""
    stories = {
        "http": protocol.http(),
        "bodies": protocol.bodies(),
        "discovery": protocol.discovery(),
        "reading": protocol.reading(),
        "creating": writing.creating(),
        "updating": writing.updating(),
        "patching": writing.patching(),
        "strategic": writing.strategic(),
        "deleting": writing.deleting(),
        "collections": writing.collections(),
        "listing": lists.listing(),
        "watching": lists.watching(),
        "validation": kinds.validation(),
        "pods": pods.pods(),
        "pod-updates": pods.pod_updates(),
        "refused-templates": pods.refused_templates(),
        "services": objects.services(),
        "workloads": objects.workloads(),
        "namespaces": kinds.namespaces(),
        "rbac": access.rbac(),
        "reviews": access.reviews(),
        "tokens": access.tokens(),
        "definitions": definitions.definitions(),
        "definition-mistakes": definitions.definition_mistakes(),
        "priorities": objects.priorities(),
        "quotas": objects.quotas(),
        "webhooks": objects.webhooks(),
        "apply": writing.applying(),
        "oddities": oddities.oddities(),
    }
    found = [Script(name, tuple(steps)) for name, steps in stories.items()]
    return [
        *found,
        *(Script(f"life of {sample.plural}", tuple(kinds.life(sample))) for sample in SAMPLES),
    ]
