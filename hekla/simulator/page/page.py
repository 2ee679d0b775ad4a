"""The page: figures, use, shares, waits, who was where, and what policies did otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from hekla.simulator.differences import sentences
from hekla.simulator.gantt import gantt
from hekla.simulator.outcome import Figures, Outcome, wait_of
from hekla.simulator.page import chart
from hekla.simulator.page.fullness import fullness, scarcest
from hekla.simulator.page.stays import edges_of, held, length_of, stays
from hekla.simulator.run import Run

BINS = 240
MOST_ACTS = 3000
"""Begins and ends of pods that are drawn as bars."""
STYLE = """\
:root{color-scheme:light dark;--ink:#1d1d1b;--faint:#6b6a66;--line:#dddcd7;--ground:#fcfcfb}
@media(prefers-color-scheme:dark){:root{--ink:#f2f1ec;--faint:#a3a29c;--line:#3a3a37;--ground:#1a1a19}}
body{margin:2rem auto;max-width:1060px;padding:0 1rem;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}h3{font-size:1rem;margin:1rem 0 .2rem;font-weight:600}
p,li{max-width:46rem}.note{color:var(--faint)}svg{display:block;width:100%;height:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}
td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--faint);font-weight:500}
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}
.keys{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.2rem 0}
.keys svg{display:inline-block;width:12px;height:12px;margin-right:.4rem;vertical-align:-1px}
@media(prefers-color-scheme:dark){.gantt rect[fill="#fff"]{fill:var(--ground)}.gantt rect[fill="#f2f2f2"]{fill:#262624}
.gantt path{stroke:#fff}}.gantt svg text.j{fill:#fff}
"""
COLUMNS = ("policy", "queue", "jobs", "ended", "evicted", "mean wait", "median", "p90", "longest", "slowdown")  # fmt: skip


def page(title: str, outcomes: Sequence[Outcome], runs: Sequence[Run]) -> str:
    """The whole page as text.  The same runs give the same bytes."""
    names = [one.policy for one in outcomes]
    parts = [
        f"<h1>{escape(title)}</h1>",
        *_figures(outcomes),
        *_utilisation(names, runs),
        *_shares(names, runs),
        *_waits(names, runs),
        *_pods(names, runs),
        *_differences(outcomes),
    ]
    body = "\n".join(parts).replace(f"<style>{chart.STYLE}</style>", "")  # Once for all of them.
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>\n{STYLE}{chart.STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _figures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    rows = ["".join(f"<th>{one}</th>" for one in COLUMNS)]
    for one in outcomes:
        rows.append(_row(one.policy, "", one.all))
        if len(one.queues) > 1:
            rows += [_row("", queue, of) for queue, of in one.queues.items()]
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    yield f'<div class="wide"><table>{table}</table></div>'
    yield '<p class="note">Times in seconds; slowdowns bounded at 10 s.</p>'
    for one in outcomes:
        for problem in one.problems:
            yield f"<p>{escape(one.policy)}: {escape(problem)}</p>"


def _row(policy: str, queue: str, of: Figures) -> str:
    times = (of.mean_wait, of.median_wait, of.p90_wait, of.longest_wait)
    cells = (
        escape(policy),
        escape(queue),
        *(f"{one:,}" for one in (of.jobs, of.ended, of.evictions)),
        *("-" if math.isnan(one) else f"{one:,.0f}" for one in times),
        "-" if math.isnan(of.slowdown) else f"{of.slowdown:,.1f}",
    )
    return "".join(f"<td>{cell}</td>" for cell in cells)


def _utilisation(names: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    yield "<h2>Utilisation</h2>"
    yield _keys(names)
    edges = edges_of(length_of(runs), BINS)
    used = sorted({name for run in runs for name, amount in run.used.items() if amount} - {"pods"})
    for resource in used:
        of = [
            (name, held(stays(run), resource, edges) / run.capacity[resource])
            for name, run in zip(names, runs)
            if run.capacity.get(resource)
        ]
        if of:
            yield f"<h3>{escape(resource)}</h3>"
            yield chart.lines(edges, of, f"utilisation of {resource} over time")


def _shares(names: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    """By queue; the smallest of many are one."""
    sizes: dict[str, float] = {}
    for run in runs:
        for one in run.jobs:
            sizes[one.job.queue] = sizes.get(one.job.queue, 0.0) + one.job.processors
    queues = sorted(sizes, key=lambda name: (-sizes[name], name))
    shown = sorted(queues if len(queues) <= chart.COLOURS else queues[: chart.COLOURS - 1])
    others = [] if len(shown) == len(queues) else ["others"]
    resource = scarcest(runs[0])
    yield f"<h2>Shares of queues, of {escape(resource)}</h2>"
    yield _keys([*shown, *others])
    edges = edges_of(length_of(runs), BINS)
    for name, run in zip(names, runs):
        if not run.capacity.get(resource):
            continue
        everything = stays(run)
        series = [
            (
                queue,
                held([one for one in everything if one.act.run.job.queue == queue], resource, edges)
                / run.capacity[resource],
            )
            for queue in shown
        ]
        if others:
            rest = [one for one in everything if one.act.run.job.queue not in shown]
            series.append(("others", held(rest, resource, edges) / run.capacity[resource]))
        if len(names) > 1:
            yield f"<h3>{escape(name)}</h3>"
        yield chart.stacked(edges, series, f"shares of queues under {name}")


def _waits(names: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    yield "<h2>Waits</h2>"
    yield '<p class="note">Which part of the jobs that started waited so long at most.</p>'
    yield _keys(names)
    of = [
        (name, sorted(wait_of(one) for one in run.jobs if one.started is not None))
        for name, run in zip(names, runs)
    ]
    yield chart.waits(of, "distribution of waits")


def _pods(names: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    yield "<h2>Pods on nodes</h2>"
    if sum(len(run.acts) for run in runs) <= MOST_ACTS:
        yield f'<div class="gantt">{gantt(list(zip(names, runs)))}</div>'
        return
    yield (
        '<p class="note">Rows are nodes, or some of them: the darker, the more was held of what is '
        "scarcest.</p>"
    )
    for name, run in zip(names, runs):
        yield f"<h3>{escape(name)}</h3>"
        yield fullness(name, run, length_of(runs))


def _differences(outcomes: Sequence[Outcome]) -> Iterator[str]:
    found = [(one.policy, one.differences) for one in outcomes if one.differences is not None]
    if not found:
        return
    yield "<h2>What policies did otherwise</h2>"
    for policy, of in found:
        first, *rest = sentences(policy, of)
        yield f"<p>{escape(first)}</p>"
        yield f"<ul>{''.join(f'<li>{escape(one.strip())}</li>' for one in rest)}</ul>"


def _keys(names: Sequence[str]) -> str:
    keys = "".join(
        '<span><svg viewBox="0 0 12 12" width="12" height="12">'
        f'<rect class="key c{at % chart.COLOURS}" width="12" height="12" rx="2"/></svg>{escape(name)}</span>'
        for at, name in enumerate(names)
    )
    return f'<div class="keys">{keys}</div>'
