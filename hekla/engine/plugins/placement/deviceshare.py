"""deviceshare: which cards of which node a pod gets.  Reference: plugins-placement 7.

Cards are worked out per node from the annotations of the pods that are shown on it, and answers are
kept as long as the node's stamp stays; so a placement costs one node, and taking it back costs
nothing more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from hekla.api.text import yamltext
from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Code, Depends, Filter, Mask, Plugin, Score
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.devices import (
    BINPACK,
    SPREAD,
    Asker,
    Cards,
    Device,
    Fit,
    Holder,
    ascend,
    mindcluster,
    vgpu,
)
from hekla.engine.model.devices.cardtable import CardTable
from hekla.engine.model.devices.gpushare import GpuShare
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.reading import GROUP_NAME
from hekla.engine.model.resources import Amounts, Floats
from hekla.engine.model.tasks import Status

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Job, Task

_OTHER_GROUP_NAME = "scheduling.volcano.sh/group-name"

CardOrder = Callable[[vgpu.VirtualGpu, vgpu.Cards, "PodClass", int], tuple[int, ...]]
"""The cards of a node (by row) in the order in which a pod tries them; empty for the usual one."""

FITS = -1
SHOWN_EVERY = 10.0
"""Seconds between two times that all cards are shown as metrics."""


class DeviceShareArguments(Arguments, frozen=True):
    gpu_sharing: bool = msgspec.field(default=False, name="deviceshare.GPUSharingEnable")
    gpu_number: bool = msgspec.field(default=False, name="deviceshare.GPUNumberEnable")
    vgpu: bool = msgspec.field(default=False, name="deviceshare.VGPUEnable")
    ascend_hami: bool = msgspec.field(default=False, name="deviceshare.AscendHAMiVNPUEnable")
    mind_cluster: bool = msgspec.field(
        default=False, name="deviceshare.AscendMindClusterVNPUEnable"
    )
    node_lock: bool = msgspec.field(default=False, name="deviceshare.NodeLockEnable")
    policy: str = msgspec.field(default="", name="deviceshare.SchedulePolicy")
    weight: int = msgspec.field(default=0, name="deviceshare.ScheduleWeight")
    map_name: str = msgspec.field(
        default="volcano-vgpu-device-config", name="deviceshare.KnownGeometriesCMName"
    )
    map_namespace: str = msgspec.field(
        default="kube-system", name="deviceshare.KnownGeometriesCMNamespace"
    )
    exclusive: list[dict[str, str]] = msgspec.field(
        default=[], name="deviceshare.GPUExclusiveRules"
    )

    def extended(self, rest: Tree) -> DeviceShareArguments:
        if self.gpu_sharing and self.gpu_number:
            raise ValueError(
                "GPUSharingEnable and GPUNumberEnable are both true: cards are shared or handed out whole"
            )
        if self.vgpu and (self.gpu_sharing or self.gpu_number):
            raise ValueError(
                "VGPUEnable together with GPUSharingEnable or GPUNumberEnable: one of them"
            )
        if self.policy not in ("", BINPACK, SPREAD):
            raise ValueError(
                f"deviceshare.SchedulePolicy = {self.policy!r}: binpack, spread or nothing"
            )
        return self


@dataclass(slots=True)
class Answers:
    """What one kind says to one sort of pod, node by node, and for which state of each node it said
    so."""

    stamps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    refusals: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    """The number of the kind's refusal, FITS where there is none."""
    scores: Floats = field(default_factory=lambda: np.zeros(0))

    def grow(self, size: int) -> None:
        more = size - len(self.stamps)
        if more > 0:
            self.stamps = np.append(self.stamps, np.full(more, -1, dtype=np.int64))
            self.refusals = np.append(self.refusals, np.full(more, FITS, dtype=np.int8))
            self.scores = np.append(self.scores, np.zeros(more))


@dataclass(slots=True)
class Known:
    """The cards of one kind on every node, and for which state of each node they were worked out."""

    stamps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    there: list[Cards] = field(default_factory=list)
    table: CardTable = field(default_factory=CardTable)

    def grow(self, size: int) -> None:
        more = size - len(self.there)
        if more > 0:
            self.stamps = np.append(self.stamps, np.full(more, -1, dtype=np.int64))
            self.there.extend([None] * more)


class DeviceShare(Plugin):
    """Filters nodes by their cards, scores them, and writes down which cards a pod was given."""

    name = "deviceshare"
    Arguments = DeviceShareArguments
    arguments: DeviceShareArguments

    def __init__(self, arguments: DeviceShareArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.devices: list[Device] = []
        if arguments.gpu_sharing or arguments.gpu_number:
            self.devices.append(GpuShare(by_number=arguments.gpu_number))
        if arguments.mind_cluster:
            self.devices.append(mindcluster.MindCluster())
        self._configured: list[Device] = []
        self._text: str | None = None
        self._answers: dict[tuple[str, Hashable], Answers] = {}
        self._shown = float("-inf")
        self._cards: dict[str, Known] = {}
        self._gone: set[str] = set()
        """Pods that this cycle evicts: whoever looks for cards is shown the node without them."""
        self.card_order: CardOrder | None = None
        """Another plugin that says which cards of a node are tried first."""

    def open(self, session: CycleView) -> None:
        self.nodes = session.state.nodes
        self.now = session.now
        self._gone.clear()
        self._configure(session)
        if len(self._answers) > 512:
            self._answers.clear()

    def _configure(self, session: CycleView) -> None:
        """Read the device configuration when it is new."""
        arguments: DeviceShareArguments = self.arguments
        if not (arguments.vgpu or arguments.ascend_hami):
            return
        key = f"{arguments.map_namespace}/{arguments.map_name}"
        found = session.state.others.get("ConfigMap", {}).get(key) or {}
        text = (found.get("data") or {}).get("device-config.yaml", "")
        if text == self._text:
            return
        self._text = text
        try:
            tree = yamltext.load(text) or {}
            if not isinstance(tree, dict):
                raise ValueError(f"device-config.yaml is {tree!r}, not a mapping")
            nvidia, ascends = vgpu.settings_of(tree), ascend.settings_of(tree)
        except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
            session.decisions.problems.append(f"{key}: {error}")
            session.state.rejected["ConfigMap", key] = str(error)
            nvidia, ascends = vgpu.Settings(), []
        self.devices = [one for one in self.devices if one not in self._configured]
        self._configured = [vgpu.VirtualGpu(nvidia)] if arguments.vgpu else []
        if arguments.ascend_hami:
            self._configured += [ascend.Ascend(one) for one in ascends]
            for one in ascends:
                # What the cards are cut into is no resource of the node.
                self.nodes.unbound(one.memory_resource)
                self.nodes.unbound(one.core_resource)
        self.devices += self._configured
        self._answers.clear()
        self._cards.clear()

    # ----------------------------------------------------------------------------- filter and score

    def filters(self) -> Iterable[Filter]:
        texts = {
            "GpuShare": [
                one
                for device in self.devices
                if device.kind.name == "GpuShare"
                for one in device.kind.refusals
            ],
            "hamivgpu": [vgpu.REFUSAL] if self.arguments.vgpu else [],
            "ascend": [ascend.REFUSAL, ascend.PARTIAL] if self.arguments.ascend_hami else [],
        }
        if self.arguments.mind_cluster:
            for number, reason in enumerate(
                (mindcluster.REFUSAL, mindcluster.BUSY, mindcluster.UNKNOWN)
            ):
                mask = self._mask_of("mindcluster", number)
                yield Filter(
                    "deviceshare:mindcluster", reason, Code.UNRESOLVABLE, Depends.CLUSTER, mask
                )
        for name, reasons in texts.items():
            for number, reason in enumerate(reasons):
                detail = partial(self._on_node, reason) if name == "GpuShare" else None
                code = Code.UNSCHEDULABLE if number == 0 else Code.UNRESOLVABLE
                yield Filter(
                    f"deviceshare:{name}",
                    reason,
                    code,
                    Depends.CLUSTER,
                    self._mask_of(name, number),
                    "",
                    detail,
                )

    def _on_node(self, reason: str, pods: PodClass, row: int) -> str:
        return f"{reason} on node {self.nodes.names[row]}"

    def _mask_of(self, name: str, number: int) -> Mask:
        """Fails where the answer is the refusal of this number."""

        def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
            if task is None:
                return None
            result: Bools | None = None
            for device in self._asked(pods):
                if device.kind.name == name or (
                    name == "ascend" and isinstance(device, ascend.Ascend)
                ):
                    answers = self._ask(device, task, nodes)
                    fits = nodes.take(answers.refusals[: len(nodes.table)]) != number
                    result = fits if result is None else result & fits
            return result

        return mask

    def scores(self) -> Iterable[Score]:
        if self.arguments.weight > 0:
            yield Score(
                "deviceshare",
                float(self.arguments.weight),
                Depends.CLUSTER,
                self._score,
                batch=False,
            )
            if self.arguments.mind_cluster:
                yield Score(
                    "deviceshare vNPU",
                    float(self.arguments.weight),
                    Depends.CLUSTER,
                    self._score_chips,
                )

    def _score_chips(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        """Points for the candidates with fewest idle cores, more where a slice need not be a
        smaller one."""
        device = next(
            (one for one in self._asked(pods) if isinstance(one, mindcluster.MindCluster)), None
        )
        if device is None or task is None:
            return None
        table = nodes.table
        smaller = self._ask(device, task, nodes).scores
        rows = np.arange(len(table)) if nodes.rows is None else nodes.rows
        column = table.space.column(mindcluster.RESOURCE)
        idle = table.allocatable[column][rows] - table.used[column][rows]
        order = rows[np.argsort(idle, kind="stable")].tolist()
        points = mindcluster.preferred((row, bool(smaller[row])) for row in order)
        return np.array([points.get(row, 0.0) for row in rows.tolist()])

    def _score(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        asked = [one for one in self._asked(pods) if not isinstance(one, mindcluster.MindCluster)]
        if not asked or task is None:
            return None
        total = np.zeros(len(nodes))
        for device in asked:
            total += nodes.take(self._ask(device, task, nodes).scores[: len(nodes.table)])
        return np.floor(total + 0.5)

    def _asked(self, pods: PodClass) -> list[Device]:
        return [device for device in self.devices if device.asked(pods)]

    def _ask(self, device: Device, task: Task, nodes: NodeView) -> Answers:
        """The kind's answers about the nodes of the view, brought up to date where a node changed."""
        table = nodes.table
        asker = self._asker(task)
        key = device.kind.name, device.sight(asker)
        answers = self._answers.setdefault(key, Answers())
        answers.grow(len(table))
        stale = answers.stamps[: len(table)] != table.stamps
        rows = np.flatnonzero(stale) if nodes.rows is None else nodes.rows[stale[nodes.rows]]
        if not len(rows):
            return answers
        cards = self._known(device, table, rows)
        each = rows
        if isinstance(device, vgpu.VirtualGpu):
            found = device.ask_all(cards.table, rows, asker, self.arguments.policy)
            if found is not None:
                fits, answers.scores[rows] = found
                answers.refusals[rows] = np.where(fits, FITS, 0)
                each = rows[~cards.table.counted[rows]]
        for row in each.tolist():
            there = cards.there[row]
            fit = device.fit(there, asker, self.arguments.policy) if there is not None else None
            refused = fit is not None and fit.refusal
            answers.refusals[row] = device.kind.refusals.index(refused) if refused else FITS
            answers.scores[row] = fit.score if fit is not None else 0.0
        answers.stamps[rows] = table.stamps[rows]
        return answers

    def _known(self, device: Device, table: NodeTable, rows: Rows) -> Known:
        """The cards of these nodes, worked out again where a node changed."""
        known = self._cards.setdefault(device.kind.name, Known())
        known.grow(len(table))
        stale = rows[known.stamps[rows] != table.stamps[rows]]
        for row in stale.tolist():
            known.there[row] = self._cards_of(device, table, row)
            if isinstance(device, vgpu.VirtualGpu):
                known.table.write(row, known.there[row])
        known.stamps[stale] = table.stamps[stale]
        return known

    def _fit(
        self, device: Device, asker: Asker, table: NodeTable, row: int, without: str = ""
    ) -> Fit | None:
        """None where the node has no such device: then the resources that it lacks speak."""
        cards = self._cards_of(device, table, row, without)
        if cards is None:
            return None
        if self.card_order is not None and isinstance(device, vgpu.VirtualGpu):
            order = self.card_order(device, cards, asker.pods, row)
            asker = dataclasses.replace(asker, order=order)
        return device.fit(cards, asker, self.arguments.policy)

    def shared_cards(self, rows: Rows) -> tuple[vgpu.VirtualGpu, CardTable] | None:
        """The virtual GPUs of these nodes as they are now; None where the policy shares none."""
        for device in self.devices:
            if isinstance(device, vgpu.VirtualGpu):
                return device, self._known(device, self.nodes, rows).table
        return None

    def _cards_of(self, device: Device, table: NodeTable, row: int, without: str = "") -> Cards:
        facts = table.facts[row]
        if facts is None:
            return None
        holders = [
            Holder(one.key, one.pods, one.annotations, _group(one), self._rules(one), one.status)
            for one in table.tasks[row].values()
            if one.key != without
            and device.asked(one.pods)
            and not (one.status is Status.RELEASING and one.key in self._gone)
        ]
        return device.cards(facts, holders)

    def _asker(self, task: Task) -> Asker:
        grouped = task.pods.annotations.get(vgpu.GROUP_POLICY) == SPREAD
        return Asker(
            task.pods,
            task.annotations,
            _group(task) if grouped else "",
            self._rules(task),
            task.labels.labels,
        )

    def _rules(self, task: Task) -> frozenset[int]:
        """The exclusivity rules that a pod falls under: all pairs of the rule are among its labels."""
        return matching_rules(self.arguments.exclusive, task.labels.labels)

    def close(self, session: CycleView) -> None:
        """Show what is on the cards, not in every cycle: there may be tens of thousands of them."""
        if session.now - self._shown < SHOWN_EVERY or not session.state.metered:
            return
        self._shown = session.now
        for device in self.devices:
            if isinstance(device, vgpu.VirtualGpu):
                known = self._known(device, self.nodes, np.arange(len(self.nodes)))
                for name, cards in zip(self.nodes.names, known.there):
                    for card in cards.cards if cards is not None else ():
                        _show(session, name, card)

    # ---------------------------------------------------------------------------------------- books

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        asked = self._asked(task.pods)
        if not asked:
            return
        if task.status not in (Status.ALLOCATED, Status.PIPELINED):
            self._gone.discard(task.key)
            self.nodes.mark(task.row)
            return
        self._forget(task, asked)
        for device in asked:
            found = self._fit(device, self._asker(task), self.nodes, task.row, without=task.key)
            if found is not None and found.assignment is not None:
                task.annotations = {
                    **task.annotations,
                    **device.annotations(found.assignment, self.nodes.names[task.row], self.now),
                }
        self.nodes.mark(task.row)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        asked = self._asked(task.pods)
        if not asked:
            return
        if task.status is Status.RELEASING:
            self._gone.add(task.key)
        else:
            self._forget(task, asked)
        self.nodes.mark(task.row)

    def _forget(self, task: Task, asked: Iterable[Device]) -> None:
        written = {name for device in asked for name in device.kind.written}
        task.annotations = {
            name: value for name, value in task.annotations.items() if name not in written
        }


def matching_rules(rules: Iterable[Mapping[str, str]], labels: Mapping[str, str]) -> frozenset[int]:
    """Numbers of the rules all of whose pairs are among the labels; an empty rule matches nobody."""
    return frozenset(
        number
        for number, rule in enumerate(rules)
        if rule and all(labels.get(name) == value for name, value in rule.items())
    )


def _show(session: CycleView, node: str, card: vgpu.Card) -> None:
    """One card as metrics.  Reference: plugins-placement 7.8."""
    for name, value in (
        ("shared_number", card.used),
        ("allocated_memory", card.used_memory),
        ("allocated_cores", card.used_cores),
        ("memory_limit", card.memory),
    ):
        session.metric(f"vgpu_device_{name}", float(value), devID=card.uuid, NodeName=node)
    pods: dict[str, tuple[int, int]] = {}
    for user, use in card.users.items():
        pod = user.partition("#")[0].rpartition("/")[2]
        memory, cores = pods.get(pod, (0, 0))
        pods[pod] = memory + use.memory, cores + use.cores
    for pod, (memory, cores) in pods.items():
        for name, value in (("memory", memory), ("core", cores)):
            labels = {"devID": card.uuid, "NodeName": node, "podName": pod}
            session.metric(
                f"vgpu_device_{name}_allocation_for_a_certain_pod", float(value), **labels
            )


def _group(task: Task) -> str:
    name = task.annotations.get(GROUP_NAME) or task.annotations.get(_OTHER_GROUP_NAME)
    return f"{task.namespace}/{name}" if name else ""
