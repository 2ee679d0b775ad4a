"""`authorizer`: what a policy may ask about the rights of who sends a request.

The answer comes from a function that the caller of the expression hands in (`Authorizer.decide`);
nothing here knows RBAC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.types import (
    AUTHORIZER,
    BOOL,
    DECISION,
    GROUP_CHECK,
    PATH_CHECK,
    RESOURCE_CHECK,
    STRING,
)


class Question(NamedTuple):
    account: tuple[str, str] | None
    """(namespace, name) of a service account; None for who sent the request."""
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


Decide = Callable[[Question], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class Authorizer:
    kind = AUTHORIZER.name
    decide: Decide
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PathCheck:
    kind = PATH_CHECK.name
    authorizer: Authorizer
    path: str


@dataclass(frozen=True, slots=True)
class GroupCheck:
    kind = GROUP_CHECK.name
    authorizer: Authorizer
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    kind = RESOURCE_CHECK.name
    authorizer: Authorizer
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    kind = DECISION.name
    allowed: bool
    reason: str


def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path:
        raise Failed("path must not be empty")
    return PathCheck(authorizer, path)


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource:
        raise Failed("resource must not be empty")
    return ResourceCheck(check.authorizer, check.group, resource)


def _decided(check: ResourceCheck, verb: str) -> Decision:
    question = Question(
        check.authorizer.account,
        verb,
        check.group,
        check.resource,
        check.subresource,
        check.namespace,
        check.name,
    )
    return Decision(*check.authorizer.decide(question))


def _path_decided(check: PathCheck, verb: str) -> Decision:
    return Decision(
        *check.authorizer.decide(Question(check.authorizer.account, verb, path=check.path))
    )


def _part(name: str) -> Callable[[ResourceCheck, str], Any]:
    def changed(check: ResourceCheck, value: str) -> ResourceCheck:
        fields: dict[str, Any] = {name: value}
        return replace(check, **fields)

    return changed


method("path", (AUTHORIZER, STRING), PATH_CHECK, _path)
method("group", (AUTHORIZER, STRING), GROUP_CHECK, GroupCheck)
method(
    "serviceAccount",
    (AUTHORIZER, STRING, STRING),
    AUTHORIZER,
    lambda found, space, name: replace(found, account=(space, name)),
)
method("resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource)
for _name in ("subresource", "namespace", "name"):
    method(_name, (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _part(_name))
# Selectors narrow what a request asks for; roles do not know them, so they change no answer.
method("fieldSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, lambda check, text: check)
method("labelSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, lambda check, text: check)
method("check", (PATH_CHECK, STRING), DECISION, _path_decided)
method("check", (RESOURCE_CHECK, STRING), DECISION, _decided)
method("errored", (DECISION,), BOOL, lambda decision: False)
method("error", (DECISION,), STRING, lambda decision: "")
method("allowed", (DECISION,), BOOL, lambda decision: decision.allowed)
method("reason", (DECISION,), STRING, lambda decision: decision.reason)
function(
    "jsonpatch.escapeKey",
    (STRING,),
    STRING,
    lambda text: text.replace("~", "~0").replace("/", "~1"),
)
