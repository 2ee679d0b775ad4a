"""Alibaba's trace of a GPU cluster, openb (cluster-trace-gpu-v2023): pods and nodes as CSV.

A pod asks for whole GPUs or for a share of one.  Both are asked of cards of 1,000 units of memory
(`volcano.sh/vgpu-memory`), as the plugin deviceshare shares them.
https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from hekla.api.trees import Json, Tree
from hekla.simulator.workload import InputError, SimulatedJob, Workload, microseconds, node, queue

POD_COLUMNS = "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"
TIMES = "creation_time", "deletion_time"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
SHARES = 10
"""Pods that may share a card."""
UNITS = 1000
"""Of memory, that a card has."""


def read(lines: Iterable[str], name: str, *, timed: bool = True) -> Workload:
    """The pods, each a job of its own that runs from when it was scheduled until it was deleted.

    Not `timed`: pod lists that say nothing of times; all come at the beginning and end at once.
    Raises InputError.
    """
    jobs = []
    for at, row in _rows(lines, name, (*POD_COLUMNS, *TIMES) if timed else POD_COLUMNS):
        submit, length = _times(row, name, at) if timed else (0, 0)
        count, share = (_number(row, key, name, at) for key in ("num_gpu", "gpu_milli"))
        if count > 0 and not 0 < share <= UNITS:
            raise InputError.at(name, at, f"gpu_milli = {share}: from 1 to {UNITS}")
        requests = _room(row, name, at)
        if count:
            requests |= {NUMBER: str(count), MEMORY: str(share if count == 1 else UNITS)}
        models = [one for one in row.get("gpu_spec", "").split("|") if one]
        jobs.append(
            SimulatedJob(
                row["name"],
                microseconds(submit),
                microseconds(length),
                requests,
                template={"spec": _on_models(models)} if models else {},
                processors=int(row["cpu_milli"]) / 1000,
            )
        )
    return Workload(jobs)


def _times(row: dict[str, str], name: str, at: int) -> tuple[int, int]:
    """When a pod came, and for how long it ran, in seconds."""
    submit = _number(row, "creation_time", name, at)
    end = _number(row, "deletion_time", name, at)
    began = _number(row, "scheduled_time", name, at) if row.get("scheduled_time") else submit
    if end < began:
        raise InputError.at(name, at, f"deletion_time = {end}: not before {began}, when it began")
    return submit, end - began


def read_nodes(lines: Iterable[str], name: str) -> list[Tree]:
    """The nodes with their cards, and a queue.  Raises InputError."""
    nodes: list[Tree] = []
    seen: set[str] = set()
    for at, row in _rows(lines, name, NODE_COLUMNS):
        count = _number(row, "gpu", name, at)
        if row["sn"] in seen:
            raise InputError.at(name, at, f'sn = "{row["sn"]}": it stands twice')
        seen.add(row["sn"])
        room = {**_room(row, name, at), "pods": "1000"}
        made: Json = {}
        if count:
            room |= {
                NUMBER: str(SHARES * count),
                MEMORY: str(UNITS * count),
                CORES: str(100 * count),
            }
            made = dict(node(row["sn"], room, {"model": row["model"]}))
            cards = "".join(
                f"{row['sn']}-{card},{SHARES},{UNITS},NVIDIA-{row['model']},true,hami-core:"
                for card in range(count)
            )
            made["metadata"] = {
                **made["metadata"],
                "annotations": {"volcano.sh/node-vgpu-register": cards},
            }
        nodes.append(made or node(row["sn"], room))
    return [*nodes, queue("default", "fifo")]


def _rows(
    lines: Iterable[str], name: str, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(lines)
    key, *_ = columns
    missing = [one for one in columns if one not in (reader.fieldnames or ())]
    if missing:
        raise InputError.at(name, 1, f"columns are missing: {', '.join(missing)}")
    for row in reader:
        if not row.get(key):
            raise InputError.at(name, reader.line_num, f'{key} = "": a name')
        if None in row or None in row.values():
            raise InputError.at(
                name, reader.line_num, f"a row has {len(reader.fieldnames or ())} values"
            )
        yield reader.line_num, row


def _number(row: dict[str, str], column: str, name: str, at: int) -> int:
    try:
        found = int(row[column])
        if found < 0:
            raise ValueError
    except ValueError:
        raise InputError.at(
            name, at, f'{column} = "{row[column]}": a whole number from 0 up'
        ) from None
    return found


def _room(row: dict[str, str], name: str, at: int) -> dict[str, str]:
    cpu, memory = (_number(row, column, name, at) for column in ("cpu_milli", "memory_mib"))
    return {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}


def _on_models(models: list[str]) -> Tree:
    terms = [{"matchExpressions": [{"key": "model", "operator": "In", "values": models}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}
