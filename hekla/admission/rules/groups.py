"""The admission configuration: the resource groups of pods.  Reference: api-and-admission 5.4.

The file is read again whenever it changes; if it cannot be read, the groups stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from hekla.admission.review import ResourceGroup
from hekla.api.text import yamltext

# The original decodes tolerations by lower-cased field names, so `tolerationSeconds` never arrives.
TOLERATION_FIELDS = ("key", "operator", "value", "effect")


class BadConfiguration(Exception):
    """The admission configuration cannot be used; the text says why."""


def load(path: Path) -> tuple[ResourceGroup, ...]:
    try:
        content = yamltext.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise BadConfiguration(f"{path}: {error}") from error
    return parse(content)


def parse(content: Any) -> tuple[ResourceGroup, ...]:
    if content is None:
        return ()
    if not isinstance(content, dict):
        raise BadConfiguration(
            f"the admission configuration is a mapping with the key resourceGroups, not {type(content).__name__}"
        )
    groups = content.get("resourceGroups") or []
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise BadConfiguration("resourceGroups is a list of mappings")
    return tuple(group_of({key.lower(): value for key, value in group.items()}) for group in groups)


def group_of(entry: dict[str, Any]) -> ResourceGroup:
    """A group from its mapping with lower-cased keys."""
    marks = {key.lower(): value for key, value in (entry.get("object") or {}).items()}
    return ResourceGroup(
        name=str(entry.get("resourcegroup") or ""),
        key=str(marks.get("key") or ""),
        values=tuple(_texts(marks.get("value") or [])),
        scheduler_name=str(entry.get("schedulername") or ""),
        tolerations=tuple(
            {field: toleration[field] for field in TOLERATION_FIELDS if toleration.get(field)}
            for toleration in entry.get("tolerations") or []
        ),
        labels={str(key): str(value) for key, value in (entry.get("labels") or {}).items()},
        affinity=str(entry.get("affinity") or ""),
    )


def _texts(values: Iterable[Any]) -> Iterable[str]:
    """The marks as texts.  YAML reads an unquoted `key: value` as a mapping."""
    for value in values:
        if isinstance(value, dict):
            yield from (f"{key}: {item}" for key, item in value.items())
        else:
            yield str(value)
