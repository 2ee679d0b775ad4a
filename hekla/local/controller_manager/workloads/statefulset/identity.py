"""The identity of a StatefulSet's pod: its ordinal, its name, its labels, its claims."""

from __future__ import annotations

from hekla.api.names import POD_INDEX, STATEFUL_SET_POD_NAME
from hekla.api.trees import Json
from hekla.local.controller_manager.workloads.revisions import HASH_LABEL


def ordinal_of(stateful_set: str, pod: str) -> int:
    """The ordinal in the name of a pod; -1 for a name that is not of the set."""
    prefix, _, text = pod.rpartition("-")
    return (
        int(text)
        if prefix == stateful_set and text.isascii() and text.isdigit() and str(int(text)) == text
        else -1
    )


def claim_name(template: Json, pod: str) -> str:
    return f"{template['metadata']['name']}-{pod}"


def claim_body(stateful_set: Json, template: Json, pod: str) -> Json:
    """The claim that a template makes for a pod."""
    meta, selector = template["metadata"], stateful_set["spec"].get("selector") or {}
    labels = {**(meta.get("labels") or {}), **(selector.get("matchLabels") or {})}
    kept = {name: meta[name] for name in ("annotations", "finalizers") if meta.get(name)}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": template.get("spec") or {},
        "metadata": {
            "name": claim_name(template, pod),
            "namespace": stateful_set["metadata"]["namespace"],
            "labels": labels,
            **kept,
        },
    }


def pod_spec(stateful_set: Json, spec: Json, pod: str) -> Json:
    """The template's pod spec with the identity of a pod and its claims for volumes."""
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    claims = {template["metadata"]["name"]: claim_name(template, pod) for template in templates}
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in claims.items()
    ]
    volumes += [volume for volume in spec.get("volumes") or () if volume["name"] not in claims]
    identity = {"hostname": pod, "subdomain": stateful_set["spec"].get("serviceName", "")}
    return {**spec, **identity, **({"volumes": volumes} if volumes else {})}


def labels_of(pod: str, ordinal: int) -> dict[str, str]:
    return {STATEFUL_SET_POD_NAME: pod, POD_INDEX: str(ordinal)}


def pod_metadata(template: Json, pod: str, ordinal: int, revision: str) -> Json:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {"name": pod, "labels": {**labels, **labels_of(pod, ordinal), HASH_LABEL: revision}}
