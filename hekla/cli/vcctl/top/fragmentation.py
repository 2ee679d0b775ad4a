"""`vcctl top fragmentation`: what is free and cannot be used by the pods that exist, and with `--plan`
which pods could be moved.  Hekla's own.

The engine is fed with what the API server has, as the scheduler's is, and measures; nothing is
written.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import yaml

from hekla.api import scheduling
from hekla.api.kubernetes import core, policy, priority
from hekla.api.names import SCHEDULER
from hekla.api.text import yamltext
from hekla.api.trees import Tree
from hekla.cli.arguments import worded
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api
from hekla.engine.actions.defragment import Defragment, Plan, plan
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.framework.session import Session
from hekla.engine.model.fragmentation.measure import Need
from hekla.engine.model.fragmentation.mix import shape_of
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.state import State
from hekla.engine.plugins.placement.fragmentation import Fragmentation
from hekla.engine.policies import read_policy

USUAL: Tree = {
    "actions": "allocate",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang"},
                {"name": "pdb", "arguments": {"pdb.evictUnlabelled": True}},
                {"name": "calm-eviction"},
                {"name": "predicates"},
                {"name": "deviceshare", "arguments": {"deviceshare.VGPUEnable": True}},
                {"name": "fragmentation"},
            ]
        }
    ],
}
"""Without `--policy`."""
MOST = 10
"""Nodes and shapes that are listed, the worst first."""
GI = 1 << 30


async def top(api: Api, invocation: Invocation) -> None:
    """Sums, nodes, queues and shapes; or a plan."""
    rules = _policy(invocation.text("policy"))
    kinds = (core.NODE, scheduling.QUEUE, priority.PRIORITY_CLASS, scheduling.POD_GROUP, core.POD)
    others = (policy.POD_DISRUPTION_BUDGET,)
    lists = await asyncio.gather(*(api.list(kind.untyped) for kind in (*kinds, *others)))
    state = state_of(*(one.items for one in lists))
    session = open_session(state, hooks_of(state, rules), time.time())
    print("\n".join(planned(session) if invocation.on("plan") else report(session)))


def state_of(
    nodes: Iterable[Tree],
    queues: Iterable[Tree],
    priorities: Iterable[Tree],
    groups: Iterable[Tree],
    pods: Iterable[Tree],
    budgets: Iterable[Tree],
) -> State:
    """The engine's state of these objects."""
    state = State(scheduler_names=[SCHEDULER], implied_groups=True)
    for upsert, trees in (
        (state.upsert_node, nodes),
        (state.upsert_queue, queues),
        (state.upsert_priority_class, priorities),
        (state.upsert_pod_group, groups),
        (state.upsert_pod, pods),
    ):
        for tree in trees:
            upsert(tree)
    for tree in budgets:
        state.upsert_other("PodDisruptionBudget", tree)
    return state


def _policy(path: str) -> Policy:
    """The policy whose plugins place pods and spare them.  Raises CommandError."""
    if not path:
        return read_policy(USUAL)
    try:
        rules = read_policy(yamltext.load(Path(path).read_text()))
    except OSError as error:
        raise CommandError(worded(error)) from error
    except (yaml.YAMLError, PolicyError) as error:
        raise CommandError(f"{path}: {error}") from error
    if not any(option.name == Fragmentation.name for tier in rules.tiers for option in tier):
        raise CommandError(f"{path}: no plugin {Fragmentation.name} in it, which measures")
    return rules


def report(session: Session) -> list[str]:
    """What is free and of no use to the mix: in sum, by node, by queue, and the shapes that suffer."""
    (plugin,) = (one for one in session.hooks.plugins if isinstance(one, Fragmentation))
    nodes = session.state.nodes
    rows = np.flatnonzero(nodes.ready)
    if not len(rows):
        return ["There are no nodes."]
    if not plugin.shapes.needs:
        return ["There are no pods, so there is nothing to measure by."]
    free, lost = plugin.lost(rows)
    _, left = plugin.left_by_shape(rows)
    lines = _table(
        ("Resource", "Free", "Unusable", "Share"),
        [
            (name, _amount(at, free[at].sum()), _amount(at, lost[at].sum()), _share(lost[at].sum(), free[at].sum()))
            for at, name in enumerate(("cpu", "memory", "gpu"))
        ],
    )  # fmt: skip
    worst = np.argsort(-plugin.fragmentation(rows), kind="stable")
    worst = worst[lost[:, worst].any(axis=0)]
    shown = [
        (nodes.names[rows[at]], *(text for one in range(3) for text in (_amount(one, free[one, at]), _amount(one, lost[one, at]))))
        for at in worst[:MOST].tolist()
    ]  # fmt: skip
    lines += ["", *_table(("Node", "CPU free", "unusable", "Memory free", "unusable", "GPU free", "unusable"), shown)]  # fmt: skip
    if len(worst) > MOST:
        lines.append(f"... and {len(worst) - MOST} more nodes")
    shapes, whole = plugin.shapes, left.sum(axis=2)
    counts, waiting = _counts(session, plugin)
    by_queue = []
    for queue in sorted(counts):
        weights = np.array([counts[queue][at] for at in range(len(shapes.needs))], dtype=float)
        asked = (shapes.by_resource > 0) * weights
        sums = asked.sum(axis=1)
        parts = (asked * whole).sum(axis=1) / np.maximum(sums, 1)
        said = (_share(parts[at], free[at].sum()) if sums[at] else "-" for at in range(3))
        by_queue.append((queue, str(int(weights.sum())), *said))
    lines += ["", *_table(("Queue", "Pods", "CPU unusable", "Memory unusable", "GPU unusable"), by_queue)]  # fmt: skip
    fit = [_fits(need, free.sum(axis=1) - whole[:, at]) for at, need in enumerate(shapes.needs)]
    order = sorted(range(len(fit)), key=lambda at: (fit[at] != 0, -waiting[at], -shapes.popularity[at]))  # fmt: skip
    suffering = [
        (_shape(shapes.needs[at]), f"{100 * shapes.popularity[at]:.0f}%", _count(fit[at]), str(waiting[at]))
        for at in order[:MOST]
    ]  # fmt: skip
    return [*lines, "", *_table(("Shape", "Of the mix", "Fit now", "Waiting"), suffering)]


def _counts(
    session: Session, plugin: Fragmentation
) -> tuple[dict[str, Counter[int]], Counter[int]]:
    """Queue -> shape -> pods that exist; and how many of each shape wait."""
    index: dict[object, int] = {}
    for at, pods in enumerate(plugin.classes):
        if isinstance(pods, PodClass):
            index[shape_of(pods)] = at
    counts: dict[str, Counter[int]] = {}
    waiting: Counter[int] = Counter()
    for job in session.jobs():
        pending = {task.key for task in job.pending()}
        for task in job.tasks.values():
            shape = index.get(shape_of(task.pods))
            if shape is not None:
                counts.setdefault(job.queue, Counter())[shape] += 1
                waiting[shape] += task.key in pending
    return counts, waiting


def planned(session: Session) -> list[str]:
    """The moves that `defragment` would make, and what would fit then."""
    least = session.argument(Defragment.name, "minGain", 50) / 100
    return plan_text(plan(session, least, session.argument(Defragment.name, "moves", 5)), least)


def plan_text(found: Plan, least: float) -> list[str]:
    if not found.moves:
        return [f"No move gains {least:g} or more. Fragmentation is {found.before:.2f}."]
    rows = [(one.task.key, one.source, one.target, f"{one.gain:.2f}") for one in found.moves]
    lines = _table(("Pod", "From", "To", "Gain"), rows)
    lines += ["", f"Fragmentation would fall from {found.before:.2f} to {found.after:.2f}."]
    if found.fit:
        fit = ", ".join(f"{count} of {job}" for job, count in sorted(found.fit.items()))
        lines.append(f"Pods that wait and would fit then: {fit}.")
    return [*lines, "Nothing has been done. The action defragment does it."]


def _fits(need: Need, used: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int | None:
    """How many pods of a shape are in what they use; None for a shape of shares of cards alone."""
    for at, asked in enumerate((need.cpu, need.memory, 0 if need.share else need.number)):
        if asked:
            return round(float(used[at]) / asked)
    return None


def _count(count: int | None) -> str:
    return "-" if count is None else str(count)


def _shape(need: Need) -> str:
    parts = []
    if need.cpu:
        parts.append(f"cpu={_amount(0, need.cpu)}")
    if need.memory:
        parts.append(f"memory={_amount(1, need.memory)}")
    if need.number:
        of = f" x {need.share} of its memory" if need.share else ""
        parts.append(f"gpu={need.number}{of}")
    return ",".join(parts) or "nothing"


def _amount(at: int, value: float) -> str:
    """Cores, GiB or GPUs."""
    if at == 1:
        return f"{value / GI:.1f}Gi"
    return f"{value / 1000 if at == 0 else value:.2f}".rstrip("0").rstrip(".")


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole > 0 else "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in (head, *rows)) + 3 for at in range(len(head))]
    return [
        "".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
