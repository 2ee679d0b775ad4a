"""Nobody may grant what he does not have: the check behind writes of roles, bindings and certificates (local-cluster 7.2).

Who has the verb `escalate` on a role may write any rules into it, who has `bind` on a role may bind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product

from hekla.local.apiserver.admission import Admission, Attributes
from hekla.local.apiserver.authorization import RBAC, Access, Authorizer, aggregated_rules
from hekla.local.apiserver.identity import User
from hekla.local.apiserver.kind import Json
from hekla.local.apiserver.status import forbidden

CERTIFICATES = "certificates.k8s.io"
EVERYTHING: list[Json] = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]


class Escalation:
    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    def join(self, admission: Admission) -> None:
        for operation in ("CREATE", "UPDATE"):
            for plural in ("roles", "clusterroles"):
                admission.checks[f"{plural}.{RBAC}", operation] = [self.check_role]
            for plural in ("rolebindings", "clusterrolebindings"):
                admission.checks[f"{plural}.{RBAC}", operation] = [self.check_binding]
        requests = f"certificatesigningrequests.{CERTIFICATES}"
        admission.checks[f"{requests}/approval", "UPDATE"] = [self.check_approval]
        admission.checks[f"{requests}/status", "UPDATE"] = [self.check_signature]

    def check_role(self, attributes: Attributes) -> None:
        user, new, old = attributes.call.user, attributes.object or {}, attributes.old or {}
        if user.master or (new.get("rules") == old.get("rules") and new.get("aggregationRule") == old.get("aggregationRule")):
            return
        plural = attributes.resource.kind.plural
        if self.authorizer.allows(user, Access("escalate", RBAC, plural, "", attributes.namespace, attributes.name))[0]:
            return
        if new.get("aggregationRule") and new.get("aggregationRule") != old.get("aggregationRule"):
            missing = lacking(self.authorizer.rules_of(user, ""), EVERYTHING)
            if missing:
                why = "must have cluster-admin privileges to use the aggregationRule"
                raise forbidden(attributes.resource.kind, attributes.name, why)
        self._refuse(attributes, user, new.get("rules") or [])

    def check_binding(self, attributes: Attributes) -> None:
        user, new, old = attributes.call.user, attributes.object or {}, attributes.old or {}
        if user.master or (new.get("subjects") == old.get("subjects") and new.get("roleRef") == old.get("roleRef")):
            return
        reference = new.get("roleRef") or {}
        plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        name = reference.get("name") or ""
        if self.authorizer.allows(user, Access("bind", RBAC, plural, "", attributes.namespace, name))[0]:
            return
        self._refuse(attributes, user, self._rules(plural, attributes.namespace, name))

    def check_approval(self, attributes: Attributes) -> None:
        """Who approves a request for a certificate must be allowed to do so for its signer."""
        self._signer(attributes, "approve", "user not permitted to approve requests with signerName")

    def check_signature(self, attributes: Attributes) -> None:
        old, new = (attributes.old or {}).get("status") or {}, (attributes.object or {}).get("status") or {}
        if old.get("certificate") != new.get("certificate"):
            self._signer(attributes, "sign", "user not permitted to sign requests with signerName")

    def _signer(self, attributes: Attributes, verb: str, why: str) -> None:
        user = attributes.call.user
        name = str(((attributes.old or {}).get("spec") or {}).get("signerName") or "")
        for wanted in (name, f"{name.partition('/')[0]}/*"):
            if user.master or self.authorizer.allows(user, Access(verb, CERTIFICATES, "signers", name=wanted))[0]:
                return
        raise forbidden(attributes.resource.kind, attributes.name, f'{why} "{name}"')

    def _rules(self, plural: str, namespace: str, name: str) -> list[Json]:
        resource = self.authorizer.registry.get(RBAC, "v1", plural)
        row = resource.collection.newest(f"{namespace}/{name}" if plural == "roles" else name) if resource is not None else None
        if row is None:
            return []
        role = row.tree()
        if not role.get("aggregationRule"):
            return role.get("rules") or []
        return aggregated_rules(role, self.authorizer.cluster_roles())

    def _refuse(self, attributes: Attributes, user: User, rules: list[Json]) -> None:
        missing = lacking(self.authorizer.rules_of(user, attributes.namespace), rules)
        if missing:
            groups = " ".join(json.dumps(group) for group in user.groups)
            why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
            raise forbidden(attributes.resource.kind, attributes.name, why + "\n".join(sorted(map(shown, missing))))


def lacking(held: list[Json], wanted: Iterable[Json]) -> list[Json]:
    """What the held rules do not cover of the wanted ones, as rules; verbs of the same thing together."""
    found: dict[tuple[str, ...], Json] = {}
    for rule in wanted:
        names = rule.get("resourceNames") or [""]
        for verb in rule.get("verbs") or []:
            for url in rule.get("nonResourceURLs") or []:
                if not any(covers_url(one, verb, url) for one in held):
                    found.setdefault((url,), {"nonResourceURLs": [url], "verbs": []})["verbs"].append(verb)
            for group, resource, name in product(rule.get("apiGroups") or [], rule.get("resources") or [], names):
                if not any(covers(one, verb, group, resource, name) for one in held):
                    missing: Json = {"apiGroups": [group], "resources": [resource], "resourceNames": [name] if name else [], "verbs": []}
                    found.setdefault((group, resource, name), missing)["verbs"].append(verb)
    return list(found.values())


def has(rule: Json, field: str, value: str) -> bool:
    values = rule.get(field) or []
    return value in values or "*" in values


def covers(rule: Json, verb: str, group: str, resource: str, name: str) -> bool:
    if not has(rule, "verbs", verb) or not has(rule, "apiGroups", group):
        return False
    if not has(rule, "resources", resource) and f"*/{resource.partition('/')[2]}" not in (rule.get("resources") or []):
        return False
    names = rule.get("resourceNames") or []
    return not names or name in names


def covers_url(rule: Json, verb: str, url: str) -> bool:
    urls = rule.get("nonResourceURLs") or []
    return has(rule, "verbs", verb) and any(
        one in ("*", url) or (one.endswith("*") and url.rstrip("*").startswith(one[:-1])) for one in urls
    )


def shown(rule: Json) -> str:
    """A rule as Kubernetes prints it."""
    parts = (("APIGroups", "apiGroups"), ("Resources", "resources"), ("ResourceNames", "resourceNames"),
             ("NonResourceURLs", "nonResourceURLs"), ("Verbs", "verbs"))  # fmt: skip
    texts = [f"{title}:[{' '.join(map(json.dumps, sorted(set(rule[field]))))}]" for title, field in parts if rule.get(field)]
    return "{" + ", ".join(texts) + "}"
