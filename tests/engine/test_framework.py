"""What sessions and statements do: phases, votes, domains as a cycle understands them, undoing.
Reference: scheduler-core 10.10."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.plugin import ABSTAIN, Code, Depends, Filter, Plugin, Victims
from hekla.engine.framework.policy import PolicyError
from hekla.engine.framework.session import Session
from hekla.engine.framework.statement import Statement
from hekla.engine.model.hypernodes import ROOT
from hekla.engine.model.tasks import Group, Job, Status, Task
from hekla.engine.placement.victims import in_order
from hekla.engine.policies import read_policy
from hekla.engine.report import phase_of
from hekla.engine.world import World, policy
from tests.engine.test_allocate import device_world
from tests.engine.trees import SUB_GROUPS, hard, named, tree_a


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


def world(
    *plugins: type[Plugin], more: tuple[Any, ...] = ("gang",), actions: str = "allocate"
) -> World:
    return World(
        policy(plugins=[*more, *(one.name for one in plugins)], actions=actions, custom=plugins)
    )


def opened(here: World) -> Session:
    return open_session(here.state, hooks_of(here.state, here.policy), here.now)


def pod(here: World, name: str, *, node: str = "", phase: str = "", leaving: bool = False) -> None:
    here.pod(name, job="job", node=node, phase=phase, cpu=1)
    if leaving:
        here.pods[f"default/{name}"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        here.state.upsert_pod(here.pods[f"default/{name}"])


# phases

LEAVES, LEAVES_NOWHERE, RUNS, WAITS, DONE = (
    {"node": "n1", "leaving": True},
    {"leaving": True},
    {"node": "n1"},
    {},
    {"node": "n1", "phase": "Succeeded"},
)


@core(102)
@pytest.mark.parametrize(
    ("pods", "minimum", "before", "after"),
    [
        ([LEAVES], 1, "Inqueue", "Running"), ([RUNS, LEAVES], 2, "Inqueue", "Running"), ([LEAVES, LEAVES], 2, "Inqueue", "Running"),
        ([LEAVES_NOWHERE, WAITS], 2, "Pending", "Pending"), ([DONE, DONE], 2, "Running", "Completed"), ([LEAVES], 2, "Pending", "Pending"),
    ],
)  # fmt: skip
def test_phases(pods: list[dict[str, Any]], minimum: int, before: str, after: str) -> None:
    here = world()
    here.nodes("n1", cpu=8)
    here.job("job", pods=0, min_available=minimum, phase=before)
    for number, one in enumerate(pods):
        pod(here, f"p{number}", **one)
    assert phase_of(here.state.jobs["default/job"], "cycle") == after


@core(102)
def test_a_running_job_that_lost_its_minimum() -> None:
    here = world()
    here.nodes("n1", cpu=1)
    here.job("job", pods=2, cpu=1, on=["n1"])
    (status,) = here.run().pod_groups
    assert status.phase == "Unknown"


# votes


class Victim(Plugin):
    """Names some of the candidates."""

    names: frozenset[str] = frozenset()
    vote = 1

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
        self.heard = kind, job.name
        return Victims([task for task in candidates if task.name in self.names], self.vote)


def naming(own: str, *names: str, vote: int = 1) -> type[Plugin]:
    return type(
        own,
        (Victim,),
        {"name": own, "names": frozenset(names), "vote": vote, "__module__": __name__},
    )


def asked(*tiers: list[type[Plugin]]) -> tuple[Session, list[str]]:
    custom = [one for tier in tiers for one in tier]
    here = World(policy(tiers=[[one.name for one in tier] for tier in tiers], custom=custom))
    here.nodes("n1", cpu=8)
    here.job("preemptor", cpu=1)
    here.job("job", pods=0, min_available=0)
    for name in ("a", "b", "c"):
        pod(here, name, node="n1")
    session = opened(here)
    candidates = [here.state.tasks[f"default/{name}"] for name in ("a", "b", "c")]
    return session, [
        task.name
        for task in session.votes.evictable(
            "gangpreempt", here.state.jobs["default/preemptor"], candidates
        )
    ]


@core(103)
def test_plugins_of_a_tier_agree_on_victims() -> None:
    assert asked([naming("one", "a", "b"), naming("two", "b", "c")])[1] == ["b"]


@core(103)
def test_who_abstains_is_not_counted() -> None:
    assert asked([naming("one", "a", "b"), naming("two", vote=ABSTAIN)])[1] == ["a", "b"]


@core(103)
def test_a_tier_that_names_nobody_leaves_it_to_the_next() -> None:
    assert asked([naming("one")], [naming("two", "c")])[1] == ["c"]


@core(103)
def test_without_plugins_nobody() -> None:
    assert asked([])[1] == []


@core(103)
def test_plugins_hear_which_action_asks_for_which_job() -> None:
    session, _ = asked([naming("one", "a")])
    assert session.hooks.plugins[0].heard == ("gangpreempt", "preemptor")


class Gradient(Plugin):
    """Gives one domain, and keeps what it was asked."""

    domain = ""

    def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
        self.purpose = purpose
        return [[self.domain]]


@core(104)
def test_the_first_plugin_says_which_domains_are_tried() -> None:
    first = type("First", (Gradient,), {"name": "first", "domain": "a", "__module__": __name__})
    second = type("Second", (Gradient,), {"name": "second", "domain": "b", "__module__": __name__})
    here = world(first, second)
    here.job("job", cpu=1)
    session = opened(here)
    assert session.domains.gradient_of_job(here.state.jobs["default/job"], "evict") == [["a"]]
    assert session.hooks.plugins[1].purpose == "evict"


@core(104)
def test_without_plugins_the_domain_itself() -> None:
    here = world()
    here.job("job", cpu=1)
    job = here.state.jobs["default/job"]
    assert opened(here).domains.gradient_of_job(job, "allocate") == [[ROOT]]
    assert opened(here).domains.gradient_of_sub_job(job.default_sub_job(), "rack", "allocate") == [
        ["rack"]
    ]


@core(105)
def test_nodes_that_no_eviction_can_help_are_left_out_for_that_task_alone() -> None:
    """The preemptor may not use n1 whatever happens there; the other one may."""
    here = World(policy(plugins=["gang", "priority", "predicates"], actions="allocate, preempt"))
    here.priority_class("low", 1)
    here.priority_class("high", 10)
    here.nodes("n1", cpu=2, labels={"disk": "slow"})
    here.nodes("n2", cpu=2, labels={"disk": "fast"})
    here.job("low", pods=2, min_available=0, priority="low", cpu=2, on=["n1", "n2"])
    here.job("picky", priority="high", cpu=2, spec={"nodeSelector": {"disk": "fast"}})
    here.job("other", priority="high", cpu=2)
    here.run()
    assert {one.pod.split("/")[1].split("-")[0]: one.node for one in here.decisions.pipelined} == {
        "picky": "n2",
        "other": "n1",
    }


# topology as a cycle understands it


def settled(group: dict[str, Any]) -> Job:
    here = tree_a(SUB_GROUPS, names=("rack", "switch"))
    here.job("job", pods=0, min_available=1, group=group)
    for name in ("x", "y"):
        here.pod(name, job="job", cpu=1, labels={name: name})
    opened(here)
    return here.state.jobs["default/job"]


def tiers(job: Job) -> tuple[tuple[str, int | None] | None, list[tuple[str, int | None] | None]]:
    def of(group: Group) -> tuple[str, int | None] | None:
        return (
            None
            if group.effective is None
            else (group.effective.mode, group.effective.highest_tier)
        )

    return of(job), [of(job.sub_jobs[uid]) for uid in sorted(job.sub_jobs) if uid != job.key]


def sub(name: str, topology: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "matchLabelKeys": [name], **topology}


SOFT = {"networkTopology": {"mode": "soft"}}
TOP = 3


@core(106)
@pytest.mark.parametrize(
    ("wish", "tier"),
    [(hard(1), 1), (named("rack"), 1), (named("switch"), 2), (named("nowhere"), None),
     ({"networkTopology": {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "switch"}}, 1)],
)  # fmt: skip
def test_names_of_tiers_become_tiers(wish: dict[str, Any], tier: int | None) -> None:
    job = settled(wish)
    assert tiers(job)[0] == ("hard", tier)
    stated = wish["networkTopology"]
    assert job.topology is not None
    assert (job.topology.highest_tier, job.topology.highest_tier_name) == (
        stated.get("highestTierAllowed"),
        stated.get("highestTierName", ""),
    )


@core(107)
@pytest.mark.parametrize(
    ("own", "parts", "after"),
    [
        (SOFT, [], (("hard", TOP), [])),
        (hard(2), [SOFT], (("hard", 2), [("hard", 2)])),
        (hard(3), [SOFT, SOFT], (("hard", 3), [("hard", 3), ("hard", 3)])),
        ({}, [SOFT], (None, [("hard", TOP)])),
        (hard(1), [hard(2)], (("hard", 1), [("hard", 2)])),
        ({}, [{}], (None, [None])),
    ],
)
def test_soft_is_hard_at_the_widest_tier(
    own: dict[str, Any], parts: list[dict[str, Any]], after: Any
) -> None:
    policies = [sub(name, part) for name, part in zip("xy", parts, strict=False)]
    assert tiers(settled({**own, "subGroupPolicy": policies})) == after


@core(107)
def test_a_job_whose_group_is_gone_has_none() -> None:
    here = tree_a()
    here.job("job", cpu=1, group=SOFT)
    here.state.remove_pod_group("default/job")
    opened(here)
    assert here.state.jobs["default/job"].effective is None


# statements


class Books(Plugin):
    """Counts what it is told; fails for a pod that is named so."""

    name = "books"
    told: tuple[int, int] = (0, 0)

    def allocated(self, job: Job, task: Task, total: Any, count: int) -> None:
        self.told = self.told[0] + 1, self.told[1]

    def deallocated(self, job: Job, task: Task, total: Any, count: int) -> None:
        self.told = self.told[0], self.told[1] + 1


class Failing(Plugin):
    name = "failing"

    def allocated(self, job: Job, task: Task, total: Any, count: int) -> None:
        if "bad" in task.name:
            raise ValueError("cannot follow")


def two(*plugins: type[Plugin], name: str = "job") -> tuple[Session, list[Task]]:
    here = world(*plugins)
    here.nodes("n1", cpu=4)
    here.job(name, pods=2, cpu=1)
    return opened(here), list(here.state.jobs[f"default/{name}"].tasks.values())


@core(108)
def test_a_statement_knows_whether_it_evicts() -> None:
    session, (first, second) = two()
    statement = session.statement()
    statement.pipeline(first, 0)
    assert not statement.evicts
    other = session.statement()
    other.allocate(second, 0)
    merged = session.statement()
    merged.merge(statement)
    merged.merge(session.statement())
    merged.merge(other)
    assert [
        one.tasks for one in merged.operations if not isinstance(one, str) and hasattr(one, "tasks")
    ] == [[first], [second]]
    assert (len(statement.operations), len(other.operations)) == (0, 0)
    merged.discard()
    runs = session.statement()
    here = session.state
    task = next(iter(here.tasks.values()))
    here.nodes.hold(task, 0, Status.RUNNING)
    task.row = 0
    task.job.set_status(task, Status.RUNNING)  # type: ignore[union-attr]
    runs.evict(task, "preempt")
    assert runs.evicts


@core(109)
@pytest.mark.parametrize("how", ["allocate", "pipeline"])
def test_a_plugin_that_cannot_follow_undoes_the_step(how: str) -> None:
    session, (task, _) = two(Books, Failing, name="bad")
    statement = session.statement()
    before = session.state.nodes.used.copy(), session.state.nodes.pipelined.copy()
    with pytest.raises(ValueError, match="cannot follow"):
        getattr(statement, how)(task, 0)
    assert (task.status, task.row, len(statement.operations)) == (Status.PENDING, -1, 0)
    assert task.key not in session.state.nodes.tasks[0]
    assert (session.state.nodes.used == before[0]).all()
    assert (session.state.nodes.pipelined == before[1]).all()
    assert session.hooks.plugins[1].told == (1, 1)


@core(110)
def test_undoing_goes_backwards() -> None:
    class Order(Plugin):
        name = "order"
        seen: tuple[str, ...] = ()

        def deallocated(self, job: Job, task: Task, total: Any, count: int) -> None:
            self.seen = (*self.seen, task.name)

    session, (first, second) = two(Order)
    statement = session.statement()
    statement.allocate(first, 0)
    statement.pipeline(second, 0)
    statement.discard()
    assert session.hooks.plugins[1].seen == (second.name, first.name)


@core(111)
def test_what_was_saved_comes_back_as_it_was() -> None:
    session, (first, _) = two()
    statement = session.statement()
    statement.pipeline(first, 0, evicted_for=True)
    saved = statement.save()
    statement.discard()
    assert not first.evicted_for
    again: Statement = session.statement()
    again.replay(saved)
    assert first.evicted_for


@core(112)
@pytest.mark.parametrize("claimer_known", [True, False])
def test_of_equal_jobs_the_lower_pod_goes_first(claimer_known: bool) -> None:
    here = World(policy(plugins=["priority", "gang"], actions="preempt"))
    here.nodes("n1", cpu=4)
    here.job("old", cpu=1, on=["n1"], spec={"priority": 1})
    here.job("young", cpu=1, on=["n1"], spec={"priority": 5})
    here.job("preemptor", cpu=1)
    session = opened(here)
    preemptor = here.state.tasks["default/preemptor-task-0"]
    if not claimer_known:
        preemptor.job = None
    victims = [here.state.tasks[f"default/{name}-task-0"] for name in ("young", "old")]
    assert [task.name for task in in_order(session, victims, preemptor)] == [
        "old-task-0",
        "young-task-0",
    ]


# what a queue holds


@core(113)
def test_a_claim_of_two_pods_is_counted_once() -> None:
    here = device_world()
    claim = here.state.others["ResourceClaim"]["default/gpu"]
    exactly = {
        **claim["spec"]["devices"]["requests"][0]["exactly"],
        "count": 1,
        "capacity": {"requests": {"memory": "8Gi"}},
    }
    here.state.upsert_other(
        "ResourceClaim",
        {
            **claim,
            "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {
                                "request": "one",
                                "driver": "gpu.example.com",
                                "pool": "n1",
                                "device": "gpu-0",
                            },
                        ]
                    }
                },
                "reservedFor": [],
            },
        },
    )
    for name in ("a", "b"):
        here.job(
            name,
            cpu=1,
            on=["n1"],
            spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        )
    (queue,) = [one for one in here.run("backfill").queues if one.name == "default"]
    assert queue.allocated["deviceclass/gpu.example.com"] == "1"
    assert queue.allocated["memory.deviceclass/gpu.example.com"] == "8Gi"


# configuration


@core(114)
def test_a_plain_policy_has_every_flag_but_two() -> None:
    made = read_policy({"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}]}]})
    flags = made.tiers[0][0].flags
    assert sorted(name for name, on in flags.items() if not on) == [
        "enableHierarchy",
        "enabledClusterOrder",
    ]


@core(114)
def test_arguments_are_of_their_type_or_refused() -> None:
    def arguments(**given: Any) -> Any:
        return read_policy(
            {
                "actions": "preempt",
                "configurations": [
                    {"name": "preempt", "arguments": given},
                    {"name": "preempt", "arguments": {"minCandidateNodesAbsolute": 9}},
                ],
            }
        ).configurations["preempt"]

    assert arguments(enableTopologyAwarePreemption="true") == {
        "enableTopologyAwarePreemption": True
    }
    for wrong in ("", "7", None, 1.5):
        with pytest.raises(PolicyError, match="a whole number"):
            arguments(minCandidateNodesAbsolute=wrong)


def test_a_filter_is_named_for_whom_it_refused() -> None:
    class Never(Plugin):
        name = "never"

        def filters(self) -> Any:
            yield Filter(
                "never",
                "not today",
                Code.UNSCHEDULABLE,
                Depends.STATIC,
                lambda pods, nodes, task: nodes.table.ready & False,
            )

    here = world(Never)
    here.nodes("n1", cpu=1)
    here.job("job", cpu=1)
    here.run()
    assert "not today" in here.why("job")
