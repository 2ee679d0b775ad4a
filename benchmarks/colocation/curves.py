"""`python -m benchmarks.colocation.curves`: draws what the page on colocation shows, from two runs with
real processes: docs/colocation/beside.svg and spike.svg."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.clusters import cluster
from benchmarks.colocation.node import CORES, Node, example, online, p99
from benchmarks.colocation.online import offline
from benchmarks.waiting import until
from hekla.local.cluster.cluster import Cluster

PICTURES = Path(__file__).parents[2] / "docs" / "colocation"
PHASE = 8.0
"""Seconds for which the service is alone, then beside offline work, then alone again."""
STEP = 0.25
WIDTH, HEIGHT, LEFT, TOP, GAP = 640, 120, 52, 26, 46
COLOURS = {"online": "#1a6fb4", "offline": "#d9822b", "without the agent": "#9aa0a6"}
Points = list[tuple[float, float]]


class Curve(NamedTuple):
    name: str
    points: Points


class Panel(NamedTuple):
    title: str
    most: float
    curves: Sequence[Curve]


async def beside(made: Cluster, *, lent: bool) -> tuple[Points, dict[str, Points]]:
    """The p99 of the service in milliseconds, and the processors of each class, by seconds: alone,
    beside offline work, alone."""
    async with Node(made) as node:
        if lent:
            await node.all_is_lent()
        await node.apply(*online())
        await node.running("client", 1)
        await until("the client asks", lambda: has_log(node))
        began = time.time()
        processors: dict[str, Points] = {"online": [], "offline": []}
        watching = asyncio.create_task(watch(node, began, 3 * PHASE, processors))
        await asyncio.sleep(PHASE)
        await node.apply(offline(lent))
        await asyncio.sleep(PHASE)
        await node.delete("Job", "render")
        await watching
        answers = [(due - began, took) for due, took in await node.answers()]
    return by_second(answers, 3 * PHASE), processors


async def spike(made: Cluster) -> dict[str, Points]:
    """The processors of each class when clients without a pause come beside offline work."""
    async with Node(made) as node:
        await node.all_is_lent()
        *service, _ = example("online.yaml")
        await node.apply(*service, offline(lent=True))
        await node.running("shop", 1)
        await node.running("render", CORES * 4 - 1)
        processors: dict[str, Points] = {"online": [], "offline": []}
        began = time.time()
        watching = asyncio.create_task(watch(node, began, 12.0, processors))
        await asyncio.sleep(3.0)
        (crowd,) = example("spike.yaml")
        crowd["spec"]["containers"][0]["command"][-2] = "5"
        await node.apply(crowd)
        await watching
    return processors


async def has_log(node: Node) -> bool:
    return bool(await node.log("client"))


async def watch(node: Node, began: float, seconds: float, into: dict[str, Points]) -> None:
    """Adds the processors of each class every STEP."""
    classes = {"online": "burstable", "offline": "besteffort"}
    before = {name: (time.time(), node.spent(qos)) for name, qos in classes.items()}
    while time.time() < began + seconds:
        await asyncio.sleep(STEP)
        for name, qos in classes.items():
            now, spent = time.time(), node.spent(qos)
            then, had = before[name]
            into[name].append((now - began, (spent - had) / (now - then)))
            before[name] = now, spent


def by_second(samples: Points, until: float) -> Points:
    """The p99 of each second."""
    found = []
    for second in range(int(until)):
        inside = [took for at, took in samples if second <= at < second + 1]
        if inside:
            found.append((second + 0.5, p99(inside)))
    return found


def svg(panels: Sequence[Panel], seconds: float, note: str) -> str:
    """Panels one below the other over the same seconds."""
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 16} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{LEFT + WIDTH + 16}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="14" fill="#555">{note}</text>',
    ]
    for index, panel in enumerate(panels):
        top = TOP + index * (HEIGHT + GAP) + 14
        parts += frame(panel, top, seconds)
        parts += (line(curve, panel.most, top, seconds) for curve in panel.curves)
    return "\n".join([*parts, "</svg>", ""])


def frame(panel: Panel, top: float, seconds: float) -> list[str]:
    names = [f'<tspan fill="{COLOURS[curve.name]}"> {curve.name}</tspan>' for curve in panel.curves]
    parts = [f'<text x="{LEFT}" y="{top - 4}">{panel.title}:{",".join(names)}</text>']
    for part in (0, 0.5, 1):
        y = top + HEIGHT * (1 - part)
        parts.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{panel.most * part:g}</text>'
        )
    for second in range(0, int(seconds) + 1, 2):
        x = LEFT + WIDTH * second / seconds
        parts.append(
            f'<text x="{x:.0f}" y="{top + HEIGHT + 15}" text-anchor="middle">{second} s</text>'
        )
    return parts


def line(curve: Curve, most: float, top: float, seconds: float) -> str:
    points = " ".join(
        f"{LEFT + WIDTH * min(x / seconds, 1):.1f},{top + HEIGHT * (1 - min(y / most, 1)):.1f}"
        for x, y in curve.points
    )
    colour = COLOURS[curve.name]
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with cluster(nodes=1) as made:
        without, _ = asyncio.run(beside(made, lent=False))
    with cluster(nodes=1, colocation=True) as made:
        latency, processors = asyncio.run(beside(made, lent=True))
    most = max(took for _, took in (*without, *latency))
    curves = [Curve("without the agent", without), Curve("online", latency)]
    shares = [Curve(name, points) for name, points in processors.items()]
    note = f"offline work comes at {PHASE:.0f} s and goes at {2 * PHASE:.0f} s"
    pictured = [
        Panel("p99 of each second, ms", 5 * (most // 5 + 1), curves),
        Panel("processors", CORES, shares),
    ]
    (PICTURES / "beside.svg").write_text(svg(pictured, 3 * PHASE, note))
    with cluster(nodes=1, colocation=True) as made:
        processors = asyncio.run(spike(made))
    shares = [Curve(name, points) for name, points in processors.items()]
    note = "eight clients without a pause from 3 s on, for 5 s"
    (PICTURES / "spike.svg").write_text(svg([Panel("processors", CORES, shares)], 12.0, note))


if __name__ == "__main__":
    main()
