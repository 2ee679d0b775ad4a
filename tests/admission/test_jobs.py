"""Jobs on their way in: what is filled in, what is let in, what is refused and how.  Reference:
api-and-admission 7.1 to 7.5."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.admission import Settings
from hekla.admission.rules.graph import sorted_tasks
from tests.admission.objects import Tree, ask, container, denied, job, patched, task, template

MUTATE, VALIDATE = "/jobs/mutate", "/jobs/validate"
TIERS = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)
BOTH = {"highestTierAllowed": 1, "highestTierName": "rack"}


def scenario(number: int, *values: Any, id: str = "") -> Any:
    return pytest.param(
        *values, marks=pytest.mark.scenario("api-and-admission", number), id=id or str(number)
    )


def bare(*tasks: Tree, **spec: Any) -> Tree:
    """A job that says nothing but its tasks."""
    return {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"tasks": list(tasks), **spec},
    }


# -- what is filled in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "field", "value"),
    [
        scenario(1, bare(task()), "queue", "default"),
        scenario(2, bare(task()), "schedulerName", "volcano"),
        scenario(3, bare(task()), "maxRetry", 3),
        scenario(4, bare(task("a", 2), task("b", 3)), "minAvailable", 5),
        scenario(5, bare(task("a", 2, minAvailable=1), task("b", 3)), "minAvailable", 4),
        scenario(
            6, bare(task(), plugins={"tensorflow": []}), "plugins", {"tensorflow": [], "svc": []}
        ),
        scenario(
            7,
            bare(task(), plugins={"mpi": ["--master=task-1"]}),
            "plugins",
            {"mpi": ["--master=task-1"], "svc": [], "ssh": []},
        ),
        scenario(
            8, bare(task(), plugins={"mpi": []}), "plugins", {"mpi": [], "svc": [], "ssh": []}
        ),
        scenario(9, bare(task(), plugins={"pytorch": []}), "plugins", {"pytorch": [], "svc": []}),
        scenario(
            10,
            bare(task(), plugins={"tensorflow": [], "svc": ["--enable-networking"]}),
            "plugins",
            {"tensorflow": [], "svc": ["--enable-networking"]},
        ),
        scenario(220, bare(task("a", 2), maxRetry=0, minAvailable=0), "minAvailable", 2),
        scenario(223, bare(task(), plugins={"ray": []}), "plugins", {"ray": [], "svc": []}),
    ],
)
def test_what_a_job_does_not_say_is_filled_in(obj: Tree, field: str, value: Any):
    assert patched(MUTATE, obj)["spec"][field] == value


@pytest.mark.scenario("api-and-admission", 11)
def test_what_a_job_says_stays():
    said = task("a", 2, minAvailable=2, maxRetry=5)
    obj = bare(said, minAvailable=2, queue="custom", schedulerName="custom-sched", maxRetry=10)

    assert ask(MUTATE, obj).patch is None
    assert patched(MUTATE, obj) == obj


@pytest.mark.scenario("api-and-admission", 12)
@pytest.mark.scenario("api-and-admission", 13)
def test_unnamed_tasks_are_numbered_and_get_their_retries():
    obj = bare(*({"replicas": 1, "template": template()} for _ in range(4)))

    patch = ask(MUTATE, obj).patch

    assert patch is not None
    step = next(step for step in patch if step["path"] == "/spec/tasks")
    assert step["op"] == "replace"
    assert [(each["name"], each["maxRetry"]) for each in step["value"]] == [
        (f"default{i}", 3) for i in range(4)
    ]


def partition(total: int, size: int, least: int | None = None, **more: Any) -> Tree:
    policy = {"totalPartitions": total, "partitionSize": size, **more}
    return policy if least is None else {**policy, "minPartitions": least}


@pytest.mark.parametrize(
    ("given", "least"),
    [
        scenario(14, task(replicas=1), 1),
        scenario(14, task(replicas=2, minAvailable=1), 1, id="14b"),
        scenario(15, task(replicas=1, partitionPolicy=partition(1, 1, 1)), 1),
        scenario(16, task(replicas=9, partitionPolicy=partition(3, 3, 2)), 6),
        scenario(17, task(replicas=4, partitionPolicy=partition(2, 2)), 4),
        scenario(18, task(replicas=5), 5),
        scenario(18, task(replicas=5, minAvailable=0), 0, id="explicit zero"),
    ],
)
def test_the_least_of_a_task_is_its_partitions_or_all_of_it(given: Tree, least: int):
    assert patched(MUTATE, bare(given))["spec"]["tasks"][0]["minAvailable"] == least


@pytest.mark.scenario("api-and-admission", 19)
def test_mpi_adds_no_dependency_between_its_tasks():
    given = bare(task("master"), task("worker", 2), plugins={"mpi": []})

    assert all("dependsOn" not in each for each in patched(MUTATE, given)["spec"]["tasks"])


@pytest.mark.scenario("api-and-admission", 224)
@pytest.mark.parametrize(
    ("policy", "expected"), [("", "ClusterFirstWithHostNet"), ("Default", "Default")]
)
def test_a_task_on_the_host_network_keeps_cluster_names(policy: str, expected: str):
    spec = {"hostNetwork": True, **({"dnsPolicy": policy} if policy else {})}

    result = patched(MUTATE, bare(task(template=template(**spec))))

    assert result["spec"]["tasks"][0]["template"]["spec"]["dnsPolicy"] == expected


@pytest.mark.parametrize("timeout", ["5 minutes", "5", "1d", "٣m", "9" * 400 + "h"])
def test_a_duration_that_go_cannot_read_is_refused_with_its_form(timeout: str):
    for obj, where in (
        (
            job(policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": timeout}]),
            "spec.policies.timeout",
        ),
        (
            job(task(policies=[{"exitCode": 3, "action": "RestartJob", "timeout": timeout}])),
            "spec.tasks.policies.timeout",
        ),
        (job(runningEstimate=timeout), "spec.runningEstimate"),
    ):
        text = denied(VALIDATE, obj)
        assert (
            f'{where}: Invalid value: "{timeout}": a duration is written as in Go' in text
            and "5m" in text
        )
    assert ask(
        VALIDATE, job(policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": "1h5m"}])
    ).allowed


def test_other_operations_are_no_business_of_the_mutator():
    assert denied(MUTATE, job(), operation="DELETE") == "expect operation to be 'CREATE' "


def test_an_update_is_filled_in_as_its_job_once_was():
    """Decision 0188: a list that a second apply replaces comes without what was filled in."""
    unnamed = {"replicas": 2, "template": task()["template"]}
    manifest = {
        **job(),
        "spec": {
            "tasks": [unnamed, {**unnamed, "replicas": 3}],
            "plugins": {"mpi": ["--master=default0"]},
        },
    }
    stored = patched(MUTATE, manifest)
    applied = {**stored, "spec": {**stored["spec"], "tasks": manifest["spec"]["tasks"]}}

    assert ask(VALIDATE, applied, stored).allowed, (
        "where a chart registers the mutator for creates alone"
    )
    assert patched(MUTATE, applied, operation="UPDATE") == stored
    assert patched(MUTATE, manifest, operation="UPDATE") == stored, "replaced as a whole"


def test_an_update_may_still_set_the_minimum_to_nothing():
    stored = patched(MUTATE, bare(task(replicas=2)))

    spec = {**stored["spec"], "minAvailable": 0}
    assert patched(MUTATE, {**stored, "spec": spec}, old=stored)["spec"] == spec


def test_a_duration_that_a_client_spells_anew_is_no_change():
    policy = {"event": "PodPending", "action": "AbortJob", "timeout": "90s"}
    stored = patched(MUTATE, job(task(policies=[policy]), policies=[policy], runningEstimate="1h"))
    spelled = {**policy, "timeout": "1m30s"}

    assert (
        ask(
            VALIDATE,
            job(task(policies=[spelled]), policies=[spelled], runningEstimate="1h0m0s"),
            stored,
        ).message
        == ""
    )
    assert "may not change" in denied(
        VALIDATE, job(task(policies=[policy]), policies=[{**policy, "timeout": "91s"}]), stored
    )


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"maxRetry": 5},
        {"policies": [{"event": "PodFailed", "action": "AbortJob"}]},
    ],
)
def test_what_an_apply_really_changes_is_refused(change: dict[str, object]):
    stored = patched(MUTATE, bare(task()))

    assert denied(VALIDATE, bare(task(**change)), stored).startswith(
        "job updates may not change fields other than"
    )


def test_the_first_scheduler_name_is_the_default_one():
    settings = Settings(scheduler_names=("mine", "volcano"))

    assert patched(MUTATE, bare(task()), settings=settings)["spec"]["schedulerName"] == "mine"


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
