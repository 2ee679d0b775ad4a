"""`vcctl queue` and `vqueues`.  Reference: cli 3, 7.3."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from hekla.api import scheduling
from hekla.api.text.ages import age
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree, find, name_of
from hekla.cli.vcctl.jobs import COMMAND, command_for
from hekla.cli.vcctl.output import printed
from hekla.cli.vcctl.startestimate import after, estimate_of, when
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

QUEUE = scheduling.QUEUE.untyped
POD_GROUP = scheduling.POD_GROUP.untyped

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
WAIT = (None, "", "Pending", "Inqueue")
COMMAND_NAMESPACE = "default"
ACTIONS = {"open": "OpenQueue", "close": "CloseQueue"}


async def create(api: Api, invocation: Invocation) -> None:
    queue = {
        "apiVersion": QUEUE.api_version,
        "kind": QUEUE.kind,
        "metadata": {"name": invocation.text("name")},
        "spec": {"weight": invocation.number("weight")},
        "status": {"state": invocation.text("state")},
    }
    await api.create(QUEUE, queue)


async def delete(api: Api, invocation: Invocation) -> None:
    await api.delete(QUEUE, name_of(invocation, "queue name must be specified"))


async def get(api: Api, invocation: Invocation) -> None:
    name = name_of(invocation, "name is mandatory to get the particular queue details")
    queue = await find(api, QUEUE, name)
    if not printed(invocation, QUEUE, [queue], single=True):
        tally = await tally_of(api, f"failed to list podgroup for queue {name} with err")
        _print([queue], tally)


async def view(api: Api, invocation: Invocation) -> None:
    """A queue and the jobs that wait in it, the soonest start first.  Hekla's own."""
    name = name_of(invocation, "name is mandatory to view a particular queue")
    queue = await find(api, QUEUE, name)
    groups = (await api.list(POD_GROUP)).items
    own = [one for one in groups if ((one.get("spec") or {}).get("queue") or "default") == name]
    _print([queue], Counter((name, (one.get("status") or {}).get("phase") or "") for one in own))
    waiting = [one for one in own if (one.get("status") or {}).get("phase") in WAIT]
    rows = [("Job", "Pods", "Waits", "Starts", "After", "Constraint")]
    now = time.time()
    for group in sorted(waiting, key=_start):
        metadata, estimate = group["metadata"], estimate_of(group)
        namespace = metadata["namespace"]
        rows.append(
            (
                f"{namespace}/{_title(metadata)}",
                str((group.get("spec") or {}).get("minMember") or 0),
                age(metadata.get("creationTimestamp"), now),
                when(estimate, now) if estimate.get("start") else "not known",
                after(estimate, namespace) or "-",
                estimate.get("constraint") or "-",
            )
        )
    print()
    if not waiting:
        print("No job waits.")
        return
    _columns(rows)


def _title(metadata: Tree) -> str:
    """What people call a PodGroup: as the job that owns it."""
    owners = (one for one in metadata.get("ownerReferences") or () if one.get("controller"))
    owner: Tree = next(owners, metadata)
    return str(owner["name"])


def _start(group: Tree) -> tuple[str, str]:
    """Where a job that waits comes in the list: unknown starts last."""
    return estimate_of(group).get("start") or "~", group["metadata"]["name"]


async def list_queues(api: Api, invocation: Invocation) -> None:
    queues = (await api.list(QUEUE)).items
    if printed(invocation, QUEUE, queues):
        return
    if not queues:
        print("No resources found")
        return
    _print(queues, await tally_of(api, "failed to list podgroups with err"))


async def tally_of(api: Api, failure: str) -> Counter[tuple[str, str]]:
    """The number of PodGroups by queue and phase, over all namespaces."""
    try:
        groups = (await api.list(POD_GROUP)).items
    except (ApiError, TransportError) as error:
        raise CommandError(f"{failure}: {error}") from error
    return Counter(
        (
            (group.get("spec") or {}).get("queue") or "",
            (group.get("status") or {}).get("phase") or "",
        )
        for group in groups
    )


def _print(queues: Sequence[Tree], tally: Counter[tuple[str, str]]) -> None:
    rows = [("Name", "Weight", "State", "Parent", *PHASES)]
    for queue in queues:
        name, spec = queue["metadata"]["name"], queue.get("spec") or {}
        counts = (str(tally[name, phase]) for phase in PHASES)
        rows.append(
            (name, str(spec.get("weight") or 0), state_of(queue), spec.get("parent") or "", *counts)
        )
    _rows(rows)


def _rows(rows: Sequence[tuple[str, ...]]) -> None:
    for first, *others in rows:
        print(f"{first:<25}" + "".join(f"{value:<8}" for value in others))


def state_of(queue: Tree) -> str:
    return str((queue.get("status") or {}).get("state") or "")


async def vqueues(api: Api, invocation: Invocation) -> None:
    """The short form: numbers from the queue's own status, without its parent."""
    name = invocation.text("name")
    queues = [await find(api, QUEUE, name)] if name else (await api.list(QUEUE)).items
    if not queues:
        print("No resources found")
        return
    rows = [("Name", "Weight", "State", "Inqueue", "Pending", "Running", "Unknown")]
    for queue in queues:
        status = queue.get("status") or {}
        counts = (str(status.get(key) or 0) for key in ("inqueue", "pending", "running", "unknown"))
        rows.append(
            (
                queue["metadata"]["name"],
                str((queue.get("spec") or {}).get("weight") or 0),
                state_of(queue),
                *counts,
            )
        )
    _rows(rows)


async def operate(api: Api, invocation: Invocation) -> None:
    name, action = name_of(invocation, "queue name must be specified"), invocation.text("action")
    weight = invocation.number("weight")
    if action == "update":
        if weight == 0:
            raise CommandError(
                f"when update queue {name}, weight must be specified, the value must be greater than 0"
            )
        await api.patch(QUEUE, name, {"spec": {"weight": weight}})
        return
    if not action:
        raise CommandError("action can not be null")
    if action not in ACTIONS:
        raise CommandError(f"action {action} invalid, valid actions are open, close and update")
    queue = await find(api, QUEUE, name)
    command = command_for(queue, QUEUE, ACTIONS[action], COMMAND_NAMESPACE)
    await api.create(COMMAND, command, COMMAND_NAMESPACE)


def _columns(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) + 3 for column in range(len(rows[0]))]
    for row in rows:
        print(
            "".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True)).rstrip()
        )
