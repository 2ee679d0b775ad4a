"""Pod templates are judged in Kubernetes' words.

`templates.json` holds templates with what Kubernetes' own validation of a PodTemplate (1.36.1, after its defaults, with no feature
switched on but the resources of pods where a row says so) had against them.  Three things are stricter here on purpose: blanks
around an image and a privileged container that may not escalate, which the pods would be refused for, and a negative grace,
which they would lose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.admission import podtemplates

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("templates.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_a_template_is_judged_as_kubernetes_judges_it(row: dict[str, Any]) -> None:
    assert podtemplates.problems(row["template"], row["name"], row["levels"]) == row["errors"]


def test_what_its_pods_would_be_refused_for_is_refused_already() -> None:
    spec = {"containers": [{"name": "main", "image": " busybox"}], "terminationGracePeriodSeconds": -1}

    assert podtemplates.problems({"spec": spec}, "task-1", False) == [
        'template.spec.containers[0].image: Invalid value: " busybox": must not have leading or trailing whitespace',
        "template.spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
    ]
