"""The Pod Security Standards judge pods as Kubernetes 1.36.1 does, to the letter.

`standards.json` has random pods with what Kubernetes' own evaluator (its module
pod-security-admission) had against each at a level and a version: `found` as a refusal says it,
`short` as a namespace's warning does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.podrules.podsecurity.levels import LevelVersion, Policy, policy_of
from hekla.podrules.podsecurity.standards import REVISIONS, findings, in_detail, in_short

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("standards.json").read_text())
PREFIX = "pod-security.kubernetes.io/"


def test_pods_are_judged_as_kubernetes_judges_them() -> None:
    for row in ROWS:
        found = findings(LevelVersion(row["level"], row["version"]), row["metadata"], row["spec"])

        assert (in_detail(found), in_short(found)) == (row["found"], row["short"]), row


def test_the_table_has_every_reason() -> None:
    assert len({revision.id for revision in REVISIONS}) == 19
    assert {reason for row in ROWS for reason in row["short"].split(", ")} >= {
        "allowPrivilegeEscalation != false",
        "forbidden AppArmor profile",
        "non-default capabilities",
        "unrestricted capabilities",
        "host namespaces",
        "hostPath volumes",
        "hostPort",
        "probe or lifecycle host",
        "privileged",
        "procMount",
        "restricted volume types",
        "runAsNonRoot != true",
        "runAsUser=0",
        "seLinuxOptions",
        "seccompProfile",
        "forbidden sysctls",
        "hostProcess",
    }


@pytest.mark.parametrize(
    ("labels", "policy"),
    [
        ({}, "privileged:latest privileged:latest privileged:latest"),
        ({"enforce": "baseline"}, "baseline:latest privileged:latest baseline:latest"),
        (
            {"enforce": "baseline", "enforce-version": "v1.24"},
            "baseline:v1.24 privileged:latest baseline:v1.24",
        ),
        (
            {"enforce": "baseline", "warn": "privileged"},
            "baseline:latest privileged:latest privileged:latest",
        ),
        (
            {"enforce": "baseline", "warn-version": "v1.9"},
            "baseline:latest privileged:latest baseline:v1.9",
        ),
        (
            {"audit": "restricted", "audit-version": "v1.30"},
            "privileged:latest restricted:v1.30 privileged:latest",
        ),
    ],
)
def test_labels_say_a_policy(labels: dict[str, str], policy: str) -> None:
    found, errors = policy_of({PREFIX + name: value for name, value in labels.items()}, Policy())

    assert " ".join(map(str, found)) == policy
    assert not errors


def test_wrong_labels_enforce_the_strictest() -> None:
    labels = {
        "enforce": "basline",
        "enforce-version": "1.24",
        "audit": "x",
        "warn": "y",
        "warn-version": "v1.024",
    }

    found, errors = policy_of({PREFIX + name: value for name, value in labels.items()}, Policy())

    assert [str(error) for error in errors] == [
        f'metadata.labels[{PREFIX}enforce]: Invalid value: "basline": must be one of privileged, baseline, restricted',
        f'metadata.labels[{PREFIX}enforce-version]: Invalid value: "1.24": must be "latest" or "v1.x"',
        f'metadata.labels[{PREFIX}audit]: Invalid value: "x": must be one of privileged, baseline, restricted',
        f'metadata.labels[{PREFIX}warn]: Invalid value: "y": must be one of privileged, baseline, restricted',
        f'metadata.labels[{PREFIX}warn-version]: Invalid value: "v1.024": must be "latest" or "v1.x"',
    ]
    assert " ".join(map(str, found)) == "restricted:latest privileged:latest privileged:latest"
