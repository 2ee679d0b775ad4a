"""Jobs on their way in: what is let in, what is refused and how.  Reference: api-and-admission 7.2 to
7.5."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.admission import Settings
from hekla.admission.rules.graph import sorted_tasks
from tests.admission.objects import (
    Tree,
    ask,
    container,
    denied,
    job,
    partition,
    scenario,
    task,
    template,
)

MUTATE, VALIDATE = "/jobs/mutate", "/jobs/validate"
TIERS = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)
BOTH = {"highestTierAllowed": 1, "highestTierName": "rack"}


# -- what is let in --------------------------------------------------------------------------------

ON, OFF = Settings(pod_level_resources=True), Settings(pod_level_resources=False)


def resources(requests: Tree | None = None, limits: Tree | None = None) -> Tree:
    return {
        key: value
        for key, value in (("requests", requests), ("limits", limits))
        if value is not None
    }


def sized(pod: Tree, *containers: Tree) -> Tree:
    return job(task(template=template(*containers, resources=pod)))


ASKS_FOUR = container(resources=resources({"cpu": "4"}))
PARTITIONED = task(replicas=8, partitionPolicy=partition(2, 4))

ACCEPTED = [
    scenario(20, job(), OFF),
    scenario(21, job(policies=[{"event": "PodEvicted", "action": "RestartTask"}]), OFF),
    scenario(
        22,
        sized(
            resources(
                {"cpu": "4", "memory": "8Gi", "hugepages-1Mi": "2Gi"}, {"hugepages-1Mi": "2Gi"}
            ),
            container(
                resources=resources(
                    {"cpu": "2", "memory": "4Gi", "hugepages-1Mi": "1Gi"}, {"hugepages-1Mi": "1Gi"}
                )
            ),
        ),
        ON,
    ),
    scenario(23, sized(resources({"cpu": "2"}), ASKS_FOUR), OFF),
    scenario(
        24, job(task(template=template(container(securityContext={"privileged": True})))), OFF
    ),
    scenario(
        25,
        job(
            task(
                template=template(
                    initContainers=[container("init", securityContext={"privileged": True})]
                )
            )
        ),
        OFF,
    ),
    scenario(26, job(task("t1", dependsOn={"name": ["t2"]}), task("t2")), OFF),
    scenario(27, job(PARTITIONED), OFF),
    scenario(
        28,
        job(
            task(
                replicas=8,
                partitionPolicy=partition(2, 4, networkTopology={"highestTierName": "rack"}),
            ),
            networkTopology={"highestTierName": "spine"},
        ),
        OFF,
    ),
    scenario(29, job(task(replicas=8, partitionPolicy=partition(2, 4, 1))), OFF),
    scenario(30, job(task(replicas=8, minAvailable=4, partitionPolicy=partition(4, 2, 2))), OFF),
    scenario(31, job(task(replicas=4, minAvailable=4, partitionPolicy=partition(2, 2))), OFF),
    scenario(
        32,
        job(
            task("launcher"),
            task("worker"),
            plugins={"mpi": ["--master=launcher", "--worker=worker"]},
        ),
        OFF,
    ),
    scenario(33, job(task("launcher"), plugins={"mpi": ["--master=launcher"]}), OFF),
    scenario(34, job(queue="childQueue"), OFF),
    scenario(
        35,
        job(
            task(
                topologyPolicy="restricted",
                template=template(container(resources=resources(None, {"cpu": "1"}))),
            )
        ),
        OFF,
    ),
    scenario(222, job(policies=[{"exitCode": 3, "action": "Bogus"}]), OFF),
]


@pytest.mark.parametrize(("obj", "settings"), ACCEPTED)
def test_a_sound_job_is_let_in(obj: Tree, settings: Settings):
    assert ask(VALIDATE, obj, settings=settings).message == ""


# -- what is refused -------------------------------------------------------------------------------


def policy(**fields: Any) -> Tree:
    return job(policies=[fields])


def volumes(*entries: Tree) -> Tree:
    return job(volumes=list(entries))


DENIED = [
    scenario(36, job(task("a"), task("a")), "duplicated task name a;"),
    scenario(
        37,
        job(
            policies=[
                {"event": "PodFailed", "action": "AbortJob"},
                {"event": "PodFailed", "action": "RestartJob"},
            ]
        ),
        "duplicate event PodFailed  across different policy",
    ),
    scenario(
        38,
        job(minAvailable=2),
        "job 'minAvailable' should not be greater than total replicas in tasks;",
    ),
    scenario(39, job(plugins={"big_plugin": []}), "unable to find job plugin: big_plugin;"),
    scenario(40, {**job(), "spec": {"queue": "default"}}, "No task specified in job spec"),
    scenario(
        41,
        job(task(replicas=-1)),
        "job 'minAvailable' should not be greater than total replicas in tasks;",
    ),
    scenario(
        47,
        job(task(replicas=3, minAvailable=5), minAvailable=3),
        "'minAvailable' is greater than 'replicas' in task: task-1, job: train;",
    ),
    scenario(
        49,
        policy(event="PodFailed", exitCode=-1),
        "must not specify event and exitCode simultaneously",
    ),
    scenario(50, policy(action="AbortJob"), "either event and exitCode should be specified"),
    scenario(
        51,
        policy(event="someFakeEvent", action="AbortJob"),
        'spec.policies: Invalid value: "someFakeEvent": invalid policy event',
    ),
    scenario(
        52,
        policy(event="PodEvicted", action="someFakeAction"),
        'spec.policies: Invalid value: "someFakeAction": invalid policy action',
    ),
    scenario(53, policy(exitCode=0, action="AbortJob"), "0 is not a valid error code"),
    scenario(54, job(policies=[{"exitCode": 1}, {"exitCode": 1}]), "duplicate exitCode 1"),
    scenario(
        55,
        job(
            policies=[
                {"event": "*", "action": "AbortJob"},
                {"event": "PodFailed", "action": "RestartJob"},
            ]
        ),
        "if there's * here, no other policy should be here",
    ),
    scenario(
        56,
        job(task(policies=[{"events": ["*", "PodFailed"], "action": "AbortJob"}])),
        "if there's * here, no other policy should be here",
    ),
    scenario(57, volumes({"mountPath": "", "volumeClaimName": "a"}), "mountPath is required;"),
    scenario(
        58,
        volumes(
            {"mountPath": "/var", "volumeClaimName": "a"},
            {"mountPath": "/var", "volumeClaimName": "b"},
        ),
        "duplicated mountPath: /var;",
    ),
    scenario(
        59,
        volumes({"mountPath": "/var"}),
        "either VolumeClaim or VolumeClaimName must be specified;",
    ),
    scenario(
        60,
        job(queue="nowhere"),
        'unable to find job queue: queue.scheduling.volcano.sh "nowhere" not found;',
    ),
    scenario(61, job(queue="root"), "can not submit job to root queue;"),
    scenario(
        62,
        job(queue="parentQueue"),
        "can only submit job to leaf queue, queue `parentQueue` has 1 child queues;",
    ),
    scenario(
        63,
        job(task("t1", dependsOn={"name": ["t3"]}), task("t2")),
        "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);",
    ),
    scenario(
        64,
        job(task(replicas=8, partitionPolicy=partition(2, -1))),
        "'PartitionSize' must be greater than 0 in task: task-1, job: train",
    ),
    scenario(
        65,
        job(task(replicas=8, partitionPolicy=partition(-1, 4))),
        "'TotalPartitions' must be greater than 0 in task: task-1",
    ),
    scenario(
        66,
        job(task(replicas=8, partitionPolicy=partition(2, 3))),
        "'Replicas' are not equal to TotalPartitions*PartitionSize in task: task-1",
    ),
    scenario(
        67,
        job(task(replicas=8, minAvailable=4, partitionPolicy=partition(4, 2, 1))),
        "'MinAvailable' is not equal to MinPartitions*PartitionSize in task: task-1",
    ),
    scenario(68, job(networkTopology=BOTH), TIERS),
    scenario(
        69, job(task(replicas=8, partitionPolicy=partition(2, 4, networkTopology=BOTH))), TIERS
    ),
    scenario(
        70,
        job(
            task(replicas=8, partitionPolicy=partition(2, 4, networkTopology=BOTH)),
            networkTopology=BOTH,
        ),
        TIERS + TIERS,
    ),
    scenario(
        71,
        job(task("worker"), plugins={"mpi": ["--master=launcher"]}),
        "The specified mpi master task was not found",
    ),
    (
        job(task("launcher"), plugins={"mpi": ["--port=many", "--master=launcher"]}),
        "The specified mpi master task was not found",
    ),
    scenario(
        72,
        sized(resources({"cpu": "2"}), ASKS_FOUR),
        'spec.task[0].template.spec.resources.requests[cpu]: Invalid value: "2": '
        "must be greater than or equal to aggregate container requests of 4.",
    ),
    scenario(
        73,
        sized(resources({"cpu": "6"}, {"cpu": "4"}), container()),
        'spec.task[0].template.spec.resources.requests: Invalid value: "6": must be less than or equal to cpu limit of 4.',
    ),
    scenario(
        74,
        job(task(template=template(container(resources=resources({"cpu": "-1"}))))),
        'spec.task[0].template.spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0.',
    ),
    scenario(
        75,
        job(task(template=template(container(resources=resources({"memory": "-1"}))))),
        'spec.task[0].template.spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0.',
    ),
    scenario(
        76,
        job(
            task(
                topologyPolicy="restricted",
                template=template(container(resources=resources(None, {"cpu": "500m"}))),
            )
        ),
        "the cpu request isn't an integer in spec.task[0] container[0].",
    ),
    scenario(221, job(name="x" * 64), "create job with name " + "x" * 64 + " validate failed ["),
    scenario(
        221,
        job(task("worker"), name="x" * 58),
        f"create pod with name {'x' * 58}-worker-0 validate failed [",
        id="221b",
    ),
    scenario(
        225,
        volumes({"mountPath": "/var", "volumeClaimName": "a", "volumeClaim": {}}),
        "conflict: If you want to use an existing PVC, just specify VolumeClaimName."
        "If you want to create a new PVC, you do not need to specify VolumeClaimName",
    ),
    scenario(
        226,
        job(task("t1", dependsOn={"name": ["t2", "t2"]}), task("t2")),
        "doesn't form a directed acyclic graph(DAG);",
    ),
]


@pytest.mark.parametrize(("obj", "text"), DENIED)
def test_an_unsound_job_is_refused_with_its_reason(obj: Tree, text: str):
    assert text in denied(VALIDATE, obj)


def test_a_queue_that_is_not_open_takes_no_jobs():
    assert (
        denied(VALIDATE, job(queue="shut"))
        == "can only submit job to queue with state `Open`, queue `shut` status is `Closed`;"
    )
    assert ask(VALIDATE, job(queue="new")).allowed, (
        "a queue and its jobs come in one file, and no controller has seen it yet"
    )


def test_policy_problems_read_as_a_list():
    message = denied(VALIDATE, policy(action="AbortJob"))

    assert message.startswith(
        "1 error occurred:\n\t* either event and exitCode should be specified\n\n valid events are ["
    )
    assert message.endswith("];")


def test_several_problems_are_told_at_once_in_order():
    obj = job(task("a"), task("a"), minAvailable=3, plugins={"nope": []}, queue="nowhere")

    message = denied(VALIDATE, obj)

    texts = [
        "duplicated task name a;",
        "total replicas in tasks;",
        "unable to find job plugin: nope;",
        "unable to find job queue",
    ]
    places = [message.index(text) for text in texts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("arguments", "master"),
    [
        ([], "master"),
        (["--master=m"], "m"),
        (["-master", "m"], "m"),
        (["--worker=w", "--master", "m"], "m"),
        (["--unknown", "--master=m"], "master"),
        (["--master=m", "--unknown", "--master=n"], "m"),
    ],
)
def test_mpi_arguments_are_read_until_the_first_unknown_flag(arguments: list[str], master: str):
    obj = job(task(master), plugins={"mpi": arguments})

    assert ask(VALIDATE, obj).allowed


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"containers": []}, "template.spec.containers: Required value"),
        ({"containers": [container("")]}, "template.spec.containers[0].name: Required value"),
        (
            {"containers": [container(), container()]},
            'template.spec.containers[1].name: Duplicate value: "main"',
        ),
        ({"containers": [{"name": "main"}]}, "template.spec.containers[0].image: Required value"),
        (
            {"containers": [container(image=" busybox")]},
            'template.spec.containers[0].image: Invalid value: " busybox": must not have leading or trailing whitespace',
        ),
        (
            {"containers": [container(ports=[{"containerPort": 70000}])]},
            "template.spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "data", "mountPath": "/data"}])]},
            'template.spec.containers[0].volumeMounts[0].name: Not found: "data"',
        ),
        (
            {"restartPolicy": "Sometimes"},
            'template.spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            {"volumes": [{"name": "v", "nfs": {"path": "/a"}}]},
            "template.spec.volumes[0].nfs.server: Required value",
        ),
        (
            {"containers": [container(resources=resources({"cpu": "2"}, {"cpu": "1"}))]},
            'template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {
                "containers": [
                    container(
                        resources=resources({"nvidia.com/gpu": "500m"}, {"nvidia.com/gpu": "500m"})
                    )
                ]
            },
            'template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
        ),
        (
            {"tolerations": [{"operator": "Equal", "value": "x"}]},
            'template.spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty',
        ),
    ],
)
def test_a_template_is_judged_as_its_pods_will_be(spec: Tree, error: str):
    obj = job(task(template={"spec": {"containers": [container()], **spec}}))

    assert f"spec.task[0].{error}" in denied(VALIDATE, obj)


# -- updates ---------------------------------------------------------------------------------------

IMMUTABLE = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`"


def five(**changes: Any) -> Tree:
    size = {"replicas": 5, "minAvailable": 5, **changes.pop("task", {})}
    return job(task(**size), **{"minAvailable": 5, **changes})


@pytest.mark.parametrize(
    "new",
    [
        scenario(77, five(task={"replicas": 6})),
        scenario(78, five(task={"replicas": 4, "minAvailable": 3}, minAvailable=3)),
        scenario(
            83,
            {
                **five(),
                "metadata": {"name": "train", "resourceVersion": "7"},
                "status": {"running": 5},
            },
        ),
        scenario(219, five(task={"minAvailable": 4}, priorityClassName="high")),
        scenario(220, five(task={"minAvailable": 0}, minAvailable=0)),
    ],
)
def test_sizes_and_priority_may_change(new: Tree):
    assert ask(VALIDATE, new, five()).message == ""


@pytest.mark.parametrize(
    ("new", "message"),
    [
        scenario(
            79,
            five(task={"replicas": 4, "minAvailable": 4}),
            "job 'minAvailable' must not be greater than total replicas",
        ),
        scenario(
            80,
            job(task(replicas=5), task("more"), minAvailable=5),
            "job updates may not add or remove tasks",
        ),
        scenario(81, job(task("other", 5, minAvailable=5), minAvailable=5), IMMUTABLE),
        scenario(82, five(queue="childQueue"), IMMUTABLE),
        scenario(219, five(ttlSecondsAfterFinished=0), IMMUTABLE),
        (
            five(task={"replicas": -1, "minAvailable": None}),
            "'replicas' must be >= 0 in task: task-1",
        ),
        (five(task={"minAvailable": 6}), "'minAvailable' must be <= 'replicas' in task: task-1"),
        (five(networkTopology=BOTH), TIERS),
        (five(plugins={"svc": []}), IMMUTABLE),
    ],
)
def test_everything_else_stays_as_it_was(new: Tree, message: str):
    assert denied(VALIDATE, new, five()) == message


@pytest.mark.scenario("api-and-admission", 218)
def test_a_partitioned_task_cannot_be_scaled():
    grown = task(replicas=12, partitionPolicy=partition(2, 4))

    assert "'Replicas' are not equal to TotalPartitions*PartitionSize" in denied(
        VALIDATE, job(grown), job(PARTITIONED)
    )


def test_an_update_that_only_spells_things_differently_is_none():
    old = job(
        task(template=template(container(resources=resources({"cpu": "1000m"})))), policies=[]
    )
    new = job(
        task(
            template=template(
                container(resources=resources({"cpu": "1"}), env=[]), hostNetwork=False
            )
        ),
        maxRetry=0,
    )

    assert ask(VALIDATE, new, old).message == ""


def test_the_claim_that_the_controller_made_may_be_written_back():
    old = job(volumes=[{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}])
    new = job(
        volumes=[
            {
                "mountPath": "/data",
                "volumeClaim": {"accessModes": ["ReadWriteOnce"]},
                "volumeClaimName": "train-pvc",
            }
        ]
    )

    assert ask(VALIDATE, new, old).message == ""


# -- the graph -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "order"),
    [
        scenario(84, {"t1": ["t2", "t3"], "t2": ["t3"], "t3": []}, ["t3", "t2", "t1"]),
        scenario(85, {"t1": ["t2"], "t2": ["t1"], "t3": []}, None),
        scenario(86, {"t1": ["t2", "t3"], "t2": ["t2"], "t3": []}, None),
        scenario(87, {"t1": ["t2", "t3"], "t2": [], "t3": ["t2"]}, ["t2", "t3", "t1"]),
    ],
)
def test_tasks_are_put_before_what_needs_them(graph: dict[str, list[str]], order: list[str] | None):
    assert sorted_tasks(graph) == order
