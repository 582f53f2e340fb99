"""A world of another maker, which lives in an interpreter that has numpy and gymnasium only, with habits that occur."""

import os
import sys
import time
import warnings

import gymnasium
import numpy as np
from gymnasium import spaces

print("Other Maker's Simulator 3.1, loading assets")
warnings.warn("a renderer was not found", stacklevel=1)


class Odd(gymnasium.Env):
    """A point that an action pushes; its state is float64 in a dict of dicts. `habit` says what it does at step 2."""

    metadata = {"render_modes": [], "render_fps": 25}  # noqa: RUF012

    def __init__(self, habit=""):
        self.habit = habit
        state = spaces.Dict({"place": spaces.Box(-np.inf, np.inf, (2,), np.float64)})
        self.observation_space = spaces.Dict({"robot": state, "target": spaces.Box(-9, 9, (1,), np.float64)})
        self.action_space = spaces.Box(-2.0, 2.0, (2,), np.float64)
        if habit == "exits while made":
            sys.exit("no licence found")
        if habit == "dies while made":
            print("segmentation of the ground failed")
            os._exit(3)
        if habit == "slow":
            time.sleep(2.5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.place = 0, self.np_random.uniform(-1, 1, 2)
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        self.place = self.place + 0.1 * np.asarray(action)
        print("step", self.count)
        if self.count == 2:
            if self.habit == "hangs":
                hold_the_interpreter()
            if self.habit == "dies":
                print("out of patience")
                os._exit(7)
            if self.habit == "exits":
                sys.exit("the licence ran out")
            if self.habit == "asks":
                input("go on? ")
            if self.habit == "another shape":
                self.place = np.zeros(3)
            if self.habit == "nan":
                self.place[0] = np.nan
        return self._observe(), float(self.place[0]), False, False, {"is_success": self.count == 3}

    def _observe(self):
        return {"robot": {"place": self.place.copy()}, "target": np.array([0.5])}


def hold_the_interpreter():
    """A call into a library that never comes back, and lets no other thread of Python run meanwhile."""
    import ctypes

    ctypes.PyDLL(None).sleep(600)


class Interpreter(Odd):
    """Its place is what it sees of the interpreter: version, number of robolearn's libraries there."""

    def _observe(self):
        found = 0
        for name in ("robolearn", "sim", "torch", "tyro", "mujoco"):
            try:
                __import__(name)
                found += 1
            except ImportError:
                pass
        place = np.array([sys.version_info[1], found], np.float64)
        return {"robot": {"place": place}, "target": np.array([0.5])}


gymnasium.register("Odd-v0", entry_point=Odd, max_episode_steps=8)
gymnasium.register("Interpreter-v0", entry_point=Interpreter, max_episode_steps=8)
