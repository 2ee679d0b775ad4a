"""managedFields as clients see them, and after a restart of the server (local-cluster 2.7)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.apiserver.http import (
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    Http,
    config_map,
    pod,
)
from tests.apiserver_process import ApiServerProcess

APPLY = "application/apply-patch+yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

Tree = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs/local-cluster.md"


def entries(tree: Tree) -> dict[tuple[str, str, str], Tree]:
    """(manager, operation, subresource) -> its fields."""
    found = tree["metadata"].get("managedFields", [])
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in found
    }


def applied(name: str, data: dict[str, str], **more: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data,
        **more,
    }


def test_the_user_agent_names_the_manager(http: Http) -> None:
    created = http.request(
        "POST", CONFIG_MAPS, config_map("agent", data={"a": "1"}), User_Agent="curl/8.1 (x)"
    )
    (entry,) = created.tree["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"], entry["fieldsType"]) == (
        "curl",
        "Update",
        "v1",
        "FieldsV1",
    )
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}
    assert entry["time"] == created.tree["metadata"]["creationTimestamp"]


def test_an_update_takes_what_it_changes(http: Http) -> None:
    http.post(
        f"{CONFIG_MAPS}?fieldManager=first",
        config_map("taken", data={"a": "1", "b": "1", "c": "1"}),
    )
    changed = http.patch(
        f"{CONFIG_MAPS}/taken?fieldManager=second", {"data": {"b": "2", "c": None, "d": "1"}}
    )
    assert entries(changed.tree) == {
        ("first", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
        ("second", "Update", ""): {"f:data": {"f:b": {}, "f:d": {}}},
    }


def test_nothing_changed_is_nothing_owned(http: Http) -> None:
    created = http.post(f"{CONFIG_MAPS}?fieldManager=first", config_map("same", data={"a": "1"}))
    again = http.patch(f"{CONFIG_MAPS}/same?fieldManager=second", {"data": {"a": "1"}})
    assert again.tree == created.tree


def test_subresources_have_entries_of_their_own(http: Http) -> None:
    http.post(f"{PODS}?fieldManager=maker", pod("parts"))
    status = {"status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}}
    changed = http.patch(f"{PODS}/parts/status?fieldManager=kubelet", status, STRATEGIC)
    found = entries(changed.tree)
    assert found["kubelet", "Update", "status"] == {
        "f:status": {
            "f:phase": {},
            "f:podIP": {},
            "f:podIPs": {".": {}, 'k:{"ip":"10.0.0.7"}': {".": {}, "f:ip": {}}},
        }
    }
    assert "f:status" not in found["maker", "Update", ""]


def test_binding_is_nobodys_change(http: Http) -> None:
    http.post(f"{PODS}?fieldManager=maker", pod("bound"))
    before = entries(http.get(f"{PODS}/bound").tree)
    http.post(
        f"{PODS}/bound/binding",
        {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}},
    )
    after = http.get(f"{PODS}/bound").tree
    assert after["spec"]["nodeName"] == "n"
    assert entries(after) == before


def test_scale_owns_replicas_and_has_no_time(http: Http) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    http.post(f"{DEPLOYMENTS}?fieldManager=maker", {"metadata": {"name": "scaled"}, "spec": spec})
    http.patch(f"{DEPLOYMENTS}/scaled/scale?fieldManager=scaler", {"spec": {"replicas": 3}})
    tree = http.get(f"{DEPLOYMENTS}/scaled").tree
    assert entries(tree)["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in entries(tree)["maker", "Update", ""]["f:spec"]
    assert "time" not in next(
        entry for entry in tree["metadata"]["managedFields"] if entry["manager"] == "scaler"
    )
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "scaled"},
        "spec": {"replicas": 5},
    }
    refused = http.patch(f"{DEPLOYMENTS}/scaled/scale?fieldManager=other", scale, APPLY)
    assert refused.status == 409
    forced = http.patch(f"{DEPLOYMENTS}/scaled/scale?fieldManager=other&force=true", scale, APPLY)
    assert (forced.status, forced.tree["spec"]) == (200, {"replicas": 5})


def test_a_client_may_reset_managed_fields(http: Http) -> None:
    for number, (media, body) in enumerate(
        [
            (MERGE, {"metadata": {"managedFields": [{}]}}),
            (MERGE, {"metadata": {"managedFields": []}}),
            (JSON_PATCH, [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
        ]
    ):
        http.post(CONFIG_MAPS, config_map(f"reset{number}", data={"a": "1"}))
        answer = http.patch(f"{CONFIG_MAPS}/reset{number}", body, media)
        assert "managedFields" not in answer.tree["metadata"], answer
        later = http.patch(f"{CONFIG_MAPS}/reset{number}", {"data": {"b": "1"}})
        assert "managedFields" not in later.tree["metadata"]
        conflict = http.patch(
            f"{CONFIG_MAPS}/reset{number}?fieldManager=m",
            applied(f"reset{number}", {"a": "2"}),
            APPLY,
        )
        assert 'conflict with "before-first-apply" using v1: .data.a' in conflict.message


def test_a_put_without_managed_fields_keeps_the_book(http: Http) -> None:
    http.post(f"{CONFIG_MAPS}?fieldManager=first", config_map("kept", data={"a": "1"}))
    answer = http.put(
        f"{CONFIG_MAPS}/kept?fieldManager=second", config_map("kept", data={"a": "1", "b": "1"})
    )
    assert set(entries(answer.tree)) == {("first", "Update", ""), ("second", "Update", "")}


def test_dry_runs_show_owners_and_store_none(http: Http) -> None:
    shown = http.patch(
        f"{CONFIG_MAPS}/dry?fieldManager=m&dryRun=All", applied("dry", {"a": "1"}), APPLY
    )
    assert shown.status == 201
    assert ("m", "Apply", "") in entries(shown.tree)
    assert http.get(f"{CONFIG_MAPS}/dry").status == 404


def test_apply_refusals_have_the_messages_of_kubernetes(http: Http) -> None:
    path = f"{CONFIG_MAPS}/words"
    assert http.patch(path, applied("words", {}), APPLY).message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )
    path += "?fieldManager=m"
    cases: list[tuple[Any, int, str]] = [
        (
            applied("words", {}, foo=1),
            500,
            "failed to create typed patch object (/words; /v1, Kind=ConfigMap): .foo: field not declared in schema",
        ),
        ({"apiVersion": "v1", "kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        (
            applied("other", {}),
            400,
            "the name of the object (other) does not match the name on the URL (words)",
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap"},
            400,
            "the name of the object (words based on URL) was undeterminable: name must be provided",
        ),
        (
            b"[1]",
            400,
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ]
    for body, status, message in cases:
        answer = http.patch(path, body, APPLY)
        assert (answer.status, answer.message) == (status, message)
    http.patch(path, applied("words", {"a": "1"}), APPLY)
    stale = applied("words", {"a": "2"})
    stale["metadata"]["resourceVersion"] = "1"
    assert http.patch(path, stale, APPLY).status == 409


def test_what_admission_adds_is_owned_by_nobody(http: Http) -> None:
    fields = entries(http.post(f"{PODS}?fieldManager=maker", pod("admitted")).tree)[
        "maker", "Update", ""
    ]
    assert "f:serviceAccountName" not in fields["f:spec"]


def test_watches_lists_and_tables_show_owners(http: Http) -> None:
    created = http.post(f"{CONFIG_MAPS}?fieldManager=watched", config_map("seen", data={"a": "1"}))
    before = int(created.version) - 1
    with http.watch(
        f"{CONFIG_MAPS}?watch=1&resourceVersion={before}&fieldSelector=metadata.name%3Dseen"
    ) as watched:
        assert entries(watched.next()["object"]) == entries(created.tree)
    listed = next(
        item for item in http.get(CONFIG_MAPS).tree["items"] if item["metadata"]["name"] == "seen"
    )
    assert entries(listed) == entries(created.tree)
    table = http.get(f"{CONFIG_MAPS}/seen", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert entries(table.tree["rows"][0]["object"]) == entries(created.tree)


def test_a_caller_may_do_without(http: Http) -> None:
    lean = {"X-Hekla-Managed-Fields": "omit"}
    created = http.request("POST", CONFIG_MAPS, config_map("lean", data={"a": "1"}), **lean)
    assert "managedFields" not in created.tree["metadata"]
    assert "managedFields" not in http.get(f"{CONFIG_MAPS}/lean", **lean).tree["metadata"]
    assert b"managedFields" not in http.get(CONFIG_MAPS, **lean).body
    with http.watch(
        f"{CONFIG_MAPS}?watch=1&resourceVersion={int(created.version) - 1}", **lean
    ) as watched:
        assert "managedFields" not in watched.next()["object"]["metadata"]
    assert "managedFields" in http.get(f"{CONFIG_MAPS}/lean").tree["metadata"]


def test_owners_outlive_a_kill(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        http = Http(server)
        http.post(f"{PODS}?fieldManager=maker", pod("lasting"))
        http.patch(
            f"{PODS}/lasting/status?fieldManager=kubelet",
            {"status": {"podIPs": [{"ip": "10.0.0.9"}]}},
            STRATEGIC,
        )
        http.patch(f"{CONFIG_MAPS}/lasting?fieldManager=m", applied("lasting", {"a": "1"}), APPLY)
        before = [http.get(f"{path}/lasting").tree for path in (PODS, CONFIG_MAPS)]
        server.kill()
        server.start()
        http = Http(server)
        assert [http.get(f"{path}/lasting").tree for path in (PODS, CONFIG_MAPS)] == before
        assert (
            http.patch(
                f"{CONFIG_MAPS}/lasting?fieldManager=other", applied("lasting", {"a": "2"}), APPLY
            ).status
            == 409
        )


def test_yaml_of_kubectl_is_applied(http: Http) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml-applied\ndata:\n  a: '1'\nimmutable: no\n"
    answer = http.patch(f"{CONFIG_MAPS}/yaml-applied?fieldManager=kubectl", body, APPLY)
    assert (answer.status, answer.tree["data"], answer.tree["immutable"]) == (
        201,
        {"a": "1"},
        False,
    )
    assert (
        json.dumps(entries(answer.tree)["kubectl", "Apply", ""], sort_keys=True)
        == '{"f:data": {"f:a": {}}, "f:immutable": {}}'
    )


def test_the_example_of_the_page(http: Http) -> None:
    section = PAGE.read_text().partition("## Who owns which field")[2].partition("\n## ")[0]
    example = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    refusal = re.search(r"^error: (.*)$", section, re.MULTILINE)
    assert example is not None and refusal is not None
    manifest = example[1].encode()
    other = manifest.replace(b'"100"', b'"200"')
    path = f"{CONFIG_MAPS}/limits"
    assert http.patch(f"{path}?fieldManager=ops", manifest, APPLY).status == 201
    assert http.patch(f"{path}?fieldManager=dev", other, APPLY).message == refusal[1]
    assert http.patch(f"{path}?fieldManager=dev&force=true", other, APPLY).tree["data"] == {
        "requests": "200"
    }
