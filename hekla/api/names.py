"""Well-known names: keys of labels and annotations, resources, taints, environment variables and
fixed objects.

They are the agreement between programs that never call each other, so each stands here once.
Values are facts of the wire; the comment behind a key says where it is found and what it holds when
the name does not.
"""

from __future__ import annotations

# Schedulers, queues, namespaces.
SCHEDULER = "volcano"
DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"
SYSTEM_NAMESPACE = "volcano-system"

# The identity of a job's pods (pods: annotation and label unless said otherwise).
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"  # label
QUEUE_NAME = "volcano.sh/queue-name"
JOB_VERSION = "volcano.sh/job-version"  # annotation; pods without it are not the job controller's
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"  # annotation
TEMPLATE_UID = "volcano.sh/template-uid"  # annotation, <job>-<task>
PARTITION_ID = "volcano.sh/partition-id"  # label
DEFAULT_TASK = "default"
JOB_TYPE = "volcano.sh/job-type"  # Job label
JOB_FORWARDING = "volcano.sh/job-forwarding"
FORWARD_CLUSTER = "volcano.sh/forward-cluster"
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"  # pod annotation, presence matters
CREATED_BY_JOB_TEMPLATE = "volcano.sh/createdByJobTemplate"  # Job, <namespace>.<template>
CREATED_BY_JOB_FLOW = "volcano.sh/createdByJobFlow"  # Job, <namespace>.<flow>
JOB_FLOW_ATTEMPT = (
    "hekla.io/jobflow-attempt"  # Job annotation, Hekla's own: which job of its step, from 2
)
CRON_JOB_SCHEDULED_TIMESTAMP = "volcano.sh/cronjob-scheduled-timestamp"  # Job annotation
HCCL_RANK_INDEX = "hccl/rankIndex"
# Job annotation, Hekla's own: tasks whose minAvailable admission filled in; * the job's
FILLED_MINIMUMS = "hekla.io/filled-minimums"
LAST_FAILURE = "hekla.io/last-failure"  # Job annotation, JSON; Hekla's own
WAITING = "Waiting"  # PodGroup condition and event whose message says why a job waits; Hekla's own
# PodGroup condition and event: what is asked for and no plugin of the policy answers; Hekla's own
IGNORED = "Ignored"
# reason of a pod's condition PodScheduled: its queue may not have it, whatever nodes there are;
# Hekla's own
QUEUE_LIMITED = "QueueLimited"
# PodGroup annotation, JSON: the numbers of the condition Waiting; Hekla's own
EXPLANATION = "hekla.io/explanation"

# Grouping, queueing, gating.
GROUP_NAME = "scheduling.k8s.io/group-name"  # pod annotation
GROUP_NAME_VOLCANO = (
    "scheduling.volcano.sh/group-name"  # pod annotation, fallback of the vGPU spread policy
)
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"  # annotation of the pods' owner
GROUP_QUEUE_NAME = "scheduling.volcano.sh/queue-name"  # annotation of pods and namespaces
QUEUE_ALLOCATION_GATE = (
    "scheduling.volcano.sh/queue-allocation-gate"  # pod annotation, and the gate of that name
)
RESOURCE_GROUP = "volcano.sh/resource-group"
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"  # Queue annotation
HIERARCHY = "volcano.sh/hierarchy"  # Queue annotation, root/a/b
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"  # Queue annotation, 1/2/3
NODE_GROUP_NAME = "volcano.sh/nodegroup-name"  # Node label
NODE_GROUP_RESOURCE_LIMITS = "volcano.sh/nodegroup-resource-limits"  # Queue annotation, JSON
JOB_ALLOCATED_HYPER_NODE = "volcano.sh/job-allocated-hypernode"  # PodGroup annotation
NETWORK_TOPOLOGY_MODE = "volcano.sh/network-topology-mode"  # pod annotation
NETWORK_TOPOLOGY_HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"  # pod annotation
NETWORK_TOPOLOGY_SOURCE = "volcano.sh/network-topology-source"  # HyperNode label
OWN_PREFIX = "volcano.sh/"  # owner annotations under it are inherited by pod groups

# Hints to the scheduler.
PREEMPTABLE = "volcano.sh/preemptable"
COOLDOWN_TIME = "volcano.sh/cooldown-time"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
SLA_WAITING_TIME = "volcano.sh/sla-waiting-time"
SLA_WAITING_TIME_LEGACY = "sla-waiting-time"
TASK_PRIORITY = "volcano.sh/task-priority"
NUMA_TOPOLOGY_POLICY = "volcano.sh/numa-topology-policy"
TOPOLOGY_DECISION = "volcano.sh/topology-decision"
TASK_TOPOLOGY_AFFINITY = "volcano.sh/task-topology-affinity"
TASK_TOPOLOGY_ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_TOPOLOGY_TASK_ORDER = "volcano.sh/task-topology-task-order"
RESOURCE_STRATEGY_SCORING_TYPE = "volcano.sh/resource-strategy-scoring-type"
RESOURCE_STRATEGY_WEIGHT = "volcano.sh/resource-strategy-weight"
SCHEDULING_PRIORITY = "volcano.sh/scheduling-priority"
SCHEDULING_PRIORITY_REASON = "volcano.sh/scheduling-priority-reason"
SCHEDULING_PRIORITY_TIMESTAMP = "volcano.sh/scheduling-priority-timestamp"
MIRROR_POD = "kubernetes.io/config.mirror"
WARMUP = "node.volcano.sh/warmup"  # Node label

# Devices.
GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
GPU_UNHEALTHY_IDS = "volcano.sh/gpu-unhealthy-ids"
NODE_VGPU_REGISTER = "volcano.sh/node-vgpu-register"
VGPU_IDS_NEW = "volcano.sh/vgpu-ids-new"
DEVICES_TO_ALLOCATE = "volcano.sh/devices-to-allocate"
VGPU_NODE = "volcano.sh/vgpu-node"
VGPU_TIME = "volcano.sh/vgpu-time"
BIND_TIME = "volcano.sh/bind-time"
BIND_PHASE = "volcano.sh/bind-phase"
VGPU_MODE = "volcano.sh/vgpu-mode"
VGPU_POD_GROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"
VGPU_USE_GPU_UUID = "volcano.sh/vgpu-use-gpuuuid"
VGPU_NO_USE_GPU_UUID = "volcano.sh/vgpu-nouse-gpuuuid"
USE_GPU_TYPE = "nvidia.com/use-gputype"
NO_USE_GPU_TYPE = "nvidia.com/nouse-gputype"
HAMI_MUTEX_LOCK = "hami.io/mutex.lock"
HAMI_VGPU_NODE = "hami.io/vgpu-node"
HAMI_VGPU_TIME = "hami.io/vgpu-time"
HAMI_BIND_TIME = "hami.io/bind-time"
HAMI_BIND_PHASE = "hami.io/bind-phase"

# Resources.
CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_MEMORY_PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES = "volcano.sh/vgpu-cores"
NVIDIA_GPU = "nvidia.com/gpu"
ASCEND_310P = "huawei.com/Ascend310P"
NPU_CORE = "huawei.com/npu-core"
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"

# Colocation and the node agent.
QOS_LEVEL = "volcano.sh/qos-level"
COLOCATION = "volcano.sh/colocation"
OVERSUBSCRIPTION = "volcano.sh/oversubscription"
OVERSUBSCRIPTION_TYPES = "volcano.sh/oversubscription-types"
OVERSUBSCRIPTION_CPU = "volcano.sh/oversubscription-cpu"
OVERSUBSCRIPTION_MEMORY = "volcano.sh/oversubscription-memory"
OFFLINE_JOB_EVICTING = "volcano.sh/offline-job-evicting"  # Node annotation and taint
COLOCATION_CONFIG_NAME = "volcano.sh/colocation-config-name"
COLOCATION_CONFIG = "volcano.sh/colocation-config"
ENABLE_QUOTA_BURST = "volcano.sh/enable-quota-burst"
QUOTA_BURST_TIME = "volcano.sh/quota-burst-time"
NETWORK_BANDWIDTH_RATE = "volcano.sh/network-bandwidth-rate"
COLOCATION_POLICY = "colocation-policy"

# Environment of a job's containers.
ENV_TASK_INDEX = "VC_TASK_INDEX"
ENV_TASK_INDEX_OLD = "VK_TASK_INDEX"

# Kubernetes' own.
HOSTNAME = "kubernetes.io/hostname"
OS = "kubernetes.io/os"
ARCH = "kubernetes.io/arch"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"
TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
TAINT_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
TAINT_PID_PRESSURE = "node.kubernetes.io/pid-pressure"
TAINT_NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
POD_TEMPLATE_HASH = "pod-template-hash"
STATEFUL_SET_POD_NAME = "statefulset.kubernetes.io/pod-name"
CONTROLLER_REVISION_HASH = "controller-revision-hash"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SELECTED_NODE = "volume.kubernetes.io/selected-node"

FINALIZER_ORPHAN = "orphan"
FINALIZER_FOREGROUND = "foregroundDeletion"
NODE_LEASE_NAMESPACE = "kube-node-lease"


# Names of objects that a job owns.
def pod_name(job: str, task: str, index: int) -> str:
    return f"{job}-{task}-{index}"


def pod_group_name(job: str, uid: str) -> str:
    return f"{job}-{uid}"


def service_config_map(job: str) -> str:
    """The name of the ConfigMap with the hosts of a job's tasks."""
    return f"{job}-svc"


def ssh_secret(job: str) -> str:
    return f"{job}-ssh"


def ray_head_service(job: str) -> str:
    return f"{job}-head-svc"


def bare_pod_group_name(uid: str) -> str:
    """The name of the PodGroup for pods without a job; `uid` is that of their controller, or of the
    pod itself."""
    return f"podgroup-{uid}"
