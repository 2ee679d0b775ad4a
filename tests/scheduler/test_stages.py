"""The watchdog names a cycle that is stuck: the part, the plugin, the stack."""

from __future__ import annotations

import threading
import time

from hekla.engine.cycle import cycle
from hekla.engine.framework.plugin import Plugin
from hekla.engine.world import World, policy
from hekla.scheduler.informers import NodeSelector
from hekla.scheduler.stages import Stages, Watchdog

released = threading.Event()
reached = threading.Event()


class Sleepy(Plugin):
    name = "sleepy"

    def job_order(self, job: object) -> int:
        reached.set()
        released.wait(10)
        return 0


def test_a_stuck_cycle_is_named_with_its_plugin_and_stack(caplog):
    made = World(policy(plugins=["gang", "sleepy"], actions="allocate", custom=[Sleepy]))
    made.nodes("n1")
    made.job("job", pods=1, cpu=1)
    stages = Stages()
    thread = threading.Thread(target=lambda: cycle(made.state, made.policy, made.now, stage=stages))
    thread.start()
    assert reached.wait(10)
    watchdog = Watchdog(stages, 5.0)
    watchdog.watched = thread.ident or 0

    watchdog.look(time.perf_counter() + 1)
    assert not caplog.records
    watchdog.look(time.perf_counter() + 6)
    watchdog.look(time.perf_counter() + 7)
    released.set()
    thread.join()

    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("cycle 1 is stuck: ")
    assert "in action allocate, plugin sleepy\n" in text
    assert "in job_order" in text
    assert not stages.cycle_began


def test_a_node_selector_takes_any_of_its_labels():
    selector = NodeSelector.parse(["pool: batch", "zone:a", "malformed", "empty:"])

    assert selector.admits({"metadata": {"labels": {"pool": "batch"}}})
    assert selector.admits({"metadata": {"labels": {"zone": "a"}}})
    assert not selector.admits({"metadata": {"labels": {"pool": "web"}}})
    assert NodeSelector.parse([]).admits({"metadata": {}})
