"""A list of n entries in one request costs n: four times as many entries are four times the work,
in every step of a write.

Work is counted, not timed: calls of functions, and comparisons of texts, which are where a search
through a list shows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from hekla.api.text import fielderrors
from hekla.api.text.fielderrors import LONGEST_SHOWN, invalid
from hekla.local.apiserver.objects import hashable
from hekla.local.apiserver.request import status
from tests.apiserver.samples import body
from tests.apiserver_objects.growth import Place, Steps, carried, places

FEW = 100
MOST = 5.5
"""Times that four times as much may take."""
PLACES = (
    "metadata.finalizers[]", "metadata.ownerReferences[]", "core/v1 Node status.addresses[]", "core/v1 Node status.conditions[]",
    "core/v1 Pod spec.topologySpreadConstraints[]", "core/v1 Pod spec.tolerations[]", "core/v1 Pod spec.containers[].env[]",
    "core/v1 Pod spec.containers[].resources.claims[]", "core/v1 Pod status.podIPs[]", "core/v1 Pod spec.hostAliases[]",
    "networking.k8s.io/v1 Ingress status.loadBalancer.ingress[]", "core/v1 Service spec.externalIPs[]",
    "core/v1 Service spec.loadBalancerSourceRanges[]", "storage.k8s.io/v1 CSINode spec.drivers[]",
    "networking.k8s.io/v1 NetworkPolicy spec.ingress[].from[]",
)  # fmt: skip
FOUND = list(places())


class Counted(str):
    """A text that counts how often it is compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def counted(tree: Any) -> Any:
    """The same tree of texts that count."""
    if isinstance(tree, dict):
        return {key: counted(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [counted(item) for item in tree]
    return Counted(tree) if isinstance(tree, str) else tree


def work(step: Callable[[], Any]) -> int:
    """Calls and comparisons of a step."""
    calls = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    carried(step)  # what is worked out once
    before, watching = Counted.comparisons, sys.getprofile()
    sys.setprofile(see)
    try:
        carried(step)
    finally:
        sys.setprofile(watching)
    return calls + Counted.comparisons - before


class CountedSteps(Steps):
    """The steps with texts that count, where they do not encode them: that only plain texts can be."""

    def __init__(self, place: Place, base: dict[str, Any], count: int) -> None:
        super().__init__(place, base, count)
        self.plain = Steps(place, base, count).steps()
        for name in ("typed", "empty", "half", "turned", "same", "operations"):
            setattr(self, name, counted(getattr(self, name)))

    def steps(self) -> dict[str, Callable[[], Any]]:
        found = super().steps()
        for name, step in found.items():
            try:
                carried(step)
            except TypeError:
                found[name] = self.plain[name]
        return found


@pytest.mark.parametrize("where", PLACES)
def test_work_grows_as_the_list_does(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # msgspec takes no texts but plain ones.
    monkeypatch.setattr(hashable, "_encode", lambda value: json.dumps(value, sort_keys=True))
    monkeypatch.setattr(fielderrors, "MOST_SHOWN", 5)
    place = next(place for place in FOUND if str(place).endswith(where))
    few, many = (
        CountedSteps(place, body(place.kind.group, place.kind.kind, "a"), count).steps()
        for count in (FEW, 4 * FEW)
    )
    grown = {name: (work(few[name]), work(many[name])) for name in few}
    assert {name: counts for name, counts in grown.items() if counts[1] > MOST * counts[0]} == {}


def test_an_answer_names_the_first_causes() -> None:
    errors = [invalid(f"spec.names[{number}]", "x", "no") for number in range(2500)]
    answer = status.invalid(FOUND[0].kind, "a", errors).tree()
    assert len(answer["details"]["causes"]) == 1000 and answer["message"].endswith("and 1500 more]")


def test_a_message_shows_the_beginning_of_what_is_long() -> None:
    names = [f"name-{number}" for number in range(100_000)]
    for long in (names, dict.fromkeys(names), [{"a": names}], ["x" * 100_000]):
        assert len(invalid("spec", long, "no").text) < LONGEST_SHOWN + 100
    short = names[:900]
    assert invalid("spec", short, "no").text.endswith('name-899"]: no')
