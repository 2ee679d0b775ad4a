"""How full nodes were, where pods are too many for a bar each."""

from __future__ import annotations

from html import escape

from hekla.simulator.page.chart import (
    BOTTOM,
    LEFT,
    TOP,
    WIDTH,
    across,
    number,
    svg,
    time_axis,
)
from hekla.simulator.page.stays import Stay, edges_of, means, stays
from hekla.simulator.run import Run

ROWS, BINS, SHADES = 40, 180, 5
LINE = 12


def fullness(name: str, run: Run, last: float) -> str:
    """A picture with some nodes to a row, in the order of their names, over the seconds until
    `last`: the darker, the more is held of what is scarcest."""
    rows: dict[str, list[Stay]] = {}
    for one in stays(run):
        rows.setdefault(one.act.node, []).append(one)
    resource, names = scarcest(run), sorted(rows)
    each = max(-(-len(names) // ROWS), 1)
    most = run.capacity.get(resource, 0.0) / max(run.nodes, 1)
    edges = edges_of(last, BINS)
    scale, parts, y = across(last), list[str](), float(TOP)
    for first in range(0, len(names), each):
        group = names[first : first + each]
        held = means(
            (one for node in group for one in rows[node]),
            lambda one: one.act.request.get(resource, 0.0),
            edges,
        )
        whole = most * len(group) or 1.0
        full = [min(SHADES, round(SHADES * part / whole)) for part in held.tolist()]
        parts.append(_label(group[0], y + LINE / 2))
        start = 0
        for at in range(1, len(full) + 1):
            if at == len(full) or full[at] != full[start]:
                if full[start]:
                    x, until = LEFT + edges[start] * scale, LEFT + edges[at] * scale
                    parts.append(
                        f'<rect class="key c0" opacity="{full[start] / SHADES:g}" x="{number(x)}" y="{number(y)}" '
                        f'width="{number(until - x)}" height="{LINE}"/>'
                    )
                start = at
        y += LINE + 1
    inside = time_axis(last, y) + "".join(parts)
    return svg(WIDTH, int(y + BOTTOM), inside, f"how full nodes were under {name}")


def _label(node: str, y: float) -> str:
    shown = node if len(node) <= 8 else "…" + node[-6:]
    return (
        f'<text x="{LEFT - 6}" y="{number(y)}" text-anchor="end" dominant-baseline="middle">'
        f"{escape(shown)}<title>{escape(node)}</title></text>"
    )


def scarcest(run: Run) -> str:
    """The resource of which most was held, as a part of what there is."""
    parts = {
        name: run.used.get(name, 0.0) / amount
        for name, amount in run.capacity.items()
        if amount and name != "pods"
    }
    return max(sorted(parts), key=lambda name: parts[name], default="cpu")
