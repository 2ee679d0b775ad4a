"""Reads a policy file strictly: what is unknown is named with its nearest neighbour, and all that is
wrong is said at once.

Reference: descheduler 4.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import yaml

from hekla.api.selectors import SelectorError, parse_labels
from hekla.api.text import yamltext
from hekla.api.text.durations import seconds
from hekla.descheduler.policy import v1alpha1
from hekla.descheduler.policy.arguments import (
    KUBERNETES_METRICS,
    Arguments,
    DefaultEvictorArguments,
    duration,
    nearest,
)
from hekla.descheduler.policy.policy import (
    BALANCE,
    DESCHEDULE,
    EVICTOR,
    FILTER,
    LOAD_AWARE,
    PRE_EVICTION,
    REGISTRY,
    Policy,
    PolicyError,
    Profile,
)
from hekla.descheduler.returns import BackOff

CURRENT, FORMER = "descheduler/v1alpha2", "descheduler/v1alpha1"
KIND = "DeschedulerPolicy"


class PluginConfig(msgspec.Struct):
    name: str = ""
    args: Any = None


class PluginSet(msgspec.Struct):
    enabled: list[str] | None = None
    disabled: list[str] | None = None


class Plugins(msgspec.Struct, rename={"pre_eviction_filter": "preEvictionFilter"}):
    presort: PluginSet | None = None
    sort: PluginSet | None = None
    deschedule: PluginSet | None = None
    balance: PluginSet | None = None
    filter: PluginSet | None = None
    pre_eviction_filter: PluginSet | None = None
    preevictionfilter: PluginSet | None = None
    """The key of earlier versions."""

    def enabled(self, point: str) -> list[str]:
        sets = {
            DESCHEDULE: [self.deschedule],
            BALANCE: [self.balance],
            FILTER: [self.filter],
            PRE_EVICTION: [self.pre_eviction_filter, self.preevictionfilter],
        }[point]
        return [name for one in sets if one is not None for name in one.enabled or ()]


class ProfileText(msgspec.Struct, rename="camel"):
    name: str = ""
    plugin_config: list[PluginConfig] | None = None
    plugins: Plugins | None = None


class MetricsProvider(msgspec.Struct, rename="camel"):
    source: str = ""


class ReturnBackOff(msgspec.Struct, rename="camel"):
    """For owners whose pods come back to the node from which they were evicted."""

    first: str = "5m"
    longest: str = "3h"
    forget_after: str = "1h"

    def problems(self) -> Iterator[str]:
        for name in self.__struct_fields__:
            place, text = f"returnBackOff.{_wire(ReturnBackOff, name)}", getattr(self, name)
            if text.startswith("-"):
                yield f"{place} {text!r} is below 0"
            elif text != "0s":
                yield from duration(place, text, positive=True)

    def read(self) -> BackOff:
        return BackOff(seconds(self.first), seconds(self.longest), seconds(self.forget_after))


class PolicyText(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    max_no_of_pods_to_evict_per_owner: int | None = None
    grace_period_seconds: int | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_providers: list[MetricsProvider] | None = None
    """Known for the sake of policies that name them; where usage is read, its plugin says."""
    return_back_off: ReturnBackOff | None = None
    profiles: list[ProfileText] | None = None


def read_file(path: str) -> Policy:
    """The policy of a file.  Raises PolicyError."""
    if not path:
        raise PolicyError(["deschedulerPolicy is nil: --policy-config-file names no file"])
    try:
        return read(Path(path).read_text())
    except (OSError, UnicodeError) as error:
        raise PolicyError([f"{path}: {error}"]) from error
    except PolicyError as error:
        raise PolicyError([f"{path}: {one}" for one in error.problems]) from error


def read(text: str) -> Policy:
    """The policy of a YAML or JSON text.  Raises PolicyError."""
    try:
        tree = yamltext.load(text)
    except yaml.YAMLError as error:
        raise PolicyError([f"not YAML: {error}"]) from error
    if not isinstance(tree, Mapping):
        raise PolicyError([f"a {KIND} is a mapping with apiVersion, kind and profiles"])
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if kind != KIND:
        raise PolicyError([f"kind {kind!r}: expected {KIND}"])
    if version == FORMER:
        tree = v1alpha1.converted(tree)
    elif version != CURRENT:
        raise PolicyError([f"apiVersion {version!r}: {nearest(str(version), (CURRENT, FORMER))}"])
    return _policy(tree)


def _policy(tree: Mapping[str, Any]) -> Policy:
    written, problems = decoded(tree, PolicyText, "")
    if written is None:
        raise PolicyError(problems)
    try:
        nodes = parse_labels(written.node_selector or "")
    except SelectorError as error:
        problems.append(f"nodeSelector {written.node_selector!r}: {error}")
    for name in (
        "max_no_of_pods_to_evict_per_node",
        "max_no_of_pods_to_evict_per_namespace",
        "max_no_of_pods_to_evict_total",
        "max_no_of_pods_to_evict_per_owner",
        "grace_period_seconds",
    ):
        value = getattr(written, name)
        if value is not None and value < 0:
            problems.append(f"{_wire(PolicyText, name)}: {value} is below 0")
    problems += [
        f"metricsProviders: source {one.source!r}: {nearest(one.source, (KUBERNETES_METRICS,))}"
        for one in written.metrics_providers or ()
        if one.source != KUBERNETES_METRICS
    ]
    back_off = written.return_back_off or ReturnBackOff()
    problems += back_off.problems()
    if not written.profiles:
        problems.append("profiles: a policy has one at least")
    profiles, seen = [], set()
    for one in written.profiles or ():
        if one.name in seen:
            problems.append(f"profiles: two have the name {one.name!r}")
        seen.add(one.name)
        profile, wrong = _profile(one)
        problems += [f"in profile {one.name}: {problem}" for problem in wrong]
        if profile is not None:
            profiles.append(profile)
    if problems:
        raise PolicyError(problems)
    return Policy(
        tuple(profiles),
        nodes,
        written.max_no_of_pods_to_evict_per_node,
        written.max_no_of_pods_to_evict_per_namespace,
        written.max_no_of_pods_to_evict_total,
        written.max_no_of_pods_to_evict_per_owner,
        written.grace_period_seconds,
        bool(written.eviction_failure_event_notification),
        back_off.read(),
    )


def _profile(written: ProfileText) -> tuple[Profile | None, list[str]]:
    problems: list[str] = []
    arguments: dict[str, Arguments] = {}
    if not written.name:
        problems.append("name is missing")
    for one in written.plugin_config or ():
        if one.name not in REGISTRY:
            problems.append(
                f"plugin {one.name} in pluginConfig not registered; {nearest(one.name, list(REGISTRY))}"
            )
            continue
        if one.name in arguments:
            problems.append(f"plugin {one.name} stands twice in pluginConfig")
        made, wrong = decoded(one.args or {}, REGISTRY[one.name].arguments, "")
        if made is not None:
            arguments[one.name] = made
            wrong = [*wrong, *made.problems()]
        problems += [f"{one.name}: {problem}" for problem in wrong]
    plugins = written.plugins or Plugins()
    for point in (DESCHEDULE, BALANCE, FILTER, PRE_EVICTION):
        names = plugins.enabled(point)
        strange = [one for one in names if one not in REGISTRY or point not in REGISTRY[one].points]
        if strange:
            fitting = [name for name, one in REGISTRY.items() if point in one.points]
            problems.append(
                f'profile "{written.name}" configures {point} extension point of non-existing plugins: '
                f"[{' '.join(strange)}]; {nearest(strange[0], fitting)}"
            )
        problems += [
            f"plugin {one} is enabled twice at {point}" for one in {*names} if names.count(one) > 1
        ]
        listed = {one.name for one in written.plugin_config or ()}
        problems += [
            f'unable to find "{one}" plugin config'
            for one in names
            if one in REGISTRY and one != EVICTOR and one not in listed
        ]
    if problems:
        return None, problems
    evictor = cast("DefaultEvictorArguments", arguments.pop(EVICTOR, DefaultEvictorArguments()))
    return Profile(
        written.name,
        evictor,
        tuple(plugins.enabled(DESCHEDULE)),
        tuple(plugins.enabled(BALANCE)),
        arguments,
    ), []


# Decoding by structs, with errors that name the place and what would be right there.


def decoded(tree: Any, type: Any, path: str) -> tuple[Any | None, list[str]]:
    """The struct of a tree, and what is wrong with it."""
    unknown = list(_unknown(tree, type, path))
    if unknown:
        return None, unknown
    try:
        return msgspec.convert(tree, type), []
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        place = f"{path}{where.rstrip('`')}".lstrip(".")
        return None, [f"{place}: {what[:1].lower()}{what[1:]}" if place else what]


def _unknown(tree: Any, type: Any, path: str) -> Iterator[str]:
    """The keys of mappings that their struct does not have."""
    if get_origin(type) in (Union, types.UnionType):
        for one in get_args(type):
            yield from _unknown(tree, one, path)
    elif get_origin(type) is list and isinstance(tree, list):
        for position, one in enumerate(tree):
            yield from _unknown(one, get_args(type)[0], f"{path}[{position}]")
    elif (
        isinstance(type, __builtins_type)
        and issubclass(type, msgspec.Struct)
        and isinstance(tree, Mapping)
    ):
        hints = get_type_hints(type)
        fields = {one.encode_name: hints[one.name] for one in msgspec.structs.fields(type)}
        for key, value in tree.items():
            place = f"{path}.{key}".lstrip(".")
            if key in fields:
                yield from _unknown(value, fields[key], place)
            else:
                yield f"{place}: there is no such key; {nearest(str(key), list(fields))}"


__builtins_type = type


def _wire(struct: type[msgspec.Struct], name: str) -> str:
    return next(one.encode_name for one in msgspec.structs.fields(struct) if one.name == name)


__all__ = ["LOAD_AWARE", "decoded", "read", "read_file"]
