"""The definitions: fit for any API server, true to the reference, the same every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hekla.api import catalog, crds
from hekla.api.kinds import Kind
from tests.api.sample import NEWER, SAMPLES

DEFINITIONS = {tree["metadata"]["name"]: tree for tree in map(crds.definition, catalog.BATCH)}


def schema_of(resource: str) -> dict[str, Any]:
    schema: dict[str, Any] = DEFINITIONS[resource]["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    return schema


def at(resource: str, path: str) -> dict[str, Any]:
    """The schema of a field; `[]` steps into a list, `{}` into the values of a map."""
    schema = schema_of(resource)
    for step in path.replace("[]", ".[]").replace("{}", ".{}").split("."):
        if step == "[]":
            schema = schema["items"]
        elif step == "{}":
            schema = schema["additionalProperties"]
        else:
            schema = schema["properties"][step]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, member in schema.get("properties", {}).items():
        yield from nodes(member, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from nodes(schema[keyword], f"{path}[{keyword}]")


@pytest.mark.parametrize("resource", DEFINITIONS)
def test_a_schema_is_structural(resource: str) -> None:
    for path, schema in nodes(schema_of(resource)):
        assert not {"$ref", "definitions", "oneOf", "allOf"} & schema.keys(), path
        if schema.get("x-kubernetes-int-or-string"):
            assert "type" not in schema, path
            assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            continue
        assert schema["type"] in {"object", "array", "string", "integer", "number", "boolean"}, path
        assert ("items" in schema) == (schema["type"] == "array"), path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert set(schema.get("required", ())) <= schema.get("properties", {}).keys(), path
        if "enum" in schema and "default" in schema:
            assert schema["default"] in schema["enum"], path


@pytest.mark.parametrize("resource", DEFINITIONS)
def test_keys_of_list_maps_are_always_there(resource: str) -> None:
    for path, schema in nodes(schema_of(resource)):
        for name in schema.get("x-kubernetes-list-map-keys", ()):
            item = schema["items"]
            assert name in item.get("required", ()) or "default" in item["properties"][name], (
                f"{path}: {name}"
            )
        if "x-kubernetes-list-type" in schema:
            assert schema["type"] == "array", path


@pytest.mark.parametrize("kind", catalog.BATCH, ids=lambda kind: kind.resource)
def test_the_root_is_that_of_an_object(kind: Kind[Any]) -> None:
    tree = DEFINITIONS[kind.resource]
    version = tree["spec"]["versions"][0]
    assert tree["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert tree["spec"]["scope"] == ("Namespaced" if kind.namespaced else "Cluster")
    assert tree["spec"]["names"]["listKind"] == f"{kind.kind}List"
    assert "categories" not in tree["spec"]["names"]
    assert (version["served"], version["storage"], version["name"]) == (True, True, kind.version)
    assert at(kind.resource, "metadata") == {"type": "object"}
    assert version.get("subresources") == ({"status": {}} if kind.status else None)


JOBS, QUEUES, GROUPS, CRONS = (
    "jobs.batch.volcano.sh",
    "queues.scheduling.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "cronjobs.batch.volcano.sh",
)
FLOWS, HYPER, COLOCATION, TRAINING = (
    "jobflows.flow.volcano.sh",
    "hypernodes.topology.volcano.sh",
    "colocationconfigurations.config.volcano.sh",
    "hyperjobs.training.volcano.sh",
)


@pytest.mark.parametrize(
    ("resource", "path", "says"),
    [
        (JOBS, "spec.schedulerName", {"type": "string", "maxLength": 63}),
        (JOBS, "spec.minAvailable", {"type": "integer", "format": "int32", "minimum": 0}),
        (JOBS, "spec.maxRetry", {"default": 3, "minimum": 0}),
        (JOBS, "spec.queue", {"default": "default", "maxLength": 253}),
        (JOBS, "spec.minSuccess", {"minimum": 1}),
        (JOBS, "spec.ttlSecondsAfterFinished", {"minimum": 0}),
        (JOBS, "spec.tasks", {"minItems": 1}),
        (
            JOBS,
            "spec.tasks[].name",
            {"maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        ),
        (
            JOBS,
            "spec.tasks[].topologyPolicy",
            {"enum": ["none", "best-effort", "restricted", "single-numa-node"]},
        ),
        (JOBS, "spec.tasks[].partitionPolicy", {"required": ["partitionSize", "totalPartitions"]}),
        (JOBS, "spec.tasks[].partitionPolicy.minPartitions", {"default": 0, "minimum": 0}),
        (
            JOBS,
            "spec.tasks[].partitionPolicy.networkTopology.mode",
            {"default": "hard", "enum": ["hard", "soft"]},
        ),
        (JOBS, "spec.tasks[].template.spec", {"required": ["containers"]}),
        (
            JOBS,
            "spec.tasks[].template.spec.containers[].resources.limits{}",
            {"x-kubernetes-int-or-string": True},
        ),
        (JOBS, "spec.volumes[]", {"required": ["mountPath"]}),
        (JOBS, "spec.volumes[].mountPath", {"minLength": 1, "pattern": "^[^:]+$"}),
        (
            JOBS,
            "spec.volumes[].volumeClaim.resources.requests{}",
            {"x-kubernetes-int-or-string": True},
        ),
        (
            JOBS,
            "spec.plugins",
            {"additionalProperties": {"type": "array", "items": {"type": "string"}}},
        ),
        (JOBS, "status.conditions[]", {"required": ["status"]}),
        (JOBS, "status.taskStatusCount{}.phase{}", {"type": "integer", "format": "int32"}),
        (CRONS, "spec", {"required": ["jobTemplate", "schedule"]}),
        (
            CRONS,
            "spec.concurrencyPolicy",
            {"default": "Allow", "enum": ["Allow", "Forbid", "Replace"]},
        ),
        (CRONS, "spec.suspend", {"default": False, "type": "boolean"}),
        (CRONS, "spec.successfulJobsHistoryLimit", {"default": 3, "minimum": 0, "format": "int32"}),
        (CRONS, "spec.failedJobsHistoryLimit", {"default": 1}),
        (CRONS, "spec.startingDeadlineSeconds", {"format": "int64", "minimum": 0}),
        (CRONS, "spec.jobTemplate.spec.maxRetry", {"default": 3}),
        (CRONS, "status.active", {"x-kubernetes-list-type": "atomic"}),
        (CRONS, "status.active[]", {"x-kubernetes-map-type": "atomic"}),
        ("commands.bus.volcano.sh", "target", {"required": ["apiVersion", "kind", "name", "uid"]}),
        (GROUPS, "spec.priorityClassName", {"type": "string", "maxLength": 253}),
        (GROUPS, "spec.subGroupPolicy[].subGroupSize", {"default": 1, "minimum": 1}),
        (GROUPS, "spec.subGroupPolicy[].minSubGroups", {"default": 0, "minimum": 0}),
        (GROUPS, "spec.subGroupPolicy[].matchLabelKeys", {"x-kubernetes-list-type": "atomic"}),
        (
            GROUPS,
            "status.phase",
            {"enum": ["Pending", "Running", "Unknown", "Inqueue", "Completed"]},
        ),
        (QUEUES, "spec.weight", {"default": 1, "minimum": 1, "maximum": 65535}),
        (QUEUES, "spec.dequeueStrategy", {"default": "traverse", "enum": ["fifo", "traverse"]}),
        (QUEUES, "spec.priority", {"minimum": 0}),
        (QUEUES, "status.state", {"enum": ["Open", "Closed", "Closing", "Unknown"]}),
        (FLOWS, "spec.flows[]", {"required": ["name"]}),
        (FLOWS, "spec.flows[].dependsOn.probe.tcpSocketList[]", {"required": ["port"]}),
        (
            FLOWS,
            "spec.flows[].dependsOn.probe.tcpSocketList[].port",
            {"minimum": 0, "maximum": 65535},
        ),
        (
            FLOWS,
            "spec.flows[].dependsOn.probe.httpGetList[].httpHeader",
            {"required": ["name", "value"]},
        ),
        (FLOWS, "spec.flows[].patch.jobSpec.queue", {"default": "default"}),
        (FLOWS, "spec.jobRetainPolicy", {"enum": ["retain", "delete"]}),
        (FLOWS, "status.unKnowJobs", {"type": "array"}),
        ("jobtemplates.flow.volcano.sh", "spec.queue", {"default": "default"}),
        (HYPER, "spec", {"required": ["tier"]}),
        (HYPER, "spec.members", {"minItems": 1}),
        (HYPER, "spec.members[].selector.exactMatch.name", {"minLength": 1, "maxLength": 253}),
        (HYPER, "spec.members[].selector.regexMatch", {"required": ["pattern"]}),
        (HYPER, "status.conditions[].reason", {"minLength": 1, "maxLength": 1024}),
        (
            "numatopologies.nodeinfo.volcano.sh",
            "spec.cpuDetail{}.numa",
            {"type": "integer", "minimum": 0},
        ),
        ("nodeshards.shard.volcano.sh", "spec", {"required": ["nodesDesired"]}),
        (COLOCATION, "spec.memoryQos.highRatio", {"default": 100, "minimum": 0, "maximum": 100}),
        (COLOCATION, "status.conditions", {"x-kubernetes-list-map-keys": ["type"]}),
        (TRAINING, "spec.replicatedJobs", {"x-kubernetes-list-map-keys": ["name"]}),
        (TRAINING, "spec.replicatedJobs[]", {"required": ["name", "templateSpec"]}),
    ],
)
def test_a_field_promises_what_the_reference_says(
    resource: str, path: str, says: dict[str, Any]
) -> None:
    schema = at(resource, path)
    assert {name: schema.get(name) for name in says} == says


def test_events_of_a_policy_are_the_known_ones() -> None:
    known = at(JOBS, "spec.policies[].event")["enum"]
    assert len(known) == 11
    assert "*" in known
    assert at(JOBS, "spec.policies[].events[]")["enum"] == known
    assert "enum" not in at(JOBS, "spec.policies[].action")


@pytest.mark.parametrize("resource", ["nodeshards.shard.volcano.sh", COLOCATION])
def test_some_kinds_need_a_spec(resource: str) -> None:
    assert schema_of(resource)["required"] == ["spec"]


def test_a_member_of_a_hyper_node_is_chosen_in_one_way() -> None:
    checks = at(HYPER, "spec.members[].selector")["x-kubernetes-validations"]
    assert [check["message"] for check in checks] == [
        "Either ExactMatch or RegexMatch or LabelMatch must be specified",
        "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
    ]


def test_of_metadata_inside_a_template_five_members_are_known() -> None:
    for resource, path in (
        (JOBS, "spec.tasks[].template.metadata"),
        (CRONS, "spec.jobTemplate.metadata"),
    ):
        assert set(at(resource, path)["properties"]) == {
            "annotations",
            "finalizers",
            "labels",
            "name",
            "namespace",
        }


@pytest.mark.parametrize(
    ("resource", "columns"),
    [
        (
            JOBS,
            "STATUS:string:0 minAvailable:integer:0 RUNNINGS:integer:0 AGE:date:0 QUEUE:string:1",
        ),
        (
            GROUPS,
            "STATUS:string:0 minMember:integer:0 RUNNINGS:integer:0 AGE:date:0 QUEUE:string:1",
        ),
        (QUEUES, "PARENT:string:0"),
        (FLOWS, "Status:string:0 Age:date:0"),
        (HYPER, "Tier:string:0 TierName:string:0 NodeCount:integer:0 Age:date:0"),
        ("nodeshards.shard.volcano.sh", "AGE:date:0"),
        (CRONS, ""),
    ],
)
def test_columns(resource: str, columns: str) -> None:
    given = DEFINITIONS[resource]["spec"]["versions"][0].get("additionalPrinterColumns", [])
    assert (
        " ".join(f"{one['name']}:{one['type']}:{one.get('priority', 0)}" for one in given)
        == columns
    )


def test_a_cluster_is_given_the_kinds_that_something_handles() -> None:
    assert [tree["metadata"]["name"] for tree in crds.all()] == [
        kind.resource for kind in catalog.INSTALLED
    ]
    assert len(crds.all()) == 12


def test_the_text_says_what_the_trees_say() -> None:
    # A million characters take Python's own a while.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    assert list(yaml.load_all(crds.yaml(), Loader=loader)) == crds.all()


def test_trees_are_fresh() -> None:
    crds.all()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clear()
    assert crds.all()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def test_a_definition_stays_below_what_kubectl_can_apply() -> None:
    assert max(len(str(tree)) for tree in crds.all()) < 200_000


def test_the_text_is_the_same_in_every_process() -> None:
    def text(seed: str) -> bytes:
        command = [sys.executable, "-c", "from hekla.api import crds; print(crds.yaml(), end='')"]
        return subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout

    assert text("1") == text("2")


JSON_TYPES = {str: "string", int: "integer", bool: "boolean", list: "array", dict: "object"}


def misfits(tree: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of a tree that a schema does not know or knows under another type."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(tree, int | str):
            yield path
    elif schema["type"] != JSON_TYPES[type(tree)]:
        yield path
    elif isinstance(tree, list):
        for item in tree:
            yield from misfits(item, schema["items"], f"{path}[]")
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if name in schema.get("properties", {}):
                yield from misfits(value, schema["properties"][name], f"{path}.{name}")
            elif "additionalProperties" in schema:
                yield from misfits(value, schema["additionalProperties"], f"{path}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}"


@pytest.mark.skipif(not SAMPLES.exists(), reason="the wire samples are not beside the repository")
def test_a_pod_with_every_field_fits_a_template() -> None:
    pod = json.loads((SAMPLES / "core.v1.Pod.json").read_bytes())
    unfit = [
        path
        for path in misfits(pod["spec"], at(JOBS, "spec.tasks[].template.spec"))
        if path.rpartition(".")[2] not in NEWER
    ]
    assert [path for path in unfit if ".volumeClaimTemplate.metadata." not in path] == []


@pytest.mark.skipif(not SAMPLES.exists(), reason="the wire samples are not beside the repository")
def test_a_claim_with_every_field_fits_a_volume_of_a_job() -> None:
    claim = json.loads((SAMPLES / "core.v1.PersistentVolumeClaim.json").read_bytes())
    assert list(misfits(claim["spec"], at(JOBS, "spec.volumes[].volumeClaim"))) == []
