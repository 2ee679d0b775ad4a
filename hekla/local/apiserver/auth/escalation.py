"""Privilege escalation: a user may only grant rights that he has (local-cluster 7.2).

With the verb `escalate` on a role, a user may write any rules into it; with `bind`, he may bind it.
"""

from __future__ import annotations

import json

from hekla.api.trees import Json
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import RBAC, Authorizer, aggregated_rules
from hekla.local.apiserver.auth.rulecover import MAX_REPORTED, TooManyCombinations, lacking, shown
from hekla.local.apiserver.auth.user import User
from hekla.local.apiserver.request.status import forbidden, not_found

EVERYTHING: list[Json] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


class Escalation:
    """The checks of writes to roles and bindings."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    def join(self, admission: Admission) -> None:
        """Register the checks with admission."""
        # Twice: before validation, so that a forbidden write is reported as such even if it is
        # invalid; and after the webhooks, which may have changed it.
        for plural, check in (
            ("roles", self.check_role),
            ("clusterroles", self.check_role),
            ("rolebindings", self.check_binding),
            ("clusterrolebindings", self.check_binding),
        ):
            for operation in ("CREATE", "UPDATE"):
                admission.plugins[f"{plural}.{RBAC}", operation] = [check]
                admission.checks[f"{plural}.{RBAC}", operation] = [check]
        admission.creation = self.check_creation

    def check_creation(self, attributes: Attributes) -> None:
        """Creating an object by PUT or apply needs the right to create it too."""
        kind, name = attributes.resource.kind, attributes.name
        access = Access(
            "create", kind.group, kind.plural, attributes.subresource, attributes.namespace, name
        )
        if not self.authorizer.allows(attributes.call.user, access)[0]:
            raise forbidden(kind, name, "")

    def check_role(self, attributes: Attributes) -> None:
        """A user needs all rights of a role that he writes."""
        user, new, old = attributes.call.user, attributes.object or {}, attributes.old
        if user.master or (old is not None and only_for_collector(new, old)):
            return
        plural = attributes.resource.kind.plural
        # The path of a create does not name the role, so rights with resourceNames do not cover it.
        name = attributes.name if old is not None else ""
        if self.authorizer.allows(
            user, Access("escalate", RBAC, plural, "", attributes.namespace, name)
        )[0]:
            return
        self._refuse(attributes, user, new.get("rules") or [])
        gathers = plural == "clusterroles" and (
            new.get("aggregationRule") or (old or {}).get("aggregationRule")
        )
        if gathers and lacking(self.authorizer.rules_of(user, ""), EVERYTHING):
            raise forbidden(
                attributes.resource.kind,
                attributes.name,
                "must have cluster-admin privileges to use the aggregationRule",
            )

    def check_binding(self, attributes: Attributes) -> None:
        """A user needs all rights of a role that he binds."""
        user, new, old = attributes.call.user, attributes.object or {}, attributes.old
        if user.master or (old is not None and only_for_collector(new, old)):
            return
        reference = new.get("roleRef") or {}
        plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        name = reference.get("name") or ""
        if self.authorizer.allows(
            user, Access("bind", RBAC, plural, "", attributes.namespace, name)
        )[0]:
            return
        self._refuse(attributes, user, self._rules(plural, attributes.namespace, name))

    def _rules(self, plural: str, namespace: str, name: str) -> list[Json]:
        """The rules of a role. Raises a 404 if it does not exist."""
        resource = self.authorizer.registry.resources[RBAC, "v1", plural]
        row = resource.collection.newest(f"{namespace}/{name}" if plural == "roles" else name)
        if row is None:
            raise not_found(resource.kind, name)
        role = row.tree()
        if not role.get("aggregationRule"):
            return role.get("rules") or []
        return aggregated_rules(role, self.authorizer.cluster_roles())

    def _refuse(self, attributes: Attributes, user: User, rules: list[Json]) -> None:
        try:
            missing = lacking(self.authorizer.rules_of(user, attributes.namespace), rules)
        except TooManyCombinations as error:
            why = "its rules overlap in too many ways with those that you hold to be confirmed: write fewer and smaller rules"
            raise forbidden(attributes.resource.kind, attributes.name, why) from error
        if missing:
            groups = " ".join(json.dumps(group) for group in user.groups)
            why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
            lines = sorted(map(shown, missing))
            lines += ["and more"] * (sum(len(rule["verbs"]) for rule in missing) >= MAX_REPORTED)
            raise forbidden(attributes.resource.kind, attributes.name, why + "\n".join(lines))


def only_for_collector(new: Json, old: Json) -> bool:
    """Whether a write changes only what the garbage collector changes: owners and finalizers.

    After any other write to a role or binding the rights are checked again, even if only a label
    changed: labels decide into which aggregated roles the rules go.
    """
    return _without(new, old, "metadata") and _without(
        new.get("metadata") or {}, old.get("metadata") or {}, *COLLECTOR_FIELDS
    )


COLLECTOR_FIELDS = ("ownerReferences", "finalizers", "managedFields", "selfLink", "generation")


def _without(new: Json, old: Json, *names: str) -> bool:
    """Whether two trees are equal apart from these fields; an empty field counts as absent."""
    return all(
        (new.get(name) or None) == (old.get(name) or None)
        for name in {*new, *old}
        if name not in names
    )
