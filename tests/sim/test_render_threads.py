"""Contexts of several threads at once: a software renderer must not end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import threading, time
import mujoco
from sim.embedded.painter import RenderContext
from sim.registry import make_env

model = make_env("lift", 1, threads=1).model
end = time.monotonic() + {seconds}

def draw():
    data, context = mujoco.MjData(model), RenderContext(model, (84, 84), fine=False)
    while time.monotonic() < end:
        context.place(data)
        context.draw(data, "front")
        context.draw(data, "wrist")
    context.close()

threads = [threading.Thread(target=draw) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("whole")
"""


def test_eight_threads_draw_without_a_crash() -> None:
    """Without a lock Mesa 22.3 ended this process with a segmentation fault within 15 s, three times of three."""
    program = [sys.executable, "-c", PROGRAM.format(seconds=30)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "whole"), done.stderr[-2000:]
