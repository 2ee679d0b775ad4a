"""Who may do what, and who one is."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import MERGE
from tests.kubernetes.exchange import Step
from tests.kubernetes.scripts.places import MAPS, NS, PODS, config


def rbac() -> Iterator[Step]:
    jane = {"Impersonate-User": "jane"}
    grouped = {"Impersonate-User": "joe", "Impersonate-Group": "readers"}
    where = "/apis/rbac.authorization.k8s.io/v1/namespaces/{{ns}}"
    yield Step("GET", MAPS, headers=jane)
    yield Step("POST", MAPS, config("x"), headers=jane)
    yield Step("GET", f"{MAPS}/x", headers=jane)
    yield Step("GET", "/api/v1/nodes", headers=jane)
    yield Step("GET", f"{PODS}/x/log", headers=jane)
    yield Step("GET", "/metrics", headers=jane)
    yield Step("GET", "/version", headers=jane)
    yield Step("GET", "/apis", headers=jane)
    yield Step(
        "POST",
        f"{where}/roles",
        {
            "metadata": {"name": "r"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "verbs": ["get"],
                    "resourceNames": ["x"],
                },
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
                {
                    "apiGroups": ["rbac.authorization.k8s.io"],
                    "resources": ["roles", "rolebindings"],
                    "verbs": ["*"],
                },
            ],
        },
    )
    bind = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}
    subjects = [{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "readers"}]
    yield Step(
        "POST", f"{where}/rolebindings", {"metadata": {"name": "b"}, **bind, "subjects": subjects}
    )
    yield Step("GET", MAPS, headers=jane, until=200)
    yield Step("GET", f"{MAPS}/x", headers=jane)
    yield Step("GET", f"{MAPS}/y", headers=jane)
    yield Step("GET", MAPS, headers=grouped)
    yield Step("GET", MAPS, headers=jane, query={"watch": "1", "timeoutSeconds": "1"})
    yield Step("DELETE", MAPS, headers=jane)
    yield Step(
        "POST",
        f"{where}/roles",
        {
            "metadata": {"name": "more"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
        },
        headers=jane,
    )
    yield Step(
        "POST",
        f"{where}/rolebindings",
        {
            "metadata": {"name": "c"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": subjects,
        },
        headers=jane,
    )
    yield Step("PATCH", f"{where}/rolebindings/b", {"roleRef": {"name": "other"}}, MERGE)
    for number, rule in enumerate(
        (
            {},
            {"verbs": ["get"]},
            {"verbs": [], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["a", "b/"]},
        )
    ):
        yield Step(
            "POST",
            f"{where}/roles",
            {"metadata": {"name": f"m{number}"}, "rules": [rule]},
            query={"dryRun": "All"},
        )
    for subject in (
        {"kind": "User"},
        {"kind": "ServiceAccount", "name": "x"},
        {"kind": "Nonsense", "name": "x"},
        {"kind": "User", "name": "x", "namespace": "y"},
    ):
        yield Step(
            "POST",
            f"{where}/rolebindings",
            {"metadata": {"name": "m"}, **bind, "subjects": [subject]},
            query={"dryRun": "All"},
        )
    yield Step("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
    yield Step("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
    yield Step("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-admin")
    yield Step("GET", MAPS, headers={"Impersonate-Group": "x"})
    yield Step("GET", MAPS, headers={"Impersonate-User": "system:serviceaccount:{{ns}}:default"})
    yield Step("GET", MAPS, headers={"Authorization": "Bearer nonsense"})


def reviews() -> Iterator[Step]:
    authorization = "/apis/authorization.k8s.io/v1"
    attributes = {"namespace": "{{ns}}", "verb": "get", "resource": "pods"}
    yield Step(
        "POST",
        f"{authorization}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
    )
    yield Step(
        "POST",
        f"{authorization}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
        headers={"Impersonate-User": "jane"},
    )
    yield Step(
        "POST",
        f"{authorization}/selfsubjectaccessreviews",
        {"spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}},
    )
    yield Step("POST", f"{authorization}/selfsubjectaccessreviews", {"spec": {}})
    yield Step(
        "POST",
        f"{authorization}/subjectaccessreviews",
        {"spec": {"user": "jane", "groups": ["g"], "resourceAttributes": attributes}},
    )
    yield Step(
        "POST",
        f"{authorization}/subjectaccessreviews",
        {"spec": {"user": "a", "groups": ["system:masters"], "resourceAttributes": attributes}},
    )
    yield Step(
        "POST",
        f"{authorization}/subjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
    )
    local = f"{authorization}/namespaces/{{{{ns}}}}/localsubjectaccessreviews"
    yield Step(
        "POST",
        local,
        {
            "metadata": {"namespace": "{{ns}}"},
            "spec": {"user": "jane", "resourceAttributes": attributes},
        },
    )
    yield Step(
        "POST",
        local,
        {"spec": {"user": "jane", "resourceAttributes": {**attributes, "namespace": "other"}}},
    )
    yield Step(
        "POST",
        f"{authorization}/selfsubjectrulesreviews",
        {"spec": {"namespace": "{{ns}}"}},
        headers={"Impersonate-User": "jane"},
    )
    yield Step("POST", f"{authorization}/selfsubjectrulesreviews", {"spec": {}})
    yield Step("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    yield Step(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "nonsense"}}
    )
    yield Step("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}})
    yield Step("GET", f"{authorization}/subjectaccessreviews")


def tokens() -> Iterator[Step]:
    one = f"{NS}/serviceaccounts/default/token"
    yield Step("POST", one, {"spec": {"expirationSeconds": 600}})
    yield Step("POST", one, {"spec": {"audiences": ["a", "b"], "expirationSeconds": 3600}})
    yield Step("POST", one, {})
    yield Step("POST", one, {"spec": {"expirationSeconds": 5}})
    yield Step(
        "POST",
        one,
        {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "absent"}}},
    )
    yield Step(
        "POST",
        one,
        {"spec": {"boundObjectRef": {"kind": "Nonsense", "apiVersion": "v1", "name": "x"}}},
    )
    yield Step("POST", f"{NS}/serviceaccounts/absent/token", {"spec": {}})
    yield Step("GET", one)
