"""`hekla logs`: what the processes of a cluster have written, each line after its process's name."""

from __future__ import annotations

import sys
import time
from difflib import get_close_matches
from pathlib import Path

from hekla.cli.arguments import Parser
from hekla.local.cluster.cluster import Cluster
from hekla.local.machine.files import ClusterError

LOOK_AGAIN = 0.2
"""Seconds between looks for new lines."""


def parser() -> Parser:
    result = Parser("hekla logs", __doc__)
    flag = result.add_argument
    flag("process", nargs="*", help="names as `hekla status` shows them (default: all)")
    flag("--name", default="default", help="the cluster's name (default: %(default)s)")
    flag(
        "--tail",
        type=int,
        default=20,
        help="the last lines of each, -1 for all (default: %(default)s)",
    )
    flag("--follow", "-f", action="store_true", help="go on with what is written from now on")
    return result


def main(argv: list[str]) -> int:
    """Print the logs; exit code 1 if there is no such cluster or process."""
    arguments = parser().parse(argv)
    try:
        files = chosen(Cluster.named(arguments.name), arguments.process)
    except ClusterError as error:
        print(f"hekla logs: {error}", file=sys.stderr)
        return 1
    width = max(len(file.stem) for file in files)
    read: dict[Path, int] = {}
    for file in files:
        content = file.read_bytes()
        read[file] = content.rfind(b"\n") + 1
        lines = content[: read[file]].decode(errors="replace").splitlines()
        show(
            file,
            width,
            lines if arguments.tail < 0 else lines[max(0, len(lines) - arguments.tail) :],
        )
    while arguments.follow:
        time.sleep(LOOK_AGAIN)
        for file in files:
            show(file, width, new_lines(file, read))
    return 0


def chosen(cluster: Cluster, names: list[str]) -> list[Path]:
    """The logs of these processes, or of all if none is named.  Raises ClusterError."""
    files = (
        {file.stem: file for file in sorted(cluster.logs.glob("*.log"))} if cluster.exists() else {}
    )
    if not files:
        which = "" if cluster.name == "default" else f" --name {cluster.name}"
        raise ClusterError(
            f'there is no cluster "{cluster.name}", or it has never run; make it with: hekla up{which}'
        )
    for name in names:
        if name not in files:
            near = get_close_matches(name, files, 1)
            meant = f'; did you mean "{near[0]}"?' if near else "."
            raise ClusterError(f'there is no process "{name}"{meant} There are: {", ".join(files)}')
    return [files[name] for name in names or files]


def show(file: Path, width: int, lines: list[str]) -> None:
    for line in lines:
        print(f"{file.stem:<{width}}  {line}", flush=True)


def new_lines(file: Path, read: dict[Path, int]) -> list[str]:
    """The whole lines since the last call; a log that was started again is read from its beginning."""
    try:
        if file.stat().st_size < read[file]:
            read[file] = 0
        with file.open("rb") as stream:
            stream.seek(read[file])
            content = stream.read()
    except FileNotFoundError:
        return []
    end = content.rfind(b"\n") + 1
    read[file] += end
    return content[:end].decode(errors="replace").splitlines()
