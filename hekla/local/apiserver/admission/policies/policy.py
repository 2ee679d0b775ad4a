"""A compiled policy with its bindings: constraints, variables, parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes, TreeCache, remembered
from hekla.local.apiserver.admission.matching import Conditions, Key, matching_resource, selected
from hekla.local.apiserver.objects.expressions import Unusable, compile_admission_expression
from hekla.local.apiserver.request.selection import selects
from hekla.local.apiserver.storage.registry import Registry, Resource


class Misconfigured(Exception):
    """A policy or binding that cannot be used; the failure policy decides what happens."""


class Binding:
    """A binding: which of the policy's requests it applies to, with which parameters and actions."""

    __slots__ = ("actions", "match", "name", "reference")

    def __init__(self, name: str, spec: Json) -> None:
        self.name = name
        self.actions: list[str] = spec.get("validationActions") or []
        self.match: Json = spec.get("matchResources") or {}
        self.reference: Json | None = spec.get("paramRef")


class Policy:
    """What validating and mutating policies have in common."""

    def __init__(self, name: str, spec: Json, bindings: list[Binding], registry: Registry) -> None:
        self.name = name
        self.spec = spec
        self.bindings = bindings
        self.registry = registry
        self.match: Json = spec.get("matchConstraints") or {}
        self.ignores_failure = spec.get("failurePolicy") == "Ignore"
        self.param_kind: Json | None = spec.get("paramKind")
        self.unusable = ""
        self.variables: dict[str, Any] = {}
        self.types: dict[str, Any] = {}
        self._trees = TreeCache()
        try:
            self.conditions = Conditions(spec.get("matchConditions") or (), params=self.has_params)
            for variable in spec.get("variables") or ():
                program = compile_admission_expression(
                    variable["expression"], params=self.has_params, variables=self.types
                )
                self.variables[variable["name"]] = program
                self.types[variable["name"]] = program.type
        except Unusable as error:
            self.unusable = str(error)

    @property
    def has_params(self) -> bool:
        """Whether the policy declares a paramKind."""
        return self.param_kind is not None

    # --- which requests ---------------------------------------------------------------------------

    def rules_match(self, resource: Resource, key: Key) -> Resource | None:
        """The resource in which the policy gets the object if its rules match; rules do not depend
        on the object. None if they do not match."""
        return matching_resource(
            self.match.get("resourceRules") or (),
            self.match.get("matchPolicy") or "",
            self.registry,
            resource,
            key,
        )

    def wants(self, attributes: Attributes, resource: Resource, key: Key) -> bool:
        """Whether the policy's constraints match a request."""
        return _selects(self.match, attributes, self.registry, resource, key, rules=True)

    def bound(self, attributes: Attributes, resource: Resource, key: Key) -> Iterator[Binding]:
        """The bindings that match a request."""
        for binding in self.bindings:
            rules = bool(binding.match.get("resourceRules"))
            if not binding.match or _selects(
                binding.match, attributes, self.registry, resource, key, rules=rules
            ):
                yield binding

    # --- what expressions see ---------------------------------------------------------------------

    def params(self, binding: Binding, attributes: Attributes) -> list[Json | None]:
        """The parameters of a binding; a single None if the policy has none. Raises Misconfigured."""
        kind, reference = self.param_kind, binding.reference
        if kind is None or reference is None:
            return [None]
        group, _, version = str(kind.get("apiVersion")).rpartition("/")
        resource = next(
            (
                resource
                for resource in self.registry.of(group, version)
                if resource.kind.kind == kind.get("kind")
            ),
            None,
        )
        if resource is None:
            raise Misconfigured(
                f"paramKind kind `{kind.get('apiVersion')}, Kind={kind.get('kind')}` not known"
            )
        namespace = reference.get("namespace") or ""
        if resource.kind.namespaced:
            namespace = namespace or attributes.namespace
            if not namespace:
                raise Misconfigured(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        elif namespace:
            raise Misconfigured(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        params: list[Json | None] = [
            resource.typed(tree) for tree in self._named(resource, namespace, reference)
        ]
        if not params and reference.get("parameterNotFoundAction") == "Deny":
            raise Misconfigured(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return params

    def _named(self, resource: Resource, namespace: str, reference: Json) -> Iterator[Json]:
        collection = resource.collection
        if reference.get("name"):
            key = f"{namespace}/{reference['name']}" if namespace else reference["name"]
            row = collection.newest(key)
            if row is not None:
                yield remembered(self._trees, f"{collection.name} {key}", row)
            return
        for row in collection.accepted():
            if (not namespace or row.namespace == namespace) and selects(
                reference.get("selector") or {}, dict(row.labels)
            ):
                yield remembered(self._trees, f"{collection.name} {row.key}", row)

    def with_variables(self, scope: Json) -> Json:
        """The scope with the policy's variables, which are evaluated when they are used; each can
        use those before it."""
        if not self.variables:
            return {**scope, "variables": {}}
        from hekla.cel.program import Thunk, Variables

        lazy = Variables()
        full = {**scope, "variables": lazy}
        for name, program in self.variables.items():
            lazy[name] = Thunk(lambda program=program: program(full))  # type: ignore[misc]  # mypy guesses no type of a lambda's default
        return full


def _selects(
    match: Json,
    attributes: Attributes,
    registry: Registry,
    resource: Resource,
    key: Key,
    *,
    rules: bool,
) -> bool:
    """Whether matchConstraints or matchResources match a request. Without `rules`, only the
    selectors and excludeResourceRules are checked."""
    policy = match.get("matchPolicy") or ""
    name = attributes.name
    for field, wanted in (("excludeResourceRules", False), ("resourceRules", True)):
        if field == "resourceRules" and not rules:
            continue
        entries = [
            rule
            for rule in match.get(field) or ()
            if not rule.get("resourceNames") or name in rule["resourceNames"]
        ]
        if (matching_resource(entries, policy, registry, resource, key) is not None) is not wanted:
            return False
    return selected(
        match.get("namespaceSelector"), match.get("objectSelector"), attributes, registry
    )
