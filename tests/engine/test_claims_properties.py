"""Over random devices and claims: nothing is given twice, what is undone is undone, and the search
finds what trying everything finds."""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations, product
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.model.claims.pools import Device, NodeDevices, pools_of, read_slice
from hekla.engine.model.claims.requests import Choice, ClaimRequest, ClaimRequests
from hekla.engine.model.claims.search import Usage, find
from hekla.engine.placement.placer import placer_of
from tests.engine.test_claims import DRIVER, claim, request, settle, slice_of, using, world

TAINT = {"key": "old", "value": "", "effect": "NoSchedule"}
CLASSES = {
    "any": {"spec": {}},
    "big": {
        "spec": {
            "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].size == "big"'}}]
        }
    },
}

device_kinds = st.fixed_dictionaries(
    {
        "size": st.sampled_from(["big", "small"]),
        "numa": st.one_of(st.none(), st.integers(0, 1)),
        "tainted": st.booleans(),
        "units": st.integers(0, 2),
        "held": st.booleans(),
    }
)
choices = st.fixed_dictionaries(
    {
        "deviceClassName": st.sampled_from(["any", "big"]),
        "count": st.integers(1, 2),
        "every": st.integers(0, 5),
        "tolerates": st.booleans(),
        "admin": st.integers(0, 6),
    }
)
requests = st.lists(choices, min_size=1, max_size=2)
constraints = st.lists(
    st.tuples(st.booleans(), st.sampled_from([[], ["r0"], ["r0", "r1"]])), max_size=2
)
claims = st.tuples(st.lists(requests, min_size=1, max_size=2), constraints)


def built(one: dict[str, Any], name: str = "") -> dict[str, Any]:
    mode = "All" if one["every"] == 0 else "ExactCount"
    tree = {
        "deviceClassName": one["deviceClassName"],
        "allocationMode": mode,
        "count": one["count"],
    }
    if one["tolerates"]:
        tree["tolerations"] = [{"key": "old", "operator": "Exists"}]
    if name:
        return {"name": name, **tree}
    return {**tree, **({"adminAccess": True} if one["admin"] == 0 else {})}


def request_of(made: Any, claim_requests: ClaimRequests) -> ClaimRequest:
    listed, limits = made
    trees = [
        {"name": f"r{at}", "exactly": built(alternatives[0])}
        if len(alternatives) == 1
        else {
            "name": f"r{at}",
            "firstAvailable": [built(one, f"s{number}") for number, one in enumerate(alternatives)],
        }
        for at, alternatives in enumerate(listed)
    ]
    kinds = [
        {
            "requests": named,
            ("distinctAttribute" if distinct else "matchAttribute"): f"{DRIVER}/numa",
        }
        for distinct, named in limits
    ]
    return claim_requests.of({"spec": {"devices": {"requests": trees, "constraints": kinds}}})


def everything(
    claim_requests: list[ClaimRequest], devices: list[Device], units: int, usage: Usage
) -> list[str] | None:
    """The names of the choices of the first solution there is, by trying all of them.

    First is who is first at the first request: a choice comes before its alternatives, and its
    first devices before others, even where those would leave a later request its better choice.
    """
    slots = [
        (number, claim_request, one)
        for number, claim_request in enumerate(claim_requests)
        for one in claim_request.requests
    ]
    ways = [
        [(choice, picked) for choice in one.choices for picked in _options(choice, devices)]
        for _, _, one in slots
    ]
    for way in product(*ways):
        chosen, picked = [choice for choice, _ in way], [devices for _, devices in way]
        if _holds(claim_requests, slots, chosen, picked, units, usage):
            return [choice.name for choice in chosen]
    return None


def test_the_first_request_takes_what_comes_first() -> None:
    """Found at random: other devices for the first would have left the second its first choice."""
    kinds = [
        {"size": size, "numa": None, "tainted": False, "units": 0, "held": held}
        for size, held in (("big", False), ("big", False), ("big", True), ("small", False))
    ]
    plain = {"tolerates": False, "admin": 1, "every": 1}
    two = {**plain, "deviceClassName": "any", "count": 2}
    one_big, one = (
        {**plain, "deviceClassName": "big", "count": 1},
        {**plain, "deviceClassName": "any", "count": 1},
    )
    assert tried(kinds, 0, [([[two], [one_big, one]], [])]) == ["r0", "r1/s1"]


def _meant(choice: Choice, device: Device) -> bool:
    return choice.device_class == "any" or device.tree["attributes"]["size"]["string"] == "big"


def _options(choice: Choice, devices: list[Device]) -> Any:
    meant = [one for one in devices if _meant(choice, one)]
    if choice.everything:
        return [tuple(meant)] if meant else []
    return combinations(meant, choice.count)


def _holds(
    claim_requests: Any, slots: Any, chosen: Any, picked: Any, units: int, usage: Usage
) -> bool:
    left = units
    taken: set[Any] = set()
    own: dict[int, list[Any]] = {}
    for (number, _, _), choice, devices in zip(slots, chosen, picked):
        for one in devices:
            if one.taints and not choice.tolerations:
                return False
            if any(other.key == one.key for other, _ in own.get(number, ())):
                return False
            if not choice.admin:
                if one.key in taken or one.key in usage.held:
                    return False
                taken.add(one.key)
                left -= sum(amount for _, amount in one.counters)
            own.setdefault(number, []).append((one, choice.name))
    if left < 0:
        return False
    for number, claim_request in enumerate(claim_requests):
        for constraint in claim_request.constraints:
            values = [
                one.attribute(constraint.attribute)
                for one, name in own.get(number, ())
                if constraint.concerns(name)
            ]
            if any(not value for value in values):
                return False
            if constraint.distinct and len(set(values)) < len(values):
                return False
            if not constraint.distinct and len(set(values)) > 1:
                return False
    return True


def tried(kinds: list[dict[str, Any]], units: int, made: list[Any]) -> list[str]:
    """The choices that the search makes, which must be those that trying everything makes."""
    listed = []
    for number, one in enumerate(kinds):
        attributes: dict[str, Any] = {"size": {"string": one["size"]}}
        if one["numa"] is not None:
            attributes["numa"] = {"int": one["numa"]}
        tree: dict[str, Any] = {
            "name": f"d{number}",
            "attributes": attributes,
            "taints": [TAINT] if one["tainted"] else [],
        }
        if one["units"]:
            tree["consumesCounters"] = [
                {"counterSet": "s", "counters": {"u": {"value": str(one["units"])}}}
            ]
        listed.append(tree)
    spec = {
        "driver": DRIVER,
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": listed,
        "sharedCounters": [{"name": "s", "counters": {"u": {"value": str(units)}}}],
    }
    pools = pools_of([read_slice({"metadata": {"name": "s"}, "spec": spec})])
    (pool,) = pools.values()
    usage = Usage()
    left = units * 1000
    for one, device in zip(kinds, pool.devices.values()):
        if one["held"]:
            usage.hold(device.key, {}, 1)
            left -= sum(amount for _, amount in device.counters)
    requests_of = ClaimRequests()
    claim_requests = [request_of(one, requests_of) for one in made]
    before = dict(usage.held)
    found = find(claim_requests, NodeDevices(pool.groups), pools, CLASSES, usage)
    expected = everything(claim_requests, list(pool.devices.values()), left, usage)
    assert (found.picks is not None) == (expected is not None)
    assert usage.held == before
    if found.picks is None:
        return []
    order = list(
        dict.fromkeys(
            f"{at}:{pick.choice.name}" for at, one in enumerate(found.picks) for pick in one
        )
    )
    chosen = [name.partition(":")[2] for name in order]
    assert chosen == expected
    return chosen


@settings(max_examples=200, deadline=None)
@given(
    st.lists(device_kinds, max_size=4), st.integers(0, 4), st.lists(claims, min_size=1, max_size=2)
)
def test_the_search_finds_what_trying_everything_finds(kinds, units, made):
    assume(units >= sum(one["units"] for one in kinds if one["held"]))
    tried(kinds, units, made)


steps = st.lists(
    st.tuples(st.sampled_from(["place", "undo", "end", "settle"]), st.integers(0, 5)), max_size=12
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=6),
    steps,
)
def test_no_device_is_given_twice_and_undoing_restores_everything(sizes, counts, turns):
    """Nodes with so many devices, pods that claim so many; whatever happens, books and placements
    agree."""
    here = world(*(f"n{number}" for number in range(len(sizes))))
    for number, size in enumerate(sizes):
        slice_of(here, f"n{number}", *(f"g{at}" for at in range(size)))
    for number, count in enumerate(counts):
        claim(here, f"c{number}", request(count=count))
        here.job(f"j{number}", pods=0, min_available=1)
        here.pod(f"p{number}", job=f"j{number}", spec=using(f"c{number}"))
    book = here.state.claims
    for what, which in turns:
        number = which % len(counts)
        if what == "place":
            here.run()
        elif what == "undo":
            before = (
                dict(book.usage.held),
                {key: dict(one.owners) for key, one in book.promises.items()},
            )
            session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
            task = here.state.tasks.get(f"default/p{number}")
            if task is not None and task.status.value == "Pending":
                candidates = placer_of(session).filters.candidates(session, task)
                before = (
                    dict(book.usage.held),
                    {key: dict(one.owners) for key, one in book.promises.items()},
                )
                if len(candidates.idle) and not session.votes.prefilter(task):
                    statement = session.statement()
                    statement.allocate(task, int(candidates.idle[0]))
                    statement.discard()
            assert (
                dict(book.usage.held),
                {key: dict(one.owners) for key, one in book.promises.items()},
            ) == before
        elif what == "settle":
            settle(here)
        else:
            here.end(f"j{number}")
            key = f"default/c{number}"
            tree = here.state.others["ResourceClaim"][key]
            if tree["status"].get("allocation"):
                here.state.upsert_other("ResourceClaim", {**tree, "status": {}})
        assert all(count == 1 for count in book.usage.held.values())
        per_node = [
            sum(1 for key in book.usage.held if key[1] == f"n{at}") for at in range(len(sizes))
        ]
        assert all(used <= size for used, size in zip(per_node, sizes))
        given_out = sum(len(one.booking) for one in book.promises.values()) + sum(
            len(one) for one in book._shown.values()
        )
        assert given_out == len(book.usage.held)


SLICE = {"metadata": {"name": "odd"}, "spec": {
    "driver": DRIVER, "nodeName": "n1", "pool": {"name": "odd", "generation": 1, "resourceSliceCount": 1},
    "devices": [{
        "name": "d0", "attributes": {"numa": {"int": 1}, "size": {"string": "big"}},
        "capacity": {"memory": {"value": "4Gi", "requestPolicy": {
            "default": "1Gi", "validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"}}}},
        "consumesCounters": [{"counterSet": "s", "counters": {"u": {"value": "1"}}}], "allowMultipleAllocations": True,
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "bindingConditions": ["Ready"],
    }],
    "sharedCounters": [{"name": "s", "counters": {"u": {"value": "3"}}}],
}}  # fmt: skip
CLASS = {
    "metadata": {"name": "odd"},
    "spec": {
        "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].size == "big"'}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": {}}}],
    },
}
CLAIM = {"metadata": {"name": "odd", "namespace": "default", "uid": "odd"}, "spec": {"devices": {
    "requests": [
        {"name": "a", "exactly": {"deviceClassName": "odd", "count": 1, "selectors": [{"cel": {"expression": "true"}}],
                                  "tolerations": [{"key": "k", "operator": "Exists"}], "capacity": {"requests": {"memory": "1Gi"}}}},
        {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "odd", "count": 1}]},
    ],
    "constraints": [{"matchAttribute": f"{DRIVER}/numa"}], "config": [{"requests": ["a"], "opaque": {"driver": "d"}}],
}}, "status": {"allocation": {"devices": {"results": [
    {"request": "a", "driver": DRIVER, "pool": "odd", "device": "d0", "consumedCapacity": {"memory": "1Gi"}},
]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}},
    "reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}]}}  # fmt: skip
NONSENSE: list[Any] = [
    None,
    "",
    "x",
    -1,
    10**30,
    1.5,
    True,
    [],
    [None],
    {},
    {"x": None},
    "5Gi",
    [{}],
    {"name": []},
]


def paths(tree: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here and here[0] != "metadata" else []
    for key, value in (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    ):
        found += paths(value, (*here, key))
    return found


def spoiled(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = deepcopy(tree)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["ResourceSlice", "DeviceClass", "ResourceClaim", "allocated"]), st.data())
def test_no_nonsense_stops_a_cycle(kind, data):
    """One field of one object is something else than it should be: the pod that has nothing to do
    with it is placed all the same."""
    open_claim = {**CLAIM, "status": {}}
    trees = {
        "ResourceSlice": SLICE,
        "DeviceClass": CLASS,
        "ResourceClaim": open_claim,
        "allocated": CLAIM,
    }
    path = data.draw(st.sampled_from(paths(trees[kind])))
    trees[kind] = spoiled(trees[kind], path, data.draw(st.sampled_from(NONSENSE)))
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    for name in ("ResourceSlice", "DeviceClass"):
        here.state.upsert_other(name, trees[name])
    here.state.upsert_other(
        "ResourceClaim", trees["allocated" if kind == "allocated" else "ResourceClaim"]
    )
    claim(
        here,
        "mine",
        request(
            count=1,
            when=[
                'device.driver == "gpu.example.com" && !("size" in device.attributes["gpu.example.com"])'
            ],
        ),
    )
    for name, used in (("odd", "odd"), ("sound", "mine")):
        here.job(name, pods=0, min_available=1)
        here.pod(f"{name}-0", job=name, spec=using(used))
    decided = here.run()
    assert decided.problems == []
    assert "default/sound-0" in decided.bound(), here.why("sound")
    settle(here)
    here.run()
    for one in ("ResourceSlice", "DeviceClass", "ResourceClaim"):
        here.state.remove_other(one, "default/odd" if one == "ResourceClaim" else "odd")
    assert here.run().problems == []
