"""Which table `vcctl top` shows: what queues hold without an argument, else what its argument says."""

from __future__ import annotations

import asyncio

from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree
from hekla.cli.vcctl.queues import QUEUE, state_of, tally_of
from hekla.cli.vcctl.top import budgets, usage

USED = ("nodes", "pods", "jobs", "queues")
SHORT = {"node": "nodes", "pod": "pods", "job": "jobs", "queue": "queues", "budget": "budgets"}


async def top(api: Api, invocation: Invocation) -> None:
    """Print it.  Raises CommandError."""
    if not invocation.arguments:
        await held(api)
        return
    (what, *more) = invocation.arguments
    what = SHORT.get(what, what)
    if more or what not in (*USED, "budgets", "fragmentation"):
        raise CommandError(
            f"unknown: top {' '.join(invocation.arguments)}; there are: {', '.join(USED)}, budgets, fragmentation"
        )
    if what == "fragmentation":
        # numpy and the engine, which the others do not need
        from hekla.cli.vcctl.top import fragmentation

        await fragmentation.top(api, invocation)
    elif what == "budgets":
        await budgets.top(api)
    else:
        await usage.top(api, invocation, what)


async def held(api: Api) -> None:
    """What each queue has allocated, deserves and may use."""
    queues, tally = await asyncio.gather(
        api.list(QUEUE), tally_of(api, "failed to list podgroups with err")
    )
    rows = [("Queue", "State", "Allocated", "Deserved", "Capability", "Waiting", "Running")]
    for queue in queues.items:
        name, spec, status = (
            queue["metadata"]["name"],
            queue.get("spec") or {},
            queue.get("status") or {},
        )
        waiting = tally[name, "Pending"] + tally[name, "Inqueue"]
        lists = (status.get("allocated"), spec.get("deserved"), spec.get("capability"))
        amounts = (_amounts(amount) for amount in lists)
        rows.append((name, state_of(queue), *amounts, str(waiting), str(tally[name, "Running"])))
    print("\n".join(usage.aligned(rows)))


def _amounts(amounts: Tree | None) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted((amounts or {}).items())) or "-"
