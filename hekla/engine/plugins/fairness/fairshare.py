"""fairshare: who has used less of a queue goes first, older use counting for less.

Its arguments, and what is written down of its memory, are those of Volcano's plugin of the same
name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from hekla.api.text.times import stamp
from hekla.api.trees import Json, Tree
from hekla.engine.explain.amounts import amount
from hekla.engine.framework.heap import OrderKey
from hekla.engine.framework.plugin import ABSTAIN, REJECT, Arguments, Plugin, Reads, Source
from hekla.engine.framework.session import session_of
from hekla.engine.model.annotations import ACCOUNT, FAIR_SHARE_WEIGHT
from hekla.engine.model.queues.parties import account_of, marks_of, namespace_of, paths, user_of
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.queues.usage import Holding, Usage, amount_asked, amount_held
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.durations import instant

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView

_RESOURCE, _WEIGHT = "fairshare.resourceKey.", "fairshare.weight."
IDENTITIES = ("namespace", "user", "account")
SAVED = "FairShareUsage"
"""As which kind of object the state is told what was written down."""


class FairShareArguments(Arguments, frozen=True):
    made: ClassVar[frozenset[str]] = frozenset({"resources", "weights"})
    target_queues: str = msgspec.field(default="", name="fairshare.targetQueues")
    resource: str = msgspec.field(default="nvidia.com/gpu", name="fairshare.resourceKey")
    half_life: int | str = msgspec.field(default=240, name="fairshare.halfLifeMinutes")
    gate: bool = msgspec.field(default=False, name="fairshare.enableEnqueueGate")
    persist: bool = msgspec.field(default=False, name="fairshare.persistState")
    state_namespace: str = msgspec.field(default="", name="fairshare.stateNamespace")
    """Empty: that of the scheduler's lease."""
    state_config_map: str = msgspec.field(
        default="fairshare-usage-state", name="fairshare.stateConfigMap"
    )
    flush_interval: int | str = msgspec.field(default=30, name="fairshare.flushIntervalSeconds")
    state_file: str = msgspec.field(default="", name="fairshare.stateFile")
    identity: str = msgspec.field(default="namespace", name="fairshare.identity")
    order_queues: bool = msgspec.field(default=False, name="fairshare.orderQueues")
    resources: dict[str, str] = {}
    weights: dict[str, float] = {}

    @classmethod
    def accepts(cls, key: str) -> bool:
        return key.startswith((_RESOURCE, _WEIGHT))

    def extended(self, rest: Tree) -> FairShareArguments:
        for name, value in (
            ("fairshare.halfLifeMinutes", self.half_life),
            ("fairshare.flushIntervalSeconds", self.flush_interval),
        ):
            if not str(value).strip().isdecimal() or int(value) <= 0:
                raise ValueError(f"{name} = {value!r}: a whole number from 1 up")
        if self.identity not in IDENTITIES:
            raise ValueError(
                f"fairshare.identity = {self.identity!r}: one of {', '.join(IDENTITIES)}"
            )
        resources, weights = dict[str, str](), dict[str, float]()
        for key, value in rest.items():
            if key.startswith(_RESOURCE):
                if not isinstance(value, str) or not value:
                    raise ValueError(f"{key} = {value!r}: the name of a resource")
                resources[key.removeprefix(_RESOURCE)] = value
                continue
            try:
                weights[key.removeprefix(_WEIGHT)] = weight(value)
            except ValueError as error:
                raise ValueError(f"{key} = {value!r}: {error}") from None
        return msgspec.structs.replace(self, resources=resources, weights=weights)


def weight(value: object) -> float:
    """A weight, of a policy or an annotation.  Raises ValueError."""
    try:
        found = float(value)  # type: ignore[arg-type]  # what is no number is refused
    except (TypeError, ValueError):
        found = 0.0
    if isinstance(value, bool) or not math.isfinite(found) or found <= 0:
        raise ValueError("a weight is a number above 0")
    return found


class FairShare(Plugin):
    """Orders the jobs of a queue by what their party has used, divided by its weight.

    A party is a namespace, a user, or a user below an account; accounts form a tree, in which
    siblings are compared first.
    """

    name = "fairshare"
    Arguments = FairShareArguments
    arguments: FairShareArguments
    reads = Reads(
        clock=True,
        queue_order=Source.OWN_JOBS,
        between_placements=Source.JOBS,
        nodes=Source.NODES,
        victims=Source.PREEMPTOR,
    )

    def __init__(self, arguments: FairShareArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.targets = frozenset(
            name.strip() for name in arguments.target_queues.split(",") if name.strip()
        )
        self.half_life = 60.0 * int(arguments.half_life)
        self.accounts: dict[str, str | None] | None = None
        """What namespaces say of their accounts, when holdings were last looked at."""
        if arguments.gate:
            self.job_enqueueable = self._job_enqueueable  # type: ignore[method-assign]  # only with the gate
        if arguments.order_queues:
            self.queue_order = self._queue_order  # type: ignore[method-assign]  # only when asked for

    def open(self, session: CycleView) -> None:
        self.session = session
        state = session.state
        jobs = state.job_table
        usage = jobs.usage
        first = usage is None
        if usage is None:
            usage = jobs.usage = Usage()
            usage.changed.update(state.jobs)
            for tree in state.others.get(SAVED, {}).values():
                restore(usage, tree)
        self.usage = usage
        self.namespaces = state.others.get("Namespace", {})
        accounts = (
            {name: self._marks(name).get(ACCOUNT) for name in self.namespaces}
            if self.arguments.identity == "account"
            else {}
        )
        if accounts != self.accounts:  # as in the plugin's first cycle
            self.accounts = accounts
            usage.changed.update(state.jobs)
        if first:  # What runs ran on while nobody was counting.
            usage.look_again(state.jobs, self.holding)
        usage.advance(session.now, self.half_life)
        usage.look_again(state.jobs, self.holding)
        self.keys: dict[str, dict[str, OrderKey]] = {}
        """Queue -> job -> its place; worked out when it is first asked for."""
        self.totals: dict[str, dict[str, float]] = {}
        """Queue -> what each party and each account above one has used."""
        self.fair: dict[str, dict[str, float]] = {}
        """Queue -> party -> what it should have at most now."""

    def close(self, session: CycleView) -> None:
        usage = self.usage
        for job in session.touched.values():
            usage.look(job, self.holding(job))
        for queue, parties in usage.used.items():
            for party, used in parties.items():
                session.metric("namespace_decayed_usage", used, namespace_name=party, queue=queue)
        warn = session_of(session).warn_once
        for name in self.namespaces:
            said = self._marks(name).get(FAIR_SHARE_WEIGHT)
            warn("Namespace", name, "UnreadableAnnotation", _problem(said))

    # ---------------------------------------------------------------------------------------- parties

    def applies(self, queue: str) -> bool:
        return not self.targets or queue in self.targets

    def resource_of(self, queue: str) -> str:
        return self.arguments.resources.get(queue, self.arguments.resource)

    def party(self, job: Job) -> str:
        """Whose job it is: a path, the account's parts first."""
        identity = self.arguments.identity
        if identity == "namespace":
            return namespace_of(job)
        user = user_of(job)
        if identity == "user":
            return user
        account = account_of(job, self.namespaces)
        return f"{account}/{user}" if account else user

    def holding(self, job: Job) -> Holding | None:
        if job.contribution is None or not self.applies(job.queue):
            return None
        held = amount_held(job, self.resource_of(job.queue))
        return Holding(job.queue, self.party(job), held) if held else None

    def weight_of(self, path: str) -> float:
        """Of a party or an account."""
        stated = self.arguments.weights.get(path)
        if stated is not None:
            return stated
        if self.arguments.identity == "namespace":
            try:
                return weight(self._marks(path).get(FAIR_SHARE_WEIGHT, 1))
            except ValueError:
                return 1.0
        return 1.0

    def _marks(self, namespace: str) -> Mapping[str, str]:
        return marks_of(self.namespaces.get(namespace))

    # -------------------------------------------------------------------------------- whose turn it is

    def job_order(self, job: Job) -> OrderKey:
        """For each account above the job and its party: what it has used, and what it would hold
        when the job's turn comes, both by weight."""
        if not self.applies(job.queue):
            return ()
        keys = self.keys.get(job.queue)
        if keys is None:
            keys = self.keys[job.queue] = self._places(job.queue)
        key = keys.get(job.key)
        if key is None:  # It has nothing waiting, and is compared as a victim.
            key = keys[job.key] = self._key(job.queue, self.party(job), {})
        return key

    def _places(self, queue: str) -> dict[str, OrderKey]:
        """Who comes how far, as if each took what it asks for in its turn: so parties that have used
        the same alternate within one cycle.

        Of one party's jobs the order is that of the other plugins.
        """
        session, resource = session_of(self.session), self.resource_of(queue)
        others = [plugin.job_order for plugin in session.hooks("job_order") if plugin is not self]
        waiting = sorted(
            (job for job in session.active_jobs() if job.queue == queue),
            key=lambda job: (*[order(job) for order in others], job.creation, job.key),
        )
        ahead: dict[str, dict[str, float]] = {job.key: {} for job in waiting}
        """Job -> account or party -> what its earlier jobs ask for."""
        lines: dict[str, list[Job]] = {}
        for job in waiting:
            lines.setdefault(self.party(job), []).append(job)
        depths = {path: path.count("/") for path in lines}
        for depth in range(max(depths.values(), default=0), -1, -1):
            # From the parties up: each account's jobs in the order that its own parts give.
            merged: dict[str, list[Job]] = {}
            for path, jobs in lines.items():
                if path.count("/") == depth:
                    taken = 0.0
                    for job in jobs:
                        ahead[job.key][path] = taken
                        taken += amount_asked(job, resource)
                    merged.setdefault(path.rpartition("/")[0], []).extend(jobs)
            if not depth:
                break
            lines = {path: jobs for path, jobs in lines.items() if path.count("/") != depth}
            for path, jobs in merged.items():
                jobs += lines.get(path, [])
                jobs.sort(key=lambda job: self._key(queue, self.party(job), ahead[job.key])[depth:])
                lines[path] = jobs
        return {job.key: self._key(queue, self.party(job), ahead[job.key]) for job in waiting}

    def _key(self, queue: str, party: str, ahead: Mapping[str, float]) -> OrderKey:
        used, held = self._used(queue), self._held(queue)
        parts: list[tuple[float, float]] = []
        for path in paths(party):
            weighs = self.weight_of(path)
            holds = held.get(path, 0.0) + ahead.get(path, 0.0)
            # Less than one resource-second is no difference.
            parts.append((math.floor(used.get(path, 0.0) / weighs), holds / weighs))
        return tuple(parts)

    def factor(self, queue: str, party: str) -> float:
        """From 1 for a party that has used nothing down to 0; a half where it has used the part of
        the queue's use that its weight, and those of the accounts above it, give it."""
        used = self._used(queue)
        total = sum(self.usage.used.get(queue, {}).values())
        if not total or party not in used:
            return 1.0
        share = 1.0
        for path in paths(party):
            above, depth = path.rpartition("/")[0], path.count("/")
            siblings = [
                one for one in used if one.count("/") == depth and one.rpartition("/")[0] == above
            ]
            share *= self.weight_of(path) / sum(self.weight_of(one) for one in siblings)
        return float(2.0 ** -(used[party] / total / share))

    def _used(self, queue: str) -> dict[str, float]:
        return self._with_accounts(queue, "used", self.usage.used.get(queue, {}))

    def _held(self, queue: str) -> dict[str, float]:
        return self._with_accounts(queue, "held", self.usage.held.get(queue, {}))

    def _with_accounts(self, queue: str, kind: str, of: Mapping[str, float]) -> dict[str, float]:
        known = self.totals.get(f"{kind} {queue}")
        if known is None:
            known = self.totals[f"{kind} {queue}"] = {}
            for party, amount in of.items():
                for path in paths(party):
                    known[path] = known.get(path, 0.0) + amount
        return known

    def _queue_order(self, queue: Queue) -> float:
        """What the queue's jobs have used by its weight, as a part of all that there is."""
        resource = self.resource_of(queue.name)
        total = self.session.total.get(resource, 0.0)
        if not self.applies(queue.name) or not total:
            return 0.0
        used = sum(self.usage.used.get(queue.name, {}).values())
        return math.floor(used / max(queue.weight, 1)) / total

    # ----------------------------------------------------------------------------------- who may enter

    def _job_enqueueable(self, job: Job) -> int:
        """Who holds what is fair now, or more, waits outside."""
        if not self.applies(job.queue):
            return ABSTAIN
        resource, party = self.resource_of(job.queue), self.party(job)
        shares = self.fair.get(job.queue)
        if shares is None:
            shares = self.fair[job.queue] = self._fair_shares(job.queue, resource)
        share = shares.get(party)
        asked = amount_asked(job, resource) or (job.min_resources or {}).get(resource, 0.0)
        held = self.usage.held.get(job.queue, {}).get(party, 0.0)
        if share is None or held < share or not asked:
            return ABSTAIN
        self.session.refuse(
            job,
            f"{party} holds {amount(resource, held)} of its fair share of "
            f"{amount(resource, share)} {resource} in queue {job.queue}",
        )
        return REJECT

    def _fair_shares(self, queue: str, resource: str) -> dict[str, float]:
        wanted = dict(self.usage.held.get(queue, {}))
        for job in self.session.active_jobs():
            if job.queue == queue:
                asked = amount_asked(job, resource)
                if not job.tasks:
                    asked = (job.min_resources or {}).get(resource, 0.0)
                party = self.party(job)
                wanted[party] = wanted.get(party, 0.0) + asked
        own = self.session.state.queues[queue].capability.get(resource, 0.0)
        total = own or self.session.total.get(resource, 0.0)
        return fair_shares(wanted, total, {party: self.weight_of(party) for party in wanted})


def fair_shares(
    wanted: Mapping[str, float], total: float, weights: Mapping[str, float]
) -> dict[str, float]:
    """Max-min fair parts of a total: who wants less than its part leaves the rest to the others."""
    shares: dict[str, float] = {}
    left = {party: amount for party, amount in wanted.items() if amount > 0} if total > 0 else {}
    while left:
        each = total / sum(weights[party] for party in left)
        met = [party for party, amount in left.items() if amount <= each * weights[party]]
        for party in met or list(left):
            shares[party] = left[party] if met else each * weights[party]
        if not met:
            break
        for party in met:
            total -= left.pop(party)
    return shares


def restore(usage: Usage, tree: Tree) -> None:
    """Go on from what was written down; what cannot be understood of it is left out."""
    at = instant(str(tree.get("lastCycle", "")))
    queues: dict[str, dict[str, float]] = {}
    for queue, parties in _items(tree.get("queues")):
        kept = {
            str(party): float(used)
            for party, used in _items(parties)
            if isinstance(used, int | float) and math.isfinite(used) and used > 0
        }
        if kept:
            queues[str(queue)] = kept
    usage.restore(at, queues)


def written(usage: Usage) -> Json:
    """What is written down, which `restore` reads."""
    return {
        "lastCycle": stamp(usage.at),
        "queues": {queue: dict(parties) for queue, parties in sorted(usage.used.items())},
    }


def _items(of: object) -> Iterable[tuple[object, object]]:
    return of.items() if isinstance(of, Mapping) else ()


def _problem(said: str | None) -> str:
    try:
        weight(1 if said is None else said)
    except ValueError as error:
        return f"{FAIR_SHARE_WEIGHT}: {said!r}: {error}. Until then it counts as 1."
    return ""
