"""Attempts to get more rights than one has, as data: who tries, with which rights, what, and what
comes of it.

`test_escalation.py` walks them over HTTP, against the server of the local cluster and
(HEKLA_TEST_SERVER=kubernetes) against Kubernetes'.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hekla.api.trees import Json
from tests.apiserver.http import JSON_PATCH, MERGE, STRATEGIC

RBAC = "rbac.authorization.k8s.io"
APPLY = "application/apply-patch+yaml"
ROLES, CLUSTER_ROLES = f"/apis/{RBAC}/v1/namespaces/den/roles", f"/apis/{RBAC}/v1/clusterroles"
BINDINGS, CLUSTER_BINDINGS = (
    f"/apis/{RBAC}/v1/namespaces/den/rolebindings",
    f"/apis/{RBAC}/v1/clusterrolebindings",
)
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CORE = "/api/v1/namespaces/den"
READ_ALL: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]}
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
READ_PODS: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


class Attempt(NamedTuple):
    """One request, by an account that has these rights and no others."""

    what: str
    rights: tuple[Json, ...]
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    code: int = 403
    says: str = ""
    """What the answer's message holds."""
    headers: tuple[tuple[str, str], ...] = ()


def may(verbs: str, resources: str, group: str = "", *names: str) -> Json:
    rule: Json = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**rule, "resourceNames": list(names)} if names else rule


def role(name: str, *rules: Json, kind: str = "ClusterRole", **more: Any) -> Json:
    metadata = {
        "name": name,
        **({"namespace": "den"} if kind == "Role" else {}),
        **more.pop("metadata", {}),
    }
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": list(rules),
        **more,
    }


def binding(
    name: str, to: str, kind: str = "RoleBinding", *, of: str = "ClusterRole", user: str = "mallory"
) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": of, "name": to},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


ESCALATING = "attempting to grant RBAC permissions not currently held"
AGGREGATING = "must have cluster-admin privileges to use the aggregationRule"
WRITER = may("create get update patch", "roles clusterroles", RBAC)
BINDER = may("create get update patch", "rolebindings clusterrolebindings", RBAC)
LABEL = {"metadata": {"labels": {f"{RBAC}/aggregate-to-view": "true"}}}


def of_roles() -> Iterator[Attempt]:
    """Writes of roles."""
    big, gathering = (
        role("big", EVERYTHING),
        {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    )
    patch = {"rules": [READ_ALL]}
    yield Attempt("create a cluster role", (WRITER,), "POST", CLUSTER_ROLES, big, says=ESCALATING)
    yield Attempt(
        "create a role",
        (WRITER,),
        "POST",
        ROLES,
        role("big", EVERYTHING, kind="Role"),
        says=ESCALATING,
    )
    yield Attempt(
        "a role that is wrong too",
        (WRITER,),
        "POST",
        CLUSTER_ROLES,
        role("big", {**READ_ALL, "apiGroups": []}, EVERYTHING),
    )
    yield Attempt(
        "put rules",
        (WRITER,),
        "PUT",
        f"{CLUSTER_ROLES}/small",
        role("small", EVERYTHING),
        says=ESCALATING,
    )
    yield Attempt(
        "put rules into a role",
        (WRITER,),
        "PUT",
        f"{ROLES}/small",
        role("small", EVERYTHING, kind="Role"),
        says=ESCALATING,
    )
    for content_type in (MERGE, STRATEGIC):
        yield Attempt(
            "patch rules",
            (WRITER,),
            "PATCH",
            f"{CLUSTER_ROLES}/small",
            patch,
            content_type,
            says=ESCALATING,
        )
    operations = [{"op": "add", "path": "/rules/-", "value": READ_ALL}]
    yield Attempt(
        "patch rules",
        (WRITER,),
        "PATCH",
        f"{CLUSTER_ROLES}/small",
        operations,
        JSON_PATCH,
        says=ESCALATING,
    )
    applied = f"{CLUSTER_ROLES}/small?fieldManager=m&force=true"
    yield Attempt(
        "apply rules", (WRITER,), "PATCH", applied, role("small", READ_ALL), APPLY, says=ESCALATING
    )
    new = f"{CLUSTER_ROLES}/new?fieldManager=m"
    yield Attempt(
        "apply a new role", (WRITER,), "PATCH", new, role("new", READ_ALL), APPLY, says=ESCALATING
    )
    for what, why in (("cluster-admin", ESCALATING), ("admin", ""), ("system:node", ESCALATING)):
        yield Attempt(
            f"label {what} into view",
            (WRITER,),
            "PATCH",
            f"{CLUSTER_ROLES}/{what}",
            LABEL,
            MERGE,
            says=why,
        )
    labelled = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {**LABEL["metadata"], "name": "cluster-admin"},
    }
    applied = f"{CLUSTER_ROLES}/cluster-admin?fieldManager=m"
    yield Attempt("apply a label", (WRITER,), "PATCH", applied, labelled, APPLY, says=ESCALATING)
    added = [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]
    yield Attempt(
        "add a label",
        (WRITER,),
        "PATCH",
        f"{CLUSTER_ROLES}/cluster-admin",
        added,
        JSON_PATCH,
        says=ESCALATING,
    )
    note = {"metadata": {"annotations": {"a": "b"}}}
    yield Attempt(
        "annotate",
        (WRITER,),
        "PATCH",
        f"{CLUSTER_ROLES}/cluster-admin",
        note,
        MERGE,
        says=ESCALATING,
    )
    yield Attempt(
        "label a role", (WRITER,), "PATCH", f"{ROLES}/large", LABEL, MERGE, says=ESCALATING
    )
    yield Attempt(
        "gather all",
        (WRITER,),
        "POST",
        CLUSTER_ROLES,
        role("g", aggregationRule=gathering),
        says=AGGREGATING,
    )
    others, none = {"aggregationRule": gathering}, {"aggregationRule": None}
    yield Attempt(
        "gather others",
        (WRITER, READ_PODS),
        "PATCH",
        f"{CLUSTER_ROLES}/small",
        others,
        MERGE,
        says=AGGREGATING,
    )
    yield Attempt(
        "gather no more",
        (WRITER,),
        "PATCH",
        f"{CLUSTER_ROLES}/gathering",
        none,
        MERGE,
        says=AGGREGATING,
    )
    yield Attempt(
        "label what gathers",
        (WRITER,),
        "PATCH",
        f"{CLUSTER_ROLES}/gathering",
        LABEL,
        MERGE,
        says=AGGREGATING,
    )
    named = may("escalate", "clusterroles", RBAC, "big")
    yield Attempt(
        "escalate one name by create", (WRITER, named), "POST", CLUSTER_ROLES, big, says=ESCALATING
    )
    yield Attempt(
        "escalate another",
        (WRITER, named),
        "PATCH",
        f"{CLUSTER_ROLES}/small",
        patch,
        MERGE,
        says=ESCALATING,
    )
    of_bindings = may("escalate bind", "rolebindings clusterrolebindings", RBAC)
    yield Attempt(
        "escalate bindings",
        (WRITER, of_bindings),
        "PATCH",
        f"{CLUSTER_ROLES}/small",
        patch,
        MERGE,
        says=ESCALATING,
    )
    only_bind = may("bind", "roles clusterroles", RBAC)
    yield Attempt(
        "bind is not escalate",
        (WRITER, only_bind),
        "PATCH",
        f"{CLUSTER_ROLES}/small",
        patch,
        MERGE,
        says=ESCALATING,
    )
    for held, wanted in (
        (may("get", "pods", "", "one"), READ_PODS),
        (may("get", "pods", "", ""), READ_PODS),
        (may("get", "pods", "", "one"), may("get", "pods", "", "one", "two")),
        (may("get", "*/"), READ_PODS),
        (READ_PODS, may("get", "pods/exec")),
        (may("get", "*/log"), may("get", "*")),
        (READ_PODS, may("get list", "pods")),
        (READ_PODS, may("*", "pods")),
        (READ_PODS, may("get", "pods", "*")),
        (READ_PODS, may("get", "pods", "apps")),
        (READ_PODS, may("get", "*")),
        (READ_PODS, {"nonResourceURLs": ["*"], "verbs": ["get"]}),
        (
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            {"nonResourceURLs": ["/metrics*"], "verbs": ["get"]},
        ),
        (
            {"nonResourceURLs": ["/metrics/*"], "verbs": ["get"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ),
        (
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["post"]},
        ),
    ):
        yield Attempt(
            f"{held} grants {wanted}",
            (WRITER, held),
            "POST",
            CLUSTER_ROLES,
            role("wider", wanted),
            says=ESCALATING,
        )
    writer = may("get update patch", "roles clusterroles", RBAC)
    yield Attempt(
        "make by put", (writer,), "PUT", f"{CLUSTER_ROLES}/new", role("new"), says="is forbidden"
    )
    yield Attempt("make by apply", (writer,), "PATCH", new, role("new"), APPLY, says="is forbidden")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
    maps = f"{CORE}/configmaps/new?fieldManager=m"
    yield Attempt(
        "make a map by apply",
        (may("get update patch", "configmaps"),),
        "PATCH",
        maps,
        config,
        APPLY,
        says="is forbidden",
    )
    # What is right stays right.
    yield Attempt(
        "grant what is held",
        (WRITER, READ_PODS),
        "POST",
        CLUSTER_ROLES,
        role("held", READ_PODS),
        code=201,
    )
    yield Attempt(
        "of all names one",
        (WRITER, READ_PODS),
        "POST",
        CLUSTER_ROLES,
        role("one", may("get", "pods", "", "a")),
        code=201,
    )
    logs = may("get", "*/log")
    yield Attempt(
        "of all logs one",
        (WRITER, logs),
        "POST",
        CLUSTER_ROLES,
        role("logs", may("get", "pods/log")),
        code=201,
    )
    owners = {
        "metadata": {
            "finalizers": ["example.com/a"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}
            ],
        }
    }
    yield Attempt(
        "collect garbage", (WRITER,), "PATCH", f"{CLUSTER_ROLES}/large", owners, MERGE, code=200
    )
    escalate = may("escalate", "clusterroles", RBAC)
    yield Attempt(
        "escalate", (WRITER, escalate), "POST", CLUSTER_ROLES, role("raised", EVERYTHING), code=201
    )


def of_bindings() -> Iterator[Attempt]:
    """Writes of bindings."""
    crb = "ClusterRoleBinding"
    yield Attempt(
        "bind a cluster role",
        (BINDER,),
        "POST",
        CLUSTER_BINDINGS,
        binding("b", "cluster-admin", crb),
        says=ESCALATING,
    )
    yield Attempt(
        "bind it in a namespace",
        (BINDER,),
        "POST",
        BINDINGS,
        binding("b", "cluster-admin"),
        says=ESCALATING,
    )
    yield Attempt(
        "bind a role",
        (BINDER,),
        "POST",
        BINDINGS,
        binding("b", "large", of="Role"),
        says=ESCALATING,
    )
    yield Attempt(
        "bind what gathers", (BINDER,), "POST", BINDINGS, binding("b", "filled"), says=ESCALATING
    )
    missing = "not found"
    yield Attempt(
        "bind no role",
        (BINDER,),
        "POST",
        BINDINGS,
        binding("b", "none", of="Role"),
        code=404,
        says=missing,
    )
    yield Attempt(
        "bind no cluster role",
        (BINDER,),
        "POST",
        BINDINGS,
        binding("b", "none"),
        code=404,
        says=missing,
    )
    yield Attempt(
        "bind none at all",
        (BINDER,),
        "POST",
        CLUSTER_BINDINGS,
        binding("b", "none", crb),
        code=404,
        says=missing,
    )
    applied = f"{BINDINGS}/b?fieldManager=m"
    yield Attempt(
        "apply a binding of none",
        (BINDER,),
        "PATCH",
        applied,
        binding("b", "none"),
        APPLY,
        code=404,
        says=missing,
    )
    subjects = {"subjects": [{"apiGroup": RBAC, "kind": "User", "name": "mallory"}]}
    for path in (
        f"{BINDINGS}/strong",
        f"{CLUSTER_BINDINGS}/strong",
        f"{CLUSTER_BINDINGS}/cluster-admin",
    ):
        for content_type in (MERGE, STRATEGIC):
            yield Attempt(
                "add a subject", (BINDER,), "PATCH", path, subjects, content_type, says=ESCALATING
            )
        yield Attempt(
            "label a binding",
            (BINDER,),
            "PATCH",
            path,
            {"metadata": {"labels": {"a": "b"}}},
            MERGE,
            says=ESCALATING,
        )
    operation = [{"op": "replace", "path": "/subjects/0/name", "value": "mallory"}]
    yield Attempt(
        "replace a subject",
        (BINDER,),
        "PATCH",
        f"{BINDINGS}/strong",
        operation,
        JSON_PATCH,
        says=ESCALATING,
    )
    yield Attempt(
        "put a subject",
        (BINDER,),
        "PUT",
        f"{BINDINGS}/strong",
        binding("strong", "cluster-admin"),
        says=ESCALATING,
    )
    yield Attempt(
        "apply a subject",
        (BINDER,),
        "PATCH",
        f"{BINDINGS}/strong?fieldManager=m&force=true",
        binding("strong", "cluster-admin"),
        APPLY,
        says=ESCALATING,
    )
    yield Attempt(
        "another role",
        (BINDER,),
        "PUT",
        f"{BINDINGS}/weak",
        binding("weak", "cluster-admin"),
        says=ESCALATING,
    )
    other = may("bind", "clusterroles", RBAC, "view")
    yield Attempt(
        "bind another name",
        (BINDER, other),
        "POST",
        BINDINGS,
        binding("b", "cluster-admin"),
        says=ESCALATING,
    )
    roles = may("bind", "roles", RBAC)
    yield Attempt(
        "bind another kind",
        (BINDER, roles),
        "POST",
        BINDINGS,
        binding("b", "cluster-admin"),
        says=ESCALATING,
    )
    escalate = may("escalate", "roles clusterroles", RBAC)
    yield Attempt(
        "escalate is not bind",
        (BINDER, escalate),
        "POST",
        BINDINGS,
        binding("b", "cluster-admin"),
        says=ESCALATING,
    )
    updater = may("get update patch", "rolebindings", RBAC)
    bind = may("bind", "clusterroles roles", RBAC)
    yield Attempt(
        "make by put",
        (updater, bind),
        "PUT",
        f"{BINDINGS}/new",
        binding("new", "view"),
        says="is forbidden",
    )
    new = f"{BINDINGS}/new?fieldManager=m"
    yield Attempt(
        "make by apply",
        (updater, bind),
        "PATCH",
        new,
        binding("new", "view"),
        APPLY,
        says="is forbidden",
    )
    yield Attempt(
        "bind what is held",
        (BINDER, READ_PODS),
        "POST",
        BINDINGS,
        binding("held", "small"),
        code=201,
    )
    yield Attempt(
        "bind with bind",
        (BINDER, bind),
        "POST",
        BINDINGS,
        binding("bound", "cluster-admin"),
        code=201,
    )
    yield Attempt(
        "bind none with bind",
        (BINDER, bind),
        "POST",
        BINDINGS,
        binding("later", "none", of="Role"),
        code=201,
    )


def of_impersonation() -> Iterator[Attempt]:
    """Acting in another's name."""
    who = f"{REQUESTS}?limit=1"
    extra = "authentication.k8s.io"
    users = may("impersonate", "users")
    all_of = (users, may("impersonate", "groups", "", "ok"))
    said = "impersonate"
    for what, rights, headers in (
        ("a user", (), {"User": "kubernetes-admin"}),
        ("another user", (may("impersonate", "users", "", "bob"),), {"User": "alice"}),
        ("by another verb", (may("get list create", "users"),), {"User": "alice"}),
        ("a user's group", (users,), {"User": "alice", "Group": "system:masters"}),
        ("another group", all_of, {"User": "alice", "Group": "system:masters"}),
        ("one group of two", all_of, {"User": "alice", "Group": "ok,system:masters"}),
        ("an account as a user", (users,), {"User": "system:serviceaccount:kube-system:default"}),
        ("a user as an account", (may("impersonate", "serviceaccounts"),), {"User": "alice"}),
        ("an identity", (users,), {"User": "alice", "Uid": "1"}),
        ("an extra", (users,), {"User": "alice", "Extra-scopes": "all"}),
        (
            "another extra",
            (users, may("impersonate", "userextras/other", extra)),
            {"User": "alice", "Extra-scopes": "all"},
        ),
        (
            "another value",
            (users, may("impersonate", "userextras/scopes", extra, "some")),
            {"User": "alice", "Extra-scopes": "all"},
        ),
        ("a node", (users,), {"User": "system:node:n1", "Group": "system:nodes"}),
    ):
        sent = tuple((f"Impersonate-{name}", value) for name, value in headers.items())
        yield Attempt(f"be {what}", rights, "GET", who, says=said, headers=sent)
    for name, value in (("Group", "system:masters"), ("Uid", "1"), ("Extra-scopes", "all")):
        yield Attempt(
            f"be no user of {name}",
            (),
            "GET",
            who,
            code=400,
            headers=((f"Impersonate-{name}", value),),
        )


API_CLIENT = "kubernetes.io/kube-apiserver-client"


def request_for(
    *subject: tuple[x509.ObjectIdentifier, str], signer: str = API_CLIENT, one: bool = False
) -> Json:
    """A request for a certificate; with `one` all parts of the subject stand in one set."""
    parts = [x509.NameAttribute(*part) for part in subject]
    name = x509.Name([x509.RelativeDistinguishedName(parts)]) if one else x509.Name(parts)
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    text = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    return {
        "metadata": {"generateName": "m-"},
        "spec": {"request": text, "signerName": signer, "usages": ["client auth"]},
    }


def client_certificate(
    pki: Path, place: Path, subject: list[tuple[x509.ObjectIdentifier, str]]
) -> tuple[Path, Path]:
    """A certificate for a client, signed by the cluster's authority, and its key."""
    authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(*part) for part in subject]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (place / "client.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (place / "client.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return place / "client.crt", place / "client.key"


def certificate() -> bytes:
    """Of one's own making."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
    )
    made = (
        built.not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def of_certificates() -> Iterator[Attempt]:
    """Requests for certificates, and what is said to them."""
    asker, approver = (
        may("create", "certificatesigningrequests", "certificates.k8s.io"),
        may(
            "get update patch",
            "certificatesigningrequests/approval certificatesigningrequests/status",
            "certificates.k8s.io",
        ),
    )
    masters, me = (NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "mallory")
    refused = "signer with system:masters group is not allowed"
    yield Attempt(
        "ask for masters", (asker,), "POST", REQUESTS, request_for(masters, me), says=refused
    )
    yield Attempt(
        "ask with every right",
        (EVERYTHING,),
        "POST",
        REQUESTS,
        request_for(masters, me),
        says=refused,
    )
    friends = (NameOID.ORGANIZATION_NAME, "friends")
    yield Attempt(
        "ask for masters second",
        (asker,),
        "POST",
        REQUESTS,
        request_for(friends, masters, me),
        says=refused,
    )
    yield Attempt(
        "ask in one set",
        (asker,),
        "POST",
        REQUESTS,
        request_for(friends, masters, me, one=True),
        says=refused,
    )
    yield Attempt("ask for friends", (asker,), "POST", REQUESTS, request_for(friends, me), code=201)
    approved = {
        "status": {
            "conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]
        }
    }
    signed = {"status": {"certificate": base64.b64encode(certificate()).decode()}}
    failed = {
        "status": {
            "conditions": [{"type": "Failed", "status": "True", "reason": "r", "message": "m"}]
        }
    }
    other = "certificates.k8s.io"
    wrong = may(
        "approve sign",
        "signers",
        other,
        "kubernetes.io/kubelet-serving",
        "example.com/*",
        "kubernetes.io",
    )
    for rights in ((approver,), (approver, wrong), (approver, may("get create", "signers", other))):
        yield Attempt(
            "approve",
            rights,
            "PATCH",
            f"{REQUESTS}/asked/approval",
            approved,
            MERGE,
            says="not permitted to approve",
        )
        yield Attempt(
            "sign",
            rights,
            "PATCH",
            f"{REQUESTS}/asked/status",
            signed,
            MERGE,
            says="not permitted to sign",
        )
        yield Attempt(
            "fail",
            rights,
            "PATCH",
            f"{REQUESTS}/asked/status",
            failed,
            MERGE,
            says="not permitted to sign",
        )
    for verb, what, body in (("sign", "approval", approved), ("approve", "status", failed)):
        right = may(verb, "signers", other, "kubernetes.io/*")
        yield Attempt(
            f"{what} with {verb}",
            (approver, right),
            "PATCH",
            f"{REQUESTS}/asked/{what}",
            body,
            MERGE,
            says="not permitted to",
        )
    for right in (
        may("sign", "signers", other),
        may("sign", "signers", other, "kubernetes.io/kube-apiserver-client"),
    ):
        yield Attempt(
            "fail with sign",
            (approver, right),
            "PATCH",
            f"{REQUESTS}/asked/status?dryRun=All",
            failed,
            MERGE,
            code=200,
        )


VERBS = {
    "get": ("GET", True),
    "list": ("GET", False),
    "create": ("POST", False),
    "update": ("PUT", True),
    "patch": ("PATCH", True),
    "delete": ("DELETE", True),
    "deletecollection": ("DELETE", False),
}
SENSITIVE = (
    f"{CORE}/secrets", f"{CORE}/serviceaccounts", f"{CORE}/pods", ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS, REQUESTS,
    "/api/v1/nodes", "/api/v1/persistentvolumes", "/api/v1/namespaces", f"{CORE}/endpoints", f"{CORE}/services",
    "/apis/discovery.k8s.io/v1/namespaces/den/endpointslices", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/apps/v1/namespaces/den/deployments", "/apis/apps/v1/namespaces/den/daemonsets", "/apis/batch/v1/namespaces/den/cronjobs",
    "/apis/storage.k8s.io/v1/csinodes", "/apis/resource.k8s.io/v1/resourceslices",
)  # fmt: skip
SUBRESOURCES = (
    ("POST", f"{CORE}/serviceaccounts/default/token"), ("POST", f"{CORE}/pods/p/exec"), ("GET", f"{CORE}/pods/p/exec"),
    ("POST", f"{CORE}/pods/p/attach"), ("POST", f"{CORE}/pods/p/portforward"), ("GET", f"{CORE}/pods/p/log"),
    ("POST", f"{CORE}/pods/p/binding"), ("POST", f"{CORE}/bindings"), ("POST", f"{CORE}/pods/p/eviction"),
    ("PATCH", f"{CORE}/pods/p/status"), ("PATCH", f"{CORE}/pods/p/ephemeralcontainers"), ("PATCH", f"{CORE}/pods/p/resize"),
    *((method, f"{CORE}/pods/p/proxy/") for method in ("GET", "POST", "PUT", "DELETE")),
    *((method, f"{CORE}/services/s/proxy/") for method in ("GET", "POST")),
    *((method, "/api/v1/nodes/n1/proxy/pods") for method in ("GET", "POST", "PUT", "DELETE")),
    ("PATCH", "/api/v1/nodes/n1/status"), ("PUT", "/api/v1/namespaces/den/finalize"), ("PATCH", "/api/v1/namespaces/den/status"),
    ("PATCH", f"{REQUESTS}/asked/approval"), ("PATCH", f"{REQUESTS}/asked/status"), ("PATCH", f"{CORE}/services/s/status"),
    ("GET", "/apis/apps/v1/namespaces/den/deployments/d/scale"), ("PATCH", "/apis/apps/v1/namespaces/den/deployments/d/scale"),
    ("PATCH", "/api/v1/persistentvolumes/v/status"), ("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/c/status"),
)  # fmt: skip
REVIEWS = (
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authorization.k8s.io/v1/namespaces/den/localsubjectaccessreviews",
)
PATHS = ("/metrics", "/logs", "/debug/pprof", "/configz")


def of_every_pair() -> Iterator[Attempt]:
    """Each verb on each thing that leads to rights: by one who may nothing, and by one who may all
    but this."""
    others = {
        verb: {"apiGroups": ["*"], "resources": ["*"], "verbs": [*(set(VERBS) - {verb}), "watch"]}
        for verb in VERBS
    }
    for path in SENSITIVE:
        for verb, (method, named) in VERBS.items():
            where = f"{path}/x" if named else path
            body, content_type = (
                ({}, MERGE) if method in ("POST", "PUT", "PATCH") else (None, "application/json")
            )
            for rights in ((), (others[verb],)):
                yield Attempt(
                    f"{verb} {path}",
                    rights,
                    method,
                    where,
                    body,
                    content_type if method == "PATCH" else "application/json",
                    says=f"cannot {verb} resource",
                )
        yield Attempt(
            f"watch {path}", (), "GET", f"{path}?watch=true", says="cannot watch resource"
        )
    plain = {
        "apiGroups": ["*"],
        "verbs": ["*"],
        "resources": [
            "pods",
            "nodes",
            "services",
            "serviceaccounts",
            "namespaces",
            "deployments",
            "certificatesigningrequests",
            "persistentvolumes",
            "customresourcedefinitions",
        ],
    }
    for method, path in SUBRESOURCES:
        body = {} if method in ("POST", "PUT", "PATCH") else None
        content_type = MERGE if method == "PATCH" else "application/json"
        for rights in ((), (plain,)):
            yield Attempt(
                f"{method} {path}", rights, method, path, body, content_type, says="cannot "
            )
    for path in REVIEWS:
        yield Attempt(
            f"review at {path}", (), "POST", path, {"spec": {}}, says="cannot create resource"
        )
    for path in PATHS:
        for rights in ((), (EVERYTHING,)):
            yield Attempt(f"read {path}", rights, "GET", path, says="cannot get path")
