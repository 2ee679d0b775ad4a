"""Deletions: grace, finalizers, propagation, preconditions, collections, namespaces, evictions
(local-cluster 2.4, 2.10, 5.2)."""

from __future__ import annotations

import pytest

from tests.apiserver.http import CONFIG_MAPS, PODS, Http, config_map, pod


def bind(http: Http, name: str) -> None:
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
    assert http.post(f"{PODS}/{name}/binding", body).status == 201


def test_what_nothing_holds_is_gone_at_once(http: Http) -> None:
    uid = http.post(CONFIG_MAPS, config_map("gone")).tree["metadata"]["uid"]
    answer = http.delete(f"{CONFIG_MAPS}/gone")
    assert answer.status == 200
    assert answer.tree["status"] == "Success"
    assert answer.tree["details"] == {"name": "gone", "kind": "configmaps", "uid": uid}


@pytest.mark.scenario("local-cluster", 50)
@pytest.mark.scenario("local-cluster", 51)
def test_finalizers_hold(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("held", metadata={"finalizers": ["ex.com/hold"]}))
    answer = http.delete(f"{CONFIG_MAPS}/held")
    assert "deletionTimestamp" in answer.tree["metadata"]
    assert answer.tree["metadata"]["deletionGracePeriodSeconds"] == 0
    assert "held" in http.get(CONFIG_MAPS).names
    answer = http.patch(
        f"{CONFIG_MAPS}/held", {"metadata": {"finalizers": ["ex.com/hold", "ex.com/new"]}}
    )
    assert answer.status == 422
    assert "no new finalizers can be added if the object is being deleted" in answer.message
    assert http.patch(f"{CONFIG_MAPS}/held", {"metadata": {"finalizers": None}}).status == 200
    assert http.get(f"{CONFIG_MAPS}/held").status == 404


@pytest.mark.scenario("local-cluster", 52)
def test_preconditions(http: Http) -> None:
    created = http.post(CONFIG_MAPS, config_map("conditional")).tree["metadata"]
    answer = http.delete(f"{CONFIG_MAPS}/conditional", {"preconditions": {"uid": "zz"}})
    assert answer.status == 409
    assert answer.message == (
        'Operation cannot be fulfilled on ConfigMap "conditional": the UID in the precondition (zz) does not match the UID in '
        f"record ({created['uid']}). The object might have been deleted and then recreated"
    )
    assert (
        http.delete(
            f"{CONFIG_MAPS}/conditional", {"preconditions": {"resourceVersion": "1"}}
        ).status
        == 409
    )
    assert (
        http.delete(f"{CONFIG_MAPS}/conditional", {"preconditions": {"uid": created["uid"]}}).status
        == 200
    )


@pytest.mark.scenario("local-cluster", 53)
def test_twice_is_once_too_often(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("again"))
    assert http.delete(f"{CONFIG_MAPS}/again").status == 200
    assert http.delete(f"{CONFIG_MAPS}/again").status == 404


@pytest.mark.scenario("local-cluster", 54)
def test_a_running_pod_gets_its_grace(http: Http) -> None:
    http.post(PODS, pod("graceful"))
    bind(http, "graceful")
    before = http.get(f"{PODS}/graceful").tree["metadata"]["generation"]
    tree = http.delete(f"{PODS}/graceful").tree
    assert tree["kind"] == "Pod"
    assert tree["metadata"]["deletionGracePeriodSeconds"] == 30
    assert tree["metadata"]["generation"] == before + 1
    assert (
        http.delete(f"{PODS}/graceful", {"gracePeriodSeconds": 60}).tree["metadata"][
            "deletionGracePeriodSeconds"
        ]
        == 30
    )
    assert (
        http.delete(f"{PODS}/graceful", {"gracePeriodSeconds": 5}).tree["metadata"][
            "deletionGracePeriodSeconds"
        ]
        == 5
    )
    answer = http.patch(f"{PODS}/graceful/status", {"status": {"phase": "Succeeded"}})
    assert answer.status == 200
    assert http.get(f"{PODS}/graceful").status == 200
    assert http.delete(f"{PODS}/graceful", {"gracePeriodSeconds": 0}).status == 200
    assert http.get(f"{PODS}/graceful").status == 404


@pytest.mark.scenario("local-cluster", 55)
def test_a_pod_that_runs_nowhere_goes_at_once(http: Http) -> None:
    http.post(PODS, pod("nowhere"))
    assert http.delete(f"{PODS}/nowhere").status == 200
    assert http.get(f"{PODS}/nowhere").status == 404
    http.post(PODS, pod("ended"))
    bind(http, "ended")
    http.patch(f"{PODS}/ended/status", {"status": {"phase": "Succeeded"}})
    http.delete(f"{PODS}/ended")
    assert http.get(f"{PODS}/ended").status == 404


@pytest.mark.scenario("local-cluster", 56)
def test_a_collection_by_label(http: Http) -> None:
    for name, team in (("c1", "x"), ("c2", "x"), ("c3", "y")):
        http.post(CONFIG_MAPS, config_map(name, metadata={"labels": {"collect": team}}))
    answer = http.delete(f"{CONFIG_MAPS}?labelSelector=collect%3Dx")
    assert answer.tree["kind"] == "ConfigMapList"
    assert answer.names == ["c1", "c2"]
    assert http.get(f"{CONFIG_MAPS}?labelSelector=collect").names == ["c3"]
    assert http.delete("/api/v1/namespaces").status == 405


def test_propagation(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("orphaning"))
    http.delete(f"{CONFIG_MAPS}/orphaning", {"propagationPolicy": "Orphan"})
    assert http.get(f"{CONFIG_MAPS}/orphaning").tree["metadata"]["finalizers"] == ["orphan"]
    http.delete(f"{CONFIG_MAPS}/orphaning", {"propagationPolicy": "Foreground"})
    assert http.get(f"{CONFIG_MAPS}/orphaning").tree["metadata"]["finalizers"] == [
        "foregroundDeletion"
    ]
    answer = http.delete(
        f"{CONFIG_MAPS}/orphaning", {"propagationPolicy": "Foreground", "orphanDependents": True}
    )
    assert answer.status == 422
    assert (
        'Invalid value: "Foreground": orphanDependents and deletionPropagation cannot be both set'
        in answer.message
    )
    http.delete(f"{CONFIG_MAPS}/orphaning", {"propagationPolicy": "Background"})
    assert http.get(f"{CONFIG_MAPS}/orphaning").status == 404


def test_options_in_the_query(http: Http) -> None:
    http.post(PODS, pod("query"))
    bind(http, "query")
    assert http.delete(f"{PODS}/query?gracePeriodSeconds=0").status == 200
    assert http.get(f"{PODS}/query").status == 404


@pytest.mark.scenario("local-cluster", 61)
def test_what_the_cluster_needs_stays(http: Http) -> None:
    answer = http.delete("/api/v1/namespaces/default")
    assert (answer.status, answer.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


def test_a_terminating_namespace(http: Http) -> None:
    created = http.post("/api/v1/namespaces", {"metadata": {"name": "nsx"}}).tree
    assert created["status"] == {"phase": "Active"}
    assert created["spec"] == {"finalizers": ["kubernetes"]}
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "nsx"}
    tree = http.delete("/api/v1/namespaces/nsx").tree
    assert (tree["kind"], tree["status"]["phase"]) == ("Namespace", "Terminating")
    assert "deletionTimestamp" in tree["metadata"]
    assert http.delete("/api/v1/namespaces/nsx").status == 200
    answer = http.post("/api/v1/namespaces/nsx/configmaps", config_map("z"))
    assert answer.status == 403
    assert answer.message == (
        'configmaps "z" is forbidden: unable to create new content in namespace nsx because it is being terminated'
    )
    assert answer.tree["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    namespace = http.get("/api/v1/namespaces/nsx").tree
    namespace["spec"]["finalizers"] = []
    assert http.put("/api/v1/namespaces/nsx/finalize", namespace).status == 200
    assert http.get("/api/v1/namespaces/nsx").status == 404


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.mark.scenario("local-cluster", 96)
def test_evictions_ask_the_budget(http: Http) -> None:
    for name in ("e1", "e2"):
        http.post(PODS, {**pod(name), "metadata": {"name": name, "labels": {"evict": "yes"}}})
        bind(http, name)
        ready = [{"type": "Ready", "status": "True"}]
        http.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"evict": "yes"}}},
    }
    assert http.post(BUDGETS, budget).status == 201
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "e1"}}
    answer = http.post(f"{PODS}/e1/eviction", eviction)
    assert answer.status == 429
    assert "still being processed" in answer.tree["details"]["causes"][0]["message"]
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    assert http.patch(f"{BUDGETS}/b/status", {"status": status}).status == 200
    assert http.post(f"{PODS}/e1/eviction", eviction).status == 201
    tree = http.get(f"{PODS}/e1").tree
    assert "deletionTimestamp" in tree["metadata"]
    condition = next(c for c in tree["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    assert http.get(f"{BUDGETS}/b").tree["status"]["disruptionsAllowed"] == 0
    answer = http.post(f"{PODS}/e2/eviction", {**eviction, "metadata": {"name": "e2"}})
    assert answer.status == 429
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.tree["details"]["causes"][0]["reason"] == "DisruptionBudget"
