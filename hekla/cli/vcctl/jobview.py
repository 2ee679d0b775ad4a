"""The description of one job, and its events.  Reference: cli 2.3.

The lines are a table of level, label and value; labels carry the blanks that line up their values
in the original.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from hekla.api import names
from hekla.api.kubernetes import core
from hekla.api.text.quantity import Quantity
from hekla.cli.vcctl.ages import full, own_age
from hekla.cli.vcctl.connection import Api, Tree
from hekla.cli.vcctl.startestimate import after, when
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

EVENT = core.EVENT.untyped

Line = tuple[int, str]

COUNTS = (
    ("Succeeded:    ", "succeeded"),
    ("Pending:      ", "pending"),
    ("Running:      ", "running"),
    ("Failed:       ", "failed"),
    ("Terminating:  ", "terminating"),
    ("Unknown:      ", "unknown"),
    ("RetryCount:   ", "retryCount"),
    ("Min Available:", "minAvailable"),
    ("Version:      ", "version"),
)
FAILURE = (
    ("Pod:      ", "pod"),
    ("Container:", "container"),
    ("Exit Code:", "exitCode"),
    ("Reason:   ", "reason"),
    ("Message:  ", "message"),
    ("Time:     ", "time"),
)
TEMPLATE_ANNOTATIONS = (
    ("Cri . Cci . Io / Container - Type:          ", "cri.cci.io/container-type"),
    ("Kubernetes . Io / Availablezone:            ", "kubernetes.io/availablezone"),
    ("Network . Alpha . Kubernetes . Io / Network:", "network.alpha.kubernetes.io/network"),
)


def job_text(job: Tree, *, conditions: bool, estimate: Tree | None = None) -> str:
    """`estimate`: what the job's PodGroup says of its start."""
    lines = [
        *_head(job),
        *_spec(job.get("spec") or {}),
        *_status(job.get("status") or {}, conditions),
        *_failure(job),
        *_estimate(job, estimate or {}),
    ]
    return "".join(f"{'  ' * level}{text}\n" for level, text in lines)


def _head(job: Tree) -> Iterator[Line]:
    metadata = job["metadata"]
    yield 0, f"Name:       \t{metadata.get('name', '')}"
    yield 0, f"Namespace:  \t{metadata.get('namespace', '')}"
    yield 0, f"Labels:     \t{_mapping(metadata.get('labels'))}"
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != names.LAST_FAILURE
    }
    yield 0, f"Annotations:\t{_mapping(annotations)}"
    # Empty as the original prints them: its typed clients drop what kind an object is.
    yield 0, "API Version:\t"
    yield 0, "Kind:       \t"
    yield 0, "Metadata:"
    yield 1, f"Creation Timestamp:\t{full(metadata.get('creationTimestamp'))}"
    yield 1, f"Generate Name:     \t{metadata.get('generateName', '')}"
    yield 1, f"Generation:        \t{metadata.get('generation', 0)}"
    yield 1, f"Resource Version:  \t{metadata.get('resourceVersion', '')}"
    yield 1, f"UID:               \t{metadata.get('uid', '')}"


def _mapping(values: Tree | None) -> str:
    if not values:
        return "<none>"
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _bracketed(values: Iterable[Any] | None) -> str:
    return "[" + " ".join(str(value) for value in values or []) + "]"


def _spec(spec: Tree) -> Iterator[Line]:
    plugins = spec.get("plugins") or {}
    yield 0, "Spec:"
    yield 1, f"Min Available:     \t{spec.get('minAvailable') or 0}"
    yield 1, "Plugins:"
    yield 2, f"Env:\t{_bracketed(plugins.get('env'))}"
    yield 2, f"Ssh:\t{_bracketed(plugins.get('ssh'))}"
    yield 1, f"Scheduler Name:    \t{spec.get('schedulerName', '')}"
    yield 1, "Tasks:"
    for task in spec.get("tasks") or []:
        yield from _task(task)


def _task(task: Tree) -> Iterator[Line]:
    template = task.get("template") or {}
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    yield 2, f"Name:\t{task.get('name', '')}"
    yield 2, f"Replicas:\t{task.get('replicas') or 0}"
    yield 2, "Template:"
    yield 3, "Metadata:"
    yield 4, "Annotations:"
    for label, key in TEMPLATE_ANNOTATIONS:
        yield 5, f"{label}\t{annotations.get(key, '')}"
    yield 4, f"Creation Timestamp:\t{full(metadata.get('creationTimestamp'))}"
    yield 3, "Spec:"
    yield 4, "Containers:"
    for container in pod.get("containers") or []:
        yield from _container(container)
    yield 4, "Image Pull Secrets:"
    for secret in pod.get("imagePullSecrets") or []:
        yield 5, f"Name:     \t{secret.get('name', '')}"
    yield 4, f"Restart Policy:   \t{pod.get('restartPolicy', '')}"


def _container(container: Tree) -> Iterator[Line]:
    resources = container.get("resources") or {}
    yield 5, "Command:"
    for word in container.get("command") or []:
        yield 6, str(word)
    yield 5, f"Image:\t{container.get('image', '')}"
    yield 5, f"Name: \t{container.get('name', '')}"
    yield 5, "Ports:"
    for port in container.get("ports") or []:
        yield 6, f"Container Port:\t{port.get('containerPort') or 0}"
        yield 6, f"Name:          \t{port.get('name', '')}"
    yield 5, "Resources:"
    for title, key in (("Limits:", "limits"), ("Requests:", "requests")):
        amounts = resources.get(key) or {}
        yield 6, title
        yield 7, f"Cpu:   \t{Quantity.parse(amounts.get('cpu', 0))}"
        yield 7, f"Memory:\t{Quantity.parse(amounts.get('memory', 0))}"
    yield 6, f"Working Dir:\t{container.get('workingDir', '')}"


def _status(status: Tree, conditions: bool) -> Iterator[Line]:
    yield 0, "Status:"
    for label, key in COUNTS:
        if (status.get(key) or 0) > 0:
            yield 1, f"{label}\t{status[key]}"
    phase = (status.get("state") or {}).get("phase") or ""
    if phase:
        yield 1, "State:"
        yield 2, f"Phase:\t{phase}"
    controlled = status.get("controlledResources") or {}
    if controlled:
        yield 1, "Controlled Resources:"
        for key in sorted(controlled):
            yield 2, f"{key}: \t{controlled[key]}"
    if conditions and status.get("conditions"):
        yield 1, "Conditions:"
        yield 2, "Status\tTransitionTime"
        for condition in status["conditions"]:
            yield 2, f"{condition.get('status', '')} \t{full(condition.get('lastTransitionTime'))} "


def _failure(job: Tree) -> Iterator[Line]:
    """The job's last failure, which the controllers keep after its pods are gone.  Upstream has no
    such lines."""
    try:
        kept = json.loads((job["metadata"].get("annotations") or {}).get(names.LAST_FAILURE, ""))
    except ValueError:
        return
    if not isinstance(kept, dict):
        return
    yield 0, "Last Failure:"
    for label, key in FAILURE:
        value = kept.get(key)
        if value not in (None, ""):
            yield 1, f"{label}\t{full(value) if key == 'time' else value}"
    lines = str(kept.get("log") or "").splitlines()
    if lines:
        yield 1, "Log:"
        for line in lines:
            yield 2, line


def _estimate(job: Tree, estimate: Tree) -> Iterator[Line]:
    """When a waiting job starts.  Upstream has no such lines."""
    if not estimate:
        return
    yield 0, "Start Estimate:"
    yield 1, f"Start:  \t{when(estimate) if estimate.get('start') else 'not known'}"
    if ends := after(estimate, job["metadata"]["namespace"]):
        yield 1, f"After:  \t{ends}"
    yield 1, f"Because:\t{estimate.get('because', '')}"


EVENT_LINE = "{:<15}\t{:<40}\t{:<30}\t{:<40}\t{}"


async def events_text(api: Api, job: Tree) -> str:
    """Events whose name begins with the job's; those of its pods are not among them (see `vcctl job
    events`)."""
    try:
        events = (await api.list(EVENT, job["metadata"].get("namespace"))).items
    except (ApiError, TransportError) as error:
        print(f"Failed to list events: {error}", file=sys.stderr)
        events = []
    prefix = f"{job['metadata']['name']}."
    return event_table([event for event in events if event["metadata"]["name"].startswith(prefix)])


def event_table(events: list[Tree]) -> str:
    if not events:
        return "Events: \t<none>\n"
    now = time.time()
    rows = [
        ("Type", "Reason", "Age", "Form", "Message"),
        ("-------",) * 5,
        *(_event(event, now) for event in events),
    ]
    return "Events:\n" + "".join(EVENT_LINE.format(*row) + "\n" for row in rows)


def _event(event: Tree, now: float) -> tuple[str, ...]:
    source = event.get("source") or {}
    origin = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    first = event.get("firstTimestamp") or event.get("eventTime")
    when, count = own_age(first, now), event.get("count") or 1
    if count > 1:
        when = f"{own_age(event.get('lastTimestamp') or first, now)} (x{count} over {when})"
    return (
        event.get("type") or "",
        event.get("reason") or "",
        when,
        f"{origin}, {host}" if host else origin,
        (event.get("message") or "").strip(),
    )
