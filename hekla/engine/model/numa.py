"""CPUs of a node by NUMA node, socket and core, and which of them a container should get.

The same steps as the kubelet's: hints from each resource, merged under the node's policy, then CPUs
taken so that whole sockets and cores stay together.  Reference: plugins-placement 6.3 to 6.5.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hekla.api.trees import Tree

Cpus = frozenset[int]
NO_CPUS: Cpus = frozenset()

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"


@dataclass(frozen=True, slots=True)
class Hint:
    """NUMA nodes that would do (None: any), and whether it is as good as it can be."""

    nodes: frozenset[int] | None
    preferred: bool


@dataclass(frozen=True, slots=True)
class Cpu:
    """Where a CPU is."""

    numa: int
    socket: int
    core: int


class CpuTopology:
    """All CPUs of one node."""

    def __init__(self, cpus: Mapping[int, Cpu]) -> None:
        self.cpus = dict(cpus)
        self.numa_nodes = sorted({cpu.numa for cpu in cpus.values()})
        sockets = {cpu.socket for cpu in cpus.values()}
        cores = {(cpu.socket, cpu.core) for cpu in cpus.values()}
        self.per_socket = len(cpus) // len(sockets) if sockets else 0
        self.per_core = len(cpus) // len(cores) if cores else 0

    def within(self, nodes: Iterable[int]) -> Cpus:
        chosen = set(nodes)
        return frozenset(number for number, cpu in self.cpus.items() if cpu.numa in chosen)

    def numa_count(self, cpus: Iterable[int]) -> int:
        return len({self.cpus[number].numa for number in cpus if number in self.cpus})

    def hints(self, request: float, available: Cpus, reserved: int) -> list[Hint] | None:
        """For a request in CPUs; None where it is no whole number and so has no preference."""
        if request <= 0 or request != int(request):
            return None
        free = available - self.take(frozenset(self.cpus), reserved)
        sets = [
            frozenset(chosen)
            for size in range(1, len(self.numa_nodes) + 1)
            for chosen in itertools.combinations(self.numa_nodes, size)
        ]
        enough = [len(one) for one in sets if len(self.within(one)) >= request]
        smallest = min(enough, default=len(self.numa_nodes))
        return [
            Hint(one, len(one) == smallest)
            for one in sets
            if len(self.within(one) & free) >= request
        ]

    def allocate(self, request: int, available: Cpus, reserved: int, hint: Hint) -> Cpus:
        """CPUs for one container: inside the hint first, then anywhere; nothing where it falls
        short."""
        free = available - self.take(frozenset(self.cpus), reserved)
        taken: Cpus = NO_CPUS
        if hint.nodes is not None:
            inside = free & self.within(hint.nodes)
            taken = self.take(inside, min(request, len(inside)))
        taken |= self.take(free - taken, request - len(taken))
        return taken if len(taken) == request else NO_CPUS

    def take(self, available: Cpus, count: int) -> Cpus:
        """`count` CPUs, keeping sockets and cores whole where it can; nothing where there are not
        so many."""
        if count <= 0 or len(available) < count:
            return NO_CPUS
        left, taken = set(available), set[int]()

        def pick(which: Iterable[int]) -> None:
            taken.update(which)
            left.difference_update(which)

        if self.per_socket and count - len(taken) >= self.per_socket:
            # As upstream: a socket is a candidate where its number is also that of an available
            # CPU.
            for socket in sorted({cpu.socket for cpu in self.cpus.values()} & left):
                if count - len(taken) < self.per_socket:
                    break
                pick([one for one in left if self.cpus[one].socket == socket])
        if self.per_core and count - len(taken) >= self.per_core:
            for core in self._cores(left):
                if count - len(taken) < self.per_core:
                    break
                pick([one for one in left if self.cpus[one].core == core])
        if len(taken) < count:
            pick(self._single(left, taken)[: count - len(taken)])
        return frozenset(sorted(taken)[:count]) if len(taken) > count else frozenset(taken)

    def _cores(self, left: set[int]) -> list[int]:
        by_socket: dict[int, set[int]] = {}
        for cpu in self.cpus.values():
            if cpu.core in left:
                by_socket.setdefault(cpu.socket, set()).add(cpu.core)
        order = sorted(by_socket, key=lambda socket: (len(by_socket[socket]), socket))
        return list(dict.fromkeys(core for socket in order for core in sorted(by_socket[socket])))

    def _single(self, left: set[int], taken: set[int]) -> list[int]:
        def key(number: int) -> tuple[int, ...]:
            own = self.cpus[number]
            on_socket = [one for one in left if self.cpus[one].socket == own.socket]
            on_core = [
                one
                for one in left
                if self.cpus[one].core == own.core and self.cpus[one].socket == own.socket
            ]
            mates = sum(1 for one in taken if self.cpus[one].socket == own.socket)
            return -mates, len(on_socket), len(on_core), own.socket, own.core, number

        return sorted(left, key=key)


def merged(
    policy: str, providers: Sequence[list[Hint] | None], numa_nodes: Sequence[int]
) -> tuple[Hint, bool]:
    """The best hint under a node's policy, and whether the container is admitted.

    A provider that says None has no preference; an empty list says that nothing will do.
    """
    if policy not in (BEST_EFFORT, RESTRICTED, SINGLE):
        return Hint(None, False), True
    lists = [
        [Hint(None, True)] if hints is None else hints or [Hint(None, False)] for hints in providers
    ]
    if policy == SINGLE:
        lists = [
            [one for one in hints if one.preferred and (one.nodes is None or len(one.nodes) == 1)]
            for hints in lists
        ]
    everything = frozenset(numa_nodes)
    best = Hint(everything, False)
    found = False
    for combination in itertools.product(*lists):
        nodes = everything
        for one in combination:
            nodes = nodes if one.nodes is None else nodes & one.nodes
        if not nodes:
            continue
        hint = Hint(nodes, all(one.preferred for one in combination))
        if not found or _rank(hint) < _rank(best):
            best = hint
        found = True
    if not found:
        best = Hint(everything, False)
    return best, policy == BEST_EFFORT or best.preferred


def _rank(hint: Hint) -> tuple[bool, int, int]:
    nodes = hint.nodes or frozenset()
    return not hint.preferred, len(nodes), sum(1 << number for number in nodes)


def cpu_set(text: str) -> Cpus:
    """A set as Linux writes it: `0-3,8`.  Raises ValueError."""
    result: set[int] = set()
    for part in text.split(","):
        if not part.strip():
            continue
        first, dash, last = part.strip().partition("-")
        result.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(result)


def topology_of(tree: Tree) -> CpuTopology:
    """`cpuDetail` of a Numatopology.  Raises ValueError."""
    return CpuTopology(
        {
            int(number): Cpu(
                int(at.get("numa", 0)), int(at.get("socket", 0)), int(at.get("core", 0))
            )
            for number, at in tree.items()
        }
    )
