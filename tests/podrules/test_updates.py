"""What may change of a pod, and which containers may be added to look into it: `updates.json` has
changes with what Kubernetes 1.36.1 had against them.  Where it shows a difference of Go's
structures the fields are named here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults import DEFAULTS
from hekla.local.apiserver.write.subresource_strategies import ephemeral_containers
from tests.podrules.table import updated

TABLE: Json = json.loads(Path(__file__).with_name("updates.json").read_text())


@pytest.mark.parametrize("row", TABLE["changes"], ids=range(len(TABLE["changes"])))
def test_a_change_is_judged_as_kubernetes_judges_it(row: Json) -> None:
    change = ephemeral_containers if row["kind"] == "Ephemeral" else None

    assert sorted(updated(row["new"], TABLE["pods"][row["old"]], change)) == sorted(row["errors"])


def resources(whole: Json, *containers: Json) -> Json:
    spec = {
        "resources": whole,
        "containers": [
            {"name": f"c{n}", "image": "i", "resources": each} for n, each in enumerate(containers)
        ],
    }
    DEFAULTS[("", "Pod")]({"spec": spec})
    return {field: dict(sorted(given.items())) for field, given in whole.items()}


def test_a_pod_that_is_limited_asks_for_what_its_containers_ask_for() -> None:
    half = {"requests": {"cpu": "500m", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    assert resources({"limits": {"cpu": "2", "memory": "1Gi"}}, half, half) == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }


def test_a_pod_that_asks_for_something_is_limited_to_its_containers_pages() -> None:
    pages = {"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}
    assert resources({"requests": {"memory": "2Gi"}}, pages, pages) == {
        "limits": {"hugepages-2Mi": "8Mi"},
        "requests": {"hugepages-2Mi": "8Mi", "memory": "2Gi"},
    }


def test_what_stands_there_stays() -> None:
    assert resources(
        {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, {"requests": {"cpu": "500m"}}
    ) == {
        "limits": {"cpu": "2"},
        "requests": {"cpu": "1"},
    }
    assert resources({"requests": {"cpu": "1"}}, {"requests": {"memory": "1"}}) == {
        "requests": {"cpu": "1"}
    }
