"""What clients of a Kubernetes API server ask beside objects: forms, health, metrics, what is there
from the start."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.apiserver.http import CONFIG_MAPS, Http, config_map, pod, until
from tests.apiserver.samples import body
from tests.apiserver_process import ApiServerProcess

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_a_cluster_begins_with_what_clients_look_for(http: Http) -> None:
    ranges = http.get("/apis/networking.k8s.io/v1/servicecidrs").tree["items"]
    assert [(item["metadata"]["name"], item["spec"]["cidrs"]) for item in ranges] == [
        ("kubernetes", ["10.96.0.0/16"])
    ]
    assert ranges[0]["status"]["conditions"][0]["type"] == "Ready"
    assert {"exempt", "catch-all"} <= set(
        http.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").names
    )
    assert set(http.get("/api/v1/componentstatuses").names) == {
        "controller-manager",
        "scheduler",
        "etcd-0",
    }
    roles = set(http.get(f"{RBAC}/clusterroles").names)
    assert {
        "admin",
        "edit",
        "view",
        "cluster-admin",
        "system:node",
        "system:kube-scheduler",
        "system:auth-delegator",
    } <= roles
    assert {"v1.", "v1.apps", "v1.batch", "v1.resource.k8s.io"} <= set(
        http.get("/apis/apiregistration.k8s.io/v1/apiservices").names
    )


def test_a_response_in_the_requested_form(http: Http) -> None:
    answer = http.get("/api/v1/namespaces/default", Accept="application/yaml")
    assert (
        answer.headers["content-type"] == "application/yaml"
        and b"\nkind: Namespace\n" in b"\n" + answer.body
    )
    assert http.get("/api/v1/namespaces/default", User_Agent="curl/8.0").body.startswith(b"{\n  ")
    assert not http.get(
        "/api/v1/namespaces/default?pretty=0", User_Agent="curl/8.0"
    ).body.startswith(b"{\n")
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert http.request("POST", path, review, Accept=table).status == 406
    assert http.request("POST", path, review, Accept=f"{table}, application/json").status == 201


def test_metrics_have_the_names_of_kubernetes(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("metered"))
    page = http.get("/metrics").body.decode()
    assert (
        'apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",'
        'subresource="",verb="POST",version="v1"} 1'
    ) in page
    assert (
        'apiserver_resource_objects{group="",resource="namespaces"} 4' in page
        and "process_resident_memory_bytes " in page
    )


def test_nobody_grants_what_he_does_not_have(http: Http) -> None:
    role = {
        "metadata": {"name": "manager"},
        "rules": [
            {
                "verbs": ["create"],
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["roles", "rolebindings"],
            },
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
            {
                "verbs": ["bind"],
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["clusterroles"],
                "resourceNames": ["edit"],
            },
        ],
    }
    assert http.post(f"{RBAC}/clusterroles", role).status == 201
    roles, bindings = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
    assert http.post(bindings, binding("manager", "manager", "ann")).status == 201

    def as_ann(path: str, body: object) -> tuple[int, str]:
        answer = http.request(
            "POST", path, body, Impersonate_User="ann", Content_Type="application/json"
        )
        return answer.status, answer.tree.get("message", "")

    def reading(name: str, resource: str) -> dict[str, object]:
        return {
            "metadata": {"name": name},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}],
        }

    assert as_ann(roles, reading("pods", "pods"))[0] == 201
    assert as_ann(roles, reading("secrets", "secrets")) == (
        403,
        'roles.rbac.authorization.k8s.io "secrets" is forbidden: user "ann" (groups=["system:authenticated"]) is attempting to grant '
        'RBAC permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',
    )
    assert as_ann(bindings, binding("mine", "view", "ann"))[0] == 403
    assert as_ann(bindings, binding("given", "edit", "ann"))[0] == 201


def binding(name: str, role: str, user: str) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }


def test_a_token_is_good_for_those_it_was_made_for(http: Http) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    http.post(accounts, {"metadata": {"name": "robot"}})
    token = http.post(f"{accounts}/robot/token", {"spec": {"audiences": ["vault"]}}).tree["status"][
        "token"
    ]

    def review(token: str, *audiences: str) -> dict[str, object]:
        spec = {"token": token, "audiences": list(audiences)}
        found = http.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec}).tree[
            "status"
        ]
        assert isinstance(found, dict)
        return found

    assert "authenticated" not in review(token)
    good = review(token, "vault", "other")
    assert good["authenticated"] is True and good["audiences"] == ["vault"]
    secrets = "/api/v1/namespaces/default/secrets"
    wanted = {
        "metadata": {
            "name": "robot",
            "annotations": {"kubernetes.io/service-account.name": "robot"},
        }
    }
    made = http.post(secrets, {**wanted, "type": "kubernetes.io/service-account-token"}).tree[
        "data"
    ]
    lasting = base64.b64decode(made["token"]).decode()
    assert review(lasting)["authenticated"] is True
    http.delete(f"{secrets}/robot")
    http.delete(f"{accounts}/robot")
    assert "authenticated" not in review(lasting)


@pytest.mark.parametrize("path", ["/livez/ping", "/readyz/storage", "/healthz"])
def test_single_checks(http: Http, path: str) -> None:
    assert http.get(path).body == b"ok"


def test_the_audit_log_says_who_did_what_and_no_secrets(tmp_path: Path) -> None:
    log, policy = tmp_path / "audit.log", tmp_path / "policy.yaml"
    policy.write_text(
        json.dumps(
            {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [
                    {"level": "None", "resources": [{"group": "", "resources": ["events"]}]},
                    {
                        "level": "RequestResponse",
                        "verbs": ["create"],
                        "resources": [{"group": "", "resources": ["pods", "secrets"]}],
                    },
                    {
                        "level": "Metadata",
                        "resources": [{"group": "", "resources": ["configmaps"]}],
                    },
                ],
            }
        )
    )
    with ApiServerProcess.started(
        tmp_path / "s", f"--audit-log-path={log}", f"--audit-policy-file={policy}"
    ) as server:
        http = Http(server)
        http.post("/api/v1/namespaces/default/pods", pod("seen"))
        http.post(
            "/api/v1/namespaces/default/secrets",
            {"metadata": {"name": "s"}, "stringData": {"a": "very-secret"}},
        )
        http.request("GET", f"{CONFIG_MAPS}/none", Impersonate_User="bob", User_Agent="tests/1")
        http.get("/api/v1/namespaces")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    made, secret, refused = lines
    assert (made["level"], made["verb"], made["stage"], made["user"]["username"]) == (
        "RequestResponse",
        "create",
        "ResponseComplete",
        "kubernetes-admin",
    )
    assert made["objectRef"] == {"resource": "pods", "namespace": "default", "apiVersion": "v1"}
    assert (
        made["requestObject"]["metadata"]["name"] == "seen"
        and made["responseObject"]["metadata"]["uid"]
    )
    assert secret["level"] == "Metadata" and "very-secret" not in json.dumps(lines)
    assert (
        refused["responseStatus"]["code"] == 403
        and refused["impersonatedUser"]["username"] == "bob"
    )
    assert (
        refused["annotations"]["authorization.k8s.io/decision"] == "forbid"
        and refused["userAgent"] == "tests/1"
    )
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_version_on_its_way_out_is_warned_of(http: Http) -> None:
    told = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
    assert http.get("/api/v1/endpoints").headers["warning"] == told
    definition = {
        "metadata": {"name": "olds.breadth.example.com"},
        "spec": {
            "group": "breadth.example.com",
            "scope": "Cluster",
            "names": {"plural": "olds", "kind": "Old"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                },
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": False,
                    "deprecated": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                },
            ],
        },
    }
    assert (
        http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).status
        == 201
    )
    assert "warning" not in http.get("/apis/breadth.example.com/v1/olds").headers
    made = http.post(
        "/apis/breadth.example.com/v1beta1/olds",
        {"apiVersion": "breadth.example.com/v1beta1", "kind": "Old", "metadata": {"name": "o"}},
    )
    assert (
        made.status == 201
        and made.headers["warning"] == '299 - "breadth.example.com/v1beta1 Old is deprecated"'
    )
    with http.watch("/apis/breadth.example.com/v1beta1/olds?watch=1") as watched:
        assert (
            watched.answer.getheader("warning")
            == '299 - "breadth.example.com/v1beta1 Old is deprecated"'
        )
    listed = {"v1.breadth.example.com", "v1beta1.breadth.example.com"}
    until(lambda: listed <= set(http.get("/apis/apiregistration.k8s.io/v1/apiservices").names))


def test_who_may_see_one_object_may_list_and_watch_it_alone(http: Http) -> None:
    seeing = {
        "verbs": ["list", "watch"],
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["mine"],
    }
    assert (
        http.post(
            f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "seer"}, "rules": [seeing]}
        ).status
        == 201
    )
    bound = {
        **binding("seer", "seer", "sid"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "seer"},
    }
    assert http.post(f"{RBAC}/namespaces/default/rolebindings", bound).status == 201

    def as_sid(query: str) -> tuple[int, str]:
        answer = http.request(
            "GET", f"/api/v1/namespaces/default/configmaps{query}", Impersonate_User="sid"
        )
        return answer.status, answer.tree.get("message", "")

    assert as_sid("?fieldSelector=metadata.name%3Dmine") == (200, "")
    assert as_sid("?fieldSelector=metadata.namespace%3Ddefault,metadata.name%3D%3Dmine") == (
        200,
        "",
    )
    for query in (
        "",
        "?fieldSelector=metadata.name!%3Dmine",
        "?fieldSelector=metadata.namespace%3Ddefault",
    ):
        assert as_sid(query) == (
            403,
            'configmaps is forbidden: User "sid" cannot list resource "configmaps" in API group "" '
            'in the namespace "default"',
        )
    assert as_sid("?fieldSelector=metadata.name%3Dyours&watch=1") == (
        403,
        'configmaps "yours" is forbidden: User "sid" cannot watch resource "configmaps" in API group "" in the namespace "default"',
    )


def test_a_signer_has_its_own_approvers(http: Http) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    made = http.post(requests, body("certificates.k8s.io", "CertificateSigningRequest", "wanted"))
    assert made.tree["spec"]["username"] == "kubernetes-admin"
    rules = [
        {
            "verbs": ["update", "get"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/approval"],
        },
        {
            "verbs": ["approve"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"],
            "resourceNames": ["example.com/*"],
        },
    ]
    for user, count in (("half", 1), ("approver", 2)):
        http.post(f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": rules[:count]})
        http.post(f"{RBAC}/clusterrolebindings", binding(user, user, user))
    approved = {
        **made.tree,
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Fine"}]},
    }

    def approve(user: str) -> tuple[int, str]:
        answer = http.request(
            "PUT",
            f"{requests}/wanted/approval",
            approved,
            Impersonate_User=user,
            Content_Type="application/json",
        )
        return answer.status, answer.tree.get("message", "")

    status, message = approve("half")
    assert (status, message.partition("forbidden: ")[2]) == (
        403,
        'user not permitted to approve requests with signerName "example.com/matrix"',
    )
    assert approve("approver")[0] == 200
    signed = http.patch(
        f"{requests}/wanted/status", {"status": {"certificate": PEM, "conditions": []}}
    )
    assert [condition["type"] for condition in signed.tree["status"]["conditions"]] == ["Approved"]
    assert signed.tree["status"]["certificate"] == PEM


def test_a_node_is_tainted_until_it_is_ready(http: Http) -> None:
    nodes, ready = "/api/v1/nodes", {"conditions": [{"type": "Ready", "status": "True"}]}
    assert http.post(nodes, {"metadata": {"name": "silent"}}).tree["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]
    assert (
        "taints"
        not in http.post(nodes, {"metadata": {"name": "ready"}, "status": ready}).tree["spec"]
    )
