"""The rules of single kinds."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import APPLY, MERGE, TABLE, Tree
from tests.kubernetes.exchange import Step
from tests.kubernetes.samples import SELECTOR, TEMPLATE
from tests.kubernetes.scripts.places import NS, PODS, pod


def services() -> Iterator[Step]:
    where = f"{NS}/services"
    for number, spec in enumerate(
        (
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 80}], "clusterIP": "None"},
            {"type": "NodePort", "ports": [{"port": 80, "targetPort": "web"}]},
            {"type": "LoadBalancer", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"},
            {"type": "ExternalName", "externalName": "example.com"},
            {},
            {"ports": []},
            {"ports": [{"port": 80}, {"port": 81}]},
            {"ports": [{"port": 0}]},
            {"ports": [{"port": 70000, "protocol": "X"}]},
            {"ports": [{"port": 80, "name": "A"}, {"port": 80, "name": "A"}]},
            {"type": "Nonsense", "ports": [{"port": 80}]},
            {"type": "ExternalName"},
            {"ports": [{"port": 80}], "clusterIP": "1.2.3.4"},
            {"ports": [{"port": 80}], "clusterIP": "nonsense"},
            {"ports": [{"port": 80, "nodePort": 30000}]},
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
            {"ports": [{"port": 80}], "selector": {"a b": "c"}},
            {"ports": [{"port": 80}], "sessionAffinity": "x", "externalTrafficPolicy": "y"},
            {"ports": [{"port": 80}], "externalName": "x", "trafficDistribution": "PreferClose"},
            {"type": "NodePort", "ports": [{"port": 80}], "externalTrafficPolicy": "y"},
            {
                "ports": [{"port": 80}],
                "clusterIP": "None",
                "selector": {"a": "b"},
                "sessionAffinity": "ClientIP",
            },
            {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]},
        )
    ):
        yield Step("POST", where, {"metadata": {"name": f"s{number}"}, "spec": spec})
    yield Step(
        "PATCH",
        f"{where}/s0",
        {"spec": {"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}},
        MERGE,
    )
    yield Step("PATCH", f"{where}/s0", {"spec": {"type": "NodePort"}}, MERGE)
    yield Step(
        "PATCH", f"{where}/s0", {"spec": {"type": "ExternalName", "externalName": "x"}}, MERGE
    )
    yield Step("GET", where, accept=TABLE)
    yield Step("DELETE", f"{where}/s0")
    yield Step("POST", where, {"metadata": {}, "spec": {"ports": [{"port": 80}]}})
    yield Step(
        "PUT",
        f"{where}/late/status",
        {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 80}]}},
    )


def workloads() -> Iterator[Step]:
    """Scale, selectors and the rules of templates."""
    where = "/apis/apps/v1/namespaces/{{ns}}/deployments"

    def deployment(name: str, /, **spec: object) -> Tree:
        return {
            "metadata": {"name": name},
            "spec": {"selector": SELECTOR, "template": TEMPLATE, **spec},
        }

    yield Step("POST", where, deployment("d", replicas=3))
    yield Step("GET", f"{where}/d/scale")
    yield Step("PUT", f"{where}/d/scale", {"metadata": {"name": "d"}, "spec": {"replicas": 5}})
    yield Step("PATCH", f"{where}/d/scale", {"spec": {"replicas": 2}}, MERGE)
    yield Step("PATCH", f"{where}/d/scale", {"spec": {"replicas": -1}}, MERGE)
    yield Step("PATCH", f"{where}/d/scale", {"spec": {"replicas": "x"}}, MERGE)
    yield Step("GET", f"{where}/d/scale", accept=TABLE)
    yield Step("PATCH", f"{where}/d", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}, MERGE)
    yield Step("PATCH", f"{where}/d", {"spec": {"paused": True, "minReadySeconds": -1}}, MERGE)
    yield Step(
        "PATCH", f"{where}/d", {"spec": {"template": {"metadata": {"labels": {"app": "b"}}}}}, MERGE
    )
    yield Step("GET", where, accept=TABLE)
    for number, spec in enumerate(
        (
            {"replicas": -1},
            {"selector": {}},
            {"selector": {"matchLabels": {"app": "b"}}},
            {"strategy": {"type": "Nonsense"}},
            {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            {"strategy": {"rollingUpdate": {"maxSurge": "x%"}}},
            {"template": {}},
            {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
            {"progressDeadlineSeconds": 1, "minReadySeconds": 2},
            {"revisionHistoryLimit": -1},
            {
                "selector": {
                    "matchExpressions": [
                        {"key": "a", "operator": "In"},
                        {"key": "a", "operator": "Nonsense", "values": ["x"]},
                    ]
                }
            },
        )
    ):
        yield Step("POST", where, deployment(f"m{number}", **spec), query={"dryRun": "All"})
    jobs = "/apis/batch/v1/namespaces/{{ns}}/jobs"
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    for number, spec in enumerate(
        (
            {},
            {"template": TEMPLATE},
            {"template": {"spec": {**TEMPLATE["spec"]}}},
            {"completions": 3, "parallelism": 2, "completionMode": "Indexed"},
            {"completions": -1, "parallelism": -1, "backoffLimit": -1},
            {"completionMode": "Indexed"},
            {"completionMode": "x"},
            {"selector": SELECTOR},
            {"manualSelector": True},
            {"ttlSecondsAfterFinished": -1},
            {"activeDeadlineSeconds": -1},
            {"suspend": True},
            {"podFailurePolicy": {"rules": [{"action": "x"}]}},
            {"backoffLimitPerIndex": 1},
            {"podReplacementPolicy": "x"},
        )
    ):
        yield Step(
            "POST",
            jobs,
            {"metadata": {"name": f"j{number}"}, "spec": {"template": template, **spec}},
            query={"dryRun": "All"},
        )
    crons = "/apis/batch/v1/namespaces/{{ns}}/cronjobs"
    for number, spec in enumerate(
        (
            {"schedule": "nonsense"},
            {"schedule": ""},
            {"schedule": "@hourly", "timeZone": "Nowhere/At"},
            {"schedule": "TZ=UTC * * * * *"},
            {"schedule": "* * * * *", "concurrencyPolicy": "x"},
            {"schedule": "* * * * *", "successfulJobsHistoryLimit": -1},
            {"schedule": "@every 1h"},
            {"schedule": "61 * * * *"},
            {"schedule": "* * * * *", "jobTemplate": {}},
        )
    ):
        body = {
            "metadata": {"name": f"c{number}"},
            "spec": {"jobTemplate": {"spec": {"template": template}}, **spec},
        }
        yield Step("POST", crons, body, query={"dryRun": "All"})


def priorities() -> Iterator[Step]:
    where = "/apis/scheduling.k8s.io/v1/priorityclasses"
    yield Step("GET", where, accept=TABLE)
    yield Step(
        "POST",
        where,
        {
            "metadata": {"name": "{{ns}}-p"},
            "value": 7,
            "preemptionPolicy": "Never",
            "description": "d",
        },
    )
    yield Step("PATCH", f"{where}/{{{{ns}}}}-p", {"value": 8}, MERGE)
    yield Step("PATCH", f"{where}/{{{{ns}}}}-p", {"preemptionPolicy": "x"}, MERGE)
    yield Step("POST", where, {"metadata": {"name": "system-x"}, "value": 1})
    yield Step("POST", where, {"metadata": {"name": "x"}, "value": 1000000001})
    yield Step("POST", PODS, pod("p", priorityClassName="{{ns}}-p"))
    yield Step("POST", PODS, pod("q", priorityClassName="{{ns}}-p", priority=5))
    yield Step("POST", PODS, pod("r", priorityClassName="system-node-critical"))
    yield Step("DELETE", f"{where}/{{{{ns}}}}-p")
    yield Step("DELETE", f"{where}/system-node-critical", query={"dryRun": "All"})


def quotas() -> Iterator[Step]:
    where = f"{NS}/resourcequotas"
    for number, spec in enumerate(
        (
            {"hard": {"pods": "x"}},
            {"hard": {"pods": "1.5"}},
            {"hard": {"nonsense": "1"}},
            {"hard": {"pods": "-1"}},
            {"hard": {"pods": "1"}, "scopes": ["x"]},
            {"hard": {"services": "1"}, "scopes": ["Terminating"]},
            {"hard": {"count/x.example.com": "1"}},
            {},
        )
    ):
        yield Step(
            "POST",
            where,
            {"metadata": {"name": f"q{number}"}, "spec": spec},
            query={"dryRun": "All"},
        )
    limits = f"{NS}/limitranges"
    for number, limit in enumerate(
        (
            {"type": "Container", "default": {"cpu": "1"}},
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            {"type": "Pod", "default": {"cpu": "1"}},
            {"type": "Nonsense", "max": {"cpu": "1"}},
            {"max": {"cpu": "x"}},
            {
                "type": "Container",
                "max": {"cpu": "1"},
                "default": {"cpu": "2"},
                "defaultRequest": {"cpu": "3"},
            },
        )
    ):
        yield Step(
            "POST",
            limits,
            {"metadata": {"name": f"l{number}"}, "spec": {"limits": [limit]}},
            query={"dryRun": "All"},
        )


def webhooks() -> Iterator[Step]:
    where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook: Tree = {
        "name": "h.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["none"],
            }
        ],
    }
    yield Step("POST", where, {"metadata": {"name": "{{ns}}"}, "webhooks": [hook]})
    changes: list[Tree] = [
        {"name": "short"},
        {"clientConfig": {}},
        {"clientConfig": {"url": "http://x"}},
        {"clientConfig": {"url": "https://x?y"}},
        {"sideEffects": "Some"},
        {"sideEffects": None},
        {"admissionReviewVersions": []},
        {"admissionReviewVersions": ["v9"]},
        {"failurePolicy": "x"},
        {"timeoutSeconds": 31},
        {"timeoutSeconds": 0},
        {"rules": [{"operations": ["x"]}]},
        {"matchPolicy": "x"},
        {"matchConditions": [{"name": "c", "expression": "object.x =="}]},
        {"matchConditions": [{"name": "a b", "expression": ""}]},
        {"clientConfig": {"service": {"name": "s"}}},
        {"namespaceSelector": {"matchExpressions": [{}]}},
    ]
    for number, change in enumerate(changes):
        yield Step(
            "POST",
            where,
            {"metadata": {"name": f"m{number}"}, "webhooks": [{**hook, **change}]},
            query={"dryRun": "All"},
        )
    empty = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "webhooks": [],
    }
    for _ in range(2):
        body = {**empty, "metadata": {"name": "{{ns}}-empty"}}
        yield Step("PATCH", f"{where}/{{{{ns}}}}-empty", body, APPLY, query={"fieldManager": "a"})
    yield Step("DELETE", f"{where}/{{{{ns}}}}")
