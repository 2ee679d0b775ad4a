"""MutatingAdmissionPolicies: apply configurations and JSON patches, each applied to the result of
the one before (local-cluster 6.6)."""

from __future__ import annotations

from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.admission.matching import ConditionFailed, key_of, scope_of
from hekla.local.apiserver.admission.policies import changes
from hekla.local.apiserver.admission.policies.catalog import Catalog
from hekla.local.apiserver.admission.policies.policy import Binding, Misconfigured, Policy
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.expressions import Unusable
from hekla.local.apiserver.objects.validation.policies import mutation_program
from hekla.local.apiserver.request.call import untyped
from hekla.local.apiserver.request.status import Refusal, forbidden
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import decode, encode


class MutatingPolicy(Policy):
    """A compiled mutating policy."""

    def __init__(self, name: str, spec: Json, bindings: list[Binding], registry: Registry) -> None:
        super().__init__(name, spec, bindings, registry)
        self.again = spec.get("reinvocationPolicy") == "IfNeeded"
        self.mutations: list[tuple[str, str, Any]] = []
        try:
            for mutation in spec.get("mutations") or ():
                kind = mutation["patchType"]
                form = mutation[
                    "applyConfiguration" if kind == "ApplyConfiguration" else "jsonPatch"
                ]
                text = (form.get("expression") or "").strip()
                self.mutations.append(
                    (kind, text, mutation_program(kind, text, self.has_params, self.types or None))
                )
        except Unusable as error:
            self.unusable = self.unusable or str(error)


class Mutating:
    """Runs the policies in the order of their names."""

    def __init__(self, registry: Registry, authorizer: Authorizer) -> None:
        self.registry = registry
        self.authorizer = authorizer
        self.catalog: Catalog[MutatingPolicy] = Catalog(
            registry, "mutatingadmissionpolicies", MutatingPolicy
        )

    def wanted(self, attributes: Attributes) -> bool:
        """Whether any policy may apply."""
        if attributes.object is None or attributes.operation not in ("CREATE", "UPDATE"):
            return False
        return bool(self.catalog.by_rule(attributes)) and bool(self.catalog.of(attributes))

    def run(self, attributes: Attributes, *, again: bool = False) -> None:
        """Apply the mutations to the object. `again` runs only policies that are to be reinvoked
        after others changed the object."""
        ran: list[MutatingPolicy] = []
        repeat: list[MutatingPolicy] = []
        for policy, seen in self.catalog.of(attributes):
            if again and not policy.again:
                continue
            if self._run(policy, seen, attributes):
                repeat.extend(other for other in ran if other not in repeat)
            if policy.again:
                ran.append(policy)
        for policy, seen in self.catalog.of(attributes):
            if policy in repeat:
                self._run(policy, seen, attributes)

    def _run(self, policy: MutatingPolicy, seen: Resource, attributes: Attributes) -> bool:
        """Returns whether the policy changed the object."""
        before = attributes.object
        key = key_of(attributes.resource.kind, attributes)
        for binding in policy.bound(attributes, attributes.resource, key):
            try:
                if policy.unusable:
                    raise Misconfigured(policy.unusable)
                for param in policy.params(binding, attributes):
                    self._mutate(policy, seen, attributes, param)
            except Misconfigured as error:
                _failed(policy, binding, attributes, f"failed to configure binding: {error}")
            except (ConditionFailed, changes.Unfit) as error:
                _failed(policy, binding, attributes, str(error))
        return attributes.object is not before and attributes.object != before

    def _mutate(
        self, policy: MutatingPolicy, seen: Resource, attributes: Attributes, param: Json | None
    ) -> None:
        from hekla.cel.errors import Failed

        scope = policy.with_variables(
            {**scope_of(attributes, seen, self.registry, self.authorizer), "params": param}
        )
        if not policy.conditions.hold(scope):
            return
        for kind, text, program in policy.mutations:
            scope = policy.with_variables(
                {**scope_of(attributes, seen, self.registry, self.authorizer), "params": param}
            )
            try:
                made = program(scope)
            except Failed as error:
                raise changes.Unfit(f"expression '{text}' resulted in error: {error}") from error
            # A copy, because a mutation may fail half way; encoding and decoding is the fastest.
            typed = decode(encode(scope["object"]))
            patched: Json | None
            if kind == "ApplyConfiguration":
                patched = changes.applied(seen.kind, typed, made)
            else:
                patched = changes.patched(typed, made)
            if patched is None:
                continue
            if seen.kind.decode is not None and not attributes.subresource:
                try:
                    patched = seen.kind.decode(encode(patched), "application/json", "Ignore").tree
                except BadBody as error:
                    raise changes.Unfit(str(error)) from error
            new = untyped(patched)
            if seen.kind is not attributes.resource.kind:
                new = seen.kind.keep(new) if seen.kind.keep is not None else new
                present = attributes.resource.kind.present
                new = present(new) if present is not None else new
            if attributes.subresource not in ("binding", "eviction"):
                attributes.resource.kind.strategy.default(new)
            attributes.object = new


def _failed(policy: MutatingPolicy, binding: Binding, attributes: Attributes, why: str) -> None:
    if policy.ignores_failure:
        return
    message = f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}"
    refusal: Refusal = forbidden(
        attributes.resource.kind, attributes.name, "", [{"message": message}]
    )
    error = Refusal(403, message, reason="Invalid", details=refusal.details)
    raise error
