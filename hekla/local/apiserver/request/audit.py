"""The audit log: who asked for what, one JSON line a request, in Kubernetes' format
(audit.k8s.io/v1).

Off unless a path is given, and then a policy says how much of which requests is written; without a
policy it is the metadata of all. What holds credentials (secrets, tokens and their reviews) is
never written in more than its metadata, whatever the policy says.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import yaml

from hekla.api.text import yamltext
from hekla.api.text.times import micro_stamp
from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response
from hekla.local.apiserver.auth.user import User
from hekla.local.apiserver.request.route import Route

LEVELS = ("None", "Metadata", "Request", "RequestResponse")
LATER = ("responseStatus", "requestObject", "responseObject", "annotations")
"""What is not known when a request comes in."""
SECRET = frozenset(
    {
        ("", "secrets", ""),
        ("", "serviceaccounts", "token"),
        ("authentication.k8s.io", "tokenreviews", ""),
    }
)
"""(group, resource, subresource) whose bodies are credentials."""


class PolicyError(ValueError):
    """A policy file that cannot be used; the text is for its author."""


class Policy:
    """The rules of a policy file; the first that matches a request says its level."""

    def __init__(self, tree: Json) -> None:
        if tree.get("kind", "Policy") != "Policy":
            raise PolicyError(f"kind is {tree.get('kind')!r}, and Policy is wanted")
        self.rules: list[Json] = tree.get("rules") or []
        self.omitted = frozenset(tree.get("omitStages") or ())
        for position, rule in enumerate(self.rules):
            if rule.get("level") not in LEVELS:
                raise PolicyError(
                    f"rules[{position}].level: {rule.get('level')!r} is not one of {', '.join(LEVELS)}"
                )

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Raises PolicyError, OSError."""
        try:
            tree = yamltext.load(path.read_text())
        except yaml.YAMLError as error:
            raise PolicyError(str(error)) from None
        if not isinstance(tree, dict):
            raise PolicyError("an object is wanted")
        return cls(tree)

    def level(
        self, user: User, verb: str, route: Route | None, path: str
    ) -> tuple[str, frozenset[str]]:
        """The level of a request, and the stages of it that are not written."""
        for rule in self.rules:
            if rule_matches(rule, user, verb, route, path):
                return str(rule["level"]), self.omitted | frozenset(rule.get("omitStages") or ())
        return "None", self.omitted


EVERYTHING = Policy({"rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]})


def rule_matches(rule: Json, user: User, verb: str, route: Route | None, path: str) -> bool:
    if rule.get("users") and user.name not in rule["users"]:
        return False
    if rule.get("userGroups") and not set(rule["userGroups"]) & set(user.groups):
        return False
    if rule.get("verbs") and verb not in rule["verbs"]:
        return False
    resources, urls, namespaces = (
        rule.get("resources"),
        rule.get("nonResourceURLs"),
        rule.get("namespaces"),
    )
    if route is None:
        if resources or namespaces:
            return False
        return not urls or any(
            url == path or (url.endswith("*") and path.startswith(url[:-1])) for url in urls
        )
    if urls or (namespaces and route.namespace not in namespaces):
        return False
    return not resources or any(resource_matches(entry, route) for entry in resources)


def resource_matches(entry: Json, route: Route) -> bool:
    if (entry.get("group") or "") != route.kind.group:
        return False
    if entry.get("resourceNames") and route.name not in entry["resourceNames"]:
        return False
    names = entry.get("resources") or []
    plural, sub = route.kind.plural, route.subresource
    what = f"{plural}/{sub}" if sub else plural
    return not names or any(
        name in ("*", what) or (sub and name in (f"{plural}/*", f"*/{sub}")) for name in names
    )


class Audit:
    def __init__(self, path: Path, policy: Policy) -> None:
        self.policy = policy
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.file = os.fdopen(descriptor, "ab", buffering=0)

    def close(self) -> None:
        self.file.close()

    def record(
        self,
        request: Request,
        route: Route | None,
        user: User | None,
        answer: Any,
        audit_id: str,
        started: float,
    ) -> None:
        """Writes an answered request, if the policy wants it."""
        verb = verb_of(request, route)
        who = user or User("", ())
        level, omitted = self.policy.level(who, verb, route, request.path)
        stream = not isinstance(answer, Response)
        stage = "ResponseStarted" if stream else "ResponseComplete"
        if level == "None":
            return
        if route is not None and (route.kind.group, route.kind.plural, route.subresource) in SECRET:
            level = "Metadata"
        event: Json = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": level,
            "auditID": audit_id,
            "stage": stage,
            "requestURI": quote(request.path, safe="/:")
            + (f"?{request.query}" if request.query else ""),
            "verb": verb,
            "user": who.tree(),
        }
        name = request.headers.get("impersonate-user")
        if name:
            groups = [
                text.strip()
                for text in request.headers.get("impersonate-group", "").split(",")
                if text.strip()
            ]
            event["impersonatedUser"] = {"username": name, **({"groups": groups} if groups else {})}
        event["sourceIPs"] = [request.peer.address or "127.0.0.1"]
        agent = request.headers.get("user-agent")
        if agent:
            event["userAgent"] = agent
        if route is not None:
            event["objectRef"] = reference(route)
        code = 200 if stream else answer.status
        event["responseStatus"] = {"metadata": {}, "code": code}
        if not stream and code >= 400:
            event["responseStatus"] = refusal(answer) or event["responseStatus"]
        if level in ("Request", "RequestResponse") and request.body:
            event["requestObject"] = body_tree(request.body)
        if level == "RequestResponse" and not stream:
            event["responseObject"] = body_tree(answer.body)
        event["requestReceivedTimestamp"] = micro_stamp(started)
        event["stageTimestamp"] = micro_stamp(time.time())
        event["annotations"] = {
            "authorization.k8s.io/decision": "forbid" if code == 403 else "allow",
            "authorization.k8s.io/reason": "",
        }
        if request.notes:
            event["annotations"].update(request.notes)
        if "RequestReceived" not in omitted:
            first = {key: value for key, value in event.items() if key not in LATER}
            self._write(
                {**first, "stage": "RequestReceived", "stageTimestamp": micro_stamp(started)}
            )
        if stage not in omitted:
            self._write(event)

    def _write(self, event: Json) -> None:
        self.file.write(msgspec.json.encode(event) + b"\n")


def verb_of(request: Request, route: Route | None) -> str:
    if route is None:
        return request.method.lower()
    if request.method == "GET":
        if route.watch or (request.query and request.flag("watch")):
            return "watch"
        return "get" if route.name else "list"
    if request.method == "DELETE":
        return "delete" if route.name else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(
        request.method, request.method.lower()
    )


def reference(route: Route) -> Json:
    found = {
        "resource": route.kind.plural,
        "namespace": route.namespace,
        "name": route.name,
        "apiGroup": route.kind.group,
        "apiVersion": route.kind.version,
        "subresource": route.subresource,
    }
    return {key: value for key, value in found.items() if value}


def refusal(answer: Response) -> Json | None:
    tree = body_tree(answer.body)
    if not isinstance(tree, dict) or tree.get("kind") != "Status":
        return None
    return {
        key: tree[key]
        for key in ("metadata", "status", "message", "reason", "details", "code")
        if key in tree
    }


def body_tree(body: bytes) -> Any:
    """A JSON body as it is; of others only that there was one."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {"kind": "Unknown", "bytes": len(body)}
