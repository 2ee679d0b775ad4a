"""`vcctl jobflow` and `vcctl jobtemplate`: the same five commands over two kinds.  Reference: cli
4."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from hekla.api import flow
from hekla.api.kinds import Kind
from hekla.api.text.ages import age
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree, find
from hekla.cli.vcctl.jobs import open_error
from hekla.cli.vcctl.output import clean, document, printed
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

Cells = Callable[[Tree, float], tuple[str, ...]]


class Sort(NamedTuple):
    """The differences between the two kinds."""

    kind: Kind[Tree]
    noun: str
    columns: tuple[str, ...]
    cells: Cells


def _flow_cells(item: Tree, now: float) -> tuple[str, ...]:
    metadata, phase = (
        item["metadata"],
        ((item.get("status") or {}).get("state") or {}).get("phase") or "",
    )
    when = age(metadata.get("creationTimestamp"), now)
    return metadata["name"], metadata.get("namespace") or "", phase, when


def _template_cells(item: Tree, now: float) -> tuple[str, ...]:
    return item["metadata"]["name"], item["metadata"].get("namespace") or ""


FLOW = Sort(flow.JOB_FLOW.untyped, "jobflow", ("Name", "Namespace", "Phase", "Age"), _flow_cells)
TEMPLATE = Sort(flow.JOB_TEMPLATE.untyped, "job template", ("Name", "Namespace"), _template_cells)


def _documents(file: str, sort: Sort) -> Iterator[Tree]:
    """The objects of a file, which is split at every `---`, wherever one stands."""
    import yaml

    from hekla.api.text import yamltext

    try:
        with open(file, encoding="utf-8") as stream:
            content = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(open_error(file, error)) from error
    for piece in content.split("---"):
        if not piece.strip():
            continue
        try:
            tree = yamltext.load(piece)
        except yaml.YAMLError as error:
            raise CommandError(str(error)) from error
        if not isinstance(tree, dict):
            raise CommandError(f"a document of {file} is no mapping")
        metadata = {"namespace": "default", **(tree.get("metadata") or {})}
        yield {
            "apiVersion": sort.kind.api_version,
            "kind": sort.kind.kind,
            **tree,
            "metadata": metadata,
        }


async def _create(sort: Sort, api: Api, invocation: Invocation) -> None:
    for tree in _documents(invocation.text("file"), sort):
        namespace = tree["metadata"]["namespace"]
        try:
            created = await api.create(sort.kind, tree, namespace)
            print(f"Created {sort.kind.kind}: {namespace}/{created['metadata']['name']}")
        except (ApiError, TransportError) as error:
            print(f"Failed to create {sort.kind.kind}: {_words(error)}")


def _words(error: Exception) -> str:
    return error.message if isinstance(error, ApiError) else str(error)


async def _delete(sort: Sort, api: Api, invocation: Invocation) -> None:
    if invocation.text("file"):
        for tree in _documents(invocation.text("file"), sort):
            namespace, name = tree["metadata"]["namespace"], tree["metadata"].get("name") or ""
            try:
                await api.delete(sort.kind, name, namespace)
                print(f"Deleted {sort.kind.kind}: {namespace}/{name}")
            except (ApiError, TransportError) as error:
                print(f"Failed to delete {sort.kind.kind}: {_words(error)}")
        return
    name, namespace = invocation.text("name"), invocation.text("namespace")
    if not name:
        raise CommandError(f"{sort.noun} name must be specified")
    await find(api, sort.kind, name, namespace)
    await api.delete(sort.kind, name, namespace)
    print(f"Deleted {sort.kind.kind}: {namespace}/{name}")


async def _list(sort: Sort, api: Api, invocation: Invocation) -> None:
    everywhere = "all-namespaces" in invocation.values and invocation.on("all-namespaces")
    items = (await api.list(sort.kind, None if everywhere else invocation.text("namespace"))).items
    if printed(invocation, sort.kind, items):
        return
    if not items:
        print("No resources found")
        return
    _print(sort, items)


async def _get(sort: Sort, api: Api, invocation: Invocation) -> None:
    if not invocation.text("name"):
        raise CommandError(f"name is mandatory to get the particular {sort.noun} details")
    item = await find(api, sort.kind, invocation.text("name"), invocation.text("namespace"))
    if not printed(invocation, sort.kind, [item], single=True):
        _print(sort, [item])


def _print(sort: Sort, items: Sequence[Tree]) -> None:
    now = time.time()
    rows = [sort.columns, *(sort.cells(item, now) for item in items)]
    widths = [max(len(row[column]) for row in rows) + 4 for column in range(len(sort.columns))]
    for row in rows:
        print("".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True)))


async def _describe(sort: Sort, api: Api, invocation: Invocation) -> None:
    name, namespace, form = (
        invocation.text("name"),
        invocation.text("namespace"),
        invocation.text("format"),
    )
    if name:
        items = [clean(sort.kind, await find(api, sort.kind, name, namespace))]
    else:
        items = [_bare(item) for item in (await api.list(sort.kind, namespace)).items]
    if not items:
        return
    if form not in ("yaml", "json"):
        print(f"Unsupported format: {form}", end="")
        return
    print("\n\n".join(document(item, form) for item in items), end="")


def _bare(item: Tree) -> Tree:
    return {
        **item,
        "metadata": {
            key: value for key, value in item["metadata"].items() if key != "managedFields"
        },
    }


create_jobflow, create_jobtemplate = partial(_create, FLOW), partial(_create, TEMPLATE)
delete_jobflow, delete_jobtemplate = partial(_delete, FLOW), partial(_delete, TEMPLATE)
list_jobflows, list_jobtemplates = partial(_list, FLOW), partial(_list, TEMPLATE)
get_jobflow, get_jobtemplate = partial(_get, FLOW), partial(_get, TEMPLATE)
describe_jobflow, describe_jobtemplate = partial(_describe, FLOW), partial(_describe, TEMPLATE)
