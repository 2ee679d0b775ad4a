"""resourcequota: a job enters only while its namespace's quotas have room for its minimum.
Reference: plugins-fairness 11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.api.text.quantity import Quantity
from hekla.api.trees import Tree
from hekla.engine.framework.plugin import PERMIT, REJECT, Plugin
from hekla.engine.model.reasons import Shortage
from hekla.engine.model.tasks import Job

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

Exact = dict[str, Quantity]


class ResourceQuota(Plugin):
    """Works on exact quantities, by name: `requests.cpu` is not `cpu`."""

    name = "resourcequota"

    def open(self, session: CycleView) -> None:
        self.session = session
        self.quotas: dict[str, list[tuple[Exact, Exact, str]]] = {}
        for _, tree in sorted(session.state.others.get("ResourceQuota", {}).items()):
            metadata = tree.get("metadata") or {}
            namespace = metadata.get("namespace", "")
            status = tree.get("status") or {}
            try:
                limits = (
                    _exact(status.get("hard")),
                    _exact(status.get("used")),
                    str(metadata.get("name", "")),
                )
            except (AttributeError, TypeError, ValueError) as error:
                session.decisions.problems.append(
                    f"resourcequota: a ResourceQuota of {namespace} is left out: {error}"
                )
                continue
            self.quotas.setdefault(namespace, []).append(limits)
        self.pending: dict[str, Exact] = {}

    def job_enqueueable(self, job: Job) -> int:
        if job.min_resources is None or job.namespace not in self.quotas:
            return PERMIT
        minimum = _exact(job.min_quantities)
        pending = self.pending.get(job.namespace, {})
        for hard, used, quota in self.quotas[job.namespace]:
            zero = Quantity(0)
            over = [
                name
                for name, asked in minimum.items()
                if name in hard
                and hard[name] < used.get(name, zero) + pending.get(name, zero) + asked
            ]
            if over:
                parts = ((minimum, "requested"), (used, "used"), (hard, "limited"))
                told = ", ".join(f"{word}: {_map(of, over)}" for of, word in parts)
                self.session.refuse(job, f"resource quota insufficient, {told}")
                job.shortages = tuple(
                    _shortage(
                        quota,
                        name,
                        minimum[name],
                        used.get(name, zero) + pending.get(name, zero),
                        hard[name],
                    )
                    for name in sorted(over)
                )
                return REJECT
        return PERMIT

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources is None or job.namespace not in self.quotas:
            return
        pending = self.pending.setdefault(job.namespace, {})
        for name, asked in _exact(job.min_quantities).items():
            pending[name] = pending[name] + asked if name in pending else asked


def _shortage(quota: str, name: str, asked: Quantity, held: Quantity, most: Quantity) -> Shortage:
    left = most - held if held < most else Quantity(0)
    beyond = str(asked - most) if asked > most else ""
    return Shortage(
        name,
        "",
        f"quota {quota}",
        str(asked),
        str(held),
        str(most),
        str(left),
        str(held + asked - most),
        beyond,
    )


def _exact(quantities: Tree | None) -> Exact:
    return {name: Quantity.parse(value) for name, value in (quantities or {}).items()}


def _map(of: Exact, over: list[str]) -> str:
    return "map[" + " ".join(f"{name}:{of[name]}" for name in sorted(over) if name in of) + "]"
