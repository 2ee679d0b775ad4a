"""`vcctl reservation`: nodes kept for a window of time.  Hekla's own."""

from __future__ import annotations

import time
from pathlib import Path

import yaml

from hekla.api.reservation import RESERVATION
from hekla.api.text.windows import read_windows
from hekla.cli.arguments import worded
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree, find
from hekla.cli.vcctl.output import printed

KIND = RESERVATION.untyped
NONE = "-"


async def list_reservations(api: Api, invocation: Invocation) -> None:
    found = (await api.list(KIND)).items
    if printed(invocation, KIND, found):
        return
    if not found:
        print("No resources found")
        return
    rows = [("Name", "State", "From", "To", "Nodes", "Owners", "Past")]
    for one in found:
        status = one.get("status") or {}
        rows.append(
            (
                one["metadata"]["name"],
                str(status.get("state") or "Unknown"),
                str(status.get("start") or NONE),
                str(status.get("end") or NONE),
                str(len(status.get("nodes") or ())),
                _owners(one) or "nobody",
                str(status.get("past") or 0),
            )
        )
    widths = [max(len(row[column]) for row in rows) + 3 for column in range(len(rows[0]))]
    for row in rows:
        print("".join(f"{value:<{width}}" for value, width in zip(row, widths)).rstrip())


async def view(api: Api, invocation: Invocation) -> None:
    one = await find(api, KIND, _name(invocation))
    if printed(invocation, KIND, [one], single=True):
        return
    spec, status = one.get("spec") or {}, one.get("status") or {}
    window = spec.get("window") or {}
    schedule = window.get("schedule")
    when = f"{status.get('start') or NONE} to {status.get('end') or NONE}"
    if schedule:
        zone = window.get("timeZone") or "UTC"
        when += f' ("{schedule}" in {zone}, for {window.get("duration")})'
    occupants = status.get("occupants") or []
    lines = [
        ("Name", one["metadata"]["name"]),
        ("State", f"{status.get('state') or 'Unknown'} ({status.get('reason') or 'not seen yet'})"),
        ("Message", status.get("message") or NONE),
        ("Window", when),
        ("Past", f"{status.get('past') or 0} windows"),
        ("Owners", _owners(one) or "nobody: for maintenance"),
        ("Drain", spec.get("drain") or "Wait"),
        ("Nodes", ", ".join(status.get("nodes") or ()) or NONE),
    ]
    for title, value in lines:
        print(f"{title + ':':<11}{value}")
    for pod in occupants:
        until = f"until {pod['until']}" if pod.get("until") else "with no known end"
        print(f"{'Still there:':<13}{pod['pod']} on {pod['node']}, {until}")


async def create(api: Api, invocation: Invocation) -> None:
    file = invocation.text("filename")
    tree = _read(file) if file else _described(invocation)
    made = await api.create(KIND, tree)
    print(f"created reservation {made['metadata']['name']}")


async def delete(api: Api, invocation: Invocation) -> None:
    name = _name(invocation)
    await find(api, KIND, name)
    await api.delete(KIND, name)
    print(f"deleted reservation {name}")


def _name(invocation: Invocation) -> str:
    name = invocation.text("name") or (invocation.arguments[0] if invocation.arguments else "")
    if not name:
        raise CommandError("reservation name must be specified")
    return name


def _read(file: str) -> Tree:
    try:
        tree = yaml.safe_load(Path(file).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise CommandError(f"failed to read file, err: {worded(error)}") from error
    if not isinstance(tree, dict) or tree.get("kind") != KIND.kind:
        raise CommandError(f"{file}: one object of kind {KIND.kind} is wanted")
    return tree


def _described(invocation: Invocation) -> Tree:
    """The Reservation of the flags.  Raises CommandError."""
    window = {
        "start": invocation.text("start"),
        "end": invocation.text("end"),
        "duration": invocation.text("duration"),
        "schedule": invocation.text("schedule"),
        "timeZone": invocation.text("time-zone"),
    }
    if window["start"] == "now":
        window["start"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    window = {field: value for field, value in window.items() if value}
    try:
        windows = read_windows(window)
        if windows.next(time.time()) is None:
            raise ValueError("spec.window: it has closed for the last time")
    except ValueError as error:
        raise CommandError(str(error)) from error
    nodes: Tree = {}
    if invocation.text("nodes"):
        nodes["names"] = _listed(invocation.text("nodes"))
    if invocation.text("selector"):
        nodes["selector"] = {"matchLabels": _pairs(invocation, "selector", "disk=ssd,zone=b")}
    if invocation.number("count"):
        nodes["count"] = invocation.number("count")
    if invocation.text("resources"):
        nodes["resources"] = _pairs(invocation, "resources", "cpu=4,memory=8Gi")
    owners = {field: _listed(invocation.text(field)) for field in ("queues", "users", "jobs")}
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"name": _name(invocation)},
        "spec": {
            "nodes": nodes,
            "window": window,
            "owners": {field: names for field, names in owners.items() if names},
            **({"drain": "Evict"} if invocation.on("evict") else {}),
            **({"overlap": True} if invocation.on("overlap") else {}),
        },
    }


def _pairs(invocation: Invocation, flag: str, example: str) -> dict[str, str]:
    """What a flag gives to names.  Raises CommandError."""
    pairs = {}
    for one in _listed(invocation.text(flag)):
        name, equals, value = (word.strip() for word in one.partition("="))
        if not (name and equals) or any(word in name for word in " !()"):
            raise CommandError(f'--{flag} = "{invocation.text(flag)}": pairs such as {example}')
        pairs[name] = value
    return pairs


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _owners(one: Tree) -> str:
    owners = (one.get("spec") or {}).get("owners") or {}
    words = (("queues", "queue"), ("users", "user"), ("jobs", "job"))
    return ",".join(f"{word} {name}" for field, word in words for name in owners.get(field) or ())
