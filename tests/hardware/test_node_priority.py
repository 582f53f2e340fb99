"""Real-time priority of a node's threads, as the kernel has it: none while it is configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.realtime, pytest.mark.long]

PRIORITY = 8
PROGRAM = f"""
import json, os, threading
from hardware.node_parameters import PolicyParameters
from hardware.ros2.process import host
from hardware.ros2.runtime import Node, step_back

def schedule(thread=0):
    return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority

class Loading(Node):
    def configure(self):
        seen["configured"], stepped = schedule(), threading.Event()
        def work():
            ids.append(threading.get_native_id())
            step_back()
            stepped.set()
            threading.Event().wait()
        threading.Thread(target=work, daemon=True).start()
        threading.Thread(target=lambda: (others.append(threading.get_native_id()), threading.Event().wait()),
                         daemon=True).start()
        stepped.wait(10)

    def activate(self):
        seen["active"] = schedule()
        seen["storing"], seen["beside"] = schedule(ids[0]), schedule(others[0])
        self.done = True

seen, ids, others = {{}}, [], []
def make():
    return Loading("policy", PolicyParameters(), overrides={{"realtime_priority": {PRIORITY}, "contract": "sim"}})
code = host(make, [])
seen["ended"] = schedule()
print(json.dumps(seen), flush=True)
os._exit(code)
"""


def test_a_node_is_real_time_once_it_is_configured() -> None:
    """Loading a policy takes a core for seconds: at such a priority, from the nodes that hold an arm."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "ROS_DOMAIN_ID": str(int(os.environ["ROS_DOMAIN_ID"]) + 5),
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    if "no real-time priority" in ended.stderr:
        pytest.skip("this user may not have real-time priority")
    seen = json.loads(ended.stdout)
    ordinary, driving, other = [os.SCHED_OTHER, 0], [os.SCHED_FIFO, PRIORITY], [os.SCHED_FIFO, PRIORITY // 2]
    assert seen == {
        "configured": ordinary, "active": driving, "beside": driving, "storing": other, "ended": ordinary
    }  # fmt: skip
