"""`robolearn record` by a SpaceMouse, emulated below the library that reads it, that is unplugged and comes back."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arm_listener import Listener
from emulated_devices import Hands
from teaching import Terminal, until

from hardware.ros2.process import Background

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9


def test_a_mouse_that_is_unplugged_comes_back_before_start(tmp_path: Path) -> None:
    """Its episode is dropped and the arm stops; START begins nothing without it, and the next episode with it."""
    terminal, mouse, out = Terminal(), Hands("spacemouse"), tmp_path / "data"
    with Background(DOMAIN) as ros:
        listener = Listener(context=ros.context)
        listener.start()
        ros.add(listener)
        process = mouse.run(
            "record", "--robot", "sim", "--teleop", "spacemouse", "--episodes", 1, "--view", "none", "--domain", DOMAIN,
            "--out", out, "--json", log=terminal.program, stdin=terminal.program,
        )  # fmt: skip
        try:
            terminal.wait("press Start")
            terminal.type("\r")
            terminal.wait("recording · ")
            mouse("push", 0, 0, -200)
            time.sleep(1.0)
            mouse("unplug")
            until(lambda: listener.state == "latched", "the arm stops", 3.0)
            terminal.wait("ress Start when it is back")
            terminal.type("\r")
            time.sleep(3.0)
            since = time.time()
            assert listener.state == "latched", "nothing begins without it"
            mouse("plug")
            time.sleep(2.5)
            assert listener.state == "latched" and listener.moved(since) < 1e-6, "nothing moves by itself"
            terminal.type("\r")
            terminal.wait("recording · ")
            mouse("push", 0, 0, -200)
            time.sleep(1.0)
            mouse("push")
            terminal.type("1")
            result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)
            mouse.close()
            print(terminal.seen[-3000:])
            terminal.close()
    assert process.returncode == 0, result
    assert (result["recorded"], result["successes"], result["dropped"], result["violations"]) == (1, 1, 1, 0), result
