"""Shaping by tc: what offline pods send takes a way round through one interface, where one HTB
class holds all of it to one rate.

    pod's link ->(ingress: u32, mirred)-> hekla-qos, an ifb: HTB, class 1:10, bfifo -> on as before

Online pods take no such way and pay nothing.  The interface, its class and the filters are in the
kernel and go on without an agent; the next one finds them by their names.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from hekla.agent.network.pod_network import NetworkError, program, table
from hekla.agent.network.shaper import Counters, Sent

DEVICE, TRIAL = "hekla-qos", "hekla-qos-try"
PRIORITY = 49
"""Of our filters, by which they are known."""
MAX_RATE = 10**12 // 8
"""Bytes per second; more is no limit, and does not fit into the kernel's arithmetic."""
BURST_SECONDS, MIN_BURST = 0.01, 16 * 1024
QUEUE_SECONDS, MIN_QUEUE = 0.1, 512 * 1024
"""How much may wait for its turn; the kernel hands on segments of up to 64 KiB."""
QUANTUM = 60_000
"""With one class it decides nothing; said, so that the kernel does not complain of its own."""


class TrafficControl:
    """A Shaper by the programs tc and ip of iproute2."""

    def unavailable(self) -> str:
        try:
            _delete(TRIAL)
            _create(TRIAL)
            _run([_discipline(TRIAL), *_class(TRIAL, 1), *_redirect(TRIAL, TRIAL, new=True)])
        except NetworkError as error:
            return str(error)
        finally:
            _delete(TRIAL)
        return ""

    def shape(self, interfaces: Collection[str], rate: int) -> dict[str, str]:
        if not _exists(DEVICE):
            _create(DEVICE)
        disciplines = _disciplines()
        if disciplines.get((DEVICE, "root")) != "htb":
            _run([_discipline(DEVICE)])
        _run(_class(DEVICE, rate))
        ends = _ends(disciplines)
        refused: dict[str, str] = {}
        for name in interfaces:
            end = ends.pop(name, None)
            if end is not None and end.others:
                refused[name] = "another program has filters there"
            elif end is None or not end.ours:
                _try(name, _redirect(name, DEVICE, new=end is None))
        _release(ends)
        return refused

    def limit(self, rate: int) -> None:
        _run(_class(DEVICE, rate))

    def counters(self, interfaces: Collection[str]) -> Counters:
        wanted = {*interfaces, DEVICE}
        received: dict[str, Sent] = {}
        shaped = Sent()
        for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            name = name.strip()
            if name == DEVICE:
                columns = numbers.split()
                shaped = Sent(int(columns[8]), int(columns[9]))
            elif name in wanted:
                count, packets, _ = numbers.split(None, 2)
                received[name] = Sent(int(count), int(packets))
        return Counters(received, shaped)

    def remove(self) -> None:
        if _exists(DEVICE):
            _release(
                _ends(_disciplines())
            )  # before the interface: a filter that leads nowhere drops
            _delete(DEVICE)


class _End(NamedTuple):
    """What is at the ingress of an interface that has a discipline there."""

    kind: str
    """ingress or clsact."""
    ours: bool
    others: bool


def _disciplines() -> dict[tuple[str, str], str]:
    """(interface, root or ingress) -> kind of the discipline there."""
    found = {}
    for row in table("tc", "-j", "qdisc", "show"):
        if row.get("root"):
            found[row["dev"], "root"] = row["kind"]
        elif row["kind"] in ("ingress", "clsact"):
            found[row["dev"], "ingress"] = row["kind"]
    return found


def _ends(disciplines: dict[tuple[str, str], str]) -> dict[str, _End]:
    """By interface."""
    found = {}
    for (name, where), kind in disciplines.items():
        if where == "ingress":
            try:
                rows = table("tc", "-j", "filter", "show", "dev", name, "ingress")
            except NetworkError:
                if _exists(name):
                    raise
                continue  # it has just gone
            ours = [row for row in rows if row.get("pref") == PRIORITY and row["kind"] == "u32"]
            found[name] = _End(kind, bool(ours), len(ours) < len(rows))
    return found


def _create(device: str) -> None:
    program("ip", "link", "add", device, "type", "ifb")
    program("ip", "link", "set", device, "up")


def _delete(device: str) -> None:
    if _exists(device):
        program("ip", "link", "del", device)


def _exists(name: str) -> bool:
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True


def _discipline(device: str) -> str:
    return f"qdisc replace dev {device} root handle 1: htb default 10"


def _class(device: str, rate: int) -> list[str]:
    """Make the class, or bring it to this rate; in tc's language, bps are bytes."""
    rate = min(max(rate, 1), MAX_RATE)
    burst = max(MIN_BURST, int(rate * BURST_SECONDS))
    queue = max(MIN_QUEUE, int(rate * QUEUE_SECONDS))
    return [
        f"class replace dev {device} parent 1: classid 1:10 htb rate {rate}bps ceil {rate}bps "
        f"burst {burst}b cburst {burst}b quantum {QUANTUM}",
        f"qdisc replace dev {device} parent 1:10 handle 10: bfifo limit {min(queue, 2**31)}",
    ]


def _redirect(name: str, device: str, *, new: bool) -> list[str]:
    """All that comes in at an interface goes through the device first."""
    every = f"filter add dev {name} ingress protocol all pref {PRIORITY} u32 match u32 0 0"
    away = f"{every} action mirred egress redirect dev {device}"
    return [f"qdisc add dev {name} ingress", away] if new else [away]


def _release(ends: dict[str, _End]) -> None:
    """Take our filters away, and the discipline that held nothing else."""
    for name, end in ends.items():
        if end.ours:
            if end.kind == "ingress" and not end.others:
                _try(name, [f"qdisc del dev {name} ingress"])
            else:
                _try(name, [f"filter del dev {name} ingress pref {PRIORITY}"])


def _try(name: str, lines: Iterable[str]) -> None:
    """As `_run`, unless the interface has gone, as those of pods do at any moment."""
    try:
        _run(lines)
    except NetworkError:
        if _exists(name):
            raise


def _run(lines: Iterable[str]) -> None:
    """Commands of tc, up to the first that fails."""
    program("tc", "-batch", "-", given="".join(f"{line}\n" for line in lines))
