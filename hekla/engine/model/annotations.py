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

# What `calm-eviction` answers, on pods and PodGroups unless said otherwise; Hekla's own.
MIN_RUNTIME = "hekla.io/min-runtime"  # also on a Queue and a PriorityClass: 30m
LAST_CHECKPOINT = "hekla.io/last-checkpoint"  # a time
RESTART_COST = "hekla.io/restart-cost"  # 5m
SEMI_PREEMPTIBLE = "hekla.io/semi-preemptible"  # true, false
EVICTION_NOTICE = "hekla.io/eviction-notice"  # 2m
EVICTION_GRACE = "hekla.io/eviction-grace"  # 60s
EVICTION_RATE = "hekla.io/eviction-rate"  # on a Queue: 10/1h

# What `fairshare` answers; Hekla's own.
USER = "hekla.io/user"  # on a PodGroup: whose job it is
ACCOUNT = "hekla.io/account"  # on a PodGroup or Namespace: physics/lab-a
FAIR_SHARE_WEIGHT = "hekla.io/fair-share-weight"  # on a Namespace: 2
