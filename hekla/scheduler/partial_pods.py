"""The fields of a pod that the engine reads.  The rest of its JSON is skipped while decoding.

Pods are the most frequent objects by far, so this saves most of the informers' work.  A decoded pod
is a JSON tree without the skipped members.  A member of an unexpected type is kept as it is, so
that the engine reports the same error as for the whole object.
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

from hekla.api.kinds import Kind, read_as
from hekla.api.kubernetes import core

Odd = str | int | float | bool | None
"""What stands where an object or a list should."""


class Owner(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    name: Any
    controller: Any


class Metadata(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    labels: Any
    annotations: Any
    ownerReferences: list[Owner | list[Any] | Odd] | dict[str, Any] | Odd
    creationTimestamp: Any
    deletionTimestamp: Any


class Container(TypedDict, total=False):
    name: Any
    image: Any
    ports: Any
    resources: Any
    restartPolicy: Any


class Volume(TypedDict, total=False):
    name: Any
    ephemeral: Any
    image: Any
    persistentVolumeClaim: Any


class Spec(TypedDict, total=False):
    activeDeadlineSeconds: Any
    affinity: Any
    containers: list[Container | list[Any] | Odd] | dict[str, Any] | Odd
    initContainers: list[Container | list[Any] | Odd] | dict[str, Any] | Odd
    nodeName: Any
    nodeSelector: Any
    overhead: Any
    preemptionPolicy: Any
    priority: Any
    priorityClassName: Any
    resourceClaims: Any
    resources: Any
    schedulerName: Any
    schedulingGates: Any
    tolerations: Any
    topologySpreadConstraints: Any
    volumes: list[Volume | list[Any] | Odd] | dict[str, Any] | Odd


class Condition(TypedDict, total=False):
    type: Any
    status: Any
    reason: Any
    message: Any
    lastTransitionTime: Any


class ContainerStatus(TypedDict, total=False):
    name: Any
    allocatedResources: Any
    resources: Any


class Status(TypedDict, total=False):
    conditions: list[Condition | list[Any] | Odd] | dict[str, Any] | Odd
    containerStatuses: list[ContainerStatus | list[Any] | Odd] | dict[str, Any] | Odd
    extendedResourceClaimStatus: Any
    initContainerStatuses: list[ContainerStatus | list[Any] | Odd] | dict[str, Any] | Odd
    nominatedNodeName: Any
    phase: Any
    resize: Any
    resourceClaimStatuses: Any
    startTime: Any


class Pod(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: Metadata | list[Any] | Odd
    spec: Spec | list[Any] | Odd
    status: Status | list[Any] | Odd


POD = cast("Kind[dict[str, Any]]", read_as(core.POD, Pod))
