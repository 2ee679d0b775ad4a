"""Annotations of pods and PodGroups that single plugins answer.  Those that several read are in
`reading`."""

from __future__ import annotations

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER = "volcano.sh/task-topology-task-order"
COOLDOWN = "volcano.sh/cooldown-time"
MIN_AVAILABLE, MAX_UNAVAILABLE = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"
NUMA_POLICY = "volcano.sh/numa-topology-policy"
TYPE_ANNOTATION = "volcano.sh/resource-strategy-scoring-type"
WEIGHT_ANNOTATION = "volcano.sh/resource-strategy-weight"
TRAFFIC = "hekla.dev/task-traffic"
