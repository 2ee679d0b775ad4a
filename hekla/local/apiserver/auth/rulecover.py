"""Which of the rules that a user wants to grant are not covered by the rules that he has.

A rule stands for every combination of its verbs, groups, resources and names. One role of a
megabyte may have a thousand million of them, so they are not enumerated: the values of each field
are grouped by the held rules that contain them, and a combination of groups that one held rule
covers is not divided any further.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from typing import NamedTuple

from hekla.api.trees import Json

MAX_REPORTED = 5000
"""How many missing rights are reported, each with one verb; nobody reads more."""
MAX_STEPS = 1_000_000
"""How many groups of combinations are checked for one answer."""

Rules = int
"""A set of held rules: bit i stands for the i-th rule."""


class TooManyCombinations(Exception):
    """The rules overlap in more ways than can be checked."""


class Fields(NamedTuple):
    """For each value of each field, the held rules that contain it."""

    verbs: dict[str, Rules]
    groups: dict[str, Rules]
    resources: dict[str, Rules]
    names: dict[str, Rules]
    urls: dict[str, Rules]
    prefixes: dict[str, Rules]
    """URLs that end with a star, without it."""
    unnamed: Rules
    """Rules without resourceNames, which cover every name."""


class Bundle(NamedTuple):
    """Values of one field that are in the same held rules."""

    rules: Rules
    values: list[str]


def lacking(held: Iterable[Json], wanted: Iterable[Json]) -> list[Json]:
    """The part of the wanted rules that the held rules do not cover, as rules; verbs on the same
    object are in one rule. Reports at most `MAX_REPORTED` verbs in total.

    Raises TooManyCombinations if the answer would take too long.
    """
    known = fields_of(held)
    missing_by_object: dict[tuple[str, ...], tuple[Json, dict[str, None]]] = {}
    steps = iter(range(MAX_STEPS))
    left = MAX_REPORTED
    for key, missing in chain.from_iterable(_missing_of(known, rule, steps) for rule in wanted):
        _, verbs = missing_by_object.setdefault(key, (missing, {}))
        before = len(verbs)
        verbs.update(dict.fromkeys(missing["verbs"][:left]))
        left -= len(verbs) - before
        if left <= 0:
            break
    return [{**missing, "verbs": list(verbs)} for missing, verbs in missing_by_object.values()]


def fields_of(held: Iterable[Json]) -> Fields:
    """The fields of the held rules."""
    known = Fields({}, {}, {}, {}, {}, {}, 0)
    unnamed = 0
    for number, rule in enumerate(held):
        bit = 1 << number
        for field, table in (
            ("verbs", known.verbs),
            ("apiGroups", known.groups),
            ("resources", known.resources),
        ):
            _note(table, rule.get(field), bit)
        _note(known.names, rule.get("resourceNames"), bit)
        if not rule.get("resourceNames"):
            unnamed |= bit
        for url in rule.get("nonResourceURLs") or []:
            if url.endswith("*"):
                _note(known.prefixes, [url.rstrip("*")], bit)
            _note(known.urls, [url], bit)
    return known._replace(unnamed=unnamed)


def _note(table: dict[str, Rules], values: list[str] | None, bit: Rules) -> None:
    for value in values or ():
        table[value] = table.get(value, 0) | bit


def _missing_of(
    known: Fields, rule: Json, steps: Iterator[int]
) -> Iterator[tuple[tuple[str, ...], Json]]:
    """The uncovered parts of one wanted rule, each with a key of what it is about."""
    verbs = _bundles(rule.get("verbs"), lambda verb: _any_of(known.verbs, verb))
    every_verb = _in_all(verbs)
    urls = _bundles(rule.get("nonResourceURLs"), lambda url: _of_url(known, url))
    for combination, missing in _uncovered([urls], verbs, every_verb, steps):
        for (url,) in product(*combination):
            for verb in missing:
                yield ("url", url, verb), {"nonResourceURLs": [url], "verbs": [verb]}
    groups = _bundles(rule.get("apiGroups"), lambda group: _any_of(known.groups, group))
    resources = _bundles(rule.get("resources"), lambda resource: _of_resource(known, resource))
    names = _bundles(
        rule.get("resourceNames"), lambda name: known.unnamed | known.names.get(name, 0)
    )
    # A rule without names is about all names, so only a rule without names covers it.
    for combination, missing in _uncovered(
        [groups, resources, names or [Bundle(known.unnamed, [""])]], verbs, every_verb, steps
    ):
        for group, resource, name in product(*combination):
            named = [name] if names else []
            lacked: Json = {
                "apiGroups": [group],
                "resources": [resource],
                "resourceNames": named,
                "verbs": missing,
            }
            yield ("resource", group, resource, *named), lacked


def _uncovered(
    fields: list[list[Bundle]], verbs: list[Bundle], every_verb: Rules, steps: Iterator[int]
) -> Iterator[tuple[tuple[list[str], ...], list[str]]]:
    """Combinations of bundles, one for each field, with the verbs that no held rule gives on them."""
    everywhere = [_in_all(field) for field in fields]  # rules that contain all values of a field
    behind = every_verb  # rules that contain all values of the later fields, and all verbs
    rests = []
    for covering in reversed(everywhere):
        rests.append(behind)
        behind &= covering
    rests.reverse()
    if behind or not verbs:
        return
    waiting: list[tuple[int, Rules, tuple[list[str], ...]]] = [(0, -1, ())]
    while waiting:
        depth, rules, values = waiting.pop()
        if depth == len(fields):
            missing = [
                verb for bundle in verbs if not bundle.rules & rules for verb in bundle.values
            ]
            if missing:
                yield values, missing
            continue
        for bundle in reversed(fields[depth]):
            if next(steps, None) is None:
                raise TooManyCombinations
            both = rules & bundle.rules
            if not both & rests[depth]:
                waiting.append((depth + 1, both, (*values, bundle.values)))


def _bundles(values: Iterable[str] | None, rules_of: Callable[[str], Rules]) -> list[Bundle]:
    bundles: dict[Rules, list[str]] = {}
    for value in dict.fromkeys(values or ()):
        bundles.setdefault(rules_of(value), []).append(value)
    return [Bundle(rules, alike) for rules, alike in bundles.items()]


def _in_all(bundles: list[Bundle]) -> Rules:
    rules = -1
    for bundle in bundles:
        rules &= bundle.rules
    return rules


def _any_of(table: dict[str, Rules], value: str) -> Rules:
    return table.get(value, 0) | table.get("*", 0)


def _of_resource(known: Fields, resource: str) -> Rules:
    _, slash, subresource = resource.partition("/")
    return _any_of(known.resources, resource) | (
        known.resources.get(f"*/{subresource}", 0) if slash else 0
    )


def _of_url(known: Fields, url: str) -> Rules:
    rules = known.urls.get(url, 0)
    for length in range(len(url) + 1) if known.prefixes else ():
        rules |= known.prefixes.get(url[:length], 0)
    return rules


def shown(rule: Json) -> str:
    """A rule as Kubernetes prints it."""
    parts = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    texts = [
        f"{title}:[{' '.join(map(json.dumps, sorted(set(rule[field]))))}]"
        for title, field in parts
        if rule.get(field)
    ]
    return "{" + ", ".join(texts) + "}"
