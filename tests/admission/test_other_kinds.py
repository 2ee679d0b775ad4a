"""Pod groups, pods, hypernodes, flows and cron jobs on their way in.  Reference: api-and-admission
7.9 to 7.13, 7.15."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.admission import Settings, StaticLookup, review
from hekla.admission.rules.graph import UndefinedVertex, is_acyclic
from hekla.admission.rules.groups import parse
from tests.admission.objects import Tree, ask, denied, patched
from tests.admission.test_jobs import BOTH, TIERS, scenario

# -- pod groups ------------------------------------------------------------------------------------

TOLD = {
    "metadata": {"name": "team", "annotations": {"scheduling.volcano.sh/queue-name": "childQueue"}}
}
PLAIN = {"metadata": {"name": "default"}}


def group(namespace: str = "default", **spec: Any) -> Tree:
    return {"metadata": {"name": "g", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "queue"),
    [
        scenario(148, group("team", queue="shut"), "shut"),
        scenario(149, group("team", queue="default"), "childQueue"),
        scenario(150, group("default", queue="default"), "default"),
        scenario(151, group("team", queue="default"), "childQueue"),
        scenario(151, group("team", queue="mine"), "mine", id="151b"),
        (group("nowhere", queue="default"), "default"),
    ],
)
def test_a_group_follows_its_namespace_to_a_queue(obj: Tree, queue: str):
    assert patched("/podgroups/mutate", obj, namespaces=(TOLD, PLAIN))["spec"]["queue"] == queue


@pytest.mark.parametrize(
    "obj",
    [
        scenario(152, group(queue="default")),
        scenario(154, group(queue="")),
        scenario(
            156,
            group(
                queue="default",
                subGroupPolicy=[{"name": "s", "networkTopology": {"highestTierName": "rack"}}],
            ),
        ),
        scenario(
            157,
            group(
                queue="default",
                subGroupPolicy=[{"name": "s", "networkTopology": {"highestTierAllowed": 1}}],
            ),
        ),
        scenario(230, group(queue="root")),
    ],
)
def test_a_sound_group_is_let_in(obj: Tree):
    assert ask("/podgroups/validate", obj).message == ""


MISSING_QUEUE = 'unable to find queue: queue.scheduling.volcano.sh "nowhere" not found'


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        scenario(
            153,
            group(queue="shut"),
            "can only submit PodGroup to queue with state `Open`, queue `shut` status is `Closed`.",
        ),
        scenario(155, group(queue="nowhere"), MISSING_QUEUE),
        scenario(
            158,
            group(queue="default", subGroupPolicy=[{"name": "s", "networkTopology": BOTH}]),
            f"in subGroupPolicy 's': {TIERS}.",
        ),
        scenario(159, group(queue="default", networkTopology=BOTH), f"{TIERS}."),
        scenario(160, group(queue="nowhere", networkTopology=BOTH), f"{MISSING_QUEUE}; {TIERS}."),
    ],
)
def test_an_unsound_group_is_refused(obj: Tree, message: str):
    assert denied("/podgroups/validate", obj) == message


def test_groups_are_looked_at_when_they_are_created():
    assert denied("/podgroups/validate", group(), group()) == "unsupported operation UPDATE"
    assert (
        denied("/podgroups/mutate", group(), group())
        == "invalid operation `UPDATE`, expect operation to be `CREATE`"
    )


# -- pods ------------------------------------------------------------------------------------------

AFFINITY = '{"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}'
CONFIGURATION = {
    "resourceGroups": [
        {
            "resourceGroup": "management",
            "object": {"key": "namespace", "value": ["mng-ns-1", "mng-ns-2"]},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "mng", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}
            ],
            "labels": {"volcano.sh/nodetype": "management"},
            "affinity": AFFINITY,
        },
        {
            "resourceGroup": "cpu",
            "object": {"key": "annotation", "value": ["volcano.sh/resource-group: cpu"]},
            "schedulerName": "volcano",
            "labels": {"volcano.sh/nodetype": "cpu"},
        },
        {
            "resourceGroup": "gpu",
            "schedulerName": "volcano",
            "labels": {"volcano.sh/nodetype": "gpu"},
        },
    ]
}
GROUPS = Settings(resource_groups=parse(CONFIGURATION))
NO_GROUPS = Settings(resource_groups=())


def pod(namespace: str = "default", annotations: Tree | None = None, **spec: Any) -> Tree:
    return {
        "metadata": {"name": "p", "namespace": namespace, "annotations": annotations or {}},
        "spec": spec,
    }


@pytest.mark.scenario("api-and-admission", 161)
def test_a_pod_of_a_grouped_namespace_gets_all_of_the_group():
    patch = ask("/pods/mutate", pod("mng-ns-1"), settings=GROUPS).patch

    assert patch == [
        {"op": "add", "path": "/spec/nodeSelector", "value": {"volcano.sh/nodetype": "management"}},
        {
            "op": "add",
            "path": "/spec/affinity",
            "value": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        },
        {
            "op": "add",
            "path": "/spec/tolerations",
            "value": [{"key": "mng", "operator": "Exists", "effect": "NoSchedule"}],
        },
        {"op": "add", "path": "/spec/schedulerName", "value": "default-scheduler"},
    ]


@pytest.mark.parametrize("name", [scenario(162, "cpu"), scenario(163, "gpu")])
def test_a_pod_chooses_its_group_by_annotation(name: str):
    spec = patched(
        "/pods/mutate", pod(annotations={"volcano.sh/resource-group": name}), settings=GROUPS
    )["spec"]

    assert spec == {"nodeSelector": {"volcano.sh/nodetype": name}, "schedulerName": "volcano"}


@pytest.mark.scenario("api-and-admission", 164)
@pytest.mark.scenario("api-and-admission", 165)
@pytest.mark.parametrize("settings", [GROUPS, NO_GROUPS, Settings()])
def test_a_pod_of_no_group_stays_as_it_is(settings: Settings):
    assert (
        ask(
            "/pods/mutate",
            pod(annotations={"volcano.sh/resource-group": "other"}),
            settings=settings,
        ).patch
        is None
    )


@pytest.mark.scenario("api-and-admission", 166)
def test_what_a_pod_says_about_its_place_is_kept():
    toleration = {"key": "mine", "operator": "Exists"}
    given = pod(
        "mng-ns-1",
        affinity={"podAffinity": {}},
        tolerations=[toleration],
        nodeSelector={"disk": "ssd"},
    )

    spec = patched("/pods/mutate", given, settings=GROUPS)["spec"]

    assert spec["affinity"] == {"podAffinity": {}}
    assert spec["tolerations"][0] == toleration
    assert spec["nodeSelector"] == {"disk": "ssd", "volcano.sh/nodetype": "management"}


GATE = "scheduling.volcano.sh/queue-allocation-gate"


@pytest.mark.parametrize(
    ("gates", "wanted"),
    [
        (None, [{"name": GATE}]),
        ([{"name": "other"}], [{"name": "other"}, {"name": GATE}]),
        ([{"name": GATE}], [{"name": GATE}]),
    ],
)
def test_a_pod_that_opted_in_waits_behind_the_gate(gates: Any, wanted: Any):
    given = pod(annotations={GATE: "true"}, **({"schedulingGates": gates} if gates else {}))
    settings = Settings(resource_groups=(), scheduling_gates=True)

    assert patched("/pods/mutate", given, settings=settings)["spec"]["schedulingGates"] == wanted
    assert ask("/pods/mutate", given, settings=NO_GROUPS).patch is None


MINIMUM, MAXIMUM = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"


@pytest.mark.parametrize(
    ("scheduler", "annotations"),
    [
        scenario(167, "default-scheduler", {}),
        scenario(168, "default-scheduler", {MINIMUM: "-1"}),
        scenario(169, "volcano", {MINIMUM: "2"}),
        scenario(170, "volcano", {MAXIMUM: "50%"}),
        scenario(171, "volcano", {}),
        scenario(227, "volcano", {MINIMUM: "5%0"}),
        scenario(227, "volcano", {MINIMUM: "100"}, id="227b"),
    ],
)
def test_a_sound_budget_is_let_in(scheduler: str, annotations: Tree):
    assert (
        ask("/pods/validate", pod(annotations=annotations, schedulerName=scheduler)).message == ""
    )


POSITIVE = 'invalid value <"{}"> for {}, it must be a positive integer'
PERCENT = 'invalid value <"{}"> for {}, it must be a valid percentage which between 1% ~ 99%'


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        scenario(172, {MINIMUM: "-1"}, POSITIVE.format("-1", MINIMUM)),
        scenario(172, {MINIMUM: "0"}, POSITIVE.format("0", MINIMUM), id="172b"),
        scenario(173, {MAXIMUM: "0%"}, PERCENT.format("0%", MAXIMUM)),
        scenario(173, {MAXIMUM: "100%"}, PERCENT.format("100%", MAXIMUM), id="173b"),
        (
            {MINIMUM: "9" * 20},
            f'invalid value strconv.Atoi: parsing "{"9" * 20}": value out of range for {MINIMUM}',
        ),
        (
            {MINIMUM: "9" * 5000},
            f'invalid value strconv.Atoi: parsing "{"9" * 5000}": value out of range for {MINIMUM}',
        ),
        (
            {MAXIMUM: '"5"'},
            f'invalid value strconv.Atoi: parsing "\\"5\\"": invalid syntax for {MAXIMUM}',
        ),
        scenario(
            174,
            {MINIMUM: "invalid"},
            f'invalid value strconv.Atoi: parsing "invalid": invalid syntax for {MINIMUM}',
        ),
        scenario(
            175,
            {MINIMUM: "2", MAXIMUM: "50%"},
            f"not allow configure multiple annotations <[{MINIMUM} {MAXIMUM}]> at same time",
        ),
    ],
)
def test_an_unsound_budget_is_refused(annotations: Tree, message: str):
    assert (
        denied("/pods/validate", pod(annotations=annotations, schedulerName="volcano")) == message
    )


# -- hypernodes ------------------------------------------------------------------------------------


def hypernode(*selectors: Tree) -> Tree:
    members = [{"type": "Node", "selector": selector} for selector in selectors]
    return {
        "metadata": {"name": "h"},
        "spec": {"tier": 1, **({"members": members} if members else {})},
    }


@pytest.mark.parametrize(
    ("selector", "old"),
    [
        scenario(180, {"exactMatch": {"name": "node-1"}}, None),
        scenario(181, {"regexMatch": {"pattern": "node-[0-9]+"}}, None),
        scenario(182, {"labelMatch": {"matchLabels": {"topology-rack": "rack1"}}}, None),
        scenario(
            188,
            {"regexMatch": {"pattern": "node-[1-5]"}},
            hypernode({"exactMatch": {"name": "node-1"}}),
        ),
    ],
)
def test_a_sound_hypernode_is_let_in(selector: Tree, old: Tree | None):
    assert ask("/hypernodes/validate", hypernode(selector), old).message == ""


@pytest.mark.scenario("api-and-admission", 185)
@pytest.mark.scenario("plugins-placement", 56)
def test_a_pattern_must_compile():
    assert denied("/hypernodes/validate", hypernode({"regexMatch": {"pattern": "a(b"}})) == (
        '[].spec.members.selector.regexMatch.pattern: Invalid value: "a(b": '
        "member regexMatch pattern is invalid: error parsing regexp: missing closing ): `a(b`"
    )


@pytest.mark.scenario("api-and-admission", 186)
@pytest.mark.scenario("plugins-placement", 56)
@pytest.mark.parametrize("old", [None, hypernode({"exactMatch": {"name": "node-1"}})])
def test_a_hypernode_has_members(old: Tree | None):
    assert "member must have at least one member" in denied(
        "/hypernodes/validate", hypernode(), old
    )


def test_a_hypernode_may_go():
    assert ask("/hypernodes/validate", None, operation="DELETE", name="h").allowed


# -- flows -----------------------------------------------------------------------------------------


def flow(**targets: str) -> Tree:
    return flows(*targets.items())


def flows(*steps: tuple[str, str]) -> Tree:
    listed = [
        {"name": name, **({"dependsOn": {"targets": list(needs)}} if needs else {})}
        for name, needs in steps
    ]
    return {"metadata": {"name": "f", "namespace": "default"}, "spec": {"flows": listed}}


@pytest.mark.parametrize(
    "obj",
    [
        scenario(189, flow(a="", b="a", c="ab", d="b", e="cd")),
        scenario(190, flows(("a", ""), ("a", ""), ("b", "a"))),
        scenario(191, flows(("a", ""), ("b", ""), ("c", "a"), ("c", "b"))),
        scenario(195, flow(a="", b="a", c="b"), id="chain"),
        scenario(195, flow(a="", b="", c="ab", d="c"), id="two roots"),
        scenario(195, flows(), id="empty"),
        scenario(195, flow(a=""), id="single"),
    ],
)
def test_a_flow_without_cycles_is_let_in(obj: Tree):
    assert ask("/jobflows/validate", obj).message == ""


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        scenario(192, flow(b="a"), "jobflow Flow is not DAG: vertex is not defined: a"),
        scenario(193, flow(a="b", b="a"), "jobflow Flow is not DAG"),
        scenario(194, flow(a="a"), "jobflow Flow is not DAG"),
    ],
)
def test_a_flow_that_cannot_run_is_refused(obj: Tree, message: str):
    assert denied("/jobflows/validate", obj) == message


@pytest.mark.scenario("api-and-admission", 196)
def test_graphs_are_told_apart():
    with pytest.raises(UndefinedVertex):
        is_acyclic({"1": ["2"], "2": ["1", "3"]})
    assert not is_acyclic({"1": ["2"], "2": ["3"], "3": ["1"]})
    assert is_acyclic({"1": ["2", "3"], "2": ["3"], "3": ["4"], "4": []})
    assert not is_acyclic({"1": [], "5": ["5"]})


# -- cron jobs -------------------------------------------------------------------------------------


def cron(schedule: str = "* * * * *", name: str = "my-cronjob", **spec: Any) -> Tree:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": schedule, **spec},
    }


@pytest.mark.parametrize(
    "obj",
    [
        scenario(197, cron()),
        scenario(198, cron("@every 1m")),
        scenario(199, cron("*/5 * * * *", timeZone="Pacific/Honolulu")),
        scenario(207, cron(name="my-cronjob")),
        scenario(207, cron(name="a" * 52), id="207b"),
        cron("0 9-17/2 1,15 jan-jun MON-FRI"),
        cron("@daily"),
        cron("0 0 ? * *"),
        cron("+5 0-6/+2 *-x * *"),
        cron("@every -0"),
    ],
)
def test_a_sound_cron_job_is_let_in(obj: Tree):
    assert ask("/cronjobs/validate", obj).message == ""


LONG_NAME = (
    "cronJob name must be no more than 52 characters to accommodate job name suffix (max 63 total)"
)
BAD_SCHEDULE = "schedule is not a valid cron expression"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        scenario(
            200,
            cron("TZ=UTC 0 20 * * *"),
            "schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field",
        ),
        scenario(201, cron("error schedule"), BAD_SCHEDULE),
        scenario(202, cron(""), "schedule is required, but got empty"),
        scenario(203, cron(timeZone="Asia/./Shanghai"), "unknown timeZone"),
        scenario(
            203, cron(timeZone="America/-NewYork"), "unknown timeZone invalid timeZone", id="203b"
        ),
        scenario(203, cron(timeZone="New York"), "unknown timeZone invalid timeZone", id="203c"),
        scenario(203, cron(timeZone="UTC!"), "unknown timeZone invalid timeZone", id="203d"),
        scenario(
            204,
            cron(timeZone="Local"),
            "timeZone can't be Local, and must be defined in https://www.iana.org/time-zones",
        ),
        scenario(
            205, cron(timeZone=""), "timeZone must be nil or non-empty string, got empty string"
        ),
        scenario(206, cron(timeZone="Amerrica/New_York"), "invalid timeZone"),
        scenario(207, cron(name="a" * 65), LONG_NAME, id="207c"),
        scenario(208, cron("bad", name="a" * 53), f"{BAD_SCHEDULE}; {LONG_NAME}"),
        scenario(209, cron(""), "schedule is required, but got empty"),
        (cron("61 * * * *"), BAD_SCHEDULE),
        (cron("* * * *"), BAD_SCHEDULE),
        (cron("5-1 * * * *"), BAD_SCHEDULE),
        (cron("*/0 * * * *"), BAD_SCHEDULE),
        (cron("* * * * 7"), BAD_SCHEDULE),
        (cron("@reboot"), BAD_SCHEDULE),
        (cron("@every 2562048h"), BAD_SCHEDULE),
        (cron("9" * 5000 + " * * * *"), BAD_SCHEDULE),
        (cron("bad", timeZone="UTC!"), f"{BAD_SCHEDULE} unknown timeZone invalid timeZone"),
    ],
)
def test_an_unsound_cron_job_is_refused(obj: Tree, message: str):
    assert denied("/cronjobs/validate", obj) == message


@pytest.mark.scenario("api-and-admission", 207)
def test_a_cron_job_has_a_name_that_jobs_can_carry_on():
    assert denied("/cronjobs/validate", cron(name="-UPPERCASE")).startswith(
        'invalid cronJob name "-UPPERCASE": '
    )


# -- circles of hypernodes -------------------------------------------------------------------------


def above(name: str, *below: str) -> Tree:
    members = [{"type": "HyperNode", "selector": {"exactMatch": {"name": one}}} for one in below]
    return {"metadata": {"name": name}, "spec": {"tier": 2, "members": members}}


STORED = (above("a", "b"), above("b", "c", "x"), above("x", "y"), above("y", "x"))


@pytest.mark.parametrize(
    ("obj", "way"),
    [
        (above("a", "a"), "a -> a"),
        (above("c", "a"), "c -> a -> b -> c"),
        (above("b", "x", "a"), "b -> a -> b"),
    ],
)
def test_a_hypernode_above_itself_is_refused(obj: Tree, way: str):
    lookup = StaticLookup(hypernodes=STORED)
    verdict = review(
        "/hypernodes/validate",
        "CREATE",
        obj,
        None,
        lookup,
        Settings(),
        name=obj["metadata"]["name"],
    )
    assert not verdict.allowed and verdict.message.endswith(
        f"a HyperNode cannot be above itself: {way}"
    )


def test_a_circle_that_is_stored_may_be_mended_and_looked_at():
    lookup = StaticLookup(hypernodes=STORED)
    for obj, old in (
        (above("y", "x"), above("y", "x")),
        (above("y", "z"), above("y", "x")),
        (above("n", "x"), None),
    ):
        operation = "CREATE" if old is None else "UPDATE"
        assert review(
            "/hypernodes/validate",
            operation,
            obj,
            old,
            lookup,
            Settings(),
            name=obj["metadata"]["name"],
        ).allowed
