"""Watches: every change, in order, once (local-cluster 3)."""

from __future__ import annotations

import pytest

from tests.apiserver.http import CONFIG_MAPS, PODS, Http, config_map, pod
from tests.apiserver_process import ApiServerProcess


def version(http: Http) -> str:
    return http.get(CONFIG_MAPS).version


@pytest.mark.scenario("local-cluster", 67)
def test_exactly_the_later_changes_in_order(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("before"))
    start = version(http)
    with http.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}") as watched:
        http.post(CONFIG_MAPS, config_map("w1"))
        http.patch(f"{CONFIG_MAPS}/w1", {"data": {"a": "1"}})
        http.delete(f"{CONFIG_MAPS}/w1")
        events = [watched.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[0]["object"]["kind"] == "ConfigMap"
    # and the same again from history
    with http.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}") as watched:
        assert [watched.next() for _ in range(3)] == events


@pytest.mark.scenario("local-cluster", 68)
def test_without_a_version_what_exists_comes_first(apiserver: ApiServerProcess) -> None:
    http = Http(apiserver)
    for name in ("b", "a", "c"):
        http.post(CONFIG_MAPS, config_map(name))
    with http.watch(f"{CONFIG_MAPS}?watch=true") as watched:
        assert watched.take(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        http.delete(f"{CONFIG_MAPS}/b")
        assert watched.take(1) == [("DELETED", "b")]


@pytest.mark.scenario("local-cluster", 69)
def test_selectors_filter_by_transition(http: Http) -> None:
    with http.watch(
        f"{CONFIG_MAPS}?watch=1&labelSelector=team%3Dred&resourceVersion={version(http)}"
    ) as watched:
        http.post(CONFIG_MAPS, config_map("moves"))
        http.patch(f"{CONFIG_MAPS}/moves", {"metadata": {"labels": {"team": "red"}}})
        left = http.patch(f"{CONFIG_MAPS}/moves", {"metadata": {"labels": {"team": "blue"}}})
        added, deleted = watched.next(), watched.next()
    assert (added["type"], deleted["type"]) == ("ADDED", "DELETED")
    assert deleted["object"]["metadata"]["labels"] == {"team": "red"}
    assert deleted["object"]["metadata"]["resourceVersion"] == left.version


@pytest.mark.scenario("local-cluster", 70)
def test_binding_brings_a_pod_to_the_watcher_of_its_node(http: Http) -> None:
    with http.watch(
        f"/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn7&resourceVersion={version(http)}"
    ) as watched:
        http.post(PODS, pod("arrives"))
        http.post(
            f"{PODS}/arrives/binding",
            {"metadata": {"name": "arrives"}, "target": {"kind": "Node", "name": "n7"}},
        )
        assert watched.take(1) == [("ADDED", "arrives")]


@pytest.mark.scenario("local-cluster", 71)
def test_a_watch_ends_at_its_time_with_a_bookmark(http: Http) -> None:
    path = f"/api/v1/namespaces/kube-public/configmaps?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion={version(http)}"
    with http.watch(path) as watched:
        events = watched.rest()
    assert [event["type"] for event in events] == ["BOOKMARK"]
    assert events[0]["object"]["kind"] == "ConfigMap"


@pytest.mark.scenario("local-cluster", 72)
def test_streaming_lists(apiserver: ApiServerProcess) -> None:
    http = Http(apiserver)
    http.post(CONFIG_MAPS, config_map("listed"))
    options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with http.watch(f"{CONFIG_MAPS}?{options}") as watched:
        assert watched.take(1) == [("ADDED", "listed")]
        end = watched.next()
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        http.post(CONFIG_MAPS, config_map("later"))
        assert watched.take(1) == [("ADDED", "later")]
    with http.watch(f"/api/v1/secrets?{options}") as watched:
        assert watched.next()["type"] == "BOOKMARK"


@pytest.mark.scenario("local-cluster", 73)
def test_a_streaming_list_needs_its_match(http: Http) -> None:
    answer = http.get(f"{CONFIG_MAPS}?watch=1&sendInitialEvents=true")
    assert answer.status == 422
    assert (
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in answer.message
    )
    assert (
        http.get(
            f"{CONFIG_MAPS}?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1"
        ).status
        == 422
    )


@pytest.mark.scenario("local-cluster", 74)
def test_an_expired_version_is_one_error_and_the_end(apiserver: ApiServerProcess) -> None:
    http = Http(apiserver)
    old = http.post(CONFIG_MAPS, config_map("x")).version
    http.post(CONFIG_MAPS, config_map("y"))
    apiserver.restart()
    http = Http(apiserver)
    with http.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={old}") as watched:
        assert watched.status == 200
        events = watched.rest()
    assert len(events) == 1
    assert events[0]["type"] == "ERROR"
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


@pytest.mark.scenario("local-cluster", 16)
def test_tables_are_watched_as_one_row_tables(http: Http) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    with http.watch(
        f"{CONFIG_MAPS}?watch=1&resourceVersion={version(http)}", Accept=accept
    ) as watched:
        http.post(CONFIG_MAPS, config_map("row1"))
        http.post(CONFIG_MAPS, config_map("row2"))
        first, second = watched.next()["object"], watched.next()["object"]
    assert first["kind"] == "Table"
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "row2"
    assert second["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_one_object_is_watched_by_its_path_and_by_its_name(http: Http) -> None:
    start = version(http)
    old_path = f"/api/v1/watch/namespaces/default/configmaps/single?resourceVersion={start}"
    selected = f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=single&resourceVersion={start}"
    with http.watch(selected) as by_name, http.watch(old_path) as old_form:
        http.post(CONFIG_MAPS, config_map("other"))
        http.post(CONFIG_MAPS, config_map("single"))
        assert by_name.take(1) == [("ADDED", "single")]
        assert old_form.take(1) == [("ADDED", "single")]
    plain = http.get(
        f"{CONFIG_MAPS}/single?watch=1"
    ).tree  # a path that names an object asks for it, whatever else it says
    assert plain["metadata"]["name"] == "single"


def test_a_future_version_is_silent_until_it_comes(http: Http) -> None:
    future = int(version(http)) + 2
    with http.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={future}") as watched:
        for name in ("f1", "f2", "f3"):
            http.post(CONFIG_MAPS, config_map(name))
        assert watched.take(1) == [("ADDED", "f3")]
