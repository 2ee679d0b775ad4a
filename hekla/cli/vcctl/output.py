"""`-o json|yaml|name`: the objects themselves instead of a table.  Hekla's own; the tables stay as
they are."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hekla.api.kinds import Kind
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Tree

FORMATS = ("json", "yaml", "name", "wide", "table")


def printed(
    invocation: Invocation, kind: Kind[Tree], items: Sequence[Tree], *, single: bool = False
) -> bool:
    """Print the objects if `--output` asks for them; returns False if a table is wanted."""
    wanted = invocation.text("output")
    if wanted in ("", "table", "wide"):
        return False
    if wanted not in FORMATS:
        raise CommandError(
            f'unknown output format "{wanted}", valid formats are {", ".join(FORMATS)}'
        )
    if wanted == "name":
        group = f".{kind.group}" if kind.group else ""
        for item in items:
            print(f"{kind.kind.lower()}{group}/{item['metadata']['name']}")
        return True
    trees = [clean(kind, item) for item in items]
    content = (
        trees[0] if single else {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": trees}
    )
    print(document(content, wanted), end="")
    return True


def is_wide(invocation: Invocation) -> bool:
    return invocation.text("output") == "wide"


def clean(kind: Kind[Tree], item: Tree) -> Tree:
    """The object with its apiVersion and kind, without managedFields."""
    metadata = {
        key: value for key, value in item.get("metadata", {}).items() if key != "managedFields"
    }
    return {"kind": kind.kind, "apiVersion": kind.api_version, **item, "metadata": metadata}


def document(tree: Tree, form: str) -> str:
    if form == "json":
        ordered = {
            key: tree[key]
            for key in ("kind", "apiVersion", "metadata", "spec", "status")
            if key in tree
        }
        return json.dumps({**ordered, **tree}, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.safe_dump(tree, sort_keys=True, default_flow_style=False, allow_unicode=True))
