"""ValidatingAdmissionPolicies: denials, warnings and audit annotations (local-cluster 6.5)."""

from __future__ import annotations

import json
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.admission.matching import ConditionFailed, key_of, scope_of
from hekla.local.apiserver.admission.policies.catalog import Catalog
from hekla.local.apiserver.admission.policies.policy import Binding, Misconfigured, Policy
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.objects.expressions import Unusable, compile_admission_expression
from hekla.local.apiserver.request.status import forbidden
from hekla.local.apiserver.storage.registry import Registry

CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
STEP_BUDGET = 1_000_000
MAX_MESSAGE_BYTES, MAX_ANNOTATION_BYTES = 5 * 1024, 10 * 1024
FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"


class ValidatingPolicy(Policy):
    """A compiled validating policy."""

    def __init__(self, name: str, spec: Json, bindings: list[Binding], registry: Registry) -> None:
        super().__init__(name, spec, bindings, registry)
        from hekla.cel.types import BOOL, NULL, STRING

        self.validations: list[tuple[Json, Any, Any]] = []
        self.annotations: list[tuple[Json, Any]] = []
        try:
            for validation in spec.get("validations") or ():
                message_expression = validation.get("messageExpression")
                self.validations.append(
                    (
                        validation,
                        compile_admission_expression(
                            validation["expression"],
                            (BOOL,),
                            params=self.has_params,
                            variables=self.types or None,
                        ),
                        compile_admission_expression(
                            message_expression,
                            (STRING,),
                            params=self.has_params,
                            authorizer=False,
                            variables=self.types or None,
                        )
                        if message_expression
                        else None,
                    )
                )
            for annotation in spec.get("auditAnnotations") or ():
                text = annotation["valueExpression"]
                program = compile_admission_expression(
                    text, (STRING, NULL), params=self.has_params, variables=self.types or None
                )
                self.annotations.append((annotation, program))
        except Unusable as error:
            self.unusable = self.unusable or str(error)


class Denial:
    """A failed validation, or an error that counts as one."""

    __slots__ = ("binding", "message", "policy", "reason")

    def __init__(
        self, policy: Policy, binding: Binding | None, message: str, reason: str = ""
    ) -> None:
        self.policy = policy
        self.binding = binding
        self.message = message
        self.reason = reason or "Invalid"


class Validating:
    """Runs the policies."""

    def __init__(self, registry: Registry, authorizer: Authorizer) -> None:
        self.registry = registry
        self.authorizer = authorizer
        self.catalog: Catalog[ValidatingPolicy] = Catalog(
            registry, "validatingadmissionpolicies", ValidatingPolicy
        )
        self.decisions: dict[tuple[str, str, str], int] = {}
        """(policy, binding, enforcement action) -> count, for the metrics."""

    def wanted(self, attributes: Attributes) -> bool:
        """Whether there is any policy."""
        return bool(self.catalog.by_rule(attributes)) and bool(self.catalog.of(attributes))

    def run(self, attributes: Attributes) -> None:
        """Run all policies, then raise the first denial."""
        denials: list[Denial] = []
        for policy, seen in self.catalog.of(attributes):
            scope = scope_of(attributes, seen, self.registry, self.authorizer)
            key = key_of(attributes.resource.kind, attributes)
            notes: dict[str, list[str]] = {}
            for binding in policy.bound(attributes, attributes.resource, key):
                self._bound(policy, binding, attributes, scope, denials, notes)
            for name, values in notes.items():
                attributes.call.annotate(f"{policy.name}/{name}", ", ".join(values))
        if denials:
            raise _refusal(denials[0], attributes)

    def _bound(
        self,
        policy: ValidatingPolicy,
        binding: Binding,
        attributes: Attributes,
        scope: Json,
        denials: list[Denial],
        notes: dict[str, list[str]],
    ) -> None:
        try:
            if policy.unusable:
                raise Misconfigured(policy.unusable)
            params = policy.params(binding, attributes)
        except Misconfigured as error:
            if not policy.ignores_failure:
                denials.append(Denial(policy, binding, f"failed to configure binding: {error}"))
            return
        for param in params:
            full = policy.with_variables({**scope, "params": param})
            try:
                if not policy.conditions.hold(full):
                    continue
            except ConditionFailed as error:
                if not policy.ignores_failure:
                    self._act(policy, binding, attributes, str(error), "Invalid", 0, denials)
                continue
            for position, (validation, program, message_expression) in enumerate(
                policy.validations
            ):
                self._validate(
                    policy,
                    binding,
                    attributes,
                    full,
                    position,
                    validation,
                    program,
                    message_expression,
                    denials,
                )
            self._annotate(policy, binding, full, denials, notes)

    def _validate(
        self,
        policy: ValidatingPolicy,
        binding: Binding,
        attributes: Attributes,
        scope: Json,
        position: int,
        validation: Json,
        program: Any,
        message_expression: Any,
        denials: list[Denial],
    ) -> None:
        from hekla.cel.errors import Failed

        budget = [STEP_BUDGET]
        try:
            if program.spend(scope, budget) is True:
                return
            message = (
                self._message(message_expression, scope, budget)
                or (validation.get("message") or "").strip()
            )
            message = message or f"failed expression: {validation['expression'].strip()}"
            reason = validation.get("reason") or ""
        except Failed as error:
            if policy.ignores_failure:
                return
            message, reason = (
                f"expression '{validation['expression']}' resulted in error: {error}",
                "",
            )
        self._act(policy, binding, attributes, message, reason, position, denials)

    @staticmethod
    def _message(message_expression: Any, scope: Json, budget: list[int]) -> str:
        from hekla.cel.errors import Failed

        if message_expression is None:
            return ""
        try:
            text = str(message_expression.spend(scope, budget)).strip()
        except Failed:
            return ""
        return "" if "\n" in text or len(text.encode()) > MAX_MESSAGE_BYTES else text

    def _act(
        self,
        policy: Policy,
        binding: Binding,
        attributes: Attributes,
        message: str,
        reason: str,
        position: int,
        denials: list[Denial],
    ) -> None:
        for action in binding.actions:
            key = (policy.name, binding.name, action.lower())
            self.decisions[key] = self.decisions.get(key, 0) + 1
            if action == "Deny":
                denials.append(Denial(policy, binding, message, reason))
            elif action == "Warn":
                start = f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': "
                attributes.call.warn(start + message)
            elif action == "Audit":
                entry = {
                    "message": message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": position,
                    "validationActions": binding.actions,
                }
                attributes.call.annotate(
                    FAILURE_ANNOTATION, json.dumps([entry], separators=(",", ":"))
                )

    def _annotate(
        self,
        policy: ValidatingPolicy,
        binding: Binding,
        scope: Json,
        denials: list[Denial],
        notes: dict[str, list[str]],
    ) -> None:
        from hekla.cel.errors import Failed

        for annotation, program in policy.annotations:
            try:
                value = program(scope)
            except Failed as error:
                if not policy.ignores_failure:
                    text = (
                        f"expression '{annotation['valueExpression']}' resulted in error: {error}"
                    )
                    denials.append(Denial(policy, binding, text))
                continue
            text = (value or "").strip()[:MAX_ANNOTATION_BYTES]
            values = notes.setdefault(annotation["key"], [])
            if text and text not in values:
                values.append(text)


def _refusal(denial: Denial, attributes: Attributes) -> Exception:
    with_binding = f" with binding '{denial.binding.name}'" if denial.binding is not None else ""
    message = f"ValidatingAdmissionPolicy '{denial.policy.name}'{with_binding} denied request: {denial.message}"
    refusal = forbidden(attributes.resource.kind, attributes.name, message, [{"message": message}])
    refusal.reason = denial.reason
    refusal.code = CODES.get(denial.reason, 422)
    return refusal
