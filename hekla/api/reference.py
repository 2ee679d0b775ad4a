"""The page that lists the kinds for users.  It is generated from the kinds, so that it cannot be
wrong about them."""

from __future__ import annotations

from typing import Any

from hekla.api import catalog
from hekla.api.kinds import Kind

HEAD = """# Kinds

Made by `python -m hekla.api.reference > docs/reference/kinds.md`; a test compares the two.

`hekla crds` prints the definitions of these kinds; `hekla up` installs them. The names in the second column work with
`kubectl get`, but `jobs` and `cronjobs` alone mean those of Kubernetes: say `vj`, or `jobs.batch.volcano.sh`. Columns in
brackets show with `-o wide`.

| kind | names | API version | scope | status endpoint | columns |
|---|---|---|---|---|---|
"""

TAIL = """
`{unserved}` have types and no definition: nothing serves them yet.
"""


def page() -> str:
    """The page as Markdown."""
    rows = "".join(_row(kind) for kind in catalog.INSTALLED)
    unserved = "`, `".join(kind.kind for kind in catalog.BATCH if kind not in catalog.INSTALLED)
    return HEAD + rows + TAIL.format(unserved=unserved)


def _row(kind: Kind[Any]) -> str:
    names = ", ".join(f"`{name}`" for name in (kind.plural, kind.singular, *kind.short_names))
    columns = [
        f"[{column.name}]" if column.priority else column.name for column in kind.columns
    ] or ["AGE"]
    cells = (
        kind.kind,
        names,
        f"`{kind.api_version}`",
        "namespace" if kind.namespaced else "cluster",
        "yes" if kind.status else "no",
        ", ".join(["NAME", *columns]),
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(page(), end="")
