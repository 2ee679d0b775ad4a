"""A picture of a simulation: which pod was where, when, and whether its job moved meanwhile.

SVG as text, from a run alone: the same run gives the same bytes.  A panel for each policy, all with
one axis of time, so that they can be compared.  A node has as many lines as pods ran on it at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from hekla.simulator.run import JobRun, Run
from hekla.simulator.workload import MICROSECONDS

WIDTH, LEFT, RIGHT = 960, 88, 24
"""Of the picture, and of what is beside the bars, in pixels."""
HIGH, LINES = 12, 480
"""The height of a line, and that of all lines of a panel, at most."""
TITLE, AXIS, GAP = 26, 22, 3
COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#7f7f7f",
)  # fmt: skip
PALE = "#ffffffa6"
"""Over the bars of a job that stands still."""
STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Seconds between two marks of the axis."""
BEGINS = ("bind", "ran")
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
STYLE = (
    "<style>text{font:12px sans-serif;fill:#333}.t{font-weight:bold;font-size:14px}.n{text-anchor:end}"
    ".m{text-anchor:middle}.j{font-size:10px;fill:#fff}</style>"
)


@dataclass(slots=True)
class Bar:
    """A pod on a node.  Times in microseconds."""

    run: JobRun
    pod: str
    node: str
    begin: int
    end: int
    line: int = 0


def gantt(runs: Sequence[tuple[str, Run]], nodes: Sequence[str] = ()) -> str:
    """Policies and what became of the workload under each.  `nodes`: those that are shown also where
    nothing ran on them."""
    whole = max((run.until for _, run in runs), default=0) or MICROSECONDS
    colours = {
        key: COLOURS[at % len(COLOURS)]
        for at, key in enumerate(dict.fromkeys(job.job.key for _, run in runs for job in run.jobs))
    }
    parts: list[str] = []
    top = 0
    for name, run in runs:
        panel, height = _panel(name, run, nodes, whole, colours, top)
        parts += panel
        top += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">'
        f'{STYLE}<rect width="{WIDTH}" height="{top}" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def bars(run: Run, until: int) -> list[Bar]:
    """The pods that ran, in the order in which they began, each on a line of its node's own.  Those
    that never ended run until then."""
    found: list[Bar] = []
    running: dict[str, Bar] = {}
    busy: dict[str, list[bool]] = {}
    for act in run.acts:
        if act.what in BEGINS:
            bar = Bar(act.run, act.pod.rpartition("/")[2], act.node, act.moment, until)
            lines = busy.setdefault(act.node, [])
            bar.line = lines.index(False) if False in lines else len(lines)
            lines[bar.line : bar.line + 1] = [True]
            running[act.pod] = bar
            found.append(bar)
        elif (ended := running.pop(act.pod, None)) is not None:
            ended.end = act.moment
            busy[ended.node][ended.line] = False
    return found


def standing(run: Run, until: int) -> dict[str, list[tuple[int, int]]]:
    """Job -> when some of its pods ran and it did not move, because it lacked others.  Of jobs whose
    work moves only while all run."""
    still: dict[str, list[tuple[int, int]]] = {}
    counts: dict[str, int] = {}
    since: dict[str, int] = {}
    for act in run.acts:
        job = act.run.job
        if job.work is None or not job.work.together:
            continue
        counts[job.key] = counts.get(job.key, 0) + (1 if act.what in BEGINS else -1)
        begin = since.pop(job.key, None)
        if begin is not None and begin < act.moment:
            still.setdefault(job.key, []).append((begin, act.moment))
        if 0 < counts[job.key] < job.pods:
            since[job.key] = act.moment
    for key, begin in since.items():
        still.setdefault(key, []).append((begin, until))
    return still


def _panel(
    name: str,
    run: Run,
    nodes: Sequence[str],
    whole: int,
    colours: Mapping[str, str],
    top: int,
) -> tuple[list[str], int]:
    """The parts of a panel that begins at `top`, and how high it is."""
    drawn = bars(run, whole)
    lines: dict[str, int] = dict.fromkeys(nodes, 1)
    for bar in drawn:
        lines[bar.node] = max(lines.get(bar.node, 1), bar.line + 1)
    high = max(1.0, min(HIGH, LINES / max(sum(lines.values()), 1)))
    wide = (WIDTH - LEFT - RIGHT) / whole
    parts = [f'<text class="t" x="{LEFT}" y="{top + 17}">{escape(name)}</text>']
    at, tops = float(top + TITLE), dict[str, float]()
    for node, count in lines.items():
        tops[node] = at
        parts.append(_rect(LEFT, at, WIDTH - LEFT - RIGHT, count * high, "#f2f2f2"))
        if count * high >= 9:
            middle = at + count * high / 2 + 4
            parts.append(f'<text class="n" x="{LEFT - 6}" y="{middle:.1f}">{escape(node)}</text>')
        at += count * high + GAP
    still = standing(run, whole)
    for bar in drawn:
        x, y = LEFT + bar.begin * wide, tops[bar.node] + bar.line * high
        long = (bar.end - bar.begin) * wide
        parts.append(_rect(x, y, long, high - 1, colours[bar.run.job.key]))
        waits = still.get(bar.run.job.key, ())
        for begin, end in waits:
            low, most = max(begin, bar.begin), min(end, bar.end)
            if most > low:
                parts.append(_rect(LEFT + low * wide, y, (most - low) * wide, high - 1, PALE))
        label = next((one for one in (bar.pod, bar.run.job.name) if 6 * len(one) < long - 6), "")
        if label and high >= 11 and all(begin != bar.begin for begin, _ in waits):
            parts.append(f'<text class="j" x="{x + 3:.1f}" y="{y + 9:.1f}">{escape(label)}</text>')
    parts += _axis(whole, wide, top + TITLE, at)
    return parts, round(at - top) + AXIS


def _rect(x: float, y: float, wide: float, high: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(high, 0.8):.1f}" fill="{fill}"/>'


def _axis(whole: int, wide: float, top: float, bottom: float) -> list[str]:
    """Marks at round times, some eight of them."""
    seconds = whole / MICROSECONDS
    step = next(
        (one for one in STEPS if seconds / one <= 10),
        STEPS[-1] * int(seconds // (10 * STEPS[-1]) + 1),
    )
    unit, word = next((one for one in UNITS if step % one[0] == 0 and one[0] <= step), UNITS[-1])
    parts = []
    for mark in range(0, int(seconds) + 1, step):
        x = LEFT + mark * MICROSECONDS * wide
        parts.append(
            f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="#333" stroke-opacity=".15"/>'
            f'<text class="m" x="{x:.1f}" y="{bottom + 13:.1f}">{mark // unit} {word}</text>'
        )
    return parts
