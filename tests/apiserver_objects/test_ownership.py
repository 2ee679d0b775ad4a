"""Ownership of fields: stories and properties."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.merging import fieldsets, merging, ownership, topology
from hekla.local.apiserver.objects.merging.merging import Unmergeable
from hekla.local.apiserver.objects.merging.ownership import (
    APPLY,
    UPDATE,
    Conflicts,
    Owner,
    Scope,
    Share,
    Shares,
)
from hekla.local.apiserver.storage.managed_fields import NOBODY, ManagedFields

Tree = dict[str, Any]

SCHEMA: Tree = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "one": {"type": "string"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "string"}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "named": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"},
                                                               "more": {"type": "string"}}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}  # fmt: skip
SCOPE = Scope(topology.of_schema(SCHEMA, root=True), "x/v1")
POD = Scope(topology.of_kind("core.v1", "Pod"), "v1", frozenset({"status"}))


def thing(**spec: Any) -> Tree:
    return {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def apply(
    live: Tree, shares: Shares, manager: str, configuration: Tree, *, force: bool = False
) -> tuple[Tree, Shares]:
    return ownership.applied(
        SCOPE, live, configuration, shares, Owner(manager, APPLY), 7, force=force
    )


def created(manager: str, configuration: Tree) -> tuple[Tree, Shares]:
    return apply({"metadata": {}}, {}, manager, configuration)


def owned(shares: Shares, manager: str) -> set[str]:
    return {
        fieldsets.shown(path)
        for owner, share in shares.items()
        if owner.manager == manager
        for path in fieldsets.paths(share.fields)
    }


# --- stories --------------------------------------------------------------------------------------


def test_an_applier_owns_what_it_applies() -> None:
    live, shares = created("a", thing(one="1", map={"x": "y"}, named=[{"name": "n", "value": "v"}]))
    assert live == thing(one="1", map={"x": "y"}, named=[{"name": "n", "value": "v"}])
    assert owned(shares, "a") == {
        ".spec.one",
        ".spec.map.x",
        '.spec.named[name="n"]',
        '.spec.named[name="n"].name',
        '.spec.named[name="n"].value',
    }


def test_what_is_no_longer_applied_goes_unless_another_owns_it() -> None:
    live, shares = created("a", thing(map={"mine": "1", "both": "1"}))
    live, shares = apply(live, shares, "b", thing(map={"both": "1"}))
    live, shares = apply(live, shares, "a", thing(one="1"))
    assert live == thing(map={"both": "1"}, one="1")
    assert owned(shares, "b") == {".spec.map.both"}


def test_an_updaters_fields_stay_when_an_applier_gives_them_up() -> None:
    live, shares = created("a", thing(one="1", map={"x": "1"}))
    changed = thing(one="2", map={"x": "1", "y": "1"})
    shares = ownership.updated(SCOPE, live, changed, shares, Owner("u", UPDATE, "", "x/v1"), 8)
    live, shares = apply(changed, shares, "a", thing(list=["z"]))
    assert live == thing(one="2", map={"y": "1"}, list=["z"])
    assert owned(shares, "u") == {".spec.one", ".spec.map.y"}


def test_an_element_goes_with_its_applier_whoever_wrote_into_it() -> None:
    live, shares = created("a", thing(named=[{"name": "n", "value": "v"}]))
    changed = thing(named=[{"name": "n", "value": "v", "more": "m"}])
    shares = ownership.updated(SCOPE, live, changed, shares, Owner("u", UPDATE, "", "x/v1"), 8)
    live, shares = apply(changed, shares, "a", thing(one="1"))
    assert live == thing(one="1")
    assert owned(shares, "u") == set()


def test_another_value_is_a_conflict_and_force_takes_it() -> None:
    live, shares = created("a", thing(one="1", list=["x"]))
    with pytest.raises(Conflicts) as refused:
        apply(live, shares, "b", thing(one="2", list=["y"]))
    said = 'Apply failed with 2 conflicts: conflicts with "a":\n- .spec.list\n- .spec.one'
    assert ownership.conflict_message(refused.value.found) == said
    live, shares = apply(live, shares, "b", thing(one="2", list=["y"]), force=True)
    assert live == thing(one="2", list=["y"])
    assert owned(shares, "a") == set()


def test_a_conflict_names_the_version_of_an_updater() -> None:
    live, shares = created("a", thing(one="1"))
    changed = thing(one="2")
    shares = ownership.updated(
        SCOPE, live, changed, shares, Owner("u", UPDATE, "status", "x/v1"), 8
    )
    with pytest.raises(Conflicts) as refused:
        apply(changed, shares, "a", thing(one="1"))
    assert ownership.conflict_message(refused.value.found) == (
        'Apply failed with 1 conflict: conflict with "u" with subresource "status" using x/v1: .spec.one'
    )


def test_elements_merge_by_key_in_the_order_of_both() -> None:
    live, shares = created("a", thing(named=[{"name": "1"}, {"name": "2"}, {"name": "3"}]))
    live, _ = apply(
        live,
        shares,
        "b",
        thing(named=[{"name": "3", "value": "v"}, {"name": "new"}, {"name": "1"}]),
    )
    assert [item["name"] for item in live["spec"]["named"]] == ["2", "3", "new", "1"]


@pytest.mark.parametrize(
    "configuration, errors",
    [
        (thing(zap=1), [".spec.zap: field not declared in schema"]),
        (thing(one=1), [".spec.one: expected string, got &value.valueUnstructured{Value:1}"]),
        (thing(map=["x"]), [".spec.map: expected map, got &{[x]}"]),
        (thing(set={}), [".spec.set: expected list, got &{map[]}"]),
        (thing(set=["x", "x"]), ['.spec.set: duplicate entries for key [="x"]']),
        (
            thing(named=[{"name": "n"}, {"name": "n"}]),
            ['.spec.named: duplicate entries for key [name="n"]'],
        ),
        (thing(free={"any": [1, {"x": None}]}), []),
    ],
)
def test_a_configuration_is_checked(configuration: Tree, errors: list[str]) -> None:
    assert merging.check(SCOPE.node, configuration) == errors


def test_an_element_without_its_key_cannot_be_merged() -> None:
    with pytest.raises(Unmergeable, match="omits all key fields"):
        merging.field_set(SCOPE.node, thing(named=[{"value": "v"}]))


def test_the_eleventh_updater_makes_the_oldest_one_entry() -> None:
    shares: Shares = {}
    live = thing()
    for number in range(12):
        changed = thing(map={f"k{n}": "v" for n in range(number + 1)})
        shares = ownership.updated(
            SCOPE, live, changed, shares, Owner(f"u{number:02}", UPDATE, "", "x/v1"), 100 + number
        )
        live = changed
    assert len(shares) == ownership.MOST_UPDATERS
    assert {".spec.map.k0", ".spec.map.k1", ".spec.map.k2"} <= owned(shares, "ancient-changes")
    assert {owner.manager for owner in shares} == {
        "ancient-changes",
        *(f"u{number:02}" for number in range(3, 12)),
    }


def test_what_nobody_was_known_to_own_belongs_to_those_before() -> None:
    live = thing(one="1", map={"x": "y"})
    live["metadata"]["uid"] = "u"
    with pytest.raises(Conflicts) as refused:
        apply(live, {}, "a", thing(one="2"))
    assert refused.value.found[0].owner.manager == "before-first-apply"


def test_kubectl_takes_over_from_its_client_side_self() -> None:
    last = '{"apiVersion":"x/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"one":"1"}}'
    live = thing(one="1")
    live["metadata"]["annotations"] = {ownership.LAST_APPLIED: last}
    shares = ownership.updated(
        SCOPE, {}, live, {}, Owner("kubectl-client-side-apply", UPDATE, "", "x/v1"), 1
    )
    with pytest.raises(Conflicts):
        apply(live, shares, "another", thing(one="2"))
    live, shares = apply(live, shares, "kubectl", thing(one="2"))
    assert live["spec"] == {"one": "2"}
    assert '"one":"2"' in live["metadata"]["annotations"][ownership.LAST_APPLIED]


# --- laws -----------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["1", "2", "3"])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "one": TEXTS,
        "map": st.dictionaries(st.sampled_from("xyz"), TEXTS, min_size=1, max_size=3),
        "whole": st.dictionaries(st.sampled_from("xyz"), TEXTS, min_size=1, max_size=2),
        "list": st.lists(TEXTS, min_size=1, max_size=3),
        "set": st.lists(TEXTS, min_size=1, max_size=3, unique=True),
        "named": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("pqr")}, optional={"value": TEXTS, "more": TEXTS}
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda item: item["name"],
        ),
        "free": st.dictionaries(
            st.sampled_from("xyz"),
            st.one_of(TEXTS, st.dictionaries(st.sampled_from("uv"), TEXTS, min_size=1)),
            min_size=1,
        ),
    },
)


@given(SPECS, SPECS)
def test_applying_twice_is_applying_once(before: Tree, spec: Tree) -> None:
    live, shares = created("a", thing(**before))
    once = apply(live, shares, "b", thing(**spec), force=True)
    twice = apply(*once, "b", thing(**spec))
    assert twice == once


@given(SPECS, SPECS)
def test_a_lone_applier_gets_what_it_applies(before: Tree, spec: Tree) -> None:
    live, shares = created("a", thing(**before))
    live, shares = apply(live, shares, "a", thing(**spec))
    assert without_empties(live) == without_empties(thing(**spec))


@given(SPECS, SPECS)
def test_applying_and_giving_up_leaves_the_others_alone(first: Tree, second: Tree) -> None:
    live, shares = created("a", thing(**first))
    try:
        both, both_shares = apply(live, shares, "b", thing(**second))
    except Conflicts:
        return
    left, left_shares = apply(
        both, both_shares, "b", {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "t"}}
    )
    assert unordered(without_empties(left)) == unordered(without_empties(live))
    assert owned(left_shares, "b") == set()


@given(SPECS, SPECS)
def test_a_conflict_is_never_with_an_equal_value(first: Tree, second: Tree) -> None:
    live, shares = created("a", thing(**first))
    try:
        apply(live, shares, "b", thing(**second))
    except Conflicts as conflicts:
        merged = merging.merge(SCOPE.node, live, thing(**second))
        difference = merging.compare(SCOPE.node, live, merged)
        assert {conflict.path for conflict in conflicts.found} <= {
            *difference.added,
            *difference.modified,
        }


@given(SPECS, SPECS, SPECS)
def test_the_fast_path_agrees_with_the_slow_algorithm(
    first: Tree, second: Tree, third: Tree
) -> None:
    book = ManagedFields()
    live = thing()
    held, shares = NOBODY, {}
    for number, spec in enumerate((first, second, third)):
        owner = Owner(f"u{number % 2}", UPDATE, "", "x/v1")
        changed = thing(**copy.deepcopy(spec))
        if not number:
            held = book.created(SCOPE, changed, owner)
            shares = ownership.updated(SCOPE, {}, changed, {}, owner, 1)
        elif shares:
            held = book.updated(SCOPE, live, changed, held, owner)
            shares = ownership.updated(SCOPE, live, changed, shares, owner, 1)
        live = changed
        owners, stamps = held
        if owners is None:
            assert not shares
            shares = {}
            break
        assert untimed(owners.shares(stamps)) == untimed(shares)


def test_pods_of_one_template_share_their_owners() -> None:
    pods = next(kind for kind in builtin.kinds() if kind.kind == "Pod")
    book = ManagedFields()

    def pod(number: int) -> Tree:
        tree: Tree = {
            "metadata": {
                "name": f"p-{number}",
                "labels": {"index": str(number)},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Job", "name": "j", "uid": f"u-{number}"}
                ],
            },
            "spec": {
                "containers": [
                    {"name": "c", "image": "i", "env": [{"name": "N", "value": str(number)}]}
                ]
            },
        }
        pods.strategy.default(tree)
        return tree

    trees = [pod(number) for number in range(50)]
    held = [book.created(POD, tree, Owner("m", UPDATE, "", "v1")) for tree in trees]
    assert len({id(owners) for owners, _ in held}) == 1
    for number, (owners, stamps) in enumerate(held):
        assert owners is not None
        assert f'k:{{\\"uid\\":\\"u-{number}\\"}}'.encode() in owners.render(stamps)
        assert len(stamps) < 12
        slow = ownership.updated(POD, {}, trees[number], {}, Owner("m", UPDATE, "", "v1"), 1)
        assert untimed(owners.shares(stamps)) == untimed(slow)
        assert book.read(fieldsets.decode(owners.render(stamps))) == (owners, stamps)


def untimed(shares: Shares) -> Shares:
    return {owner: Share(share.version, share.fields, 0) for owner, share in shares.items()}


def without_empties(tree: Any) -> Any:
    if isinstance(tree, dict):
        found = {key: without_empties(value) for key, value in tree.items()}
        return {key: value for key, value in found.items() if value not in ({}, [], None)}
    return [without_empties(item) for item in tree] if isinstance(tree, list) else tree


def unordered(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: unordered(value) for key, value in tree.items()}
    return sorted((unordered(item) for item in tree), key=str) if isinstance(tree, list) else tree
