"""The same rules as policies of the cluster: what the webhooks refuse is refused without them, as
far as CEL goes.

In the slow lane they are held against a kube-apiserver too, whose CEL is not ours.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.admission import cluster_policies
from hekla.admission.cluster_policies import JOBS, MUTATING
from hekla.admission.review import Settings
from hekla.admission.rules.jobdefaults import plain_defaults
from hekla.admission.rules.jobupdates import MUTABLE
from hekla.api.batch import JobSpec
from tests.admission import cases
from tests.admission.objects import Tree, job, queue, task, template
from tests.admission.process import BATCH, SCHEDULING, call, install_kinds
from tests.apiserver_process import ApiServerProcess, Kubernetes
from tests.kubernetes import programs

RECORDED = Path(__file__).parents[2].parent / "shared" / "conformance" / "cases" / "webhooks"
OWN = Path(__file__).parents[1] / "conformance" / "cases" / "webhooks"
BEYOND = (
    "can not submit job to root queue",
    "leaf queue",
    "unable to find job queue",
    "sub path of",
    "queue state must be",
)
"""What a policy cannot know, by what the webhook says: other objects; and a status, which a server
does not take with a create."""
PATHS = {
    "jobs": f"{BATCH}/namespaces/default/jobs", "cronjobs": f"{BATCH}/namespaces/default/cronjobs", "queues": f"{SCHEDULING}/queues",
    "podgroups": f"{SCHEDULING}/namespaces/default/podgroups", "pods": "/api/v1/namespaces/default/pods",
    "hypernodes": "/apis/topology.volcano.sh/v1alpha1/hypernodes", "jobflows": "/apis/flow.volcano.sh/v1alpha1/namespaces/default/jobflows",
}  # fmt: skip
KINDS = {
    "jobs": "Job",
    "cronjobs": "CronJob",
    "queues": "Queue",
    "podgroups": "PodGroup",
    "pods": "Pod",
    "hypernodes": "HyperNode",
    "jobflows": "JobFlow",
}


def install(ask: Any) -> None:
    """Apply the policies, and wait until all are in force.

    A server sees them in the order in which they came, so all are in force when the last ones are,
    of which one sees it.  Those that change an object wait for one thing more: a kube-apiserver
    carries out none on a kind of ours before it has seen the kind's schema, for which it looks
    every five seconds.  Until then it answers 503.
    """
    for tree in (*cluster_policies.objects(), *LAST_ONES):
        plural = {"y": "ies", "g": "gs"}[tree["kind"][-1]]
        path = f"/apis/{tree['apiVersion']}/{tree['kind'].lower()[:-1]}{plural}"
        status, answer = ask("POST", path, tree)
        assert status == 201, (tree["metadata"]["name"], said(status, answer))
    configmaps = "/api/v1/namespaces/default/configmaps?dryRun=All"
    eventually(
        lambda: ask("POST", configmaps, {"metadata": {"name": "refused"}}),
        lambda status, _: status == 422,
    )
    eventually(
        lambda: ask("POST", configmaps, {"metadata": {"name": "changed"}}),
        lambda _, answer: "labels" in answer.get("metadata", {}),
    )
    for (_, _, plural), *_ in cluster_policies.MUTATING.values():
        eventually(partial(judged, ask, plural, SOUND[plural]), lambda status, _: status == 201)


def eventually(
    asked: Callable[[], tuple[int, Tree]], as_wanted: Callable[[int, Tree], bool]
) -> None:
    """Ask until the answer is as wanted, at most for a minute."""
    deadline = time.monotonic() + 60
    while not as_wanted(*(answer := asked())):
        assert time.monotonic() < deadline, f"the policies do not come into force: {said(*answer)}"
        time.sleep(0.2)


def said(status: int, answer: Tree) -> str:
    """An answer in one line that no report cuts."""
    return f"{status} {answer.get('message') or json.dumps(answer)}"


def _last_one(kind: str, name: str, **spec: Any) -> Iterator[Tree]:
    """A policy about one name of a ConfigMap, and its binding."""
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
    ]
    conditions = [{"name": "name", "expression": f"object.metadata.name == '{name}'"}]
    version = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    yield {
        **version,
        "kind": kind,
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": conditions,
            **spec,
        },
    }
    actions = {"validationActions": ["Deny"]} if kind.startswith("Validating") else {}
    yield {**version, "kind": f"{kind}Binding", "spec": {"policyName": name, **actions}}


SOUND: dict[str, Tree] = {"jobs": job(), "queues": queue("sound"), "podgroups": {"spec": {}}}
"""What every policy lets in, of the kinds that are changed."""
LABEL = "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}"
LAST_ONES = (
    *_last_one("ValidatingAdmissionPolicy", "refused", validations=[{"expression": "false"}]),
    *_last_one("MutatingAdmissionPolicy", "changed", reinvocationPolicy="Never",
               mutations=[{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": LABEL}}]),
)  # fmt: skip


@pytest.fixture(
    scope="module", params=["hekla", pytest.param("kubernetes", marks=programs.slow(90))]
)
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("policies")
    if request.param == "kubernetes":
        programs.wanted(*programs.SERVER)
    with (
        Kubernetes.alone(directory)
        if request.param == "kubernetes"
        else ApiServerProcess.started(directory) as server
    ):
        install_kinds(server)

        def asked(method: str, path: str, tree: Tree | None = None) -> tuple[int, Tree]:
            return call(server, method, path, tree)

        install(asked)
        yield asked


def recorded() -> list[Any]:
    found = []
    for file in sorted(RECORDED.rglob("*.json")):
        tree = json.loads(file.read_text())
        for case in tree if isinstance(tree, list) else tree.get("cases", [tree]):
            if (
                case.get("phase") == "validate"
                and case.get("operation") == "CREATE"
                and not case.get("part")
            ):
                found.append(
                    pytest.param(case, id=f"{case['resource']} {case.get('name', file.stem)}")
                )
    return found or [
        pytest.param(None, marks=pytest.mark.skip(reason=f"no recorded cases at {RECORDED}"))
    ]


def let_in() -> list[Any]:
    """Cases of our own that the webhooks let in."""
    played = [case for file in sorted(OWN.rglob("*.json")) for case in json.loads(file.read_text())]
    asked = [
        case
        for case in played
        if (case["phase"], case["operation"]) == ("validate", "CREATE")
        and case["expect"]["allowed"]
    ]
    return [pytest.param(case, id=case["id"]) for case in asked]


@pytest.mark.parametrize("case", recorded())
def test_policies_say_what_the_webhooks_say(ask: Any, case: Tree) -> None:
    verdict = cases.play(dict(case))
    if any(text in verdict.message for text in BEYOND):
        pytest.skip("a policy does not know other objects")
    if case["resource"] in ("queues", "podgroups") and case.get("existing") and not verdict.allowed:
        pytest.skip("a policy does not know other queues")
    status, answer = judged(ask, case["resource"], case["object"])
    if verdict.allowed:  # the schema may still have a word about what was recorded without one
        assert status == 201 or (
            status == 422 and "ValidatingAdmissionPolicy" not in answer["message"]
        ), said(status, answer)
    else:
        assert 400 <= status < 500, f"{said(status, answer)}, and not {verdict.message}"


@pytest.mark.parametrize("case", let_in())
def test_policies_refuse_nothing_that_the_webhooks_let_in(ask: Any, case: Tree) -> None:
    status, answer = judged(ask, case["resource"], case["object"])

    assert status == 201 or "AdmissionPolicy" not in answer["message"], said(status, answer)


def judged(ask: Any, plural: str, given: Tree) -> tuple[int, Tree]:
    """What the API server says to an object, made whole where the recorded one leaves out what a
    server asks for."""
    tree = copy.deepcopy(dict(given))
    tree.setdefault("kind", KINDS[plural])
    version = PATHS[plural].split("/namespaces")[0].removesuffix(f"/{plural}")
    tree.setdefault("apiVersion", version.removeprefix("/apis/").removeprefix("/api/"))
    metadata = tree.setdefault("metadata", {})
    metadata["name"] = metadata.get("name", "x").lower()
    if "/namespaces/" in PATHS[plural]:
        metadata["namespace"] = "default"
    return ask("POST", PATHS[plural] + "?dryRun=All", tree)  # type: ignore[no-any-return]


def denied(ask: Any, plural: str, tree: Tree) -> str:
    status, answer = judged(ask, plural, tree)
    assert status == 422, said(status, answer)
    return str(answer["message"])


ON = {"event": "PodFailed", "action": "AbortJob"}
HUGE = {"highestTierAllowed": 1, "highestTierName": "rack"}


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (job(task("a"), task("a"), minAvailable=2), "duplicated task name found"),
        (job(minAvailable=5), "should not be greater than total replicas"),
        (job(task(minAvailable=2)), "'minAvailable' is greater than 'replicas' in task"),
        (job(policies=[{"event": "PodRunning", "action": "AbortJob"}]), "invalid policy event"),
        (job(policies=[{"events": ["OutOfSync"], "action": "AbortJob"}]), "invalid policy event"),
        (
            job(task(policies=[{"event": "PodFailed", "action": "SyncJob"}])),
            "invalid policy action",
        ),
        (
            job(policies=[ON, {"events": ["PodFailed"], "action": "RestartJob"}]),
            "duplicate policy event found",
        ),
        (job(policies=[{"exitCode": 3, "action": "AbortJob"}] * 2), "duplicate exitCode found"),
        (
            job(policies=[{**ON, "exitCode": 3}]),
            "must not specify event and exitCode simultaneously",
        ),
        (job(policies=[{"action": "AbortJob"}]), "either event and exitCode should be specified"),
        (job(policies=[{"event": "*", "action": "AbortJob"}, ON]), "if there's * here"),
        (job(volumes=[{"mountPath": "/a"}]), "either VolumeClaim or VolumeClaimName"),
        (
            job(volumes=[{"mountPath": "/a", "volumeClaimName": "c"}] * 2),
            "duplicated mountPath found",
        ),
        (job(plugins={"nothing": []}), "unable to find job plugin"),
        (job(networkTopology=HUGE), "simultaneously"),
        (job(task(dependsOn={"name": ["nobody"]})), "directed acyclic graph"),
        (job(task("w" * 60)), "create pod with name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_job_policy_refuses(ask: Any, tree: Tree, text: str) -> None:
    assert text in denied(ask, "jobs", tree)


def test_what_a_job_policy_lets_in(ask: Any) -> None:
    policies = [
        ON,
        {"event": "PodEvicted", "action": "RestartPartition"},
        {"exitCode": 3, "action": "RestartJob"},
    ]
    tree = job(
        task("a", policies=policies),
        task("b", dependsOn={"name": ["a"]}),
        minAvailable=2,
        policies=policies,
        plugins={"svc": []},
    )
    status, answer = judged(ask, "jobs", tree)
    assert status == 201, said(status, answer)


@pytest.mark.scenario("api-and-admission", 223)
def test_what_the_policies_fill_in(ask: Any) -> None:
    unnamed = {"replicas": 2, "template": template(hostNetwork=True)}
    tree = {
        **job(name="bare"),
        "spec": {"tasks": [unnamed, {**unnamed, "replicas": 3}], "plugins": {"mpi": []}},
    }
    status, made = judged(ask, "jobs", tree)
    assert status == 201, said(status, made)
    spec = made["spec"]
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"], spec["minAvailable"]) == (
        "default",
        "volcano",
        3,
        5,
    )
    assert [(each["name"], each["minAvailable"], each["maxRetry"]) for each in spec["tasks"]] == [
        ("default0", 2, 3),
        ("default1", 3, 3),
    ]
    assert spec["tasks"][0]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert spec["plugins"] == {"mpi": [], "svc": [], "ssh": []}
    status, made = judged(ask, "queues", {"metadata": {"name": "q"}, "spec": {}})
    assert status == 201 and made["spec"]["reclaimable"] is True, said(status, made)


def test_updates_under_the_policies(ask: Any) -> None:
    tree = {**job(task("a", 2), name="updated")}
    status, stored = ask("POST", PATHS["jobs"], tree)
    assert status == 201, said(status, stored)
    path = f"{PATHS['jobs']}/updated"

    def put(change: Any) -> tuple[int, Tree]:
        fresh = ask("GET", path)[1]
        change(fresh["spec"])
        return ask("PUT", path, fresh)  # type: ignore[no-any-return]

    assert put(lambda spec: spec.update(tasks=tree["spec"]["tasks"]))[0] == 200, (
        "the manifest, applied again"
    )
    assert put(lambda spec: spec["tasks"][0].update(replicas=3))[0] == 200
    for change, text in (
        (lambda spec: spec.update(queue="other"), "job updates may not change fields other than"),
        (
            lambda spec: spec["tasks"][0].update(name="b"),
            "job updates may not change fields other than",
        ),
        (lambda spec: spec["tasks"].append(task("b")), "job updates may not add or remove tasks"),
        (lambda spec: spec.update(minAvailable=9), "must not be greater than total replicas"),
        (
            lambda spec: spec["tasks"][0]["template"]["spec"]["containers"][0].update(
                image="other"
            ),
            "job updates may not change",
        ),
    ):
        status, answer = put(change)
        assert status == 422 and text in answer["message"], said(status, answer)


@pytest.mark.parametrize(
    ("plural", "tree", "text"),
    [
        ("queues", queue("q", deserved={"cpu": "3"}, capability={"cpu": "2"}), "must be <= capability"),
        ("queues", queue("q", guarantee={"resource": {"cpu": "3"}}), "must be >= guarantee"),
        ("queues", queue("q", deserved={"cpu": "-3"}), "deserved: must be greater than or equal to 0"),
        ("queues", queue("q", annotations={"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1"}), "same length"),
        ("queues", queue("q", annotations={"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/0"}), "larger than 0"),
        ("queues", queue("q", parent="q"), "cannot use itself as parent"),
        ("podgroups", {"spec": {"networkTopology": {"mode": "hard", **HUGE}}}, "simultaneously."),
        ("hypernodes", {"spec": {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "a(b"}}}]}},
         "unmatched parentheses"),
        ("jobflows", {"spec": {"flows": [{"name": "a", "dependsOn": {"targets": ["x"]}}]}}, "vertex is not defined"),
        ("jobflows", {"spec": {"flows": [{"name": "a", "dependsOn": {"targets": ["a"]}}]}}, "jobflow Flow is not DAG"),
        ("cronjobs", {"spec": {"schedule": "TZ=UTC 0 0 * * *", "jobTemplate": {"spec": job()["spec"]}}}, "TZ should only be set"),
        ("cronjobs", {"spec": {"schedule": "* * *", "jobTemplate": {"spec": job()["spec"]}}}, "not a valid cron expression"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_the_other_policies_refuse(ask: Any, plural: str, tree: Tree, text: str) -> None:
    assert text in denied(ask, plural, tree)


def test_queues_that_stay(ask: Any) -> None:
    for name in ("root", "default"):
        ask("POST", PATHS["queues"], queue(name, parent=""))
        status, answer = ask("DELETE", f"{PATHS['queues']}/{name}")
        assert status == 422 and f"`{name}` queue can not be deleted" in answer["message"], said(
            status, answer
        )


@pytest.mark.parametrize(("annotations", "allowed"), [
    ({"volcano.sh/jdb-min-available": "2"}, True), ({"volcano.sh/jdb-max-unavailable": "50%"}, True), ({}, True),
    ({"volcano.sh/jdb-min-available": "-1"}, False), ({"volcano.sh/jdb-min-available": "0"}, False),
    ({"volcano.sh/jdb-max-unavailable": "100%"}, False), ({"volcano.sh/jdb-min-available": "invalid"}, False),
    ({"volcano.sh/jdb-min-available": "2", "volcano.sh/jdb-max-unavailable": "50%"}, False),
])  # fmt: skip
def test_budgets_of_pods(ask: Any, annotations: Tree, allowed: bool) -> None:
    tree = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {**template()["spec"], "schedulerName": "volcano"},
    }
    status, answer = judged(ask, "pods", tree)
    assert status == (201 if allowed else 422), said(status, answer)
    tree["spec"]["schedulerName"] = "default-scheduler"
    status, answer = judged(ask, "pods", tree)
    assert status == 201, said(status, answer)


def test_a_default_of_jobs_is_filled_in_by_the_policy_too() -> None:
    expression = MUTATING["volcano-job-mutation"][3]
    for field, _, _ in plain_defaults(Settings()):
        assert f"'/spec/{field}'" in expression


BY_RULES_OF_THEIR_OWN = ("tasks",)
NOT_COMPARED = ("volumes", "plugins", "networkTopology")
"""What admission fills in in part, so that CEL would take its absence for a change."""


def test_a_field_of_jobs_that_may_not_change_is_held_by_the_policy_too() -> None:
    compared = " ".join(expression for expression, _ in JOBS.rules)
    for field in msgspec.structs.fields(JobSpec):
        if field.encode_name not in (*MUTABLE, *BY_RULES_OF_THEIR_OWN, *NOT_COMPARED):
            assert f"oldObject.spec.?{field.encode_name}." in compared, field.encode_name
