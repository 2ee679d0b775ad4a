"""JSON and YAML bodies to trees, with the keys that they repeat.

The fast decoder is msgspec's. The slow one keeps every pair of an object, because a repeated key is
an error under strict field validation and a warning otherwise, and raises the messages of
Kubernetes' JSON library. YAML is built event by event, with bounds on depth and on the expansion of
aliases, and with Kubernetes' scalars: yes, no, on, off, y and n are booleans too, and timestamps
stay text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple, NoReturn

import msgspec
import yaml

from hekla.local.apiserver.objects.encoding.go_text import syntax_error
from hekla.local.apiserver.objects.errors import BadBody

MAX_DEPTH = 300
MAX_NODES = 1_000_000
"""More scalars, lists and objects than a body within the size limit can hold, unless aliases
multiply them."""
CHARACTERS_PER_NODE = 64
"""So many characters count as one more node: each use of an alias costs as much as the text that it
stands for."""
"""More scalars, lists and objects than a body under the size limit can hold without aliases that
multiply."""


class Pairs(list[tuple[str, Any]]):
    """An object as its key-value pairs in the order of the text, repeated keys included."""


class YamlDocument(NamedTuple):
    """A YAML document as a JSON tree."""

    tree: Any
    duplicates: list[str]
    """The repeated keys, in the messages of Kubernetes' YAML library."""


# --- JSON -----------------------------------------------------------------------------------------


def json_tree(body: bytes) -> Any:
    """The tree; of a repeated key the last value counts. Raises BadBody with Go's message."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return plain(json_pairs(body))


def has_duplicates(body: bytes, tree: Any) -> bool:
    """Whether the body from which a tree (or struct) was decoded may repeat a key. It may say yes
    without need, but never no if there is one.

    A dropped pair takes at least two quotation marks with it, and only escaped ones could make up
    for them. Most bodies are encoded just as they would be here.
    """
    text = msgspec.json.encode(tree)
    return text != body and (b"\\u0022" in body or body.count(b'"') != text.count(b'"'))


def json_pairs(body: bytes) -> Any:
    """The tree with objects as Pairs. Raises BadBody with Go's message."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if (why := syntax_error(body)) is not None:
            raise BadBody(why) from None
        raise BadBody(f"invalid UTF-8 in the body: {error.reason} at byte {error.start}") from None
    try:
        tree = json.loads(
            text, object_pairs_hook=Pairs, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise BadBody(syntax_error(body) or str(error)) from None
    except RecursionError:
        raise BadBody("exceeded max depth") from None
    except ValueError as error:
        raise BadBody(syntax_error(body) or f"json: cannot unmarshal number: {error}") from None
    if "\\u" in text:
        _refuse_lone_surrogates(tree)
    return tree


def plain(tree: Any) -> Any:
    """Turn Pairs into dictionaries; of a repeated key the last value counts."""
    try:
        return _plain(tree)
    except RecursionError:
        raise BadBody("exceeded max depth") from None


def _plain(tree: Any) -> Any:
    if isinstance(tree, Pairs):
        return {key: _plain(value) for key, value in tree}
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    return tree


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadBody(f"json: cannot unmarshal number {text} into a value of type float64")
    return number


def _refuse_lone_surrogates(tree: Any) -> None:
    try:
        json.dumps(plain(tree), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadBody("invalid UTF-8 in the body: an escape stands for half a character") from None


# --- YAML -----------------------------------------------------------------------------------------

_INT = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)").fullmatch
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?").fullmatch
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    **{form: True for word in ("true", "yes", "on", "y") for form in (word, word.title(), word.upper())},
    **{form: False for word in ("false", "no", "off", "n") for form in (word, word.title(), word.upper())},
}  # fmt: skip


def yaml_document(body: bytes) -> YamlDocument:
    """The first document of a YAML body as a JSON tree.  Raises BadBody."""
    builder = _Builder()
    try:
        for event in yaml.parse(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        line = (
            f"line {error.problem_mark.line + 1}: "
            if error.problem_mark and error.problem_mark.line
            else ""
        )
        raise BadBody(
            f"error converting YAML to JSON: yaml: {line}{error.problem or error.context}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadBody(
            f"error converting YAML to JSON: yaml: {str(error).splitlines()[0]}"
        ) from None
    return YamlDocument(builder.root, builder.duplicates)


class _Builder:
    """Builds a tree from parse events, without recursion."""

    def __init__(self) -> None:
        self.root: Any = None
        self.duplicates: list[str] = []
        self._open: list[tuple[Any, str | None, int]] = []
        self._key: Any = _NO_KEY
        self._keys: list[Any] = []
        self._merged: list[list[dict[str, Any]]] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def take(self, event: yaml.Event) -> None:
        """Handle the next parse event."""
        if isinstance(event, yaml.ScalarEvent):
            self._place(_scalar(event), event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(self._open) >= MAX_DEPTH:
                raise BadBody("error converting YAML to JSON: yaml: exceeded max depth")
            self._open.append(
                ({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor, self._nodes)
            )
            self._keys.append(self._key)
            self._merged.append([])
            self._key = _NO_KEY
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            value, anchor, before = self._open.pop()
            self._key = self._keys.pop()
            for source in self._merged.pop():
                self._count(len(source))
                for name, inherited in source.items():
                    value.setdefault(name, inherited)
            if anchor:
                self._anchors[anchor] = (value, self._nodes - before)
            self._place(value, event)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise BadBody(
                    f"error converting YAML to JSON: yaml: unknown anchor '{event.anchor}' referenced"
                )
            value, size = self._anchors[event.anchor]
            self._count(size)
            self._place(value, event)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise BadBody(
                "error converting YAML to JSON: yaml: document contains excessive aliasing"
            )

    def _place(self, value: Any, event: yaml.Event) -> None:
        size = (
            1 + len(event.value) // CHARACTERS_PER_NODE
            if isinstance(event, yaml.ScalarEvent)
            else 1
        )
        self._count(size)
        anchor = getattr(event, "anchor", None)
        if anchor and isinstance(event, yaml.ScalarEvent):
            self._anchors[anchor] = (value, size)
        if not self._open:
            self.root = value
            return
        parent = self._open[-1][0]
        if isinstance(parent, list):
            parent.append(value)
        elif self._key is _NO_KEY:
            self._key = _key(value)
        else:
            self._pair(parent, value, event)

    def _pair(self, parent: dict[str, Any], value: Any, event: yaml.Event) -> None:
        key, self._key = self._key, _NO_KEY
        if key == "<<" and isinstance(value, (dict, list)):
            sources = value if isinstance(value, list) else [value]
            self._merged[-1] += [source for source in sources if isinstance(source, dict)]
            return
        if key in parent:
            line = event.start_mark.line + 1 if event.start_mark else 0
            self.duplicates.append(
                f"line {line}: key {json.dumps(key, ensure_ascii=False)} already set in map"
            )
        parent[key] = value


_NO_KEY = object()


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        raise BadBody(
            "error converting YAML to JSON: yaml: invalid map key: only text can be a key"
        )
    return json.dumps(value)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = event.value
    if event.tag in ("tag:yaml.org,2002:str", "!", "tag:yaml.org,2002:binary") or (
        not event.implicit[0] and not event.tag
    ):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT(text):
        return _integer(text.replace("_", ""))
    if _FLOAT(text):
        if len(text) > 400 or not math.isfinite(float(text)):
            raise BadBody(f"error converting YAML to JSON: json: unsupported value: {text[:40]}")
        return float(text)
    return text


def _integer(text: str) -> int | str:
    digits = text.lstrip("+-")
    try:
        if digits.startswith(("0b", "0o", "0x")):
            number = int(digits, 0)
        else:
            number = int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)
    except ValueError:
        return text
    return -number if text.startswith("-") else number
