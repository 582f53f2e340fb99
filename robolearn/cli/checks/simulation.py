"""Worlds and their cameras."""

from __future__ import annotations

from robolearn.cli.checks.machine import Check, Machine

#: Without cameras first: what was printed stays valid when GL then aborts the process.
WORLDS = """
import json, os, time
from importlib.metadata import version
from sim.registry import make_env
import numpy as np

env = make_env("lift", 1, threads=1)
env.reset(seed=0)
action = np.zeros((1, *env.single_action_space.shape), np.float32)
env.step(action)
began = time.perf_counter()
for _ in range(20):
    env.step(action)
print(json.dumps({"mujoco": version("mujoco"), "steps_per_s": 20 / (time.perf_counter() - began)}), flush=True)

env = make_env("lift", 1, cameras=("front",), threads=1)
env.reset(seed=0)
began = time.perf_counter()
for _ in range(5):
    observation = env.step(action)[0]
fps = 5 / (time.perf_counter() - began)
assert observation["images.front"].std() > 1, "the picture is empty"
try:
    from OpenGL import GL
    renderer = GL.glGetString(GL.GL_RENDERER).decode()
except Exception:
    renderer = ""
print(json.dumps({"gl": os.environ.get("MUJOCO_GL", "the display"), "renderer": renderer, "fps": fps}))
"""
SOFTWARE = ("llvmpipe", "softpipe", "swrast")


def worlds(machine: Machine) -> list[Check]:
    """A world of `lift`, stepped."""
    values = machine.worlds.values
    if "mujoco" not in values:
        return [Check("MuJoCo", False, machine.worlds.error, machine.install())]
    return [
        Check("MuJoCo", True, f"{values['mujoco']}; a world steps {values['steps_per_s'] / 20:.0f} times real time")
    ]


def cameras(machine: Machine) -> list[Check]:
    """A picture of `lift`, rendered."""
    values = machine.worlds.values
    if "fps" not in values:
        found = machine.worlds.error if "mujoco" in values else "not tried, because MuJoCo does not work"
        return [Check("GL for cameras", False, found, "sudo apt install libegl1 libgl1-mesa-dri")]
    software = any(name in values["renderer"].lower() for name in SOFTWARE)
    how = f"{values['gl']}, {values['renderer'].split(' (')[0]}" if values["renderer"] else values["gl"]
    slow = ", on the CPU" if software else ""
    return [Check("GL for cameras", True, f"{how}{slow}; {values['fps']:.0f} pictures/s of 96×96")]
