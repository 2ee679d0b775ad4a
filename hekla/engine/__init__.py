"""The scheduler as a pure function: cluster state and policy in, decisions out.

It does no I/O, reads no clock and draws no random number.  A daemon, a simulator and a test all use
the same edge:

    from hekla.engine import State, cycle, read_policy

    state = State(scheduler_names=["volcano"], bare_pod_schedulers=["default-scheduler"])
    policy = read_policy(yaml_tree)      # PolicyError lists every problem; keep the one in force

    # Objects as hekla.api types or as their JSON trees, whenever they change.  Never raises for
    # what an object says: state.rejected[(kind, key)] tells what was left out and why.
    state.upsert_node(node)
    state.remove_node(name)
    state.upsert_pod(pod)
    state.remove_pod(key)
    state.upsert_pod_group(group)
    state.upsert_queue(queue)
    state.upsert_priority_class(priority)
    state.upsert_namespace(namespace)
    state.upsert_other("PodDisruptionBudget", budget)      # whatever else plugins read

    decisions = cycle(state, policy, now=time.time())

What it decides is assumed at once, so the next cycle may be computed while the last one's binds are
still on their way:

- `decisions.binds`: the pod holds its room (status Binding) from now on.  The watch event of the
  bound pod confirms it; pod events that still show no node are ignored meanwhile.  If the server
  refuses: `state.bind_failed(pod_key)`, and the pod is pending again.
- `decisions.evictions`: the pod is on its way out (Releasing); its room can be promised, not yet
  taken.  Its deletion event frees it.  If the server refuses: `state.evict_failed(pod_key)`.
- `decisions.pod_groups`: full statuses to be written; made only where they differ from the last one
  that was decided or seen. If a write fails, feed the object as it is on the server
  (`upsert_pod_group`), and the next cycle decides it again.
- `decisions.conditions`, `.queues`, `.events`, `.gates`, `.metrics`: to be written or published,
  each only when new.
- `decisions.explanations`: job key -> why it waits.

Bare pods: an unassigned pod of one of `bare_pod_schedulers` without a PodGroup is a job of its own,
key `namespace/pod name`, minimum 1, in the default queue; no PodGroup status is decided for it.
With `State(implied_groups=True)` a pod of `scheduler_names` that stands alone is one too, with the
key, queue and minimum of the PodGroup that the controllers would make for it.

A cycle in which nothing changed returns at once, so call it again after one that decided something,
and after every burst of events.  A cycle costs what changed, not what exists.
"""

from __future__ import annotations

from hekla.engine.cycle import cycle
from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.model.decisions import Bind, Decisions, Evict
from hekla.engine.model.state import State
from hekla.engine.policies import read_policy

__all__ = ["Bind", "Decisions", "Evict", "Policy", "PolicyError", "State", "cycle", "read_policy"]
