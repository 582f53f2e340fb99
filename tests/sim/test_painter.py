"""Processes that draw: the same pictures, none that outlives its parent, one clear error where one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import RobolearnError
from sim.embedded.camera import usual_processes
from sim.embedded.world import MujocoWorlds
from sim.tasks import TASKS

PARENT = """
import sys, time
from sim.registry import make_env

env = make_env("lift", 4, cameras=("front",), image_size=40, threads=1, render_processes=2)
env.reset(seed=0)
print("drawing", flush=True)
while True:
    env.step(env.action_space.sample())
"""


def children_of(pid: int) -> list[int]:
    """Process ids of living children, as the kernel lists them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(rest[1]) == pid and rest[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def is_there(pid: int) -> bool:
    """True where the process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def worlds(processes: int) -> MujocoWorlds:
    return MujocoWorlds(
        TASKS["pick_place"](), 5, cameras=("front", "wrist"), image_size=40, looks="wild", threads=1,
        render_processes=processes,
    )  # fmt: skip


@pytest.mark.long
def test_processes_draw_the_pictures_that_this_one_draws() -> None:
    """Of wild looks, in two episodes of each world, with a world that rests."""
    seen = []
    for processes in (0, 1, 3):
        env = worlds(processes)
        rng, found = np.random.default_rng(0), []
        for seed in (3, None):
            found.append(env.reset(seed=seed)[0])
            actions = rng.uniform(-1, 1, (5, 7)).astype(np.float32)
            found.append(env.step(actions, np.array([True, True, False, True, True]))[0])
        env.close()
        seen.append(found)
    for found in seen[1:]:
        for one, other in zip(seen[0], found, strict=True):
            for key, value in one.items():
                np.testing.assert_array_equal(other[key], value)
    front = seen[0][0]["images.front"]
    assert len(np.unique(front.reshape(5, -1), axis=0)) == 5 and np.any(front != seen[0][2]["images.front"])


@pytest.mark.long
def test_no_process_outlives_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "drawing\n"
        children = children_of(parent.pid)
        assert len(children) == 2
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    end = time.monotonic() + 20.0
    while any(map(is_there, children)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_there, children))


@pytest.mark.long
def test_a_process_that_dies_is_one_clear_error() -> None:
    before = set(children_of(os.getpid()))
    env = worlds(2)
    env.reset(seed=0)
    children = sorted(set(children_of(os.getpid())) - before)
    assert len(children) == 2
    os.kill(children[1], signal.SIGKILL)
    with pytest.raises(RobolearnError, match="a process that draws pictures was killed by SIGKILL"):
        env.step(np.zeros((5, 7), np.float32))
    assert not any(map(is_there, children))  # the other one has been ended, too
    with pytest.raises(RobolearnError, match="these worlds cannot be drawn any more"):
        env.step(np.zeros((5, 7), np.float32))
    env.close()


def test_many_worlds_are_drawn_by_a_process_for_each_thread() -> None:
    assert [usual_processes(n, threads) for n, threads in ((64, 2), (64, 1), (15, 2), (16, 2), (64, 32))] == [
        2, 0, 0, 2, 8,
    ]  # fmt: skip
