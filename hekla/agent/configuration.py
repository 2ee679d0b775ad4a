"""The agent's configuration: the document of its ConfigMap, how a node's own is merged from it, and
what is wrong with one (reference: agent 3)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from hekla.agent.pods import is_true
from hekla.api import names
from hekla.api.meta import LabelSelector, Struct
from hekla.api.selectors import SelectorError, of_object

S = TypeVar("S", bound=msgspec.Struct)

TYPES = ("cpu", "memory")
"""What a node can offer beyond what it has."""


class ConfigurationError(Exception):
    """The configuration cannot be used; the text says each thing that is wrong."""

    def __init__(self, text: str, found: str = "") -> None:
        super().__init__(text)
        self.found = found
        """The values that were found, where the text, which is the original's, does not name them."""


class NodeLabelConfig(Struct):
    node_colocation_enable: bool | None = None
    node_over_subscription_enable: bool | None = None


class Switch(Struct):
    """A feature without settings of its own."""

    enable: bool | None = None


class NetworkQosConfig(Switch):
    online_bandwidth_watermark_percent: int | None = None
    offline_low_bandwidth_percent: int | None = None
    offline_high_bandwidth_percent: int | None = None
    qos_check_interval: int | None = None
    """Nanoseconds."""


class OverSubscriptionConfig(Switch):
    over_subscription_types: str | None = None


class EvictingConfig(Struct):
    """Percent of the node's allocatable."""

    evicting_cpu_high_watermark: int | None = msgspec.field(
        name="evictingCPUHighWatermark", default=None
    )
    evicting_memory_high_watermark: int | None = None
    evicting_cpu_low_watermark: int | None = msgspec.field(
        name="evictingCPULowWatermark", default=None
    )
    evicting_memory_low_watermark: int | None = None


class CpuThrottlingConfig(Switch):
    cpu_throttling_threshold: int | None = None
    cpu_jitter_limit_percent: int | None = None
    cpu_recover_limit_percent: int | None = None


class ColocationConfig(Struct):
    """The settings of one node; a section or field that is absent is not set."""

    node_label_config: NodeLabelConfig | None = None
    cpu_qos_config: Switch | None = None
    cpu_burst_config: Switch | None = None
    memory_qos_config: Switch | None = None
    memory_qos_v2_config: Switch | None = None
    network_qos_config: NetworkQosConfig | None = None
    over_subscription_config: OverSubscriptionConfig | None = None
    evicting_config: EvictingConfig | None = None
    cpu_throttling_config: CpuThrottlingConfig | None = None


class NodesConfig(ColocationConfig):
    """The settings of the nodes that a selector selects."""

    selector: LabelSelector | None = None


class Document(Struct):
    """What the ConfigMap holds."""

    global_config: ColocationConfig | None = None
    nodes_config: list[NodesConfig] | None = None


DEFAULTS = ColocationConfig(
    node_label_config=NodeLabelConfig(
        node_colocation_enable=True, node_over_subscription_enable=False
    ),
    cpu_qos_config=Switch(enable=False),
    cpu_burst_config=Switch(enable=False),
    memory_qos_config=Switch(enable=False),
    memory_qos_v2_config=Switch(enable=False),
    network_qos_config=NetworkQosConfig(
        enable=False,
        online_bandwidth_watermark_percent=80,
        offline_low_bandwidth_percent=10,
        offline_high_bandwidth_percent=40,
        qos_check_interval=10_000_000,
    ),
    over_subscription_config=OverSubscriptionConfig(
        enable=True, over_subscription_types="cpu,memory"
    ),
    evicting_config=EvictingConfig(
        evicting_cpu_high_watermark=80,
        evicting_memory_high_watermark=60,
        evicting_cpu_low_watermark=30,
        evicting_memory_low_watermark=30,
    ),
    cpu_throttling_config=CpuThrottlingConfig(enable=False),
)


# reading

WORDS = {bool: "true or false", int: "a whole number", str: "a text"}


def read(text: str) -> tuple[Document, list[str]]:
    """A document, and the names in it that mean nothing.  Raises ConfigurationError."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not JSON: {error}") from None
    if tree is None:
        return Document(), []
    reader = _Reader()
    tree = reader.struct(tree, Document, "")
    if reader.problems:
        raise ConfigurationError(aggregate(reader.problems))
    try:
        return msgspec.convert(tree, Document), reader.unknown
    except msgspec.ValidationError as error:  # inside a selector
        raise ConfigurationError(str(error)) from None


class _Reader:
    """Walks a document along its structs."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.unknown: list[str] = []

    def struct(self, tree: Any, kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
        """The tree with each name as its field has it: as in Go, case does not matter."""
        if not isinstance(tree, dict):
            self.problems.append(
                f"{path.rstrip('.') or 'the document'}: {json.dumps(tree)} is no object; write {{...}}"
            )
            return {}
        fields = {one.encode_name.lower(): one for one in msgspec.structs.fields(kind)}
        found = {}
        for name, value in tree.items():
            field = fields.get(name.lower())
            if field is None:
                near = get_close_matches(name, [one.encode_name for one in fields.values()], 1)
                self.unknown.append(
                    f"{path}{name}" + (f" (did you mean {near[0]}?)" if near else "")
                )
            elif value is not None:
                found[field.encode_name] = self.value(value, field.type, f"{path}{name}")
        return found

    def value(self, value: Any, annotation: Any, path: str) -> Any:
        """The value of a field of this type or of none."""
        wanted = next((one for one in get_args(annotation) if one is not type(None)), annotation)
        if get_origin(wanted) is list:
            if isinstance(value, list):
                (inner,) = get_args(wanted)
                return [
                    self.struct(one, inner, f"{path}[{index}].") for index, one in enumerate(value)
                ]
            self.problems.append(f"{path}: {json.dumps(value)} is no list; write [...]")
        elif wanted in WORDS:
            if type(value) is not wanted:
                self.problems.append(f"{path}: {json.dumps(value)} is not {WORDS[wanted]}")
        elif wanted is not LabelSelector:
            return self.struct(value, wanted, f"{path}.")
        return value


def written(document: Document) -> str:
    """The document as the ConfigMap holds it."""
    return json.dumps(msgspec.to_builtins(document), indent=2)


# merging


def merge(document: Document, labels: Mapping[str, str]) -> ColocationConfig:
    """The configuration of a node with these labels, not validated."""
    if document.global_config is None:
        return DEFAULTS
    merged = overlay(DEFAULTS, document.global_config)
    chosen = [one for one in document.nodes_config or () if _selects(one, labels)]
    if chosen:
        merged = overlay(merged, chosen[-1])
    oversubscription = is_true(labels.get(names.OVERSUBSCRIPTION))
    return msgspec.structs.replace(
        merged,
        node_label_config=NodeLabelConfig(
            node_colocation_enable=oversubscription or is_true(labels.get(names.COLOCATION)),
            node_over_subscription_enable=oversubscription,
        ),
    )


def overlay(below: S, above: msgspec.Struct) -> S:
    """The fields of the struct above where they are set, those below elsewhere."""
    changes = {}
    for name in below.__struct_fields__:
        old, new = getattr(below, name), getattr(above, name, None)
        if new is not None:
            changes[name] = overlay(old, new) if isinstance(old, msgspec.Struct) else new
    return msgspec.structs.replace(below, **changes)


def _selects(one: NodesConfig, labels: Mapping[str, str]) -> bool:
    try:
        return of_object(one.selector).matches(labels)
    except SelectorError:
        return False


# validating


class Problem(NamedTuple):
    text: str
    field: str
    value: object


def validate(config: ColocationConfig) -> None:
    """Raises ConfigurationError that names everything that is wrong."""
    problems = list(problems_of(config))
    if problems:
        raise ConfigurationError(
            aggregate([one.text for one in problems]),
            ", ".join(f"{one.field} is {one.value}" for one in problems),
        )


def problems_of(config: ColocationConfig) -> Iterator[Problem]:
    """What is wrong with a merged configuration."""
    if (network := config.network_qos_config) is not None:
        yield from _network_problems(network)
    if (offered := config.over_subscription_config) is not None:
        for one in (offered.over_subscription_types or "").split(","):
            if one not in TYPES and offered.over_subscription_types:
                yield Problem(
                    f"overSubscriptionType({one}) is not supported, only supports cpu/memory",
                    "overSubscriptionTypes",
                    json.dumps(offered.over_subscription_types),
                )
    if (evicting := config.evicting_config) is not None:
        yield from _watermark_problems(evicting)
    if (throttling := config.cpu_throttling_config) is not None:
        yield from _throttling_problems(throttling)


def _unless(good: bool, field: str, value: int, right: str) -> Iterator[Problem]:
    if not good:
        yield Problem(f"{field} {right}", field, value)


def _network_problems(config: NetworkQosConfig) -> Iterator[Problem]:
    low, high = config.offline_low_bandwidth_percent, config.offline_high_bandwidth_percent
    if (interval := config.qos_check_interval) is not None:
        yield from _unless(interval > 0, "qosCheckInterval", interval, "must be a positive number")
    for field, value in (
        ("onlineBandwidthWatermarkPercent", config.online_bandwidth_watermark_percent),
        ("offlineHighBandwidthPercent", high),
        ("offlineLowBandwidthPercent", low),
    ):
        if value is not None:
            yield from _unless(
                1 <= value <= 1000, field, value, "must be a positive number between 1 and 1000"
            )
    if low is not None and high is not None:
        yield from _unless(
            low <= high,
            "offlineHighBandwidthPercent",
            high,
            "cannot be less than offlineLowBandwidthPercent",
        )


def _watermark_problems(config: EvictingConfig) -> Iterator[Problem]:
    for field, value in (
        ("evictingCPUHighWatermark", config.evicting_cpu_high_watermark),
        ("evictingMemoryHighWatermark", config.evicting_memory_high_watermark),
        ("evictingCPULowWatermark", config.evicting_cpu_low_watermark),
        ("evictingMemoryLowWatermark", config.evicting_memory_low_watermark),
    ):
        if value is not None:
            yield from _unless(value > 0, field, value, "must be a positive number")
    for name, wire, low, high in (
        ("cpu", "CPU", config.evicting_cpu_low_watermark, config.evicting_cpu_high_watermark),
        (
            "memory",
            "Memory",
            config.evicting_memory_low_watermark,
            config.evicting_memory_high_watermark,
        ),
    ):
        if low is not None and high is not None and low > high:
            yield Problem(
                f"{name} evicting low watermark is higher than high watermark",
                f"evicting{wire}LowWatermark",
                f"{low}, evicting{wire}HighWatermark {high}",
            )


def _throttling_problems(config: CpuThrottlingConfig) -> Iterator[Problem]:
    if (threshold := config.cpu_throttling_threshold) is not None:
        yield from _unless(
            1 <= threshold <= 100,
            "cpuThrottlingThreshold",
            threshold,
            "must be a positive number between 1 and 100",
        )
    if (jitter := config.cpu_jitter_limit_percent) is not None:
        yield from _unless(
            jitter >= 0,
            "cpuJitterLimitPercent",
            jitter,
            "must be a non-negative number between 1 and 100",
        )
    if (recover := config.cpu_recover_limit_percent) is not None:
        yield from _unless(
            recover > 0, "cpuRecoverLimitPercent", recover, "must be a positive number"
        )


def aggregate(texts: list[str]) -> str:
    """Several errors as one text, as Kubernetes' aggregates are written."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
