"""Pod Security admission of a real server: what a namespace's labels ask is enforced, audited and
warned of, as Kubernetes does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hekla.api.trees import Json
from tests.apiserver.http import STRATEGIC, Answer, Http
from tests.apiserver_process import ApiServerProcess

PREFIX = "pod-security.kubernetes.io/"
_numbers = count(1)
HARD: Json = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
PLAIN = (
    'violate{} PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set '
    'securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set '
    'securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set '
    'securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to '
    '"RuntimeDefault" or "Localhost")'
)
FILE = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {audit: baseline}
    exemptions: {usernames: [trusted], namespaces: [exempt], runtimeClasses: [vm]}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    home = tmp_path_factory.mktemp("podsecurity")
    (home / "admission.yaml").write_text(FILE)
    flags = (
        f"--audit-log-path={home / 'audit.log'}",
        f"--admission-control-config-file={home / 'admission.yaml'}",
    )
    with ApiServerProcess.started(home / "server", *flags) as process:
        yield process


@pytest.fixture
def http(server: ApiServerProcess) -> Http:
    return Http(server)


def namespace(http: Http, name: str = "", **labels: str) -> str:
    name = name or f"ns-{next(_numbers)}"
    body = {
        "metadata": {
            "name": name,
            "labels": {PREFIX + key.replace("_", "-"): value for key, value in labels.items()},
        }
    }
    assert http.post("/api/v1/namespaces", body).status == 201
    return name


def pod(name: str, context: Json | None = None, **spec: Any) -> Json:
    container: Json = {
        "name": "c",
        "image": "i",
        **({"securityContext": context} if context else {}),
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def create(http: Http, where: str, body: Json) -> Answer:
    return http.post(f"/api/v1/namespaces/{where}/pods", body)


def relabel(http: Http, where: str, **labels: str) -> Answer:
    return http.patch(
        f"/api/v1/namespaces/{where}",
        {"metadata": {"labels": {PREFIX + key: value for key, value in labels.items()}}},
    )


def warnings(answer: Answer) -> list[str]:
    texts = answer.headers.get("warning", "").split(", 299")
    return [
        text.removeprefix("299").strip().removeprefix('- "').removesuffix('"').replace('\\"', '"')
        for text in texts
    ]


def notes(server: ApiServerProcess) -> Json:
    """What the audit log has of the last pod that was made."""
    events = [
        json.loads(line)
        for line in (server.directory.parent / "audit.log").read_text().splitlines()
    ]
    made = [
        event
        for event in events
        if event["verb"] == "create" and event["objectRef"]["resource"] == "pods"
    ]
    return {
        key.removeprefix(PREFIX): value
        for key, value in made[-1]["annotations"].items()
        if key.startswith(PREFIX)
    }


def test_a_pod_is_refused_with_every_reason(http: Http, server: ApiServerProcess) -> None:
    where = namespace(http, enforce="restricted")

    answer = create(http, where, pod("plain"))

    assert answer.status == 403
    assert answer.tree["reason"] == "Forbidden"
    assert answer.message == f'pods "plain" is forbidden: {PLAIN.format("s")}'
    assert create(http, where, pod("hard", HARD)).status == 201
    # A shape that was let in is judged again where the labels have changed.
    many = [create(http, where, pod(f"hard-{number}", HARD)).status for number in range(3)]
    relabel(http, where, enforce="baseline")
    many.append(create(http, where, pod("baseline", None)).status)
    many += [
        create(http, where, pod(f"open-{number}", {"privileged": True})).status
        for number in range(2)
    ]
    assert many == [201, 201, 201, 201, 403, 403]


def test_versions_decide(http: Http) -> None:
    where = namespace(http, enforce="baseline", enforce_version="v1.33")
    probed = pod("probed")
    probed["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"host": "10.0.0.1", "port": 80}}

    assert create(http, where, probed).status == 201
    relabel(http, where, **{"enforce-version": "v1.34"})
    probed["metadata"]["name"] = "again"
    assert (
        'PodSecurity "baseline:v1.34": probe or lifecycle host'
        in create(http, where, probed).message
    )


def test_audit_and_warn_let_in(http: Http, server: ApiServerProcess) -> None:
    where = namespace(http, audit="restricted", warn="restricted")

    answer = create(http, where, pod("told"))

    assert answer.status == 201
    assert warnings(answer) == [f"would {PLAIN.format('')}"]
    assert notes(server) == {
        "enforce-policy": "privileged:latest",
        "audit-violations": f"would {PLAIN.format('')}",
    }
    again = create(http, where, pod("told-2"))
    assert warnings(again) == warnings(answer)


def test_templates_are_warned_of_and_never_refused(http: Http) -> None:
    where = namespace(http, enforce="baseline")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", {"privileged": True})["spec"]}
    template["spec"]["restartPolicy"] = "Always"
    deployment = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    never = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    cron = {
        "metadata": {"name": "c"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": never}}},
    }
    wanted = [
        'would violate PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)'
    ]

    made = http.post(f"/apis/apps/v1/namespaces/{where}/deployments", deployment)
    planned = http.post(f"/apis/batch/v1/namespaces/{where}/cronjobs", cron)
    labelled = http.patch(
        f"/apis/apps/v1/namespaces/{where}/deployments/d", {"metadata": {"labels": {"x": "y"}}}
    )
    scaled = http.patch(
        f"/apis/apps/v1/namespaces/{where}/deployments/d/scale", {"spec": {"replicas": 2}}
    )

    assert [answer.status for answer in (made, planned, labelled, scaled)] == [201, 201, 200, 200]
    assert warnings(made) == warnings(planned) == warnings(labelled) == wanted
    assert "warning" not in scaled.headers


def test_an_update_is_judged_where_it_brings_something(http: Http) -> None:
    where = namespace(http)
    assert create(http, where, pod("old", {"privileged": True})).status == 201
    relabel(http, where, enforce="baseline")
    here = f"/api/v1/namespaces/{where}/pods/old"
    debugger = {"name": "e", "image": "i"}

    assert http.patch(here, {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert http.patch(f"{here}/status", {"status": {"phase": "Running"}}).status == 200
    assert (
        http.patch(here, {"spec": {"containers": [{"name": "c", "image": "j"}]}}, STRATEGIC).status
        == 403
    )
    assert (
        http.patch(
            f"{here}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger]}}, STRATEGIC
        ).status
        == 403
    )
    assert create(http, where, pod("new")).status == 201
    debugger["securityContext"] = {"privileged": True}  # type: ignore[assignment]
    refused = http.patch(
        f"/api/v1/namespaces/{where}/pods/new/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debugger]}},
        STRATEGIC,
    )
    assert 'privileged (container "e" must not set' in refused.message


def test_labels_of_a_namespace_must_mean_something(http: Http) -> None:
    made = http.post(
        "/api/v1/namespaces",
        {"metadata": {"name": "wrong", "labels": {PREFIX + "enforce": "strict"}}},
    )
    where = namespace(http)
    changed = relabel(http, where, **{"warn-version": "1.30"})

    assert made.message == (
        f'Namespace "wrong" is invalid: metadata.labels[{PREFIX}enforce]: Invalid value: "strict": '
        "must be one of privileged, baseline, restricted"
    )
    assert (made.status, made.tree["details"]["causes"][0]["field"]) == (
        422,
        f"metadata.labels[{PREFIX}enforce]",
    )
    assert 'Invalid value: "1.30": must be "latest" or "v1.x"' in changed.message


def test_a_stricter_policy_warns_of_pods_that_are_there(http: Http) -> None:
    where = namespace(http)
    for name in ("a", "b", "c"):
        create(http, where, pod(name, {"privileged": True}))
    create(http, where, pod("net", hostNetwork=True))
    create(http, where, pod("vm", {"privileged": True}, runtimeClassName=None))

    assert warnings(relabel(http, where, enforce="baseline")) == [
        f'existing pods in namespace "{where}" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 3 other pods): privileged",
        "net: host namespaces",
    ]
    assert "warning" not in relabel(http, where, enforce="privileged").headers


def test_the_file_exempts(http: Http, server: ApiServerProcess) -> None:
    made = http.post(
        "/api/v1/namespaces",
        {"metadata": {"name": "exempt", "labels": {PREFIX + "enforce": "restricted"}}},
    )
    assert warnings(made) == [
        'namespace "exempt" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored'
    ]
    assert create(http, "exempt", pod("free", {"privileged": True})).status == 201
    assert notes(server) == {"exempt": "namespace"}
    where = namespace(http, enforce="restricted")
    body = pod("by-user", {"privileged": True})
    headers = {
        "Impersonate_User": "trusted",
        "Impersonate_Group": "system:masters",
        "Content_Type": "application/json",
    }
    assert http.request("POST", f"/api/v1/namespaces/{where}/pods", body, **headers).status == 201
    runtime = {"metadata": {"name": "vm"}, "handler": "vm"}
    assert http.post("/apis/node.k8s.io/v1/runtimeclasses", runtime).status == 201
    assert (
        create(http, where, pod("by-class", {"privileged": True}, runtimeClassName="vm")).status
        == 201
    )
    assert notes(server) == {"exempt": "runtimeClass"}
    # The default of this file audits everywhere else.
    silent = namespace(http)
    create(http, silent, pod("seen", {"privileged": True}))
    assert (
        'would violate PodSecurity "baseline:latest": privileged'
        in notes(server)["audit-violations"]
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Policy", "Kind=Policy is no apiserver.config.k8s.io/v1, Kind=AdmissionConfiguration"),
        (FILE.replace("audit: baseline", "audit: basic"), 'defaults.audit: Invalid value: "basic": must be one of privileged'),
        (FILE.replace("exemptions:", "exempt:"), "unknown field 'exempt'"),
        (FILE.replace("[trusted]", '[a, a]'), 'exemptions.usernames[1]: Duplicate value: "a"'),
    ],
)  # fmt: skip
def test_a_file_that_means_nothing_stops_the_server(tmp_path: Path, text: str, why: str) -> None:
    from hekla.local.apiserver.admission import configuration as admissionconfig

    file = tmp_path / "admission.yaml"
    file.write_text(text)

    with pytest.raises(admissionconfig.ConfigurationError) as refused:
        admissionconfig.read(file)

    assert why in str(refused.value)
