"""Field sets behave like sets of paths, whatever the paths."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.apiserver.objects.merging import fieldsets
from hekla.local.apiserver.objects.merging.fieldsets import Path, Tree

ELEMENTS = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'v:"one"', "i:0"])
PATHS = st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple)
SETS = st.frozensets(PATHS, max_size=12)


def tree(paths: frozenset[Path]) -> Tree:
    return fieldsets.from_paths(sorted(paths))


def members(found: Tree) -> set[Path]:
    return set(fieldsets.paths(found))


@given(SETS)
def test_a_set_holds_what_was_put_in(paths: frozenset[Path]) -> None:
    found = tree(paths)
    assert members(found) == paths
    assert all(fieldsets.has(found, path) for path in paths)
    assert fieldsets.parse(json.loads(fieldsets.text(found))) == found


@given(SETS, st.randoms())
def test_the_order_of_insertion_does_not_matter(paths: frozenset[Path], random: Random) -> None:
    shuffled = list(paths)
    random.shuffle(shuffled)
    assert fieldsets.text(fieldsets.from_paths(shuffled)) == fieldsets.text(tree(paths))


@given(SETS, SETS)
def test_algebra_is_that_of_sets_of_paths(one: frozenset[Path], other: frozenset[Path]) -> None:
    left, right = tree(one), tree(other)
    assert members(fieldsets.union(left, right)) == one | other
    assert members(fieldsets.intersection(left, right)) == one & other
    assert members(fieldsets.difference(left, right)) == one - other


@given(SETS, SETS)
def test_a_recursive_difference_takes_what_is_below_too(
    one: frozenset[Path], other: frozenset[Path]
) -> None:
    left = {path for path in one if not any(path[: len(gone)] == gone for gone in other)}
    assert members(fieldsets.recursive_difference(tree(one), tree(other))) == left


@given(SETS, SETS)
def test_no_argument_is_changed(one: frozenset[Path], other: frozenset[Path]) -> None:
    left, right = tree(one), tree(other)
    before = fieldsets.text(left), fieldsets.text(right)
    for combined in (
        fieldsets.union,
        fieldsets.difference,
        fieldsets.intersection,
        fieldsets.recursive_difference,
    ):
        combined(left, right)
    assert (fieldsets.text(left), fieldsets.text(right)) == before


@pytest.mark.parametrize(
    "path, text",
    [
        (("f:data", "f:a"), ".data.a"),
        (
            ("f:spec", 'k:{"containerPort":80,"protocol":"TCP"}', "f:name"),
            '.spec[containerPort=80,protocol="TCP"].name',
        ),
        (("f:finalizers", 'v:"a/b"'), '.finalizers[="a/b"]'),
        (("f:list", "i:3"), ".list[3]"),
    ],
)
def test_paths_are_shown_as_kubernetes_prints_them(path: Path, text: str) -> None:
    assert fieldsets.shown(path) == text


@pytest.mark.parametrize(
    "wrong", [[], {"data": {}}, {"x:a": {}}, {"k:{": {}}, {"i:one": {}}, {"f:a": 1}]
)
def test_what_is_no_set_is_refused(wrong: object) -> None:
    with pytest.raises(fieldsets.BadFields):
        fieldsets.parse(wrong)


def test_keys_have_one_right_form() -> None:
    assert fieldsets.parse({'k:{ "b": 1, "a": 2 }': {".": {}}}) == {'k:{"a":2,"b":1}': {}}
