"""Queues on their way in, alone and in their tree.  Reference: api-and-admission 7.6 to 7.8, 7.15."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.admission import Settings, StaticLookup
from hekla.admission.rules.queuetree import capability_problem, children_problem, depth_problem
from tests.admission.objects import QUEUES, Tree, amounts, ask, denied, queue
from tests.admission.test_jobs import scenario

MUTATE, VALIDATE = "/queues/mutate", "/queues/validate"
EXAMPLES = Path(__file__).parents[2] / "examples" / "queues"
HIERARCHY, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"


def placed(hierarchy: str = "", weights: str = "", name: str = "q") -> Tree:
    marks = {HIERARCHY: hierarchy, WEIGHTS: weights}
    return queue(name, annotations={key: value for key, value in marks.items() if value})


def shares(
    capability: Tree | None = None, deserved: Tree | None = None, guarantee: Tree | None = None
) -> Tree:
    given = {
        "capability": capability,
        "deserved": deserved,
        "guarantee": guarantee and {"resource": guarantee},
    }
    return {key: value for key, value in given.items() if value is not None}


# -- what is filled in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "patch"),
    [
        scenario(
            88, queue("q", weight=1), [{"op": "add", "path": "/spec/reclaimable", "value": True}]
        ),
        scenario(
            89,
            queue(
                "q", annotations={HIERARCHY: "a/b/c", WEIGHTS: "2/3/4"}, weight=1, reclaimable=True
            ),
            [
                {
                    "op": "add",
                    "path": "/metadata/annotations/volcano.sh~1hierarchy",
                    "value": "root/a/b/c",
                },
                {
                    "op": "add",
                    "path": "/metadata/annotations/volcano.sh~1hierarchy-weights",
                    "value": "1/2/3/4",
                },
            ],
        ),
        scenario(
            91, queue("q", weight=2), [{"op": "add", "path": "/spec/reclaimable", "value": True}]
        ),
        scenario(
            92, queue("q", reclaimable=True), [{"op": "add", "path": "/spec/weight", "value": 1}]
        ),
        scenario(
            93,
            queue("q"),
            [
                {"op": "add", "path": "/spec/reclaimable", "value": True},
                {"op": "add", "path": "/spec/weight", "value": 1},
            ],
        ),
        scenario(94, queue("q", weight=5, reclaimable=False), None),
        (
            queue(
                "q",
                annotations={HIERARCHY: "rootless/a", WEIGHTS: "1/2"},
                weight=1,
                reclaimable=True,
            ),
            None,
        ),
    ],
)
def test_what_a_queue_does_not_say_is_filled_in(obj: Tree, patch: Any):
    assert ask(MUTATE, obj).patch == patch


@pytest.mark.scenario("api-and-admission", 90)
def test_the_mutator_serves_creates_only():
    assert (
        denied(MUTATE, queue("q"), operation="Invalid")
        == "invalid operation `Invalid`, expect operation to be `CREATE`"
    )


# -- one queue -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "old"),
    [
        scenario(95, queue("q", state=""), None, id="95 no state"),
        scenario(95, queue("q", state="Open"), None, id="95 open"),
        scenario(95, queue("q", state="Closed"), None, id="95 closed"),
        scenario(97, queue("q", state="Closed"), queue("q"), id="97 close"),
        scenario(97, queue("q"), queue("q", state="Closed"), id="97 open"),
        scenario(102, queue("q"), None),
        scenario(103, queue("q", **shares(deserved=amounts(1))), None),
        scenario(108, queue("q", **shares(amounts(4), amounts(1, "1Gi"))), None),
        scenario(109, queue("q", **shares(amounts(4), amounts(1, "1Gi"), amounts(1, "1Gi"))), None),
        scenario(122, placed("root/node", "1/2"), None),
        (placed("root/other", "1/0x1p4"), None),
        (placed("root/other", "1_000/inf"), None),
        scenario(217, placed("root/sci/dev", "1/2/3"), None),
    ],
)
def test_a_sound_queue_is_let_in(obj: Tree, old: Tree | None):
    others = (
        *QUEUES,
        placed("root/node1/node2", "1/2/3", "deep"),
        placed("root/sci", "1/2", "sci"),
    )

    assert ask(VALIDATE, obj, old, queues=others).message == ""


STATE = 'requestBody.spec.state: Invalid value: "{}": queue state must be in [Open Closed]'
LENGTHS = 'requestBody.metadata.annotations: Invalid value: "{}": volcano.sh/hierarchy must have the same length with volcano.sh/hierarchy-weights'  # noqa: E501 (the wire)
NEGATIVE = "must be greater than or equal to 0"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        scenario(96, queue("q", state="wrong"), STATE.format("wrong")),
        scenario(
            104,
            queue("q", **shares(guarantee=amounts(1))),
            'requestBody.spec.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=1',
        ),
        scenario(
            105,
            queue("q", **shares(amounts(1), amounts(2))),
            'requestBody.spec.deserved.cpu: Invalid value: "2": deserved[cpu]=2 must be <= capability[cpu]=1',
        ),
        scenario(
            106,
            queue("q", **shares(amounts(1), guarantee=amounts(2))),
            'requestBody.spec.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=2',
        ),
        scenario(
            107,
            queue("q", **shares(deserved=amounts(memory="1Gi"), guarantee=amounts(memory="3Gi"))),
            'requestBody.spec.deserved.memory: Invalid value: "1Gi": deserved[memory]=1Gi must be >= guarantee[memory]=3Gi',
        ),
        scenario(
            110,
            queue("q", **shares(deserved=amounts(1), guarantee=amounts(memory="1Gi"))),
            'requestBody.spec.deserved.memory: Invalid value: "<nil>": deserved[memory] must be >= guarantee[memory]=1Gi',
        ),
        scenario(
            111,
            queue("q", **shares(amounts(-10))),
            f'requestBody.spec.capability.cpu: Invalid value: "-10": {NEGATIVE}',
        ),
        scenario(
            112,
            queue("q", **shares(deserved=amounts(-5))),
            f'requestBody.spec.deserved.cpu: Invalid value: "-5": {NEGATIVE}',
        ),
        scenario(
            113,
            queue("q", **shares(guarantee=amounts(-2))),
            f'[requestBody.spec.guarantee.resource.cpu: Invalid value: "-2": {NEGATIVE}, '
            'requestBody.spec.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=-2]',
        ),
        scenario(116, placed("root/a/b", "1/2/3/4"), LENGTHS.format("root/a/b")),
        scenario(117, placed("a/b", "1/2/3"), LENGTHS.format("a/b")),
        scenario(
            118,
            placed("a"),
            'requestBody.metadata.annotations: Invalid value: "":  in the  is invalid number: '
            'strconv.ParseFloat: parsing "": invalid syntax',
        ),
        scenario(
            119,
            placed("root/a/b", "1/-1/3"),
            'requestBody.metadata.annotations: Invalid value: "1/-1/3": -1 in the 1/-1/3 must be larger than 0',
        ),
        scenario(
            120,
            placed("root/a/b", "1/a/3"),
            'requestBody.metadata.annotations: Invalid value: "1/a/3": a in the 1/a/3 is invalid number: '
            'strconv.ParseFloat: parsing "a": invalid syntax',
        ),
        (
            placed("root/a", "1/1e400"),
            'requestBody.metadata.annotations: Invalid value: "1/1e400": 1e400 in the 1/1e400 is invalid number: '
            'strconv.ParseFloat: parsing "1e400": value out of range',
        ),
        (
            placed("root/a", "1/٣"),
            'requestBody.metadata.annotations: Invalid value: "1/٣": ٣ in the 1/٣ is invalid number: '
            'strconv.ParseFloat: parsing "٣": invalid syntax',
        ),
        scenario(
            121,
            placed("root/node1", "1/2"),
            'requestBody.metadata.annotations: Invalid value: "root/node1": '
            "root/node1 is not allowed to be in the sub path of root/node1/node2 of queue deep",
        ),
        (
            queue("q", **shares(amounts(gpu="500m"))),
            'requestBody.spec.capability.nvidia.com/gpu: Invalid value: "500m": must be an integer',
        ),
    ],
)
def test_an_unsound_queue_is_refused_with_its_reason(obj: Tree, message: str):
    assert (
        denied(VALIDATE, obj, queues=(*QUEUES, placed("root/node1/node2", "1/2/3", "deep")))
        == message
    )


@pytest.mark.scenario("api-and-admission", 98)
@pytest.mark.scenario("api-and-admission", 215)
@pytest.mark.parametrize("state", ["wrong", "Closing", "Unknown"])
def test_an_update_meets_the_stored_state(state: str):
    assert denied(VALIDATE, queue("q", state=state, weight=2), queue("q")) == STATE.format(state)


@pytest.mark.scenario("api-and-admission", 101)
def test_operations_beyond_the_three_are_refused():
    message = denied(VALIDATE, queue("q"), operation="Invalid")

    assert (
        message
        == "invalid operation `Invalid`, expect operation to be `CREATE`, `UPDATE` or `DELETE`"
    )


# -- deletion --------------------------------------------------------------------------------------

CHECKED, UNCHECKED = Settings(queue_allocated_pods_check=True), Settings()


def deletion(name: str, settings: Settings = CHECKED) -> str:
    others = (*QUEUES, queue("full", pods="1"), queue("empty", pods="0"))
    return ask(
        VALIDATE, None, operation="DELETE", name=name, queues=others, settings=settings
    ).message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        scenario(99, "shut", ""),
        scenario(99, "childQueue", "", id="99 open"),
        scenario(100, "default", "`default` queue can not be deleted"),
        scenario(
            127,
            "parentQueue",
            "queue parentQueue can not be deleted because it has 1 child queues: childQueue",
        ),
        scenario(128, "full", "queue full cannot be deleted because it has allocated Pods: 1"),
        scenario(129, "empty", ""),
        scenario(214, "root", "`root` queue can not be deleted"),
        ("gone", 'queue.scheduling.volcano.sh "gone" not found'),
    ],
)
def test_a_queue_is_deleted_when_nothing_needs_it(name: str, message: str):
    assert deletion(name) == message


def test_pods_keep_a_queue_only_where_that_is_asked_for():
    assert deletion("full", UNCHECKED) == ""


# -- the tree --------------------------------------------------------------------------------------


@pytest.mark.scenario("api-and-admission", 123)
def test_a_queue_is_not_its_own_parent():
    assert denied(VALIDATE, queue("q", parent="q")) == "queue q cannot use itself as parent"


@pytest.mark.scenario("api-and-admission", 124)
@pytest.mark.scenario("api-and-admission", 125)
@pytest.mark.scenario("api-and-admission", 126)
def test_a_queue_that_holds_pods_does_not_become_a_parent():
    busy, idle = queue("busy", pods="1"), queue("idle", pods="0")
    message = "queue busy cannot be the parent queue of queue q because it has allocated Pods: 1"

    assert denied(VALIDATE, queue("q", parent="busy"), queues=(busy, idle)) == message
    assert ask(VALIDATE, queue("q", parent="idle"), queues=(busy, idle)).allowed
    assert ask(
        VALIDATE, queue("q", parent="busy"), queues=(busy, queue("first", parent="busy"))
    ).allowed


@pytest.mark.scenario("api-and-admission", 130)
def test_a_family_comes_and_goes_in_order():
    parent, child = queue("p"), queue("c", parent="p")

    assert ask(VALIDATE, parent, queues=()).allowed
    assert ask(VALIDATE, child, queues=(parent,)).allowed
    assert ask(VALIDATE, None, operation="DELETE", name="c", queues=(parent, child)).allowed
    assert ask(VALIDATE, None, operation="DELETE", name="p", queues=(parent,)).allowed


@pytest.mark.scenario("api-and-admission", 131)
def test_a_child_is_no_larger_than_its_parent():
    message = denied(
        VALIDATE,
        queue("c", parent="p", **shares(amounts(20))),
        queues=(queue("p", **shares(amounts(10))),),
    )

    assert message == "queue c capability[cpu]=20 exceeds its ancestor's capability=10"


@pytest.mark.scenario("api-and-admission", 132)
def test_siblings_do_not_take_more_than_their_parent_has():
    parent = queue("p", **shares(guarantee=amounts(8, "16Gi")))
    sibling = queue("s", parent="p", **shares(guarantee=amounts(2, "4Gi")))
    obj = queue(
        "q", parent="p", **shares(deserved=amounts(7, "14Gi"), guarantee=amounts(7, "14Gi"))
    )

    assert denied(VALIDATE, obj, queues=(parent, sibling)) == (
        "parent queue p validation failed: sum of children's guarantee (cpu 9000.00, memory 19327352832.00) "
        "exceeds parent's guarantee limit (cpu 8000.00, memory 17179869184.00)"
    )


@pytest.mark.scenario("api-and-admission", 133)
@pytest.mark.scenario("api-and-admission", 135)
@pytest.mark.parametrize("above", ["root", ""])
def test_a_parent_does_not_shrink_below_its_children(above: str):
    old = queue("p", parent=above, **shares(amounts(50)))
    new = queue("p", parent=above, **shares(amounts(10)))

    message = denied(
        VALIDATE, new, old, queues=(old, queue("c", parent="p", **shares(amounts(12))))
    )

    assert (
        message == "queue p capability[cpu]=10 is smaller than its descendants' max capability=12"
    )


@pytest.mark.scenario("api-and-admission", 134)
def test_a_parent_keeps_what_it_guaranteed_to_its_children():
    children = [
        queue("a", parent="p", **shares(guarantee=amounts(8, "16Gi"))),
        queue("b", parent="p", **shares(guarantee=amounts(5, "10Gi"))),
    ]
    old = queue("p", **shares(deserved=amounts(15, "30Gi"), guarantee=amounts(15, "30Gi")))
    new = queue("p", **shares(deserved=amounts(15, "30Gi"), guarantee=amounts(10, "20Gi")))

    assert denied(VALIDATE, new, old, queues=(old, *children)) == (
        "queue p validation failed: sum of children's guarantee (cpu 13000.00, memory 27917287424.00) "
        "exceeds parent's guarantee limit (cpu 10000.00, memory 21474836480.00)"
    )


@pytest.mark.scenario("api-and-admission", 136)
@pytest.mark.parametrize(("deepest", "fits"), [(5, True), (3, True), (2, False)])
def test_the_tree_has_a_depth(deepest: int, fits: bool):
    chain = StaticLookup([queue("q1"), queue("q2", parent="q1")])

    problem = depth_problem(queue("q3", parent="q2"), "q3", chain, deepest)

    assert problem == ("" if fits else f"queue q3 exceeds the maximum allowed depth of {deepest}")


GRAND = queue("grand", **shares(amounts(100, "100Gi", gpu=8)))
PARENT = queue("p", parent="grand", **shares(amounts(50, "50Gi")))
SILENT = queue("silent", parent="grand")


@pytest.mark.parametrize(
    ("parent", "capability", "problem"),
    [
        scenario(137, "p", amounts(60), "exceeds its ancestor's capability"),
        scenario(138, "p", amounts(memory="55Gi"), "exceeds its ancestor's capability"),
        scenario(
            139,
            "p",
            amounts(gpu=10),
            "queue c capability[nvidia.com/gpu]=10000.00 exceeds its ancestor's capability=8000.00",
        ),
        scenario(140, "p", amounts(40, "40Gi", gpu=4), ""),
        scenario(141, "p", None, ""),
        scenario(142, "silent", amounts(200), "exceeds its ancestor's capability"),
        scenario(142, "silent", amounts(80), "", id="142b"),
    ],
)
def test_a_child_answers_to_the_nearest_limit_above(
    parent: str, capability: Tree | None, problem: str
):
    child = queue("c", parent=parent, **shares(capability))

    found = capability_problem(child, "c", StaticLookup([GRAND, PARENT, SILENT]))

    assert problem in found and bool(problem) == bool(found)


def family(*children: Tree) -> tuple[Tree, ...]:
    return children


@pytest.mark.parametrize(
    ("capability", "below", "problem"),
    [
        scenario(143, amounts(20), family(queue("a", parent="p"), queue("aa", parent="a", **shares(amounts(25)))),
                 "queue p capability[cpu]=20 is smaller than its descendants' max capability=25"),
        scenario(144, amounts(50), family(queue("a", parent="p", **shares(amounts(30))), queue("b", parent="p", **shares(amounts(20)))),
                 ""),
        scenario(145, None, family(queue("a", parent="p", **shares(amounts(100)))), ""),
        scenario(146, amounts(1), (), ""),
        scenario(147, amounts(gpu=4), family(queue("a", parent="p", **shares(amounts(gpu=3)))), ""),
        scenario(147, amounts(gpu=4), family(queue("a", parent="p", **shares(amounts(gpu=5)))), "is smaller than its descendants'",
                 id="147b"),
    ],
)  # fmt: skip
def test_a_parent_covers_what_is_below_it(
    capability: Tree | None, below: tuple[Tree, ...], problem: str
):
    lookup = StaticLookup(below)

    found = children_problem(queue("p", **shares(capability)), "p", lookup.children("p"), lookup)

    assert problem in found and bool(problem) == bool(found)


@pytest.mark.scenario("api-and-admission", 213)
def test_the_root_keeps_its_resources_unless_told_otherwise():
    old, new = queue("root", parent=""), queue("root", parent="", **shares(amounts(4)))
    message = (
        "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
    )

    assert denied(VALIDATE, new, old) == message
    assert ask(VALIDATE, new, old, settings=Settings(root_queue_protection=False)).allowed
    assert ask(VALIDATE, queue("root", parent="", weight=3), old).allowed


@pytest.mark.scenario("api-and-admission", 216)
def test_a_parent_that_deserves_nothing_has_nothing_to_share():
    obj = shares(deserved=amounts(1))

    assert "sum of children's deserved" in denied(
        VALIDATE, queue("c", parent="p", **obj), queues=(queue("p"),)
    )
    assert ask(
        VALIDATE, queue("c", parent="root", **obj), queues=(queue("root", parent=""),)
    ).allowed


def test_an_update_that_touches_no_share_skips_the_tree():
    parent = queue("p", **shares(amounts(1)))
    old = queue("c", parent="p", **shares(amounts(5)))

    assert ask(
        VALIDATE, {**old, "spec": {**old["spec"], "weight": 9}}, old, queues=(parent, old)
    ).allowed


@pytest.mark.parametrize("example", ["weights.yaml", "tree.yaml"])
def test_the_examples_of_the_page_are_let_in_one_after_the_other(example: str):
    there = [queue("root", parent=""), queue("default")]
    for manifest in yaml.safe_load_all((EXAMPLES / example).read_text()):
        assert ask(MUTATE, manifest, queues=there).allowed
        assert ask(VALIDATE, manifest, queues=there).message == ""
        there.append({**manifest, "status": {"state": "Open"}})
