"""The accounts that the chart gives to daemons, for tests in which a daemon may do what it would be
allowed to as a pod, and no more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import yaml

from hekla.admission.registry import ADMISSIONS
from tests.cluster.api import Api, Tree
from tests.deploy.chart import NAMESPACE, rights

RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOURS = 12


Right = tuple[str, str, str]
"""Group, resource, verb."""


class Account(NamedTuple):
    """Rules of a component: in the whole cluster, and in the release's namespace."""

    everywhere: list[Tree]
    at_home: list[Tree]


def account(component: str, *more: str) -> Account:
    """What the chart puts together for a component; `more` names the parts that not every release
    has."""
    parts = rights(component)
    everywhere = [rule for part in ("everywhere", *more) for rule in parts[part]]
    return Account(everywhere, parts.get("at_home", []))


SCHEDULER = account("scheduler", "batch")
LONE_SCHEDULER = account("scheduler")
CONTROLLERS = account("controllers", "hypernodes", "secrets")
HYPERNODES = account("hypernode-controller")
DESCHEDULER = account("descheduler")
AGENT = account("agent", "numatopology")
_REGISTRATION = {
    "apiGroups": ["admissionregistration.k8s.io"],
    "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    "resourceNames": [admission.configuration for admission in ADMISSIONS.values()],
    "verbs": ["get", "update", "delete"],
}
ADMISSION = Account([*rights("admission")["everywhere"], _REGISTRATION], [])


AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]},
        {"level": "None"},
    ],
}
"""An audit policy that notes what the accounts ask for."""


def refused(audit_log: Path, name: str = "") -> list[str]:
    """What the accounts, or one of them, asked for and may not do, from a log that AUDIT has made."""
    found: dict[str, None] = {}
    for event in _audited(audit_log, "forbid"):
        account = event["user"]["username"].rpartition(":")[2]
        if name in ("", account):
            found[f"{account}: {event['verb']} {event['requestURI'].partition('?')[0]}"] = None
    return list(found)


def used(audit_log: Path, name: str) -> set[Right]:
    """The rights that one account has made use of.  A watch is there once it
    has ended."""
    found = set()
    for event in _audited(audit_log, "allow"):
        if "objectRef" in event and event["user"]["username"].rpartition(":")[2] == name:
            about = event["objectRef"]
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            found.add((about.get("apiGroup", ""), resource, event["verb"]))
    return found


def granted(given: Account) -> set[Right]:
    """The rights of an account."""
    return {
        right
        for rule in (*given.everywhere, *given.at_home)
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def _audited(audit_log: Path, decision: str) -> Iterator[Tree]:
    for line in audit_log.read_text().splitlines() if audit_log.exists() else ():
        event = json.loads(line)
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == decision:
            yield event


def grant(kubeconfig: Path, name: str, given: Account) -> Path:
    """Makes an account in the namespace of a release; gives the kubeconfig that one of its pods
    would amount to."""
    api = Api(kubeconfig)
    api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})  # it may be there
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    for place, kind, rules in (
        (RBAC, "ClusterRole", given.everywhere),
        (f"{RBAC}/namespaces/{NAMESPACE}", "Role", given.at_home),
    ):
        api.create(f"{place}/{kind.lower()}s", {"metadata": {"name": name}, "rules": rules})
        meant = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        api.create(
            f"{place}/{kind.lower()}bindings",
            {"metadata": {"name": name}, "roleRef": meant, "subjects": [subject]},
        )
    _wait_until_in_force(api, name, given)
    answer = api.create(
        f"{accounts}/{name}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": HOURS * 3600},
        },
    )
    narrow = yaml.safe_load(kubeconfig.read_text())
    narrow["users"] = [{"name": name, "user": {"token": answer["status"]["token"]}}]
    narrow["contexts"] = [
        {"name": name, "context": {"cluster": narrow["clusters"][0]["name"], "user": name}}
    ]
    narrow["current-context"] = name
    path = kubeconfig.with_name(f"{name}.kubeconfig")
    path.write_text(yaml.safe_dump(narrow))
    path.chmod(0o600)
    return path


def extend(kubeconfig: Path, name: str, given: Account) -> None:
    """Give an account that there is more rights in the namespace of a release."""
    api = Api(kubeconfig)
    role = f"{RBAC}/namespaces/{NAMESPACE}/roles/{name}"
    answer = api.patch(role, {"rules": given.at_home})
    assert answer.status == 200, answer.tree
    _wait_until_in_force(api, name, given)


def _wait_until_in_force(api: Api, name: str, given: Account) -> None:
    """An API server reads roles from caches, which takes it a moment."""
    for rules, namespace in ((given.everywhere, ""), (given.at_home, NAMESPACE)):
        if not rules:
            continue
        resource, _, subresource = rules[-1]["resources"][0].partition("/")
        about = {
            "verb": rules[-1]["verbs"][0],
            "group": rules[-1]["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
            "name": (rules[-1].get("resourceNames") or [""])[0],
        }
        body: Tree = {
            "spec": {
                "user": f"system:serviceaccount:{NAMESPACE}:{name}",
                "resourceAttributes": about,
            }
        }
        deadline = time.monotonic() + 30
        while not api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"][
            "allowed"
        ]:
            assert time.monotonic() < deadline, f"{name} may not {about}"
            time.sleep(0.02)
