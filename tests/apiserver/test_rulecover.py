"""What held rules do not cover of wanted ones: the short way against the long one, and in a time
that the rules' own size bounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.apiserver.auth import rulecover
from hekla.local.apiserver.auth.rulecover import MAX_REPORTED, TooManyCombinations, lacking

Rule = dict[str, Any]


def few(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=3)


RESOURCES = few("pods", "jobs", "pods/log", "jobs/log", "*/log", "*")
RULES = st.lists(
    st.fixed_dictionaries(
        {"verbs": few("get", "list", "create", "*")},
        optional={
            "apiGroups": few("", "batch", "*"),
            "resources": RESOURCES,
            "resourceNames": few("a", "b", "c"),
            "nonResourceURLs": few("/a", "/a/b", "/a/*", "/a*", "*"),
        },
    ),
    max_size=4,
)


def has(rule: Rule, field: str, value: str) -> bool:
    return value in rule.get(field, ()) or "*" in rule.get(field, ())


def covers(rule: Rule, verb: str, group: str, resource: str, name: str | None) -> bool:
    _, slash, part = resource.partition("/")
    resources = has(rule, "resources", resource) or (
        bool(slash) and f"*/{part}" in rule.get("resources", ())
    )
    names = rule.get("resourceNames")
    return (
        has(rule, "verbs", verb)
        and has(rule, "apiGroups", group)
        and resources
        and (not names or name in names)
    )


def covers_url(rule: Rule, verb: str, url: str) -> bool:
    urls = rule.get("nonResourceURLs", ())
    return has(rule, "verbs", verb) and any(
        one == url or (one.endswith("*") and url.startswith(one.rstrip("*"))) for one in urls
    )


def written_out(held: list[Rule], wanted: list[Rule]) -> set[tuple[Any, ...]]:
    """Every single thing that is lacking, by asking about every combination."""
    found: set[tuple[Any, ...]] = set()
    for rule in wanted:
        for verb, url in product(rule["verbs"], rule.get("nonResourceURLs", ())):
            if not any(covers_url(one, verb, url) for one in held):
                found.add((verb, url))
        names: list[str | None] = rule.get("resourceNames") or [None]
        for thing in product(
            rule["verbs"], rule.get("apiGroups", ()), rule.get("resources", ()), names
        ):
            if not any(covers(one, *thing) for one in held):
                found.add(thing)
    return found


def single(missing: list[Rule]) -> list[tuple[Any, ...]]:
    return [
        (verb, rule["nonResourceURLs"][0])
        if "nonResourceURLs" in rule
        else (
            verb,
            rule["apiGroups"][0],
            rule["resources"][0],
            (rule["resourceNames"] or [None])[0],
        )
        for rule in missing
        for verb in rule["verbs"]
    ]


@given(RULES, RULES)
def test_it_agrees_with_trying_every_combination(held: list[Rule], wanted: list[Rule]) -> None:
    missing = single(lacking(held, wanted))

    assert set(missing) == written_out(held, wanted)
    assert len(set(missing)) == len(missing)


def test_all_resources_and_all_paths_are_two_things() -> None:
    everything: list[Rule] = [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]

    assert len(lacking([], everything)) == 2


def many(of: str) -> list[str]:
    return [f"{of}{number}" for number in range(20_000)]


HUGE: Rule = {
    "verbs": many("v"),
    "apiGroups": many("g"),
    "resources": many("r"),
    "resourceNames": many("n"),
}


@pytest.mark.timeout(20)
def test_a_rule_of_ten_to_the_seventeenth_things_is_answered() -> None:
    assert lacking([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], [HUGE]) == []
    assert lacking([HUGE], [HUGE]) == []
    assert len(single(lacking([{**HUGE, "verbs": ["v0"]}], [HUGE]))) == MAX_REPORTED
    assert (
        len(single(lacking([], [{"verbs": many("v"), "nonResourceURLs": many("/")}])))
        == MAX_REPORTED
    )


@pytest.mark.timeout(20)
def test_rules_that_overlap_in_endless_ways_are_not_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rulecover, "MAX_STEPS", 1000)
    values = [str(number) for number in range(60)]
    held = [
        {
            "verbs": ["get"],
            "apiGroups": values[: at + 1],
            "resources": [*values[:at], *values[at + 1 :]],
        }
        for at in range(60)
    ] + [
        {"verbs": ["get"], "apiGroups": values[at:], "resources": [values[at]]} for at in range(60)
    ]

    with pytest.raises(TooManyCombinations):
        lacking(held, [{"verbs": ["get"], "apiGroups": values, "resources": values}])
