"""Which of the rules that somebody wants to grant are not covered by those that he holds.

A rule stands for every combination of its verbs, groups, resources and names.  Writing all of them
out would let one role of a megabyte ask about a thousand million.  So the values of each field are
gathered by the held rules that have them, and what one held rule covers whole is not looked into.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from typing import NamedTuple

from hekla.api.trees import Json

MOST_SHOWN = 5000
"""Single things that are missing, a verb each, that are worked out; who reads the answer needs no
more of them."""
MOST_STEPS = 1_000_000
"""Groups of combinations that are looked into for one answer."""

Rules = int
"""A set of held rules: bit i stands for the i-th."""


class TooManyCombinations(Exception):
    """The rules overlap in more ways than can be looked into."""


class Fields(NamedTuple):
    """For each value of each field the held rules that have it."""

    verbs: dict[str, Rules]
    groups: dict[str, Rules]
    resources: dict[str, Rules]
    names: dict[str, Rules]
    urls: dict[str, Rules]
    prefixes: dict[str, Rules]
    """What the URLs that end with a star begin with."""
    unnamed: Rules
    """Rules for objects of any name."""


class Bundle(NamedTuple):
    """Values of one field that the same held rules have."""

    rules: Rules
    values: list[str]


def lacking(held: Iterable[Json], wanted: Iterable[Json]) -> list[Json]:
    """What the held rules do not cover of the wanted ones, as rules; verbs of the same thing
    together.

    Gives `MOST_SHOWN` verbs at most, in all of them together.

    Raises TooManyCombinations where that cannot be found out in a reasonable time.
    """
    known = fields_of(held)
    found: dict[tuple[str, ...], tuple[Json, dict[str, None]]] = {}
    steps = iter(range(MOST_STEPS))
    left = MOST_SHOWN
    for key, missing in chain.from_iterable(_lacking_of(known, rule, steps) for rule in wanted):
        _, verbs = found.setdefault(key, (missing, {}))
        before = len(verbs)
        verbs.update(dict.fromkeys(missing["verbs"][:left]))
        left -= len(verbs) - before
        if left <= 0:
            break
    return [{**missing, "verbs": list(verbs)} for missing, verbs in found.values()]


def fields_of(held: Iterable[Json]) -> Fields:
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


def _lacking_of(
    known: Fields, rule: Json, steps: Iterator[int]
) -> Iterator[tuple[tuple[str, ...], Json]]:
    """The rules of one wanted rule that nothing covers, each with what it is about."""
    verbs = _gathered(rule.get("verbs"), lambda verb: _any_of(known.verbs, verb))
    every_verb = _in_all(verbs)
    urls = _gathered(rule.get("nonResourceURLs"), lambda url: _of_url(known, url))
    for combination, missing in _uncovered([urls], verbs, every_verb, steps):
        for (url,) in product(*combination):
            for verb in missing:
                yield ("url", url, verb), {"nonResourceURLs": [url], "verbs": [verb]}
    groups = _gathered(rule.get("apiGroups"), lambda group: _any_of(known.groups, group))
    resources = _gathered(rule.get("resources"), lambda resource: _of_resource(known, resource))
    names = _gathered(
        rule.get("resourceNames"), lambda name: known.unnamed | known.names.get(name, 0)
    )
    # Without a name it is all of them, which only a rule without names covers.
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
    """Combinations of bundles, one a field, with the verbs that no held rule gives on them."""
    everywhere = [_in_all(field) for field in fields]  # rules that have all values of a field
    behind = every_verb  # and those that have all of the fields behind it, and all verbs
    rests = []
    for one in reversed(everywhere):
        rests.append(behind)
        behind &= one
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


def _gathered(values: Iterable[str] | None, rules_of: Callable[[str], Rules]) -> list[Bundle]:
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
