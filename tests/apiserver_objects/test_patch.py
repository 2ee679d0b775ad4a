"""The three patch languages, against the reference's words and against slow models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.merging.patch import apply_json, apply_merge, apply_strategic
from tests.apiserver_objects.trees import body


def pod() -> fields.Message:
    described = fields.root("", "v1", "Pod")
    assert described is not None
    return described


# --- JSON patch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "operations", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a/b": {"~": 1}}, [{"op": "remove", "path": "/a~1b/~0"}], {"a/b": {}}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        (
            {"a": {"x": 1}},
            [{"op": "copy", "from": "/a", "path": "/b"}],
            {"a": {"x": 1}, "b": {"x": 1}},
        ),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1]}),
    ],
)
def test_json_patch(tree: Any, operations: Any, expected: Any) -> None:
    assert apply_json(tree, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/b"},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "replace", "path": "/l/9", "value": 1},
        {"op": "move", "from": "/l", "path": "/l/0"},
        {"op": "add", "path": "no slash", "value": 1},
        {"op": "leap", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_an_operation_that_does_not_apply_is_a_422(operation: Any) -> None:
    with pytest.raises(
        BadBody, match="the server rejected our request due to an error in our request"
    ) as refusal:
        apply_json({"a": 1, "l": [1]}, [operation])
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")


def test_places_are_read_as_leniently_as_kubernetes_reads_them() -> None:
    assert apply_json({"a": 1}, [{"op": "copy", "from": "/none", "path": "/b"}]) == {
        "a": 1,
        "b": None,
    }
    assert apply_json({"a": 1}, [{"op": "add", "path": "said/b", "value": 2}]) == {"a": 1, "b": 2}
    assert apply_json({"a": 1}, [{"op": "test", "path": "/none", "value": None}]) == {"a": 1}
    for operation in (
        {"op": "test", "path": "/none/none", "value": None},
        {"op": "add", "path": "b", "value": 2},
    ):
        with pytest.raises(BadBody):
            apply_json({"a": 1}, [operation])


def test_a_patch_that_copies_without_end_is_refused() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/x{n}"} for n in range(40)]
    with pytest.raises(BadBody, match="accumulated size"):
        apply_json({"a": {"text": "x" * 100}}, doubling)


KEYS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(KEYS, TREES, max_size=3)
OPERATIONS = st.builds(
    lambda op, path, source, value: {
        "op": op,
        "path": "".join(f"/{key}" for key in path),
        "from": f"/{source}",
        "value": value,
    },
    st.sampled_from(["add", "remove", "replace", "test", "copy", "move"]),
    st.lists(KEYS, min_size=1, max_size=3),
    KEYS,
    TREES,
)


def model(tree: Any, operation: dict[str, Any]) -> Any:
    """JSON patch on objects alone, the slow and plain way; None when it does not apply."""
    tree = copy.deepcopy(tree)
    path = operation["path"].split("/")[1:]
    value = copy.deepcopy(operation["value"])
    if operation["op"] in ("copy", "move"):
        source = operation["from"][1:]
        if operation["op"] == "move" and (
            source not in tree or (path[0] == source and len(path) > 1)
        ):
            return None
        value = copy.deepcopy(tree.get(source))
        if operation["op"] == "move":
            del tree[source]
    parent = tree
    for key in path[:-1]:
        if not isinstance(parent, dict) or key not in parent:
            return None
        parent = parent[key]
    if not isinstance(parent, dict):
        return None
    if operation["op"] in ("remove", "test") and path[-1] not in parent:
        return None
    if operation["op"] == "test":
        return tree if parent[path[-1]] == value else None
    if operation["op"] == "remove":
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return tree


@given(OBJECTS, OPERATIONS)
@settings(max_examples=400)
def test_json_patch_agrees_with_the_slow_model(tree: Any, operation: Any) -> None:
    expected = model(tree, operation)
    try:
        found = apply_json(copy.deepcopy(tree), [operation])
    except BadBody:
        found = None
    assert found == expected


# --- merge patch ----------------------------------------------------------------------------------


def test_merge_patch_removes_by_null_and_replaces_lists() -> None:
    tree = {"data": {"a": "1", "b": "2"}, "list": [1, 2]}
    patch = {"data": {"a": None, "c": {"x": None, "y": 1}}, "list": [3]}
    assert apply_merge(tree, patch) == {"data": {"b": "2", "c": {"y": 1}}, "list": [3]}


@given(OBJECTS, OBJECTS)
def test_merge_patch_twice_is_once(tree: Any, patch: Any) -> None:
    once = apply_merge(tree, patch)
    assert apply_merge(once, patch) == once


# --- strategic merge ------------------------------------------------------------------------------


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in names]}}


def test_one_container_changes_and_the_others_stay() -> None:
    patch = {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}
    found = apply_strategic(containers("a", "b"), patch, pod())
    assert found["spec"]["containers"] == [
        {"name": "a", "image": "a:1"},
        {"name": "b", "image": "b:2"},
    ]


def test_environment_merges_and_tolerations_are_replaced() -> None:
    tree = containers("a")
    tree["spec"]["containers"][0]["env"] = [{"name": "X", "value": "1"}]
    tree["spec"]["tolerations"] = [{"key": "old"}]
    patch = {
        "spec": {
            "containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}],
            "tolerations": [{"key": "new"}],
        }
    }
    found = apply_strategic(tree, patch, pod())
    assert found["spec"]["containers"][0]["env"] == [
        {"name": "Y", "value": "2"},
        {"name": "X", "value": "1"},
    ]
    assert found["spec"]["tolerations"] == [{"key": "new"}]


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        ([{"name": "a", "$patch": "delete"}], ["b", "c"]),
        ([{"$patch": "replace"}, {"name": "z"}], ["z"]),
        ([{"name": "d"}], ["d", "a", "b", "c"]),
    ],
)
def test_directives_in_lists(patch: Any, names: list[str]) -> None:
    found = apply_strategic(containers("a", "b", "c"), {"spec": {"containers": patch}}, pod())
    assert [item["name"] for item in found["spec"]["containers"]] == names


def test_the_order_of_a_list_can_be_set() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c", "image": "c:2"}],
        }
    }
    found = apply_strategic(containers("a", "b", "c"), patch, pod())
    assert [item["name"] for item in found["spec"]["containers"]] == ["b", "c", "a"]


def test_finalizers_are_a_set() -> None:
    tree = {"metadata": {"finalizers": ["a/b", "c/d"]}}
    assert apply_strategic(tree, {"metadata": {"finalizers": ["e/f", "a/b"]}}, pod())["metadata"][
        "finalizers"
    ] == ["e/f", "a/b", "c/d"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}
    assert apply_strategic(tree, patch, pod())["metadata"]["finalizers"] == ["c/d"]


def test_retain_keys_and_replace_in_objects() -> None:
    deployment = fields.root("apps", "v1", "Deployment")
    assert deployment is not None
    tree = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    retained = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    replaced = {"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}
    for patch in (retained, replaced):
        assert apply_strategic(tree, patch, deployment)["spec"]["strategy"] == {"type": "Recreate"}


def test_an_element_without_its_key_is_refused() -> None:
    with pytest.raises(BadBody, match="does not contain declared merge key: name") as refusal:
        apply_strategic(containers("a"), {"spec": {"containers": [{"image": "x"}]}}, pod())
    assert refusal.value.code == 422


MERGE_KEYS = (
    "name", "mountPath", "devicePath", "ip", "containerPort", "topologyKey", "uid", "type", "port",
)  # fmt: skip


def repeats(patch: Any) -> bool:
    """Whether some list of a patch may name one element twice."""
    if isinstance(patch, dict):
        return any(map(repeats, patch.values()))
    if not isinstance(patch, list):
        return False
    for key in MERGE_KEYS:
        named = [repr(item[key]) for item in patch if isinstance(item, dict) and key in item]
        if len(named) > len(set(named)):
            return True
    plain = [repr(item) for item in patch if not isinstance(item, dict)]
    return len(plain) > len(set(plain)) or any(map(repeats, patch))


@given(body("core.v1", "Pod"), body("core.v1", "Pod"))
@settings(max_examples=60, deadline=None)
def test_strategic_merge_twice_is_once(tree: Any, patch: Any) -> None:
    try:
        once = apply_strategic(tree, patch, pod())
        twice = apply_strategic(once, patch, pod())
    except BadBody:
        # the first time already, or elements without keys: a list that is not there yet takes them
        # as they are
        return
    assert apply_strategic(twice, patch, pod()) == twice
    # A list that is not there yet takes a repeated element twice, too; the second patch merges both
    # into the first, as in Kubernetes.
    assert twice == once or repeats(patch)


@given(body("core.v1", "Pod"), body("core.v1", "Pod", junk=True))
@settings(max_examples=60, deadline=None)
def test_any_strategic_patch_is_applied_or_refused(tree: Any, patch: Any) -> None:
    before = copy.deepcopy(patch)
    try:
        apply_strategic(tree, patch, pod())
    except BadBody as refusal:
        assert refusal.code in (400, 422)
    assert patch == before
