"""What files said before the agent changed them, kept across a kill of the agent.

Only of files whose old value nobody can compute: a pod's CPU share depends on the kubelet's and the
runtime's versions.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class Originals:
    """Path -> text.  `save` before a file that is remembered is changed, `forget` when it is written back."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._texts: dict[str, str] = {}
        self._changed = False
        self._is_said = False
        """That nothing is kept across a kill."""
        if file is None:
            return
        try:
            self._texts = dict(json.loads(file.read_text()))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s cannot be read, what it held is forgotten: %s", file, error)
        self.prune()

    def get(self, path: Path) -> str | None:
        return self._texts.get(str(path))

    def remember(self, path: Path, text: str) -> None:
        self._changed |= self._texts.get(str(path)) != text
        self._texts[str(path)] = text

    def forget(self, path: Path) -> None:
        self._changed |= self._texts.pop(str(path), None) is not None

    def prune(self) -> None:
        """Forget the files that are gone, which come back as new ones."""
        for path in [path for path in self._texts if not os.path.exists(path)]:
            del self._texts[path]
            self._changed = True

    def save(self) -> None:
        """Write what has changed.  Where that is not possible it is remembered until the agent ends."""
        if self._file is None or not self._changed:
            return
        part = self._file.with_suffix(".part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self._texts, indent=1))
            part.replace(self._file)
            self._changed = self._is_said = False
        except OSError as error:
            if not self._is_said:
                log.warning("%s cannot be written: %s", self._file, error.strerror)
            self._is_said = True
