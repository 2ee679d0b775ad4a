"""Who may what: certificates, tokens, roles, reviews (local-cluster 7)."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.http import CONFIG_MAPS, PODS, Answer, Http
from tests.apiserver_process import ApiServerProcess

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def bearer(
    server: ApiServerProcess, token: str, method: str, path: str, body: Any = None
) -> Answer:
    connection = server.https(certificate=False)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    found = Answer(answer.status, dict(answer.getheaders()), answer.read())
    connection.close()
    return found


@pytest.fixture
def token(http: Http) -> str:
    http.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    answer = http.post(
        "/api/v1/namespaces/default/serviceaccounts/robot/token",
        {"spec": {"expirationSeconds": 600}},
    )
    assert answer.status == 201, answer
    return str(answer.tree["status"]["token"])


def test_the_administrator_comes_with_a_certificate(shared_apiserver: ApiServerProcess) -> None:
    connection = shared_apiserver.https()
    connection.request("GET", CONFIG_MAPS)
    assert connection.getresponse().status == 200


def test_nobody_sees_nothing(shared_apiserver: ApiServerProcess) -> None:
    answer = bearer(shared_apiserver, "", "GET", CONFIG_MAPS)
    assert answer.status == 403
    assert answer.message == (
        'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "default"'
    )
    assert (
        bearer(shared_apiserver, "", "GET", "/metrics").message
        == 'forbidden: User "system:anonymous" cannot get path "/metrics"'
    )
    assert bearer(shared_apiserver, "", "GET", "/version").status == 200
    answer = bearer(shared_apiserver, "wrong", "GET", "/version")
    assert (answer.status, answer.message) == (401, "Unauthorized")


@pytest.mark.scenario("local-cluster", 103)
def test_service_account_tokens(shared_apiserver: ApiServerProcess, http: Http, token: str) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = bearer(shared_apiserver, token, "POST", path, {})
    assert answer.status == 201, answer
    user = answer.tree["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:robot"
    assert "system:serviceaccounts:default" in user["groups"]
    review = http.post(
        "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}}
    ).tree["status"]
    assert review["authenticated"] is True
    http.delete("/api/v1/namespaces/default/serviceaccounts/robot")
    assert bearer(shared_apiserver, token, "POST", path, {}).status == 401
    http.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    short = http.post(
        "/api/v1/namespaces/default/serviceaccounts/robot/token",
        {"spec": {"expirationSeconds": 60}},
    )
    assert (short.status, "may not specify a duration less than 10 minutes" in short.message) == (
        422,
        True,
    )


@pytest.mark.scenario("local-cluster", 104)
@pytest.mark.scenario("local-cluster", 106)
def test_roles(shared_apiserver: ApiServerProcess, http: Http, token: str) -> None:
    assert bearer(shared_apiserver, token, "GET", PODS).status == 403
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    http.post(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    }
    assert http.post(f"{RBAC}/namespaces/default/rolebindings", binding).status == 201
    assert bearer(shared_apiserver, token, "GET", PODS).status == 200
    answer = bearer(shared_apiserver, token, "GET", "/api/v1/namespaces/kube-system/pods/x")
    assert answer.message == (
        'pods "x" is forbidden: User "system:serviceaccount:default:robot" cannot get resource "pods" in API group "" '
        'in the namespace "kube-system"'
    )
    attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
    spec = {"user": "system:serviceaccount:default:robot", "resourceAttributes": attributes}
    status = http.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec}).tree[
        "status"
    ]
    assert status["allowed"] is True
    assert status["reason"].startswith(
        'RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "robot/default"'
    )


@pytest.mark.scenario("local-cluster", 105)
def test_aggregated_roles(http: Http) -> None:
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rules = [{"apiGroups": ["ex.com"], "resources": ["widgets"], "verbs": ["get"]}]
    http.post(
        f"{RBAC}/clusterroles", {"metadata": {"name": "widgets", "labels": label}, "rules": rules}
    )
    binding = {
        "metadata": {"name": "alice"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    http.post(f"{RBAC}/namespaces/default/rolebindings", binding)
    attributes = {"verb": "get", "group": "ex.com", "resource": "widgets", "namespace": "default"}
    spec = {"user": "alice", "resourceAttributes": attributes}
    review = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert http.post(review, {"spec": spec}).tree["status"]["allowed"] is True
    assert http.post(review, {"spec": {**spec, "user": "bob"}}).tree["status"] == {"allowed": False}


def test_impersonation(http: Http) -> None:
    answer = http.get(PODS, Impersonate_User="carol")
    assert answer.status == 403
    assert 'User "carol" cannot list resource "pods"' in answer.message


def test_static_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('sesame,ali,1,"system:masters,baba"\n')
    with ApiServerProcess.started(tmp_path / "server", f"--token-auth-file={tokens}") as server:
        assert bearer(server, "sesame", "GET", PODS).status == 200
        assert bearer(server, "other", "GET", PODS).status == 401


def test_credentials_are_private(shared_apiserver: ApiServerProcess) -> None:
    for path in (
        shared_apiserver.kubeconfig,
        *shared_apiserver.pki.iterdir(),
        shared_apiserver.data / "state.db",
        shared_apiserver.socket,
    ):
        assert path.stat().st_mode & 0o077 == 0, path


def test_plain_http_at_the_https_door(shared_apiserver: ApiServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_apiserver.port, timeout=5)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("GET", "/version")
        connection.getresponse()
