"""The status of ValidatingAdmissionPolicies: type errors of their expressions for the kinds that
their rules name (local-cluster 6.5).

It never changes what a policy does: expressions are evaluated without static types, and a warning
is a hint for the author.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from hekla.api.trees import Json
from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.admission.attributes import Changer
from hekla.local.apiserver.auth.user import MASTERS, User
from hekla.local.apiserver.objects.expressions import (
    Unusable,
    built_in_type,
    compile_admission_expression,
)
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import DELETED, Event

log = logging.getLogger("hekla.apiserver")
SERVER = User("system:apiserver", (MASTERS, "system:authenticated"))
MAX_KINDS = 10


class TypeChecks:
    """Writes the status of each policy whose spec changed."""

    def __init__(self, registry: Registry, writer: Changer, resource: Resource) -> None:
        self.registry = registry
        self.writer = writer
        self.resource = resource
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Check all policies, and follow changes."""
        self.resource.collection.listeners.add(self.on_events)
        for key in self.resource.collection.ordered():
            self._look(key)

    def stop(self) -> None:
        """Stop following."""
        self.resource.collection.listeners.discard(self.on_events)
        for task in self._tasks:
            task.cancel()

    def on_events(self, events: list[Event]) -> None:
        """Check policies that changed."""
        for event in events:
            if event.type is not DELETED:
                self._look(event.row.name)

    def _look(self, name: str) -> None:
        row = self.resource.collection.newest(name)
        if row is None:
            return
        tree = row.tree()
        if (tree.get("status") or {}).get("observedGeneration") != tree["metadata"].get(
            "generation"
        ):
            task = asyncio.get_running_loop().create_task(self._write(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, name: str) -> None:
        def checked(tree: Json) -> Json:
            warnings = expression_warnings(tree.get("spec") or {}, self.registry)
            checking: Json = {"expressionWarnings": warnings} if warnings else {}
            status = tree.setdefault("status", {})
            status["typeChecking"] = checking
            status["observedGeneration"] = tree["metadata"].get("generation", 1)
            return tree

        call = Call(
            Request("PUT", "/policies", "", {}, b"", Peer()),
            Route(self.resource, "", name, ""),
            SERVER,
            "update",
        )
        try:
            await self.writer.change(
                call, self.resource, name, checked, retry=True, subresource="server", admit=False
            )
        except Refusal as refusal:
            if refusal.code not in (404, 409):
                log.warning("the status of the policy %s: %s", name, refusal)


def expression_warnings(spec: Json, registry: Registry) -> list[Json]:
    """The type errors of a policy's expressions, for each kind that its rules name in full."""
    kinds = [
        (resource, kind)
        for resource in named(spec, registry)
        if (kind := type_of(resource)) is not None
    ]
    param_type = _param_type(spec, registry)
    warnings: list[Json] = []
    for position, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            text = validation.get(field)
            if not text:
                continue
            wrong = [
                line
                for resource, kind in kinds
                if (line := _type_errors(text, spec, resource, kind, param_type))
            ]
            if wrong:
                warnings.append(
                    {
                        "fieldRef": f"spec.validations[{position}].{field}",
                        "warning": "\n".join(wrong),
                    }
                )
    return warnings


def named(spec: Json, registry: Registry) -> list[Resource]:
    """The kinds that rules without wildcards name, at most MAX_KINDS."""
    resources: list[Resource] = []
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for group in rule.get("apiGroups") or ():
            for version in rule.get("apiVersions") or ():
                for plural in rule.get("resources") or ():
                    resource = registry.get(group, version, plural)
                    if resource is not None and resource not in resources:
                        resources.append(resource)
    return sorted(
        resources[:MAX_KINDS],
        key=lambda resource: (resource.kind.group, resource.kind.version, resource.kind.kind),
    )


def type_of(resource: Resource) -> Any:
    """The CEL type of a resource's objects."""
    kind = resource.kind
    if kind.custom:
        from hekla.cel.schema import declared

        return declared(kind.schema or {}, root=True)
    return built_in_type(kind.group, kind.version, kind.kind)


def _param_type(spec: Json, registry: Registry) -> Any:
    kind = spec.get("paramKind")
    if kind is None:
        return None
    group, _, version = str(kind.get("apiVersion")).rpartition("/")
    resource = next(
        (
            resource
            for resource in registry.of(group, version)
            if resource.kind.kind == kind.get("kind")
        ),
        None,
    )
    return None if resource is None else type_of(resource)


def _type_errors(text: str, spec: Json, resource: Resource, kind: Any, param_type: Any) -> str:
    params = spec.get("paramKind") is not None
    types: Json = {}
    for variable in spec.get("variables") or ():
        try:
            program = compile_admission_expression(
                variable["expression"],
                params=params,
                variables=types,
                object_type=kind,
                params_type=param_type,
            )
            types[variable["name"]] = program.type
        except Unusable:
            from hekla.cel.types import DYN

            types[variable["name"]] = DYN
    try:
        compile_admission_expression(
            text, params=params, variables=types, object_type=kind, params_type=param_type
        )
    except Unusable as error:
        shown = f"{resource.kind.api_version}, Kind={resource.kind.kind}"
        return f"{shown if resource.kind.group else '/' + shown}: {error}\n"
    return ""
