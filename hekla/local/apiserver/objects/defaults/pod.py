"""Defaults of pods and of the pod templates inside workloads (local-cluster 5.1).

After decoding, this is the code of a create that takes most time, so it is plain dictionary code
without tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.new_objects import now
from hekla.podrules.resources import OF_PODS, PAGES, aggregate, amounts

SOURCE_DEFAULTS: dict[str, dict[str, object]] = {
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "iscsi": {"iscsiInterface": "default"},
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "readOnly": False,
        "kind": "Shared",
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
_SOURCES_WITH_MODE = ("configMap", "secret", "downwardAPI", "projected")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def pod(tree: Json) -> None:
    """Defaults of a pod."""
    spec = tree.get("spec")
    if spec is None:
        spec = tree["spec"] = {}
    pod_spec(spec)
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    host_network = spec.get("hostNetwork")
    for name in ("containers", "initContainers"):
        for container in spec.get(name, ()):
            resources = container["resources"]
            limits = resources.get("limits")
            if limits:
                _requests_from_limits(resources, limits)
            if host_network:
                for port in container.get("ports") or ():
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]
    if spec.get("resources"):
        whole_pod(spec)


def template(tree: Json) -> None:
    """Defaults of a PodTemplateSpec, as workloads hold it."""
    if "metadata" not in tree:
        tree["metadata"] = {}
    spec = tree.get("spec")
    if spec is None:
        spec = tree["spec"] = {}
    pod_spec(spec)


def pod_spec(spec: Json) -> None:
    """Defaults of the spec of a pod or of a pod template."""
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is None:
        spec["terminationGracePeriodSeconds"] = 30
    elif grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("serviceAccount") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    elif spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for name in ("containers", "initContainers", "ephemeralContainers"):
        containers = spec.get(name)
        if containers:
            for container in containers:
                _container(container)
    volumes = spec.get("volumes")
    if volumes:
        for volume in volumes:
            _volume(volume)


def _container(container: Json) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if "resources" not in container:
        container["resources"] = {}
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            _references((source,))
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            _probe(probe)
    lifecycle = container.get("lifecycle")
    if lifecycle:
        for name in ("postStart", "preStop"):
            if name in lifecycle:
                _handler(lifecycle[name])


MAX_IMAGE_NAME_LENGTH = 255
_PATH_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_IMAGE = re.compile(
    rf"(?P<name>(?:(?:localhost|{_HOST}(?:\.{_HOST})+|{_HOST}(?=:))(?::[0-9]+)?/)?{_PATH_COMPONENT}(?:/{_PATH_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?",
    re.ASCII,
).fullmatch


@lru_cache(maxsize=4096)
def pull_policy(image: str) -> str:
    """The default pull policy of an image: Always for images that may change under their name (tag
    `latest`, or no tag and no digest), else IfNotPresent. An invalid image name gets IfNotPresent.
    """
    match = _IMAGE(image)
    if match is None or match["digest"] or len(match["name"]) > MAX_IMAGE_NAME_LENGTH:
        return "IfNotPresent"
    return "Always" if match["tag"] in (None, "latest") else "IfNotPresent"


def _probe(probe: Json) -> None:
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):
            probe[name] = value
    _handler(probe)


def _handler(handler: Json) -> None:
    request = handler.get("httpGet")
    if request is not None:
        if not request.get("path"):
            request["path"] = "/"
        if not request.get("scheme"):
            request["scheme"] = "HTTP"
    call = handler.get("grpc")
    if call is not None and "service" not in call:
        call["service"] = ""


def _volume(volume: Json) -> None:
    if len(volume) < 2 and not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
        return
    for name in _SOURCES_WITH_MODE:
        source = volume.get(name)
        if source is not None:
            if "defaultMode" not in source:
                source["defaultMode"] = 420
            _references(source.get("items") or ())
            for projection in source.get("sources") or ():
                _projection(projection)
    for name in SOURCE_DEFAULTS.keys() & volume.keys():
        for key, value in SOURCE_DEFAULTS[name].items():
            if volume[name].get(key) in (None, ""):
                volume[name][key] = value
    path = volume.get("hostPath")
    if path is not None and "type" not in path:
        path["type"] = ""
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("metadata", {})
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _projection(projection: Json) -> None:
    token = projection.get("serviceAccountToken")
    if token is not None and token.get("expirationSeconds") is None:
        token["expirationSeconds"] = 3600
    downward = projection.get("downwardAPI")
    if downward is not None:
        _references(downward.get("items") or ())


def _references(items: Iterable[Json]) -> None:
    for item in items:
        reference = item.get("fieldRef")
        if reference is not None and not reference.get("apiVersion"):
            reference["apiVersion"] = "v1"
        resource = item.get("resourceFieldRef")
        if resource is not None and "divisor" not in resource:
            resource["divisor"] = "0"


def _requests_from_limits(resources: Json, limits: Json) -> None:
    requests = resources.get("requests")
    if requests is None:
        resources["requests"] = dict(limits)
        return
    for name, value in limits.items():
        if name not in requests:
            requests[name] = value


def whole_pod(spec: Json) -> None:
    """Fill in pod-level requests: the sum of the containers' requests, and for resources that no
    container requests, the pod-level limit."""
    resources = spec["resources"]
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if limits or requests:
        for name, value in aggregate(spec, lambda given: amounts(given, "limits")).items():
            if name.startswith(PAGES) and name not in requests:
                limits.setdefault(name, str(value))
    if limits:
        resources["limits"] = limits
        for name, value in aggregate(spec, lambda given: amounts(given, "requests")).items():
            if name in OF_PODS:
                requests.setdefault(name, str(value))
        for name, text in limits.items():
            if name in OF_PODS or name.startswith(PAGES):
                requests.setdefault(name, text)
        if requests:
            resources["requests"] = requests


# --- the status of a new pod ----------------------------------------------------------------------


def first_status(spec: Json) -> Json:
    """The status that a new pod starts with, whatever its client sent."""
    status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return status


def qos_class(spec: Json) -> str:
    """Guaranteed if every container's cpu and memory limits equal its requests, BestEffort if there
    are no requests and limits, else Burstable."""
    any_requests = False
    guaranteed = True
    for name in ("containers", "initContainers"):
        for container in spec.get(name, ()):
            resources = container.get("resources")
            if not resources:
                guaranteed = False
                continue
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            for resource in ("cpu", "memory"):
                request, limit = requests.get(resource), limits.get(resource)
                if _some(request) or _some(limit):
                    any_requests = True
                if not _some(limit) or (
                    request != limit and (request is None or amount(request) != amount(limit))
                ):
                    guaranteed = False
    if not any_requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _some(value: Any) -> bool:
    return value is not None and value not in ("0", 0)
