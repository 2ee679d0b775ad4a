"""Charts as SVG text: lines and stacked areas over an axis of time.

Colours are classes (`c0` to `c7`) of `STYLE`, which has them for light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from hekla.simulator.page.stays import Floats

WIDTH, HEIGHT = 1060, 230
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 26
COLOURS = 8
STYLE = """\
svg{--ink:#1d1d1b;--faint:#6b6a66;--line:#dddcd7;--ground:#fcfcfb;--c0:#2a78d6;--c1:#eb6834;--c2:#1a9e74;--c3:#c98500;
--c4:#d4588b;--c5:#4a3aa7;--c6:#6a8d1f;--c7:#8a8984;font:12px system-ui,sans-serif}
@media(prefers-color-scheme:dark){svg{--ink:#f2f1ec;--faint:#a3a29c;--line:#3a3a37;--ground:#1a1a19;--c0:#4f97ea;--c1:#f08255;
--c2:#2fbd8e;--c3:#dda229;--c4:#e57fa8;--c5:#9085e9;--c6:#94b949;--c7:#8f8e89}}
svg text{fill:var(--faint)}.grid{stroke:var(--line)}.line{fill:none;stroke-width:2;stroke-linejoin:round}
.area{stroke:var(--ground);stroke-width:1}
""" + "".join(
    f".area.c{n},.key.c{n}{{fill:var(--c{n})}}.line.c{n}{{stroke:var(--c{n})}}"
    for n in range(COLOURS)
)
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
DAY = 86400


def svg(width: int, height: int, inside: str, name: str) -> str:
    """A picture that stands by itself."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(name)}"><style>{STYLE}</style>{inside}</svg>\n'
    )


def number(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value else "0"


def clock(seconds: float) -> str:
    """A length of time, in the unit that people would use."""
    for unit, size in (("d", DAY), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def ticks(last: float) -> list[float]:
    """Some five to ten round moments up to the last."""
    if last < 5:
        return [last * part / 4 for part in range(5)]
    days = 1
    while last / (days * DAY) > 10:
        days *= 2
    step = next((one for one in STEPS if last / one <= 10), days * DAY)
    return [float(at) for at in range(0, int(last) + 1, step)]


def across(last: float) -> float:
    """Pixels of a second, of a chart that ends at `last`."""
    return (WIDTH - LEFT - RIGHT) / last


def time_axis(last: float, bottom: float) -> str:
    scale = across(last)
    parts = []
    for at in ticks(last):
        x = number(LEFT + at * scale)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{number(bottom)}"/>')  # fmt: skip
        parts.append(f'<text x="{x}" y="{number(bottom + 16)}" text-anchor="middle">{clock(at)}</text>')  # fmt: skip
    return "".join(parts)


def percent_axis(bottom: float) -> str:
    parts = []
    for part in (0, 25, 50, 75, 100):
        y = number(bottom - (bottom - TOP) * part / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{part}%</text>')  # fmt: skip
    return "".join(parts)


def lines(edges: Floats, named: Sequence[tuple[str, Floats]], title: str) -> str:
    """Parts of one (0 to 1) over time, a line each.  Each has a value between two edges."""
    bottom = HEIGHT - BOTTOM
    inside = percent_axis(bottom) + time_axis(float(edges[-1]), bottom)
    scale = across(float(edges[-1]))
    middle = (edges[1:] + edges[:-1]) / 2
    for at, (name, values) in enumerate(named):
        points = " ".join(
            f"{number(LEFT + x * scale)},{number(bottom - (bottom - TOP) * min(y, 1.0))}"
            for x, y in zip(middle.tolist(), values.tolist())
        )
        inside += f'<polyline class="line c{at % COLOURS}" points="{points}"><title>{escape(name)}</title></polyline>'
    return svg(WIDTH, HEIGHT, inside, title)


def stacked(edges: Floats, named: Sequence[tuple[str, Floats]], title: str) -> str:
    """Parts of one over time, one on the other."""
    bottom = HEIGHT - BOTTOM
    inside = percent_axis(bottom)
    scale = across(float(edges[-1]))
    below = np.zeros(len(edges) - 1)
    for at, (name, values) in enumerate(named):
        above = np.minimum(below + values, 1.0)
        if not values.any():
            continue
        upper = _steps(edges, above, scale, bottom)
        lower = _steps(edges, below, scale, bottom)[::-1]
        inside += (
            f'<polygon class="area c{at % COLOURS}" points="{" ".join(upper + lower)}">'
            f"<title>{escape(name)}</title></polygon>"
        )
        below = above
    return svg(WIDTH, HEIGHT, inside + time_axis(float(edges[-1]), bottom), title)


def _steps(edges: Floats, values: Floats, scale: float, bottom: float) -> list[str]:
    found: list[str] = []
    for left, right, value in zip(edges[:-1].tolist(), edges[1:].tolist(), values.tolist()):
        y = number(bottom - (bottom - TOP) * value)
        found += [f"{number(LEFT + left * scale)},{y}", f"{number(LEFT + right * scale)},{y}"]
    return found


LEAST = 1.0
"""Seconds at which the axis of waits begins: shorter ones are no waits."""


def waits(named: Sequence[tuple[str, Sequence[float]]], title: str) -> str:
    """Which part of the jobs waited so long at most, a line each; the axis of seconds is
    logarithmic.  Values are sorted."""
    bottom = HEIGHT - BOTTOM
    longest = max([10 * LEAST, *(values[-1] for _, values in named if values)])
    decades = np.log10(longest / LEAST)
    span = WIDTH - LEFT - RIGHT

    def x(wait: float) -> float:
        return LEFT + span * max(float(np.log10(max(wait, LEAST) / LEAST) / decades), 0.0)

    inside = percent_axis(bottom)
    for at in (1, 10, 60, 600, 3600, 6 * 3600, DAY, 7 * DAY, 30 * DAY, 365 * DAY):
        if at <= longest:
            inside += f'<line class="grid" x1="{number(x(at))}" x2="{number(x(at))}" y1="{TOP}" y2="{bottom}"/>'
            inside += f'<text x="{number(x(at))}" y="{bottom + 16}" text-anchor="middle">{clock(at)}</text>'
    for at, (name, values) in enumerate(named):
        points = []
        for part in range(201):
            if values:
                wait = values[min(len(values) - 1, max(0, -(-part * len(values) // 200) - 1))]
                points.append(f"{number(x(wait))},{number(bottom - (bottom - TOP) * part / 200)}")
        inside += f'<polyline class="line c{at % COLOURS}" points="{" ".join(points)}"><title>{escape(name)}</title></polyline>'
    return svg(WIDTH, HEIGHT, inside, title)
