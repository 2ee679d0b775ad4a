"""The descriptions of batch kinds for `kubectl explain`: a sentence for each kind, and for each
field that Kubernetes does not describe.

Fields that are missing here say enough by their name and type.
"""

from __future__ import annotations

KINDS = {
    "Job": "Tasks of pods that start together, live by policies and end as one.",
    "CronJob": "Makes Jobs by a clock.",
    "Command": "Asks a controller to act on a Job or a Queue; it is gone when that has been done.",
    "PodGroup": "Pods that start together or not at all.",
    "Queue": "A share of the cluster, for jobs that wait in an order.",
    "JobFlow": "Makes Jobs from JobTemplates one after another, by what each depends on.",
    "JobTemplate": "A job specification with a name, which flows make jobs from.",
    "HyperNode": "A domain of the network: nodes, or smaller domains, that reach each other equally fast.",
    "Numatopology": "The NUMA nodes of a node's processors and what is free on each; it bears the name of its node.",
    "NodeShard": "The nodes that one of several schedulers has for itself.",
    "Reservation": "Nodes that are kept for their owners in a window of time; for nobody, where it is for maintenance.",
    "ColocationConfiguration": "How the memory of pods is protected on nodes that they share with others.",
}

FIELDS = {
    "": {
        "spec": "What is wanted.",
        "status": "What is; written by controllers.",
        "networkTopology": "How near to each other in the network the pods must be placed.",
        "queue": "The Queue whose share is used; default where none is named.",
        "priorityClassName": "The PriorityClass, which decides who goes first and who gives way.",
        "maxRetry": "How often it is tried again before it has failed.",
        "policies": "What to do when something happens to a pod.",
        "conditions": "What was found when, the newest last.",
        "reason": "Why, as one word.",
        "message": "Why, for a reader.",
        "phase": "How far it is.",
        "apiVersion": "The group and version that this is written in.",
        "kind": "The kind of this object.",
    },
    "JobSpec": {
        "schedulerName": "The scheduler that places the pods.",
        "minAvailable": "So many pods must be able to start at once; fewer do not start at all.",
        "volumes": "Volumes that every pod of the job gets.",
        "tasks": "The sorts of pods that the job consists of.",
        "plugins": "Job plugins by name (env, ssh, svc, pytorch, mpi, ...), each with its arguments.",
        "runningEstimate": "How long the job is thought to run, such as 1h30m.",
        "ttlSecondsAfterFinished": "Seconds after its end at which the job is removed.",
        "minSuccess": "So many pods must succeed for the job to be complete.",
    },
    "VolumeSpec": {
        "mountPath": "Where pods see it.",
        "volumeClaimName": "A claim that is there already.",
        "volumeClaim": "A claim that is made with the job and goes with it.",
    },
    "TaskSpec": {
        "name": "A part of the pods' names: job-task-index.",
        "replicas": "How many pods there are of it.",
        "minAvailable": "So many of them must be able to start at once; all of them where nothing is said.",
        "template": "What each pod looks like.",
        "topologyPolicy": "How strictly its processors and memory must be near each other on a node.",
        "dependsOn": "Tasks that must be running before this one begins.",
        "partitionPolicy": "Divides its pods into groups that are placed together.",
    },
    "LifecyclePolicy": {
        "action": "What to do: AbortJob, RestartJob, RestartTask, RestartPod, TerminateJob, CompleteJob, ResumeJob.",
        "event": "What it is done upon, such as PodFailed, PodEvicted or TaskCompleted.",
        "events": "Several of these.",
        "exitCode": "A container's exit code that it is done upon; never 0.",
        "timeout": "How long to wait before it is done, such as 5m.",
    },
    "DependsOn": {
        "name": "The names of the tasks.",
        "iteration": "Whether any or all of them must be there.",
    },
    "PartitionPolicy": {
        "totalPartitions": "How many groups there are.",
        "partitionSize": "How many pods each has.",
        "minPartitions": "So many of them must be able to start at once.",
    },
    "NetworkTopology": {
        "mode": "hard keeps pods waiting until there is room so near; soft only prefers it.",
        "highestTierAllowed": "The highest tier of HyperNodes that the pods may be spread over.",
        "highestTierName": "The same by the tier's name.",
    },
    "JobStatus": {
        "state": "How the job is.",
        "minAvailable": "The minimum that was in force.",
        "taskStatusCount": "By task, how many of its pods are in which phase.",
        "pending": "Pods that have not started.",
        "running": "Pods that run.",
        "succeeded": "Pods that ended well.",
        "failed": "Pods that did not.",
        "terminating": "Pods that are being ended.",
        "unknown": "Pods that nobody has heard of lately.",
        "version": "Counts the restarts of the job.",
        "retryCount": "How often it was tried again.",
        "runningDuration": "How long it has run.",
        "controlledResources": "What plugins have made for it.",
    },
    "JobState": {"lastTransitionTime": "When that became so."},
    "CronJobSpec": {
        "schedule": "When, in the five fields of cron: minute, hour, day of the month, month, day of the week.",
        "timeZone": "The zone of the schedule, such as Europe/Berlin.",
        "startingDeadlineSeconds": "So late a start may be at most; what is missed by more is left out.",
        "concurrencyPolicy": "What becomes of a job that still runs at the next one's time: Allow, Forbid or Replace.",
        "suspend": "No further jobs are made while this is true.",
        "jobTemplate": "What each job looks like.",
        "successfulJobsHistoryLimit": "So many jobs that ended well are kept.",
        "failedJobsHistoryLimit": "So many jobs that failed are kept.",
    },
    "CronJobStatus": {
        "active": "The jobs that run now.",
        "lastScheduleTime": "When the last job was due.",
        "lastSuccessfulTime": "When a job ended well last.",
    },
    "Command": {
        "action": "What to do, such as AbortJob, ResumeJob, OpenQueue or CloseQueue.",
        "target": "The object that it is done to.",
    },
    "PodGroupSpec": {
        "minMember": "So many pods must be able to start at once; fewer do not start at all.",
        "minTaskMember": "The same for each task.",
        "minResources": "What these pods need together; the queue is asked for that much before any pod is made.",
        "subGroupPolicy": "Groups of its pods that are placed together.",
    },
    "SubGroupPolicy": {
        "name": "What the groups are called.",
        "subGroupSize": "How many pods each has.",
        "minSubGroups": "So many of them must be able to start at once.",
        "labelSelector": "Which pods it is for.",
        "matchLabelKeys": "Pods with the same values of these labels are one group.",
    },
    "PodGroupStatus": {
        "running": "Pods that run.",
        "succeeded": "Pods that ended well.",
        "failed": "Pods that did not.",
    },
    "QueueSpec": {
        "weight": "Its part of what queues share, beside the others' weights.",
        "capability": "The most that it may hold.",
        "reclaimable": "Whether others may take back what it holds beyond its share.",
        "extendClusters": "Clusters that it may use as well.",
        "guarantee": "What is kept free for it.",
        "affinity": "Groups of nodes that it may use, prefers, or avoids.",
        "type": "What sort of queue it is.",
        "parent": "The queue that it is a part of; root where none is named.",
        "deserved": "What it may hold for good; what it borrows beyond that can be taken back.",
        "priority": "Queues with a higher one are served first.",
        "dequeueStrategy": "What its jobs do behind one that does not fit: fifo waits, traverse goes on with the next.",
    },
    "Guarantee": {"resource": "The amounts."},
    "QueueAffinity": {
        "nodeGroupAffinity": "Groups of nodes that it must or would rather use.",
        "nodeGroupAntiAffinity": "Groups of nodes that it must not or would rather not use.",
    },
    "QueueStatus": {
        "state": "Open takes jobs, Closed does not, Closing waits for the last.",
        "unknown": "PodGroups that are neither of these.",
        "pending": "PodGroups that wait to be let in.",
        "running": "PodGroups that run.",
        "inqueue": "PodGroups that were let in and wait for nodes.",
        "completed": "PodGroups that have ended.",
        "reservation": "What is set aside for it.",
        "allocated": "What its pods hold.",
    },
    "JobFlowSpec": {
        "flows": "The jobs, and what each depends on.",
        "parameters": "Values that the templates' placeholders stand for.",
        "jobRetainPolicy": "Whether its jobs stay or go when it has succeeded: retain or delete.",
    },
    "Flow": {
        "name": "The JobTemplate.",
        "dependsOn": "What must be so before it begins.",
        "patch": "What is different in the job from its template.",
        "when": "A condition without which it is left out.",
        "retries": "How often it is made again when it fails.",
    },
    "FlowDependsOn": {
        "targets": "Flows that must have ended well.",
        "probe": "What must answer in their pods.",
    },
    "JobFlowStatus": {
        "pendingJobs": "Jobs that have not started.",
        "runningJobs": "Jobs that run.",
        "failedJobs": "Jobs that failed.",
        "completedJobs": "Jobs that ended well.",
        "terminatedJobs": "Jobs that were ended.",
        "unKnowJobs": "Jobs in no phase that is known.",
        "jobStatusList": "How each job is.",
        "state": "How the flow is.",
    },
    "JobTemplateStatus": {"jobDependsOnList": "The jobs that were made from it."},
    "HyperNodeSpec": {
        "tier": "How high in the network it is: 1 is next to the nodes.",
        "tierName": "What such a domain is called, such as rack.",
        "members": "The nodes, or the HyperNodes one tier below.",
    },
    "Member": {
        "type": "Node or HyperNode.",
        "selector": "Which ones: by name, by a pattern of names, or by labels.",
    },
    "HyperNodeStatus": {"nodeCount": "How many nodes are in it."},
    "NumatopoSpec": {
        "policies": "The policies of the node's agent.",
        "resReserved": "What is kept back from pods.",
        "numares": "By resource, what is free on each NUMA node.",
        "cpuDetail": "By processor, where it is.",
        "podAllocations": "Which pods hold which processors.",
    },
    "NodeShardSpec": {"nodesDesired": "The nodes that it is to have."},
    "NodeShardStatus": {
        "lastUpdateTime": "When it was written.",
        "nodesInUse": "The nodes that it has.",
        "nodesToAdd": "The nodes that it is still to get.",
        "nodesToRemove": "The nodes that it is still to give away.",
    },
    "ReservationSpec": {
        "nodes": "Which nodes: by name, by labels, or so many of a shape.",
        "window": "When: once, or by a schedule.",
        "owners": "Whose jobs may use the nodes meanwhile; nobody's where it is empty, as for maintenance.",
        "drain": "What becomes of others' pods that still run when a window opens: Wait lets them end, Evict evicts them.",
        "overlap": "Whether it may share nodes and time with other reservations that say so too.",
    },
    "ReservedNodes": {
        "names": "Their names.",
        "selector": "The labels that they have.",
        "count": "How many, of those with the names, labels and resources; those that are free soonest, chosen once.",
        "resources": "What each has at least, when it is empty.",
    },
    "Window": {
        "start": "When it opens; with a schedule, before when it does not.",
        "end": "When it closes; with a schedule, after when it does not open.",
        "duration": "How long it is open, such as 2h.",
        "schedule": "When it opens again and again: five fields of cron, or @daily, @weekly and the like.",
        "timeZone": "The zone of the schedule, such as Europe/Vienna; UTC where none is named.",
    },
    "Owners": {
        "queues": "All jobs of these queues.",
        "users": "All jobs of these users: hekla.io/user of the PodGroup, else its namespace.",
        "jobs": "These jobs, as namespace/name.",
    },
    "ReservationStatus": {
        "state": "Pending, Draining, Active, Ended, or what is wrong: Failed, Conflict.",
        "reason": "Why, in a word.",
        "message": "Why, in a sentence.",
        "start": "When the window opens, or has opened.",
        "end": "When it closes.",
        "nodes": "The nodes that it has.",
        "occupants": "Pods of others that may still run on them when the window is open; the first of them.",
        "past": "How many windows have closed.",
    },
    "Occupant": {
        "pod": "Its namespace and name.",
        "node": "Where it runs.",
        "until": "When it ends at the latest; absent where nobody says.",
    },
    "ColocationConfigurationSpec": {
        "selector": "The pods that it is for.",
        "memoryQos": "How their memory is protected.",
    },
    "MemoryQos": {
        "highRatio": "The part of the limit, in percent, above which memory is taken back; 0 and 100 are nowhere.",
        "lowRatio": "The part of the request, in percent, that is taken back last.",
        "minRatio": "The part of the request, in percent, that is never taken back.",
    },
}
"""By struct and field as it is written; the empty struct stands for all of them."""


def of_field(struct: str, field: str) -> str:
    """The description of a field; "" if it has none."""
    own = FIELDS.get(struct)
    if own is None:
        return (
            FIELDS[""][field]
            if struct in KINDS and field in ("apiVersion", "kind", "spec", "status")
            else ""
        )
    return own.get(field) or FIELDS[""].get(field, "")
