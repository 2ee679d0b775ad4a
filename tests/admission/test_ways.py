"""Asked over HTTPS or inside the API server's process, the rules say the same: one table of cases,
both ways of asking."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from hekla.admission.in_process import WORKLOADS, in_process_settings, reviewers
from hekla.admission.registry import ADMISSIONS, Admission
from hekla.admission.review import StaticLookup
from hekla.admission.reviews import answer

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "webhooks"
MINOR = 36

Tree = dict[str, Any]


def workloads() -> list[Tree]:
    cases = [
        case for file in sorted(CASES.rglob("*.json")) for case in json.loads(file.read_text())
    ]
    return [case for case in cases if case["resource"] in WORKLOADS and not case["settings"]]


@pytest.mark.parametrize("case", workloads(), ids=lambda case: case["id"])
def test_both_ways_of_asking_say_the_same(case: Tree) -> None:
    existing, given = case["existing"], case["object"]
    lookup = StaticLookup(existing.get("queues") or [], existing.get("namespaces") or [])
    admission = ADMISSIONS[f"/{case['resource']}/{case['phase']}"]
    name, namespace = given["metadata"]["name"], given["metadata"].get("namespace", "")

    inside = reviewers(lookup, MINOR)[admission.path](
        admission.key, case["operation"], given, case["old_object"], name, namespace
    )

    assert over_https(admission, case, lookup) == inside


def over_https(admission: Admission, case: Tree, lookup: StaticLookup) -> tuple[bool, str, Any]:
    """What a server reads from the daemon's answer: whether it is allowed, what is said against it,
    how it is changed."""
    group, version, resource = admission.key
    request = {
        "uid": "1",
        "resource": {"group": group, "version": version, "resource": resource},
        "operation": case["operation"],
        "name": case["object"]["metadata"]["name"],
        "namespace": case["object"]["metadata"].get("namespace", ""),
        "object": case["object"],
        "oldObject": case["old_object"],
    }
    body, _, _ = answer(
        admission, json.dumps({"request": request}).encode(), lookup, in_process_settings(MINOR)
    )
    response = json.loads(body)["response"]
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else None
    return response["allowed"], response.get("status", {}).get("message", ""), patch
