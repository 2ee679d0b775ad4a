"""YAML that people write, read so that a small file cannot become a large tree.

An alias stands for a whole branch, and branches of aliases of branches grow by powers: nine lines
are a billion texts as soon as somebody walks them.  So what the aliases of a text stand for is
counted before anything is made of it.  Every failure is a `yaml.YAMLError`, also where the
library's own constructors would raise something else.
"""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 500
MOST = 4 * 2**20
"""Characters that the aliases of one text may stand for in sum, and 16 for each value: more than
any API server takes."""
VALUE = 16
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str) -> Any:
    """The tree of a text with one document.  Raises yaml.YAMLError."""
    check(text)
    try:
        return yaml.load(text, Loader)
    except (
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        # A date that is none, a number without end.
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error


def check(text: str) -> None:
    """Raises yaml.YAMLError if a text's aliases expand too far or are recursive, or if it is nested
    too deeply."""
    anchors: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    size = of_aliases = 0
    try:
        for event in yaml.parse(text, Loader):
            if isinstance(event, yaml.ScalarEvent):
                size += VALUE + len(event.value)
                if event.anchor:
                    anchors[event.anchor] = VALUE + len(event.value)
            elif isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, size))
                if event.anchor:
                    anchors.pop(event.anchor, None)
                size += VALUE
                if len(opened) > DEEPEST:
                    raise problem("it is nested too deeply", event)
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = opened.pop()
                if anchor:
                    anchors[anchor] = size - before
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in anchors:
                    inside = any(anchor == event.anchor for anchor, _ in opened)
                    raise problem(
                        f"*{event.anchor} stands in what it stands for"
                        if inside
                        else f"found undefined alias {event.anchor}",
                        event,
                    )
                size += anchors[event.anchor]
                of_aliases += anchors[event.anchor]
                if of_aliases > MOST:
                    raise problem("its aliases stand for more than any object may hold", event)
    except ValueError as error:  # bytes that are no text
        raise yaml.YAMLError(str(error)) from error


def problem(words: str, event: yaml.Event) -> yaml.YAMLError:
    return yaml.YAMLError(
        f"line {event.start_mark.line + 1}: {words}" if event.start_mark else words
    )
