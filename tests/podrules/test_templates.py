"""Whoever judges a pod judges it as Kubernetes does: the API server pods and the templates in its
kinds, the webhook those of jobs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.podrules import spec as rules
from hekla.podrules.options import POD, TEMPLATE, Options
from tests.podrules.table import ROWS, as_pod, expected, pod, served, webhook

FEATURES = re.compile(
    r"\.env\[\d+\]\.name: Invalid|\.envFrom\[\d+\]\.prefix|\.searches\[|must specify one of: `fieldRef`|"  # what may be said
    r"\.sleep: |resizePolicy|ontainers\[\d+\]\.restartPolicy|matchLabelKeys|topologySpreadConstraints\[\d+\]\[\d+\]|"
    r"seLinuxChangePolicy|"
    r"stopSignal|clusterTrustBundle|podCertificate|schedulingGroup|conflicting duplicate paths|more than 1 volume type per source"
)
"""Of what a server with its features says something else than the library without them."""


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_a_template_is_judged_as_kubernetes_judges_it(row: Json) -> None:
    template = row["template"]

    assert webhook(template, row.get("name", "task-1"), row.get("levels", True)) == expected(
        row, "webhook"
    )
    assert served(template) == expected(row, "served")
    assert pod(template) == expected(row, "pod")


def test_what_one_door_refuses_the_other_refuses_too() -> None:
    """Error by error; what only pods are refused for, and what a feature decides, apart."""
    for row in ROWS:
        template = row["template"]
        here, there = (
            {_bare(error) for error in door(template) if not FEATURES.search(error)}
            for door in (webhook, served)
        )
        stricter = {error for error in here if STRICTER.search(error)}
        assert here - stricter == there, template


STRICTER = re.compile(
    r"(?<!phemeralContainers\[0\])\.image: Invalid|spec\.terminationGracePeriodSeconds: Invalid"
)
"""At the webhook, on purpose."""


def _bare(error: str) -> str:
    """Without a value that is an object: the server leaves empty fields out of it."""
    return re.sub(r"\{.*\}", "", error)


OF_ONE_ALONE = re.compile(
    r"leading or trailing whitespace|when serviceAccountName is not set|\.image\.reference: Required|"
    r"cannot be set on create|until all schedulingGates|metadata\.(generateName|ownerReferences|finalizers)|"
    r"resources\.requests\[|PVC name|not allowed in pod template"
)
"""Said of a pod or of its template, and not of the other."""


def test_what_a_pod_is_refused_for_its_template_is_refused_for() -> None:
    """With what a pod gets for itself left alone: the requests that its limits stand for, its least
    grace, profiles from annotations."""
    for row in ROWS:
        template = row["template"]
        if "resources" in (template.get("spec") or {}) or "security." in str(
            (template.get("metadata") or {}).get("annotations")
        ):
            continue
        of_template, of_pod = {as_pod(error) for error in served(template)}, set(pod(template))
        assert [error for error in of_template ^ of_pod if not OF_ONE_ALONE.search(error)] == [], (
            template
        )


def test_what_its_pods_would_be_refused_for_is_refused_already() -> None:
    spec = {
        "containers": [{"name": "main", "image": " busybox"}],
        "terminationGracePeriodSeconds": -1,
    }

    assert webhook({"spec": spec}, levels=False) == [
        'template.spec.containers[0].image: Invalid value: " busybox": must not have leading or trailing whitespace',
        "template.spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
    ]


@pytest.mark.parametrize(
    "options", [POD, TEMPLATE, Options(features=False), Options(features=False, resources=False)]
)
def test_rules_look_at_nothing_but_what_they_are_given(options: Options) -> None:
    """Asked once more, and after all others, they say the same."""

    def judged(template: Json) -> list[str]:
        found = Errors()
        rules.template(template, "template", options, found)
        return [str(error) for error in found]

    first = [judged(row["template"]) for row in ROWS]
    assert [judged(row["template"]) for row in reversed(ROWS)] == first[::-1]


@pytest.mark.parametrize("door", [webhook, served, pod])
def test_a_claim_that_is_made_for_a_pod_is_not_another_volumes(
    door: Callable[[Json], list[str]],
) -> None:
    """Only of pods: a template does not know what they will be called."""
    claim = {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    }
    volumes = [
        {"name": "a", "ephemeral": {"volumeClaimTemplate": claim}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "p-a"}},
    ]
    found = door({"spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}})

    why = 'Invalid value: "p-a": must not reference a PVC that gets created for an ephemeral volume'
    assert found == (
        [f"spec.volumes[1].persistentVolumeClaim.claimName: {why}"] if door is pod else []
    )
