"""Well-known names: keys of labels and annotations, resources, taints, environment variables and
fixed objects.

They are the agreement between programs that never call each other.  A name that one room alone reads
stands in that room.
Values are facts of the wire; the comment behind a key says where it is found and what it holds when
the name does not.
"""

from __future__ import annotations

# Schedulers, queues, namespaces.
SCHEDULER = "volcano"
DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"

# Where the scheduler says what it knows (`vcctl job explain --what-if`).
SNAPSHOT_PATH = "/snapshot"
SNAPSHOT_CONFIG_MAP = (
    "hekla-scheduler-snapshot"  # in the scheduler's namespace: address, authority, pod
)
SNAPSHOT_SERVER = "hekla-scheduler"  # the name that its certificate is for

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
JOB_FORWARDING = "volcano.sh/job-forwarding"
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
# PodGroup annotation, JSON: when a waiting job starts, and what it waits for; Hekla's own
START_ESTIMATE = "hekla.io/start-estimate"
# annotation of a Job, PodGroup or pod: how long it runs at most, `1h30m` or whole seconds; Hekla's own
WALLTIME = "hekla.io/walltime"
# Queue annotation: the walltime of its jobs that say nothing; Hekla's own
DEFAULT_WALLTIME = "hekla.io/default-walltime"
# annotation of a Job or PodGroup: the Reservation in whose windows, and on whose nodes, it runs; Hekla's own
RESERVATION = "hekla.io/reservation"

# Grouping, queueing, gating.
GROUP_NAME = "scheduling.k8s.io/group-name"  # pod annotation
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"  # annotation of the pods' owner
GROUP_QUEUE_NAME = "scheduling.volcano.sh/queue-name"  # annotation of pods and namespaces
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"  # Queue annotation
HIERARCHY = "volcano.sh/hierarchy"  # Queue annotation, root/a/b
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"  # Queue annotation, 1/2/3
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
TASK_PRIORITY = "volcano.sh/task-priority"
NUMA_TOPOLOGY_POLICY = "volcano.sh/numa-topology-policy"
MIRROR_POD = "kubernetes.io/config.mirror"
CONFIG_SOURCE = "kubernetes.io/config.source"
"""Where a kubelet has a pod from; on those that it mirrors."""

# Resources.
CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
NVIDIA_GPU = "nvidia.com/gpu"

# Colocation and the node agent.
COLOCATION_CONFIG_NAME = "volcano.sh/colocation-config-name"
COLOCATION_CONFIG = "volcano.sh/colocation-config"
QOS_LEVEL = "volcano.sh/qos-level"  # pod annotation: LC, HLS, LS or BE
COLOCATION = "volcano.sh/colocation"  # node label
OVERSUBSCRIPTION = "volcano.sh/oversubscription"  # node label; implies colocation
COLOCATION_POLICY = "colocation-policy"  # node label that node pools select on
ENABLE_QUOTA_BURST = "volcano.sh/enable-quota-burst"  # pod annotation
QUOTA_BURST_TIME = "volcano.sh/quota-burst-time"  # pod annotation, microseconds
NETWORK_BANDWIDTH_RATE = "volcano.sh/network-bandwidth-rate"  # node annotation, Mbps
INGRESS_BANDWIDTH = (
    "kubernetes.io/ingress-bandwidth"  # pod annotation, of the CNI's bandwidth plugin
)
EGRESS_BANDWIDTH = "kubernetes.io/egress-bandwidth"  # the same
BATCH_CPU = "kubernetes.io/batch-cpu"  # extended resource, milli-CPU
BATCH_MEMORY = "kubernetes.io/batch-memory"  # extended resource, bytes

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
STATEFUL_SET_POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_STORAGE_CLASS = "storageclass.kubernetes.io/is-default-class"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
SERVICE_ACCOUNT_UID = "kubernetes.io/service-account.uid"


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
