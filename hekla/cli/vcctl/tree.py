"""The commands and their flags.  Reference: cli 1.1, 1.2, 2 to 7.

Only names, texts and defaults stand here; what a command does is named by module and imported when
it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hekla.cli.vcctl.command import Command, Flag

LOGGING = (
    Flag("log-flush-frequency", "", "duration", "5s", "Maximum number of seconds between log flushes"),
    Flag("v", "v", "Level", "0", "number for the log level verbosity"),
    Flag("vmodule", "", "moduleSpec", "",
         "comma-separated list of pattern=N settings for file-filtered logging (only works for the default text log format)"),
)  # fmt: skip

CONNECTION = (
    Flag("master", "s", "string", "", "the address of apiserver"),
    Flag("kubeconfig", "k", "string", "", "(optional) absolute path to the kubeconfig file"),
)

OUTPUT = Flag("output", "o", "string", "", "table, wide, name, json or yaml", hidden=True)
WATCH = Flag("watch", "w", "bool", False, "print again whenever something changes", hidden=True)


def text(name: str, short: str, default: str, help: str) -> Flag:
    return Flag(name, short, "string", default, help)


def namespace(noun: str, short: str = "n") -> Flag:
    return text("namespace", short, "default", f"the namespace of {noun}")


def everywhere(nouns: str) -> Flag:
    return Flag("all-namespaces", "", "bool", False, f"list {nouns} in all namespaces")


def leaf(
    name: str,
    short: str,
    action: str,
    *flags: Flag,
    long: str = "",
    hidden: bool = False,
    arguments: bool = False,
) -> Command:
    return Command(
        name, short, (*flags, *CONNECTION), (), action, long, hidden=hidden, arguments=arguments
    )


def _size(noun_min: str = "the minimal available tasks of job") -> tuple[Flag, ...]:
    return (
        Flag("min", "m", "int", 1, noun_min),
        Flag("replicas", "r", "int", 1, "the total tasks of job"),
        text("requests", "R", "cpu=1000m,memory=100Mi", "the resource request of the task"),
        text("limits", "L", "cpu=1000m,memory=100Mi", "the resource limit of the task"),
    )


JOB_NAME = text("name", "N", "", "the name of job")

SNAPSHOT = (
    Flag("scheduler-address", "", "string", "", "where the scheduler answers, if not where it says (host:port)", hidden=True),
    Flag("run-plugins", "", "bool", False, "run the scheduler's own plugin files here", hidden=True),
)  # fmt: skip
"""For commands that ask a copy of what the scheduler knows."""

EXPLAIN = leaf(
    "explain",
    "say why a job is where it is",
    "explain:explain",
    namespace("job"),
    JOB_NAME,
    OUTPUT,
    Flag(
        "what-if",
        "",
        "stringArray",
        "",
        "a change, may be repeated: queue.q.capability.cpu=+8, node=add:4x a100, ...",
    ),
    *SNAPSHOT,
    hidden=True,
    arguments=True,
)

JOB = Command(
    "job",
    "vcctl command line operation job",
    children=(
        leaf(
            "run",
            "run job by parameters from the command line",
            "jobs:run",
            text("image", "i", "busybox", "the container image of job"),
            namespace("job"),
            JOB_NAME,
            *_size(),
            text("scheduler", "S", "volcano", "the scheduler for this job"),
            text("filename", "f", "", "the yaml file of job"),
            Flag("command", "c", "string", "", "the command of job"),
            Flag(
                "dry-run",
                "",
                "string",
                "",
                "schedule: say where and when it would start, and create nothing",
                hidden=True,
            ),
            OUTPUT,
            *SNAPSHOT,
        ),
        leaf(
            "list",
            "list job information",
            "jobs:list_jobs",
            text("queue", "q", "", "list job with specified queue name"),
            namespace("job"),
            text("scheduler", "S", "", "list job with specified scheduler name"),
            everywhere("jobs"),
            text("selector", "", "", "fuzzy matching jobName"),
            OUTPUT,
            WATCH,
        ),
        leaf("view", "show job information", "jobs:view", namespace("job"), JOB_NAME, OUTPUT),
        leaf("suspend", "abort a job", "jobs:suspend", namespace("job"), JOB_NAME),
        leaf("resume", "resume a job", "jobs:resume", namespace("job"), JOB_NAME),
        leaf("delete", "delete a job", "jobs:delete", namespace("job"), JOB_NAME),
        EXPLAIN,
        leaf(
            "logs",
            "print the logs of a job's pods",
            "logs:logs",
            namespace("job"),
            JOB_NAME,
            text("task", "t", "", "only pods of this task"),
            Flag("follow", "f", "bool", False, "stay and print what comes"),
            Flag("tail", "", "int", -1, "only the last lines of each pod"),
            hidden=True,
            arguments=True,
        ),
        leaf(
            "events",
            "show the events of a job, its group and its pods",
            "explain:events",
            namespace("job"),
            JOB_NAME,
            hidden=True,
            arguments=True,
        ),
    ),
)

QUEUE_NAME = text("name", "n", "", "the name of queue")

QUEUE = Command(
    "queue",
    "Queue Operations",
    children=(
        leaf(
            "create",
            "creates queue",
            "queues:create",
            text("name", "n", "test", "the name of queue"),
            Flag("weight", "w", "int32", 1, "the weight of the queue"),
            text("state", "S", "Open", "the state of queue"),
        ),
        leaf("delete", "delete queue", "queues:delete", QUEUE_NAME),
        leaf(
            "operate",
            "operate queue",
            "queues:operate",
            QUEUE_NAME,
            Flag("weight", "w", "int32", 0, "the weight of the queue"),
            text(
                "action", "a", "", "operate action to queue, valid actions are open, close, update"
            ),
        ),
        leaf("list", "lists all the queue", "queues:list_queues", OUTPUT),
        leaf("get", "get a queue", "queues:get", QUEUE_NAME, OUTPUT),
        leaf(
            "view",
            "show which jobs of a queue wait, and when they start",
            "queues:view",
            QUEUE_NAME,
            hidden=True,
            arguments=True,
        ),
    ),
)


RESERVATION_NAME = text("name", "n", "", "the name of reservation")

RESERVATION = Command(
    "reservation",
    "nodes kept for a window of time",
    hidden=True,
    children=(
        leaf("list", "list reservations", "reservations:list_reservations", OUTPUT),
        leaf(
            "view",
            "show a reservation, and who is still on its nodes",
            "reservations:view",
            RESERVATION_NAME,
            OUTPUT,
            arguments=True,
        ),
        leaf(
            "create",
            "reserve nodes",
            "reservations:create",
            RESERVATION_NAME,
            text("filename", "f", "", "the yaml file of reservation"),
            text("nodes", "N", "", "names of nodes, with commas between"),
            text("selector", "l", "", "labels of nodes: key=value,..."),
            Flag("count", "c", "int", 0, "so many nodes"),
            text("resources", "R", "", "what each node has at least: cpu=4,memory=8Gi"),
            text("start", "", "", "when it opens: now, or a time such as 2026-11-24T20:00:00Z"),
            text("end", "", "", "when it closes"),
            text("duration", "d", "", "how long it is open, such as 2h"),
            text("schedule", "", "", "cron: when it opens again and again"),
            text("time-zone", "", "", "the zone of the schedule"),
            text("queues", "q", "", "queues that own it, with commas between"),
            text("users", "u", "", "users that own it"),
            text("jobs", "j", "", "jobs that own it, as namespace/name"),
            Flag("evict", "", "bool", False, "evict who still runs there when it opens"),
            Flag("overlap", "", "bool", False, "it may share with others that say so too"),
            arguments=True,
        ),
        leaf(
            "delete",
            "delete a reservation",
            "reservations:delete",
            RESERVATION_NAME,
            arguments=True,
        ),
    ),
)


def _flow_group(name: str, noun: str, *listing: Flag) -> Command:
    called = text("name", "N", "", f"the name of {noun}")
    where = namespace(noun)
    file = text("file", "f", "", f"the path to the YAML file containing the {noun}")
    return Command(
        name,
        f"vcctl command line operation {name}",
        children=(
            leaf("create", f"create a {name}", f"flows:create_{name}", file),
            leaf("list", f"list {name}s", f"flows:list_{name}s", where, *listing, OUTPUT),
            leaf("get", f"get a {name}", f"flows:get_{name}", called, where, OUTPUT),
            leaf("delete", f"delete a {name}", f"flows:delete_{name}", called, where, file),
            leaf(
                "describe",
                f"describe a {name}",
                f"flows:describe_{name}",
                called,
                where,
                text("format", "o", "yaml", "the format of output"),
            ),
        ),
    )


POD = Command(
    "pod",
    "vcctl command line operation pod",
    children=(
        leaf(
            "list",
            "list pod information created by vcjob",
            "pods:list_pods",
            text("queue", "q", "", "list pod with specified queue name"),
            text("job", "j", "", "list pod with specified job name"),
            namespace("pod"),
            everywhere("pods"),
            OUTPUT,
        ),
    ),
)

VCCTL = Command(
    "vcctl",
    "",
    children=(
        JOB,
        QUEUE,
        _flow_group("jobflow", "jobflow", everywhere("jobflows")),
        _flow_group("jobtemplate", "job template"),
        POD,
        RESERVATION,
        EXPLAIN,
        leaf(
            "top",
            "show what queues hold and want; `top nodes`, `pods`, `jobs`, `queues`: what is requested and used; "
            "`top budgets`: who has used how much of his budget; "
            "`top fragmentation`: what is free and of no use",
            "top.tables:top",
            namespace("pods and jobs"),
            everywhere("pods and jobs"),
            Flag(
                "plan",
                "",
                "bool",
                False,
                "of fragmentation: which pods could be moved, and what would fit then",
            ),
            text(
                "policy",
                "",
                "",
                "of fragmentation: the scheduler's policy file, if it is not the usual one",
            ),
            hidden=True,
            arguments=True,
        ),
        Command(
            "completion",
            "print a completion script for bash, zsh or fish",
            action="completion:completion",
            hidden=True,
            arguments=True,
        ),
        Command(
            "version",
            "Print the version information",
            action="version:version",
            example="vcctl version",
        ),
    ),
)


def _slurm_name() -> tuple[Flag, ...]:
    return (namespace("job", "N"), text("name", "n", "", "the name of job"))


def single(name: str) -> Command:
    """One of the commands without children.  `vsub` reads its defaults from the environment when
    its flags are declared."""
    return _SINGLES[name]()


def _vsub() -> Command:
    def told(flag: str, short: str, variable: str, default: str, help: str) -> Flag:
        wording = f"{help}, overwrite the value of '{variable}' (default \"{default}\")"
        return text(flag, short, os.environ.get(variable) or default, wording)

    return leaf(
        "vsub",
        "submit a job",
        "jobs:run",
        told("image", "i", "VOLCANO_DEFAULT_IMAGE", "busybox", "the container image of job"),
        told("namespace", "N", "VOLCANO_DEFAULT_JOB_NAMESPACE", "default", "the namespace of job"),
        text("name", "n", "", "the name of job"),
        *_size(),
        told("scheduler", "S", "VOLCANO_SCHEDULER_NAME", "volcano", "the scheduler for this job"),
        text("command", "c", "", "the command of job"),
        long="submit a job with specified name and arguments. yaml/json file is not accepted, you may refer to kubectl.",
    )


def _vjobs() -> Command:
    return leaf(
        "vjobs",
        "view job information",
        "jobs:vjobs",
        *_slurm_name(),
        text("scheduler", "S", "", "list job with specified scheduler name"),
        everywhere("jobs"),
        text("selector", "", "", "fuzzy matching jobName"),
        long="view information of a job with specified name or jobs from the same namespace",
    )


def _vqueues() -> Command:
    return leaf(
        "vqueues",
        "view queue information",
        "queues:vqueues",
        QUEUE_NAME,
        long="view information of a queue with specified name or queues from the same namespace",
    )


def _job_command(name: str, short: str, action: str, states: str) -> Command:
    verb = short.split(" ", 1)[0]
    return leaf(
        name,
        short,
        action,
        *_slurm_name(),
        long=f"{verb} {states} job with specified name in default or specified namespace",
    )


_SINGLES: dict[str, Callable[[], Command]] = {
    "vsub": _vsub,
    "vjobs": _vjobs,
    "vqueues": _vqueues,
    "vcancel": lambda: _job_command(
        "vcancel", "cancel a job", "jobs:cancel", "a running, pending, or aborted"
    ),
    "vsuspend": lambda: _job_command(
        "vsuspend", "suspend a job", "jobs:suspend", "a running or pending"
    ),
    "vresume": lambda: _job_command("vresume", "resume a job", "jobs:resume", "an aborted"),
}
