"""The stored policies of one type, compiled and indexed by the resources that they match; rebuilt
when a policy or a binding changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.admission.matching import Key, key_of
from hekla.local.apiserver.admission.policies.policy import Binding, Policy
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import Event

GROUP = "admissionregistration.k8s.io"
EXEMPT_GROUPS = frozenset({GROUP, "authentication.k8s.io", "authorization.k8s.io"})
"""Groups that policies never apply to: a policy must not lock out those who could repair it."""

P = TypeVar("P", bound=Policy)
Make = Callable[[str, Json, list[Binding], Registry], P]


class Catalog(Generic[P]):
    """The policies of one type."""

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
        """All policies with bindings, by name."""
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
        """The policies whose rules match a request, each with the resource (group and version) in
        which it gets the object."""
        if not self.policies.rows or not self.bindings.rows:
            return ()
        if self._generation != self.registry.generation:
            self._generation = self.registry.generation
            self._matching.clear()
        resource = attributes.resource
        key = key_of(resource.kind, attributes)
        matching = self._matching.get(key)
        if matching is None:
            if resource.kind.group in EXEMPT_GROUPS or attributes.subresource == "server":
                matching = ()
            else:
                matching = tuple(
                    (policy, seen)
                    for policy in self.all()
                    if (seen := policy.rules_match(resource, key)) is not None
                )
            self._matching[key] = matching
        return matching

    def of(self, attributes: Attributes) -> list[tuple[P, Resource]]:
        """The policies that apply to a request."""
        matching = self.by_rule(attributes)
        if not matching:
            return []
        key = key_of(attributes.resource.kind, attributes)
        return [
            (policy, seen)
            for policy, seen in matching
            if policy.wants(attributes, attributes.resource, key)
        ]
