"""An answer in words, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from hekla.api.text.durations import duration_text
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.simulator.whatif.answer import Answer

FEW = 8
"""Pods and jobs that are named one by one."""


def lines(name: str, answer: Answer, told: Sequence[str], moment: float) -> list[str]:
    """The answer for people.  `told`: what the changes made different.  `moment`: when it was asked,
    in seconds since 1970."""
    said = [headline(name, answer, moment)]
    said += [f"  With {one}." for one in told]
    if answer.start is None or answer.start > 0:
        said += [f"  Now: {answer.why}"] if answer.why else []
    if answer.start is None:
        said.append(f"  {_no_start(answer)}")
    else:
        said += _price(answer)
    said += [f"  Note: {one}" for one in answer.notes[:FEW]]
    return said


def headline(name: str, answer: Answer, moment: float) -> str:
    """The first line."""
    if answer.ran and not answer.placed:
        return f"{name} runs, and would go on."
    if answer.start is None:
        return f"{name} would wait."
    if answer.now:
        return f"{name} would start now: {places(answer)}."
    clock = datetime.fromtimestamp(moment + answer.start).strftime("%H:%M:%S")
    day = int(answer.start // 86400)
    when = f"in {duration_text(round(answer.start))}, about {clock}"
    return f"{name} would start {when}{f' {day} days later' if day else ''}: {places(answer)}."


def _no_start(answer: Answer) -> str:
    if answer.given_up:
        return "It does not start within the future that was looked at."
    if not answer.endless:
        return "It would not start even once all that runs has ended."
    shown, more = answer.endless[:FEW], len(answer.endless) - FEW
    named = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return f"When it starts cannot be said: {named} run and do not say for how long (hekla.io/walltime)."


def places(answer: Answer) -> str:
    """Where its pods would be: `2 pods on n1, 1 on n2`."""
    nodes = Counter(answer.placed.values())
    parts = [f"{count} on {node}" for node, count in sorted(nodes.items())]
    first, rest = parts[0].partition(" ")[::2]
    parts[0] = f"{first} {'pod' if first == '1' else 'pods'} {rest}"
    shown, more = parts[:FEW], len(parts) - FEW
    return ", ".join(shown) + (f" and on {more} further nodes" if more > 0 else "")


def _price(answer: Answer) -> list[str]:
    said = []
    if answer.ends:
        shown, more = answer.ends[:FEW], len(answer.ends) - FEW
        named = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        said.append(f"  It starts when {named} ends, by its walltime at the latest.")
    if answer.leavers:
        said.append(f"  {_pods(len(answer.leavers))} to go before:")
        for one in answer.leavers[:FEW]:
            said.append(f"    {one.pod} of job {one.job}, from {one.node} ({one.why})")
        if len(answer.leavers) > FEW:
            said.append(f"    and {len(answer.leavers) - FEW} more")
    elif answer.placed:
        said.append("  Nobody has to go for it.")
    if answer.others:
        named = ", ".join(f"{job} ({count})" for job, count in list(answer.others.items())[:FEW])
        more = len(answer.others) - FEW
        said.append(f"  Others start now: {named}{f' and {more} more jobs' if more > 0 else ''}.")
    return said


def _pods(count: int) -> str:
    return "1 pod has" if count == 1 else f"{count} pods have"


def document_of(name: str, answer: Answer, told: Sequence[str], moment: float) -> Json:
    """The answer for programs."""
    start = answer.start
    return {
        "kind": "WhatIf",
        "job": name,
        "queue": answer.queue,
        "changes": list(told),
        "startsNow": answer.now,
        "secondsUntilStart": start,
        "start": None if start is None else stamp(moment + start),
        "ranBefore": answer.ran,
        "needs": answer.needs,
        "nodes": dict(answer.placed),
        "evicted": [
            {"pod": one.pod, "job": one.job, "node": one.node, "why": one.why}
            for one in answer.leavers
        ],
        "startsWhenTheseEnd": list(answer.ends),
        "othersStartedNow": dict(answer.others),
        "constraint": "" if answer.now else answer.constraint,
        "text": "" if answer.now else answer.why,
        "endless": list(answer.endless),
        "notes": list(answer.notes),
    }
