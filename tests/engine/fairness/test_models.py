"""The fair-share loops against exact models in fractions, over thousands of random clusters."""

from __future__ import annotations

import copy
import random
from fractions import Fraction
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import EPSILON
from hekla.engine.plugins.fairness.fairtree import FairTree
from hekla.engine.plugins.fairness.proportion import Account, Accounts, real_capability, share_out
from hekla.engine.world import World, policy
from tests.engine.fairness import models
from tests.engine.fairness.models import Demand, Leaf, Spec, exact
from tests.engine.fairness.stage import opened

SEEDS = st.integers(0, 2**40)
DIMS = ("cpu", "memory", "pods", "nvidia.com/gpu")
UNIT = {"cpu": 100, "memory": 2**20, "pods": 1, "nvidia.com/gpu": 1000}


def drawn(draw: random.Random, most: int, chance: float = 1.0) -> dict[str, float]:
    """Amounts of some resources; cpu and memory are always there."""
    return {
        name: float(draw.randint(0, most) * UNIT[name])
        if name in ("cpu", "memory") or draw.random() < chance
        else 0.0
        for name in DIMS
    }


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS)
def test_the_loop_by_weights(seed: int) -> None:
    draw = random.Random(seed)
    total = {name: float(draw.randint(1, 60) * UNIT[name]) for name in DIMS}
    accounts: list[Account] = []
    queues: list[Queue] = []
    for number in range(draw.randint(1, 7)):
        queue = Queue(f"q{number}", weight=draw.choice([0, 1, 1, 2, 3, 10]))
        if draw.random() < 0.3:
            queue.guarantee = {name: value / 4 for name, value in drawn(draw, 20, 0.3).items()}
        if draw.random() < 0.3:
            queue.capability = {
                name: value
                for name, value in drawn(draw, 40, 0.3).items()
                if value or name in ("cpu", "memory")
            }
        queues.append(queue)
    guaranteed: dict[str, float] = {}
    for queue in queues:
        for name, value in queue.guarantee.items():
            guaranteed[name] = guaranteed.get(name, 0.0) + value
    for queue in queues:
        request = drawn(draw, 60)
        ceiling = real_capability(queue, total, guaranteed)
        accounts.append(
            Account(queue, queue.weight, dict(queue.guarantee), ceiling, request, {}, {}, {})
        )
    claims = [
        Demand(
            one.weight,
            exact(one.request),
            exact(one.guarantee),
            exact({name: one.real_capability.get(name, 0.0) for name in DIMS}),
        )
        for one in accounts
    ]

    share_out(accounts, total)
    assume(models.share_out(claims, exact(total)))

    # Once all else is handed out the loop ends, and its number of rounds, which rounding decides,
    # how many of the pods were.
    gone = all(
        total[name] - sum(one.deserved.get(name, 0.0) for one in accounts) < 1.0
        for name in DIMS
        if name != "pods"
    )
    for account, demand in zip(accounts, claims):
        for name in DIMS if not gone else [name for name in DIMS if name != "pods"]:
            mine, theirs = account.deserved.get(name, 0.0), float(models.of(demand.deserved, name))
            assert abs(mine - theirs) <= 1.0 + 1e-9 * theirs, (
                seed,
                account.queue.name,
                name,
                mine,
                theirs,
            )
            assert (
                mine
                <= max(account.real_capability.get(name, 0.0), account.guarantee.get(name, 0.0))
                + 1e-6
            )
            assert mine <= max(account.request[name], account.guarantee.get(name, 0.0)) + 1e-6
    for name in DIMS:
        handed = sum(one.deserved.get(name, 0.0) for one in accounts)
        # What was short of a request by less than the tolerance was made whole.
        assert handed <= total[name] + sum(
            one.guarantee.get(name, 0.0) for one in accounts
        ) + EPSILON * len(accounts)


PATHS = [(), ("a",), ("a", "b"), ("a", "c"), ("d",), ("e", "f", "g")]


def tree_queue(path: tuple[str, ...], weights: dict[tuple[str, ...], int]) -> Queue:
    queue = Queue("/".join(path) or "plain")
    if path:
        parts = [str(weights[path[: depth + 1]]) for depth in range(len(path))]
        queue.annotations = {
            "volcano.sh/hierarchy": "/".join(("root", *path)),
            "volcano.sh/hierarchy-weights": "/".join(("100", *parts)),
        }
    return queue


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS)
def test_the_tree_of_shares(seed: int) -> None:
    """After every change, followed along its path, the tree is what it would be from scratch; and
    exactly so."""
    draw = random.Random(seed)
    weights = {
        path[: depth + 1]: draw.choice([1, 2, 5]) for path in PATHS for depth in range(len(path))
    }
    queues = [tree_queue(path, weights) for path in PATHS]
    total = {"cpu": 8000.0, "memory": 8.0 * 2**20, "pods": 16.0}
    leaves: dict[str, Leaf] = {}
    tree = FairTree(total, {})
    for queue in queues:
        tree.path(queue)
    for number in range(draw.randint(1, 6)):
        asked = {
            "cpu": draw.randint(0, 8) * 1000.0,
            "memory": draw.randint(0, 8) * 2.0**20,
            "pods": float(draw.randint(1, 8)),
        }
        at = draw.randrange(len(PATHS))
        leaves[f"j{number}"] = Leaf(PATHS[at], {}, exact(asked))
        tree.set_job(f"j{number}", queues[at], {"cpu": 0.0, "memory": 0.0}, asked)
    tree.refresh()
    for _ in range(draw.randint(1, 12)):
        key = draw.choice(sorted(leaves))
        change = {
            "cpu": draw.randint(0, 2) * 1000.0,
            "memory": draw.randint(0, 2) * 2.0**20,
            "pods": 1.0,
        }
        leaf = leaves[key]
        back = (
            all(models.of(leaf.held, name) >= value for name, value in change.items())
            and draw.random() < 0.4
        )
        tree.follow(key, change, -1.0 if back else 1.0)
        leaf.held = {
            name: models.of(leaf.held, name) + (-1 if back else 1) * Fraction(value)
            for name, value in change.items()
        }
        values = models.fair_values(leaves, PATHS, exact(total))
        for path, queue in zip(PATHS, queues):
            group, value = tree.path(queue)[-1], values[path]
            assert group.saturated is value.saturated, (seed, path)
            assert abs(group.share - float(value.share)) < 1e-9, (seed, path)


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS)
def test_the_tree_of_ceilings(seed: int) -> None:
    draw = random.Random(seed)
    world = World(
        policy(plugins=[{"name": "capacity", "enableHierarchy": True}]), default_queue=False
    )
    world.nodes("n1", cpu=64, memory="64Gi", gpu=64)
    world.queue("root")
    specs = {"root": Spec("", {}, {}, {})}
    dims = ("cpu", "memory", "nvidia.com/gpu")

    def some(chance: float, most: int) -> dict[str, float]:
        return {
            name: float(draw.randint(0, most) * UNIT[name])
            for name in dims
            if draw.random() < chance
        }

    def written(amounts: dict[str, float]) -> dict[str, Any]:
        return {
            name: f"{int(value)}m" if name != "memory" else int(value)
            for name, value in amounts.items()
        }

    for number in range(draw.randint(1, 9)):
        name, parent = f"q{number}", draw.choice(sorted(specs))
        deserved, guarantee, capability = some(0.5, 20), some(0.3, 6), some(0.4, 40)
        specs[name] = Spec(parent, exact(deserved), exact(guarantee), exact(capability))
        world.queue(
            name,
            parent=parent,
            deserved=written(deserved),
            guarantee=written(guarantee),
            capability=written(capability),
        )
    session = opened(world)
    assert session.decisions.problems == []
    (plugin,) = session.hooks.plugins
    for name, (ceiling, deserved_of) in models.ceilings(specs, dims).items():
        branch = plugin.branches[name]  # type: ignore[attr-defined]
        for dim in dims:
            mine, most = branch.real_capability.get(dim, 0.0), ceiling[dim]
            assert mine > 1e15 if most is None else mine == most, (seed, name, dim, mine, most)
            assert branch.deserved.get(dim, 0.0) == deserved_of[dim], (seed, name, dim)


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, length=st.integers(1, 12))
def test_accounts_that_are_kept_say_what_new_ones_would(seed: int, length: int) -> None:
    draw = random.Random(seed)
    total = {name: float(draw.randint(1, 60) * UNIT[name]) for name in DIMS}
    queues = {
        f"q{number}": Queue(f"q{number}", weight=draw.choice([0, 1, 1, 2, 3]))
        for number in range(5)
    }
    kept = Accounts()
    for _ in range(length):
        for name in draw.sample(sorted(queues), draw.choice([0, 1, 1, 2])):
            queue = queues[name]
            if draw.random() < 0.2:  # It comes as another object with the sums that it had.
                queue = queues[name] = copy.copy(queue)
                queue.capability = drawn(draw, 40, 0.3) if draw.random() < 0.5 else {}
                queue.guarantee = drawn(draw, 5, 0.3) if draw.random() < 0.5 else {}
                continue
            queue.jobs = draw.choice([0, 1, 1, 1])
            queue.request = draw.choice([queue.request, drawn(draw, 30)])
            queue.allocated = drawn(draw, 10)
            queue.version += 1
        if draw.random() < 0.1:
            total = {**total, "cpu": float(draw.randint(1, 60) * 100)}
        mine, anew = kept.renew(queues, total), Accounts().renew(queues, total)
        assert list(mine) == list(anew)
        for account, other in zip(mine.values(), anew.values()):
            shares = account.share(), other.share()
            assert shares[0] == shares[1] and account.overused() == other.overused()
            for name in ("request", "allocated", "deserved", "real_capability", "guarantee"):
                assert getattr(account, name) == getattr(other, name), name
            if draw.random() < 0.2:  # A cycle places something and takes it back, or does not.
                account.known_share, account.touched = None, True
                account.allocated["cpu"] += 100.0
