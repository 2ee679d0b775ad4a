"""Nobody gets rights that he does not have: a table of attempts, walked over HTTP (local-cluster
7.1, 7.2).

With HEKLA_TEST_SERVER=kubernetes the same table holds Kubernetes' own server to the same answers.
"""

from __future__ import annotations

import base64
import collections
import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from hekla.api.trees import Json
from hekla.local.apiserver.auth.authentication import read_tokens
from tests.apiserver import escalating, trespassing
from tests.apiserver.escalating import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    CORE,
    EVERYTHING,
    RBAC,
    READ_PODS,
    ROLES,
    Attempt,
)
from tests.apiserver.http import Answer
from tests.apiserver_process import ApiServerProcess

REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Door:
    """The server's HTTPS door, for the administrator, for a bearer of a token, and for whom the
    administrator pretends to be."""

    def __init__(self, server: ApiServerProcess) -> None:
        self.connections = {
            certificate: server.https(certificate=certificate) for certificate in (True, False)
        }

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        token: str = "",
        **headers: str,
    ) -> Answer:
        connection = self.connections[not token]
        data = (
            None
            if body is None
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            sent["Content-Type"] = content_type
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def make(self, path: str, body: Json) -> Json:
        answer = self.ask("POST", path, body)
        assert answer.status == 201, answer
        return answer.tree

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


@pytest.fixture(scope="module")
def door(shared_apiserver: ApiServerProcess) -> Iterator[Door]:
    opened = Door(shared_apiserver)
    _furnish(opened)
    yield opened
    opened.close()


def _furnish(door: Door) -> None:
    """What the attempts are about."""
    door.make("/api/v1/namespaces", {"metadata": {"name": "den"}})
    for kind, path in (("ClusterRole", CLUSTER_ROLES), ("Role", ROLES)):
        door.make(path, escalating.role("small", READ_PODS, kind=kind))
        door.make(path, escalating.role("large", EVERYTHING, kind=kind))
    nothing = {"clusterRoleSelectors": [{"matchLabels": {"nobody": "has"}}]}
    door.make(CLUSTER_ROLES, escalating.role("gathering", aggregationRule=nothing))
    some = {"clusterRoleSelectors": [{"matchLabels": {"goes-into": "filled"}}]}
    door.make(
        CLUSTER_ROLES,
        escalating.role("part", EVERYTHING, metadata={"labels": {"goes-into": "filled"}}),
    )
    door.make(CLUSTER_ROLES, escalating.role("filled", EVERYTHING, aggregationRule=some))
    door.make(BINDINGS, escalating.binding("strong", "cluster-admin", user="boss"))
    door.make(BINDINGS, escalating.binding("weak", "small", user="boss"))
    door.make(
        CLUSTER_BINDINGS,
        escalating.binding("strong", "cluster-admin", "ClusterRoleBinding", user="boss"),
    )
    asked = escalating.request_for((NameOID.COMMON_NAME, "carol"))
    door.make(escalating.REQUESTS, {**asked, "metadata": {"name": "asked"}})


class Accounts:
    """An account for each set of rights that the attempts need."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.tokens: dict[str, str] = {}

    def token(self, rights: tuple[Json, ...]) -> str:
        key = json.dumps(rights, sort_keys=True)
        if key not in self.tokens:
            self.tokens[key] = self._made(f"row-{len(self.tokens)}", rights)
        return self.tokens[key]

    def _made(self, name: str, rights: tuple[Json, ...]) -> str:
        door = self.door
        door.make(f"{CORE}/serviceaccounts", {"metadata": {"name": name}})
        if rights:
            door.make(CLUSTER_ROLES, escalating.role(name, *rights))
            door.make(
                CLUSTER_BINDINGS,
                {
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "den"}],
                },
            )
            self._wait(f"system:serviceaccount:den:{name}", rights[-1])
        answer = door.ask("POST", f"{CORE}/serviceaccounts/{name}/token", {"spec": {}})
        return str(answer.tree["status"]["token"])

    def _wait(self, user: str, right: Json) -> None:
        """Kubernetes' server learns of rights a moment after they were written."""
        spec: Json = {"user": user}
        if "nonResourceURLs" in right:
            spec["nonResourceAttributes"] = {
                "verb": right["verbs"][0],
                "path": right["nonResourceURLs"][0].replace("*", "x"),
            }
        else:
            what, _, sub = right["resources"][0].partition("/")
            spec["resourceAttributes"] = {
                "verb": right["verbs"][0],
                "group": right["apiGroups"][0],
                "resource": what,
                "subresource": sub,
                "name": right.get("resourceNames", [""])[0],
            }
        if right.get("resources") == ["*/"]:
            return
        deadline = time.monotonic() + 10
        while not self.door.ask("POST", REVIEW, {"spec": spec}).tree["status"]["allowed"]:
            assert time.monotonic() < deadline, spec
            time.sleep(0.02)


def test_nobody_raises_his_rights(door: Door) -> None:
    accounts = Accounts(door)
    tried, refused, wrong = collections.Counter[str](), collections.Counter[str](), []
    for group in (
        escalating.of_roles,
        escalating.of_bindings,
        escalating.of_impersonation,
        escalating.of_certificates,
        escalating.of_every_pair,
    ):
        about = group.__name__.removeprefix("of_")
        for attempt in group():
            answer = _attempt(door, accounts, attempt)
            if attempt.code >= 400:
                tried[about] += 1
                refused[about] += answer.status >= 400
            if answer.status != attempt.code or attempt.says not in answer.body.decode():
                wrong.append(f"{attempt.what}: {attempt.code} wanted, {answer}")
    for about, count in tried.items():
        print(f"{about}: tried {count}, refused {refused[about]}")
    print(f"all: tried {tried.total()}, refused {refused.total()}")
    assert not wrong, "\n".join(wrong)
    assert tried.total() == refused.total() > 500


def _attempt(door: Door, accounts: Accounts, attempt: Attempt) -> Answer:
    headers = {name.replace("-", "_"): value for name, value in attempt.headers}
    return door.ask(
        attempt.method,
        attempt.path,
        attempt.body,
        attempt.content_type,
        accounts.token(attempt.rights),
        **headers,
    )


def test_a_node_keeps_to_its_own(door: Door) -> None:
    for path, body in trespassing.furniture():
        door.make(path, body)
    tried, refused, wrong = collections.Counter[str](), collections.Counter[str](), []
    for group in trespassing.GROUPS:
        for step in group():
            answer = _step(door, step)
            if step.code >= 400:
                tried[group.__name__] += 1
                refused[group.__name__] += answer.status >= 400
            if answer.status != step.code or step.says not in answer.message.replace('\\"', '"'):
                wrong.append(
                    f"{step.method} {step.path} {step.body}: {step.code} {step.says!r} wanted, {answer}"
                )
    for about, count in tried.items():
        print(f"{about}: tried {count}, refused {refused[about]}")
    print(f"nodes: tried {tried.total()}, refused {refused.total()}")
    assert not wrong, "\n".join(wrong)
    assert tried.total() == refused.total() > 150


def _step(door: Door, step: trespassing.Step) -> Answer:
    """What a node is answered; Kubernetes' server learns a moment later what belongs to it."""

    def uid(found: re.Match[str]) -> str:
        plural, name = found[1].split("/")
        path = f"{trespassing.NODES}/{name}" if plural == "nodes" else f"{CORE}/{plural}/{name}"
        return str(door.ask("GET", path).tree["metadata"]["uid"])

    text = (
        None
        if step.body is None
        else re.sub(r"\{uid of ([a-z0-9/]+)\}", uid, json.dumps(step.body))
    )
    deadline = time.monotonic() + 5
    while True:
        answer = door.ask(step.method, step.path, text, step.content_type, **trespassing.AS_NODE)
        if answer.status == step.code or step.code >= 400 or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def test_a_node_is_one_of_its_group_that_says_which(door: Door) -> None:
    for name, group in (
        ("system:node:n1", "others"),
        ("system:node:", "system:nodes"),
        ("n1", "system:nodes"),
    ):
        for path in (f"{trespassing.NODES}/n1", f"{CORE}/pods?fieldSelector=spec.nodeName%3Dn1"):
            assert (
                door.ask("GET", path, Impersonate_User=name, Impersonate_Group=group).status == 403
            )
    binding = door.ask("GET", f"{CLUSTER_BINDINGS}/system:node").tree
    assert not binding.get("subjects")


def test_a_review_says_what_a_node_may(door: Door) -> None:
    asked = {"verb": "list", "resource": "pods"}
    for selector, allowed in (
        ({}, False),
        ({"rawSelector": "spec.nodeName=n1"}, True),
        ({"rawSelector": "spec.nodeName=n2"}, False),
        ({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}, True),
        (
            {"requirements": [{"key": "spec.nodeName", "operator": "NotIn", "values": ["n1"]}]},
            False,
        ),
    ):
        attributes = {**asked, **({"fieldSelector": selector} if selector else {})}
        spec = {
            "user": "system:node:n1",
            "groups": ["system:nodes"],
            "resourceAttributes": attributes,
        }
        assert door.ask("POST", REVIEW, {"spec": spec}).tree["status"]["allowed"] is allowed, (
            selector
        )
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = door.ask("POST", rules, {"spec": {"namespace": "den"}}, **trespassing.AS_NODE).tree[
        "status"
    ]
    assert (status["incomplete"], "node authorizer" in status["evaluationError"]) == (True, True)


def test_what_all_nodes_had_is_taken_back(tmp_path: Path) -> None:
    """A cluster that an earlier version began has bound its nodes to a role that reads all secrets."""
    path, every = (
        f"{CLUSTER_BINDINGS}/system:node",
        [{"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"}],
    )
    with ApiServerProcess.started(tmp_path) as server:
        body = json.dumps({"subjects": every}).encode()
        assert (
            server.request("PATCH", path, body, {"Content-Type": "application/merge-patch+json"})[0]
            == 200
        )
        server.restart()
        assert not json.loads(server.request("GET", path)[1]).get("subjects")


def test_an_editor_writes_no_endpoints(door: Door) -> None:
    """Who writes them chooses where other people's connections go; and what names controllers have
    gives them no more than they need."""
    door.make(BINDINGS, escalating.binding("editor", "edit", user="editor"))
    for path in (f"{CORE}/endpoints", "/apis/discovery.k8s.io/v1/namespaces/den/endpointslices"):
        for method, where in (("POST", path), ("PUT", f"{path}/x"), ("DELETE", f"{path}/x")):
            assert (
                door.ask(
                    method, where, {} if method != "DELETE" else None, Impersonate_User="editor"
                ).status
                == 403
            )
    for user in ("system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy"):
        for method, path in (
            ("POST", CLUSTER_BINDINGS),
            ("POST", f"{CORE}/pods"),
            ("PUT", f"{CLUSTER_ROLES}/small"),
        ):
            assert door.ask(method, path, {}, Impersonate_User=user).status == 403, (user, path)


def test_a_star_is_a_name(door: Door) -> None:
    """In a binding, that is; nobody is called so."""
    for kind in ("User", "Group"):
        body = escalating.binding(f"star-{kind.lower()}", "cluster-admin", "ClusterRoleBinding")
        body["subjects"][0] |= {"kind": kind, "name": "*"}
        door.make(CLUSTER_BINDINGS, body)
    assert door.ask("GET", f"{CORE}/secrets", Impersonate_User="anybody").status == 403
    for path in (f"{CORE}/secrets", "/metrics"):
        answer = door.ask(
            "GET", path, token="", Impersonate_User="anybody", Impersonate_Group="some"
        )
        assert answer.status == 403


def test_an_approved_certificate_names_whom_the_asker_may_be(door: Door) -> None:
    """The request says who asks; whoever says it in the body says nothing."""
    body = escalating.request_for((NameOID.COMMON_NAME, "dave"))
    body["spec"] |= {
        "username": "kubernetes-admin",
        "groups": ["system:masters"],
        "uid": "1",
        "extra": {"a": ["b"]},
    }
    spec = door.make(escalating.REQUESTS, body)["spec"]
    assert spec["username"] != "kubernetes-admin" or "system:masters" in spec["groups"]
    token = Accounts(door)._made(
        "asker", (escalating.may("create", "certificatesigningrequests", "certificates.k8s.io"),)
    )
    answer = door.ask("POST", escalating.REQUESTS, body, token=token)
    assert answer.tree["spec"]["username"] == "system:serviceaccount:den:asker"
    assert "system:masters" not in answer.tree["spec"]["groups"]


@pytest.mark.parametrize(
    ("subject", "who"),
    [
        ([(NameOID.ORGANIZATION_NAME, "system:masters")], "system:anonymous"),
        ([(NameOID.ORGANIZATION_NAME, "friends"), (NameOID.COMMON_NAME, "alice")], "alice"),
        ([(NameOID.COMMON_NAME, "kubernetes-admin"), (NameOID.COMMON_NAME, "alice")], "alice"),
    ],
)
def test_a_certificate_without_a_name_is_nobodys(
    shared_apiserver: ApiServerProcess,
    tmp_path: Path,
    subject: list[tuple[x509.ObjectIdentifier, str]],
    who: str,
) -> None:
    """Whatever else stands in it; and of several names the last counts."""
    context = ssl.create_default_context(cafile=str(shared_apiserver.pki / "ca.crt"))
    context.load_cert_chain(*escalating.client_certificate(shared_apiserver.pki, tmp_path, subject))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", shared_apiserver.port, context=context, timeout=30
    )
    connection.request("GET", f"{CORE}/secrets")
    answer = connection.getresponse()
    assert (answer.status, f'User \\"{who}\\" cannot list resource' in answer.read().decode()) == (
        403,
        True,
    )
    connection.close()


def test_a_static_token_has_a_name(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("sesame,  ,1\n")
    with pytest.raises(ValueError, match="a line is token,user,uid"):
        read_tokens(tokens)


def test_a_revoked_token_stays_revoked(door: Door) -> None:
    """Whoever makes a Secret of its name does not bring it back."""
    door.make(f"{CORE}/serviceaccounts", {"metadata": {"name": "old"}})
    held = {
        "metadata": {"name": "held", "annotations": {"kubernetes.io/service-account.name": "old"}}
    }
    made = {**held, "type": "kubernetes.io/service-account-token"}
    door.make(f"{CORE}/secrets", made)
    token = base64.b64decode(_filled(door)["data"]["token"]).decode()
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert door.ask("POST", review, {}, token=token).status == 201
    gone = door.ask("DELETE", f"{CORE}/secrets/held")
    assert gone.status == 200
    _refused(door, token)
    door.make(f"{CORE}/secrets", {**held, "type": "Opaque"})
    assert door.ask("POST", review, {}, token=token).status == 401
    door.ask("DELETE", f"{CORE}/secrets/held")
    door.make(f"{CORE}/secrets", made)
    _filled(door)
    assert door.ask("POST", review, {}, token=token).status == 401
    door.ask("DELETE", f"{CORE}/secrets/held")
    kept = {"token": base64.b64encode(token.encode()).decode()}
    other = {
        "metadata": {
            "name": "held",
            "annotations": {"kubernetes.io/service-account.name": "nobody"},
        }
    }
    door.make(f"{CORE}/secrets", {**made, **other, "data": kept})
    assert door.ask("POST", review, {}, token=token).status == 401


def _filled(door: Door) -> Json:
    """The Secret with its token; Kubernetes' controller brings it, and where there is none the test
    has no subject."""
    tree = door.ask("GET", f"{CORE}/secrets/held").tree
    if not (tree.get("data") or {}).get("token"):
        pytest.skip("nobody fills Secrets with tokens here")
    return tree


def _refused(door: Door, token: str) -> None:
    answer = door.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=token)
    assert answer.status == 401, answer
