"""Those who say no name, a wrong one, or one without rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import APPLY, MERGE, Answer, Api
from tests.cluster.conftest import Namespace
from tests.security.conftest import Fort

PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
CLOSED = (
    "/",
    "/api",
    "/apis",
    "/api/v1",
    "/openapi/v2",
    "/openapi/v3",
    "/metrics",
    "/logs",
    "/debug/pprof",
    "/.well-known/openid-configuration",
)
WRITES = ("create", "update", "patch", "delete", "deletecollection")
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}


def doors(api: Api) -> Iterator[tuple[str, str, bool]]:
    """(verb, path, whether of one object) of everything that discovery names."""
    groups = [
        f"/apis/{v['groupVersion']}"
        for group in api.get("/apis").tree["groups"]
        for v in group["versions"]
    ]
    for root in ["/api/v1", *groups]:
        for resource in api.get(root).tree["resources"]:
            plural, _, sub = resource["name"].partition("/")
            base = (
                f"{root}/namespaces/default/{plural}"
                if resource["namespaced"]
                else f"{root}/{plural}"
            )
            for verb in resource["verbs"]:
                single = bool(sub) or verb in ("get", "update", "patch", "delete")
                yield verb, f"{base}/some" + (f"/{sub}" if sub else "") if single else base, single


def attempt(api: Api, verb: str, path: str) -> Answer:
    body = {"metadata": {"name": "some"}}
    match verb:
        case "create":
            return api.post(path, body)
        case "update":
            return api.put(path, body)
        case "patch":
            return api.patch(
                path, body, APPLY if "status" in path else MERGE, fieldManager="stranger"
            )
        case "delete" | "deletecollection":
            return api.delete(path)
        case "watch":
            return api.get(path, watch="true", timeoutSeconds=1)
        case _:
            return api.get(path)


def test_nobody_reads_or_writes_anything(fort: Fort) -> None:
    stranger = Api(fort.kubeconfig, anonymous=True)
    tried = 0
    for verb, path, _ in doors(fort.api):
        answer = attempt(stranger, verb, path)
        assert answer.status == 403, f"{verb} {path}: {answer}"
        assert 'User "system:anonymous" cannot' in answer.message
        tried += 1
    assert tried > 700  # all kinds with all of their verbs, or discovery has shrunk


@pytest.mark.parametrize("path", PUBLIC)
def test_health_and_version_are_for_all(fort: Fort, path: str) -> None:
    assert Api(fort.kubeconfig, anonymous=True).get(path).status == 200


@pytest.mark.parametrize("path", CLOSED)
def test_the_rest_is_not(fort: Fort, path: str) -> None:
    assert Api(fort.kubeconfig, anonymous=True).get(path).status == 403


@pytest.mark.parametrize(
    ("credential", "status"),
    [
        ("Bearer x", 401),
        ("Bearer a.b.c", 401),
        ("Bearer " + "x" * 5000, 401),
        ("Basic YWRtaW46YWRtaW4=", 401),
    ],
)
def test_a_wrong_credential_is_worse_than_none(fort: Fort, credential: str, status: int) -> None:
    wrong = Api(fort.kubeconfig, anonymous=True, headers={"Authorization": credential})
    assert wrong.get("/api/v1/namespaces").status == status


@pytest.mark.parametrize(
    "header", ["X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "X-Forwarded-User"]
)
def test_nobody_is_believed_to_be_a_front_proxy(fort: Fort, header: str) -> None:
    named = Api(
        fort.kubeconfig,
        anonymous=True,
        headers={header: "system:masters", "X-Remote-User": "admin"},
    )
    assert named.get("/api/v1/namespaces").status == 403


@pytest.mark.parametrize("headers", [
    {"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters"},
    {"Impersonate-User": "system:serviceaccount:kube-system:default"},
    {"Impersonate-Group": "system:masters"},
    {"Impersonate-Uid": "1"},
    {"Impersonate-Extra-Scopes": "all"},
])  # fmt: skip
def test_being_somebody_else_needs_its_right(
    fort: Fort, ns: Namespace, headers: dict[str, str]
) -> None:
    token = fort.token(ns, "default")
    for who in (
        Api(fort.kubeconfig, anonymous=True, headers=headers),
        Api(fort.kubeconfig, token=token, headers=headers),
    ):
        assert who.get("/api/v1/namespaces").status in (400, 403)


def test_a_user_may_be_somebody_and_nobody_else(fort: Fort, ns: Namespace) -> None:
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": "actor"}})
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "actor", "namespace": ns.name}
    role = f"{ns.name}-actor"
    rule = {
        "apiGroups": [""],
        "resources": ["users"],
        "verbs": ["impersonate"],
        "resourceNames": ["jane"],
    }
    fort.api.create(f"/apis/{group}/v1/clusterroles", {"metadata": {"name": role}, "rules": [rule]})
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference}
    fort.api.create(f"/apis/{group}/v1/clusterrolebindings", binding)
    token = fort.token(ns, "actor")
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

    def as_user(**headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return Api(fort.kubeconfig, token=token, headers=sent).post(review, {})

    assert as_user(Impersonate_User="jane").tree["status"]["userInfo"]["username"] == "jane"
    assert as_user(Impersonate_User="john").status == 403
    assert as_user(Impersonate_User="jane", Impersonate_Group="system:masters").status == 403
    assert as_user(Impersonate_User="jane", Impersonate_Extra_Scopes="all").status == 403
    for kind in ("clusterroles", "clusterrolebindings"):
        fort.api.delete(f"/apis/{group}/v1/{kind}/{role}")


@pytest.mark.parametrize(
    "sub", ["exec", "attach", "portforward", "proxy", "log", "ephemeralcontainers", "eviction"]
)
def test_each_way_into_a_pod_needs_its_right(fort: Fort, ns: Namespace, sub: str) -> None:
    """Who may read pods may not enter them."""
    name = f"reader-{sub}"
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": ns.name}
    fort.allow(ns, name, subject, {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]})
    user = fort.with_token(fort.token(ns, name))
    assert user.get(ns.path("pods")).status == 200
    path = ns.path("pods", "some", sub)
    answers = [
        user.get(path, command="true", stdout="true"),
        user.post(path, {"metadata": {"name": "some"}}),
    ]
    if sub in ("exec", "attach", "portforward"):
        answers.append(user.request("GET", f"{path}?command=true&stdout=true", None, UPGRADE))
    assert {answer.status for answer in answers} <= {403, 405}, answers
    assert any(answer.status == 403 for answer in answers)


def test_nobody_grants_what_he_has_not(fort: Fort, ns: Namespace) -> None:
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": "climber"}})
    group = "rbac.authorization.k8s.io"
    rules = {
        "apiGroups": [group],
        "resources": ["roles", "rolebindings"],
        "verbs": ["get", "create", "update", "patch"],
    }
    subject = {"kind": "ServiceAccount", "name": "climber", "namespace": ns.name}
    fort.allow(ns, "climber", subject, rules)
    climber = fort.with_token(fort.token(ns, "climber"))
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    refused = climber.post(
        ns.path(f"{group}/v1/roles"), {"metadata": {"name": "more"}, "rules": [secrets]}
    )
    assert (
        refused.status == 403
        and "attempting to grant RBAC permissions not currently held" in refused.message
    )
    assert (
        climber.patch(ns.path(f"{group}/v1/roles", "climber"), {"rules": [rules, secrets]}).status
        == 403
    )
    admin = {
        "metadata": {"name": "more"},
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
    }
    assert climber.post(ns.path(f"{group}/v1/rolebindings"), admin).status == 403
