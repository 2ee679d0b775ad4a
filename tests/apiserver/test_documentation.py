"""The example of docs/local-cluster.md on quotas and limit ranges does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.apiserver.http import Http, pod

PAGE = Path(__file__).parents[2] / "docs/local-cluster.md"
PLURALS = {"LimitRange": "limitranges", "ResourceQuota": "resourcequotas"}


def test_the_third_pod_is_refused(http: Http) -> None:
    section = PAGE.read_text().partition("## What a namespace may hold")[2].partition("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    told = re.search(r"`(exceeded quota: .*?)`", section)
    assert found is not None and told is not None
    http.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for tree in yaml.safe_load_all(found[1]):
        assert http.post(f"/api/v1/namespaces/team/{PLURALS[tree['kind']]}", tree).status == 201
    pods = "/api/v1/namespaces/team/pods"
    assert [http.post(pods, pod(name)).status for name in ("one", "two")] == [201, 201]
    assert http.post(pods, pod("three")).message == f'pods "three" is forbidden: {told[1]}'
