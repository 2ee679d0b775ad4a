"""The page about admission policies: its examples are applied, and what it says happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.apiserver.http import Http

PAGE = Path(__file__).parents[2] / "docs/admission-policies.md"
PATHS = {
    "ConfigMap": "/api/v1/namespaces/team-a/configmaps",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}


def job(name: str, pods: int) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {"metadata": {"name": name}, "spec": {"parallelism": pods, "template": template}}


def test_the_examples_do_what_the_page_says(http: Http) -> None:
    text = PAGE.read_text(encoding="utf-8")
    http.post("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    made = []
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        for tree in yaml.safe_load_all(block):
            answer = http.post(PATHS[tree["kind"]], tree)
            assert answer.status == 201, answer
            made.append(f"{PATHS[tree['kind']]}/{tree['metadata']['name']}")
    try:
        jobs = "/apis/batch/v1/namespaces/team-a/jobs"
        refused = http.post(jobs, job("wide", 8))
        assert refused.status == 422
        assert refused.tree["message"] in text
        small = http.post(jobs, job("narrow", 4))
        assert small.status == 201
        assert small.tree["metadata"]["labels"]["example.com/owner"]
    finally:
        for path in reversed(made):
            http.delete(path)
