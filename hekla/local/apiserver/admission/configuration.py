"""The file of `--admission-control-config-file`: what an administrator sets of the built-in
admission, in Kubernetes' shape.

apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:                    # or path: a file beside this one that holds it
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
    exemptions: {usernames: [], namespaces: [kube-system], runtimeClasses: []}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import yaml

from hekla.api.text import yamltext
from hekla.api.text.fielderrors import FieldError, duplicate, invalid
from hekla.api.text.syntax import dns_label, dns_subdomain
from hekla.api.trees import Json
from hekla.local.apiserver.admission.podsecurity import Configuration
from hekla.podrules.podsecurity.levels import (
    LATEST,
    MODES,
    PRIVILEGED,
    WRONG_LEVEL,
    WRONG_VERSION,
    LevelVersion,
    Policy,
    is_level,
    is_version,
)

FILE = ("apiserver.config.k8s.io", ("v1", "v1beta1", "v1alpha1"), "AdmissionConfiguration")
POD_SECURITY = (
    "pod-security.admission.config.k8s.io",
    ("v1", "v1beta1", "v1alpha1"),
    "PodSecurityConfiguration",
)
EXEMPTIONS = ("usernames", "namespaces", "runtimeClasses")


class ConfigurationError(ValueError):
    """A file that cannot be used; the text is for its author."""


def read(path: Path) -> Configuration:
    """What the file says of Pod Security.  Raises ConfigurationError, OSError."""
    tree = loaded(path)
    typed(tree, FILE, str(path))
    known(tree, ("apiVersion", "kind", "plugins"), str(path))
    found = Configuration()
    for position, plugin in enumerate(items(tree, "plugins", str(path))):
        where = f"{path}: plugins[{position}]"
        if not isinstance(plugin, dict):
            raise ConfigurationError(f"{where}: an object is wanted")
        known(plugin, ("name", "path", "configuration"), where)
        if plugin.get("name") != "PodSecurity":
            raise ConfigurationError(
                f"{where}.name: {plugin.get('name')!r} takes no configuration here; PodSecurity does"
            )
        given = plugin.get("configuration")
        if plugin.get("path"):
            if given is not None:
                raise ConfigurationError(f"{where}: path and configuration cannot both be set")
            beside = path.parent / str(plugin["path"])
            found = pod_security(loaded(beside), str(beside))
        elif given is not None:
            found = pod_security(given, f"{where}.configuration")
    return found


def pod_security(tree: object, where: str) -> Configuration:
    """Raises ConfigurationError."""
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{where}: an object is wanted")
    typed(tree, POD_SECURITY, where)
    known(tree, ("apiVersion", "kind", "defaults", "exemptions"), where)
    defaults, exemptions = tree.get("defaults") or {}, tree.get("exemptions") or {}
    for name, part, fields in (
        ("defaults", defaults, [field for mode in MODES for field in (mode, f"{mode}-version")]),
        ("exemptions", exemptions, EXEMPTIONS),
    ):
        if not isinstance(part, dict):
            raise ConfigurationError(f"{where}: {name}: an object is wanted")
        known(part, fields, f"{where}: {name}")
    errors: list[FieldError] = []
    modes: list[LevelVersion] = []
    for mode in MODES:
        level, version = (
            str(defaults.get(mode) or PRIVILEGED),
            str(defaults.get(f"{mode}-version") or LATEST),
        )
        if not is_level(level):
            errors.append(invalid(f"defaults.{mode}", level, WRONG_LEVEL))
        if not is_version(version):
            errors.append(invalid(f"defaults.{mode}-version", version, WRONG_VERSION))
        modes.append(LevelVersion(level, version))
    rules: tuple[Callable[[str], Iterable[str]], ...] = (named, dns_label, dns_subdomain)
    exempt = [
        exempted(items(exemptions, name, where), f"exemptions.{name}", rule, errors)
        for name, rule in zip(EXEMPTIONS, rules, strict=True)
    ]
    if errors:
        raise ConfigurationError(f"{where}: {'; '.join(map(str, errors))}")
    return Configuration(Policy(*modes), *exempt)


def exempted(
    names: list[object], path: str, rule: Callable[[str], Iterable[str]], errors: list[FieldError]
) -> frozenset[str]:
    found = set[str]()
    for position, name in enumerate(map(str, names)):
        why = ", ".join(rule(name))
        if why:
            errors.append(invalid(f"{path}[{position}]", name, why))
        elif name in found:
            errors.append(duplicate(f"{path}[{position}]", name))
        found.add(name)
    return frozenset(found)


def named(name: str) -> Iterable[str]:
    return () if name else ("username must not be empty",)


def loaded(path: Path) -> Json:
    try:
        tree = yamltext.load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path}: an object is wanted")
    return tree


def typed(tree: Json, wanted: tuple[str, tuple[str, ...], str], where: str) -> None:
    group, versions, kind = wanted
    version = str(tree.get("apiVersion") or "")
    if tree.get("kind") != kind or version not in [f"{group}/{one}" for one in versions]:
        said = f"{version}, Kind={tree.get('kind') or ''}"
        raise ConfigurationError(f"{where}: {said} is no {group}/{versions[0]}, Kind={kind}")


def known(tree: Json, fields: Collection[str], where: str) -> None:
    for name in tree:
        if name not in fields:
            raise ConfigurationError(
                f"{where}: unknown field {name!r}; there are {', '.join(fields)}"
            )


def items(tree: Json, name: str, where: str) -> list[object]:
    found = tree.get(name) or []
    if not isinstance(found, list):
        raise ConfigurationError(f"{where}: {name}: a list is wanted")
    return found
