"""Both sorts of policies, as admission asks them."""

from __future__ import annotations

from hekla.local.apiserver.authorization import Authorizer
from hekla.local.apiserver.policies.catalog import GROUP
from hekla.local.apiserver.policies.mutating import Mutating
from hekla.local.apiserver.policies.typechecks import TypeChecks
from hekla.local.apiserver.policies.validating import Validating
from hekla.local.apiserver.registry import Registry
from hekla.local.apiserver.writing import Writer


class Policies:
    def __init__(self, registry: Registry, writer: Writer, authorizer: Authorizer) -> None:
        self.mutating = Mutating(registry, authorizer)
        self.validating = Validating(registry, authorizer)
        resource = registry.get(GROUP, "v1", "validatingadmissionpolicies")
        if resource is None:
            raise LookupError("this server does not serve admission policies")
        self.checks = TypeChecks(registry, writer, resource)

    def start(self) -> None:
        self.checks.start()

    def stop(self) -> None:
        self.checks.stop()
