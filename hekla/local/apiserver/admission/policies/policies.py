"""Validating and mutating policies together, as admission uses them."""

from __future__ import annotations

from hekla.local.apiserver.admission.attributes import Changer
from hekla.local.apiserver.admission.policies.catalog import GROUP
from hekla.local.apiserver.admission.policies.mutating import Mutating
from hekla.local.apiserver.admission.policies.typechecks import TypeChecks
from hekla.local.apiserver.admission.policies.validating import Validating
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.storage.registry import Registry


class Policies:
    """Both types of policies, and the type checks."""

    def __init__(self, registry: Registry, writer: Changer, authorizer: Authorizer) -> None:
        self.mutating = Mutating(registry, authorizer)
        self.validating = Validating(registry, authorizer)
        resource = registry.get(GROUP, "v1", "validatingadmissionpolicies")
        if resource is None:
            raise LookupError("this server does not serve admission policies")
        self.checks = TypeChecks(registry, writer, resource)

    def start(self) -> None:
        """Begin to write the status of policies."""
        self.checks.start()

    def stop(self) -> None:
        """Stop writing."""
        self.checks.stop()
