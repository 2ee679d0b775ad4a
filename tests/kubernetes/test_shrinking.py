"""A long script that shows a difference becomes a short one that shows it too."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.exchange import Script, Step
from tests.kubernetes.shrinking import ATTEMPTS, shrunk, told

MADE = Step(
    "POST", "/things", {"kind": "Thing", "spec": {"a": 1, "wrong": [1, {"deep": True}], "b": 2}}
)
SCRIPT = Script(
    "long",
    (
        *[Step("GET", f"/{number}") for number in range(20)],
        MADE,
        *[Step("GET", "/x")] * 9,
        Step("DELETE", "/things"),
    ),
)


def deep(body: Any) -> bool:
    items = body.get("spec", {}).get("wrong", ()) if isinstance(body, dict) else ()
    return any(isinstance(item, dict) and item.get("deep") for item in items)


def test_what_plays_no_part_is_taken_away() -> None:
    def fails(script: Script) -> bool:
        made = next((number for number, step in enumerate(script.steps) if deep(step.body)), None)
        return made is not None and any(step.method == "DELETE" for step in script.steps[made:])

    short = shrunk(SCRIPT, fails)
    assert [(step.method, step.body) for step in short.steps] == [
        ("POST", {"kind": "Thing", "spec": {"wrong": [{"deep": True}]}}),
        ("DELETE", None),
    ]
    assert (
        told(short).splitlines()[1].strip()
        == 'POST /things  {"kind": "Thing", "spec": {"wrong": [{"deep": true}]}}'
    )


def test_every_attempt_has_a_name_of_its_own_and_there_is_an_end() -> None:
    tried: list[str] = []

    def fails(script: Script) -> bool:
        tried.append(script.namespace)
        return bool(len(tried) % 2)

    shrunk(SCRIPT, fails)
    assert len(set(tried)) == len(tried) <= ATTEMPTS


def test_what_happens_once_only_is_told_whole() -> None:
    assert shrunk(SCRIPT, lambda script: False) == SCRIPT
