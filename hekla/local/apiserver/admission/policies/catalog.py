"""The stored policies of one sort, compiled and found by what they are about; made again when a
policy or a binding changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.admission.matching import Key, key_of
from hekla.local.apiserver.admission.policies.policy import Binding, Policy
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.store import Event

GROUP = "admissionregistration.k8s.io"
EXEMPT = frozenset({GROUP, "authentication.k8s.io", "authorization.k8s.io"})
"""Groups that policies are never asked about: a policy must not lock out those who would repair it.
"""

P = TypeVar("P", bound=Policy)
Make = Callable[[str, Json, list[Binding], Registry], P]


class Catalog(Generic[P]):
    def __init__(self, registry: Registry, plural: str, make: Make[P]) -> None:
        self.registry = registry
        self.make = make
        policies = registry.get(GROUP, "v1", plural)
        bindings = registry.get(GROUP, "v1", plural.removesuffix("ies") + "ybindings")
        if policies is None or bindings is None:
            raise LookupError(f"this server does not serve {plural}")
        self.policies, self.bindings = policies.collection, bindings.collection
        for collection in (self.policies, self.bindings):
            collection.listeners.add(self._changed)
        self._all: list[P] | None = None
        self._generation = -1
        self._matching: dict[Key, tuple[tuple[P, Resource], ...]] = {}

    def _changed(self, events: list[Event]) -> None:
        self._all = None
        self._matching.clear()

    def all(self) -> list[P]:
        """Those with bindings, by name."""
        if self._all is None:
            bound: dict[str, list[Binding]] = {}
            for key in self.bindings.ordered():
                spec = self.bindings.rows[key].tree().get("spec") or {}
                bound.setdefault(spec.get("policyName") or "", []).append(Binding(key, spec))
            self._all = [
                self.make(
                    key, self.policies.rows[key].tree().get("spec") or {}, bound[key], self.registry
                )
                for key in self.policies.ordered()
                if key in bound
            ]
        return self._all

    def by_rule(self, attributes: Attributes) -> tuple[tuple[P, Resource], ...]:
        """The policies whose rules are about such requests, each with the group and version in
        which it sees the object."""
        if not self.policies.rows or not self.bindings.rows:
            return ()
        if self._generation != self.registry.generation:
            self._generation = self.registry.generation
            self._matching.clear()
        resource = attributes.resource
        key = key_of(resource.kind, attributes)
        found = self._matching.get(key)
        if found is None:
            if resource.kind.group in EXEMPT or attributes.subresource == "server":
                found = ()
            else:
                found = tuple(
                    (policy, seen)
                    for policy in self.all()
                    if (seen := policy.rules_match(resource, key)) is not None
                )
            self._matching[key] = found
        return found

    def of(self, attributes: Attributes) -> list[tuple[P, Resource]]:
        """The policies that want to see a request."""
        found = self.by_rule(attributes)
        if not found:
            return []
        key = key_of(attributes.resource.kind, attributes)
        return [
            (policy, seen)
            for policy, seen in found
            if policy.wants(attributes, attributes.resource, key)
        ]
