"""Lifecycle policies: which event or exit code leads to which action, each only once in a list.

Reference: api-and-admission 5.3.4.  Task lists and the job's list are judged alone; the first bad
policy ends a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hekla.admission.review import Tree
from hekla.admission.rules.fielderrors import invalid
from hekla.api.text.durations import seconds

ANY_EVENT = "*"
VALID_EVENTS = (
    ANY_EVENT,
    "JobUpdated",
    "PodEvicted",
    "PodFailed",
    "PodPending",
    "TaskCompleted",
    "TaskFailed",
    "Unknown",
)
VALID_ACTIONS = (
    "AbortJob",
    "CompleteJob",
    "RestartJob",
    "RestartPartition",
    "RestartPod",
    "RestartTask",
    "ResumeJob",
    "TerminateJob",
)

NO_DURATION = "a duration is written as in Go, numbers with their units, such as 90s, 5m or 1h30m"
CHOICES = (
    f" valid events are [{' '.join(VALID_EVENTS)}], valid actions are [{' '.join(VALID_ACTIONS)}];"
)


def problems(policies: Sequence[Tree], path: str) -> str:
    """The error of a list of policies; "" if it is valid."""
    errors = list(_errors(policies, path))
    if not errors:
        return ""
    head = "1 error occurred:" if len(errors) == 1 else f"{len(errors)} errors occurred:"
    return head + "".join(f"\n\t* {error}" for error in errors) + "\n\n" + CHOICES


def events_of(policy: Tree) -> list[str]:
    """`events` and `event` together, without repetitions."""
    single = policy.get("event")
    return list(dict.fromkeys([*(policy.get("events") or []), *([single] if single else [])]))


def is_duration(text: str) -> bool:
    try:
        seconds(text)
    except ValueError:
        return False
    return True


def _errors(policies: Sequence[Tree], path: str) -> Iterator[str]:
    seen_events: set[str] = set()
    seen_codes: set[int] = set()
    for policy in policies:
        problem = _policy(policy, path, seen_events, seen_codes)
        if problem:
            yield problem
            break
    if ANY_EVENT in seen_events and len(seen_events) > 1:
        yield "if there's * here, no other policy should be here"


def _policy(policy: Tree, path: str, seen_events: set[str], seen_codes: set[int]) -> str:
    events, code = events_of(policy), policy.get("exitCode")
    timeout = policy.get("timeout")
    if timeout and not is_duration(timeout):
        return invalid(f"{path}.timeout", timeout, NO_DURATION)
    if events and code is not None:
        return "must not specify event and exitCode simultaneously"
    if not events and code is None:
        return "either event and exitCode should be specified"
    if code is not None:
        if code == 0:
            return "0 is not a valid error code"
        if code in seen_codes:
            return f"duplicate exitCode {code}"
        seen_codes.add(code)
        return ""
    for event in events:
        if event not in VALID_EVENTS:
            return invalid(path, event, "invalid policy event")
        action = policy.get("action") or ""
        if action not in VALID_ACTIONS:
            return invalid(path, action, "invalid policy action")
        if event in seen_events:
            return f"duplicate event {event}  across different policy"
        seen_events.add(event)
    return ""
