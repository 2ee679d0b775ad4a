"""Warnings that come with successful writes."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.local.apiserver.objects import warnings

CONTAINER = {"name": "c", "image": "i"}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [CONTAINER], **spec}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, []),
        ({"imagePullSecrets": [{}]}, ['spec.imagePullSecrets[0].name: invalid empty name ""']),
        ({"nodeSelector": {"beta.kubernetes.io/os": "x"}},
         ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead']),
        ({"containers": [{**CONTAINER, "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]},
         ['spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply']),
        ({"containers": [{**CONTAINER, "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}]}, []),
        ({"containers": [{**CONTAINER, "resources": {"limits": {"memory": "1500m"}}}]},
         ['spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer']),
        ({"containers": [{**CONTAINER, "ports": [{"containerPort": 80}, {"containerPort": 80}]}]},
         ["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"]),
        ({"volumes": [{"name": "v", "gitRepo": {}}]}, ["spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"]),
    ],
)  # fmt: skip
def test_of_a_pod(spec: dict[str, Any], said: list[str]) -> None:
    assert warnings.pod(pod(**spec), None) == said
    template = {"metadata": {"generation": 1}, "spec": {"template": pod(**spec)}}
    assert warnings.TEMPLATE(template, None) == [
        text.replace("spec.", "spec.template.spec.") for text in said
    ]
    assert warnings.TEMPLATE(template, template) == []


def test_of_a_definition_only_what_is_new() -> None:
    def definition(form: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"a": {"type": "string", "format": form}}}
        return {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}

    assert warnings.definition(definition("odd"), None) == ['unrecognized format "odd"']
    assert warnings.definition(definition("odd"), definition("odd")) == []
    assert warnings.definition(definition("date-time"), None) == []
