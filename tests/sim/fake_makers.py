"""Stand-ins of metaworld, ogbench and gym-pusht for the far interpreter: their interfaces, with numbers to reckon with.

The real ones are in `make test-worlds`; signatures and habits here are those of metaworld 3.1.1, ogbench 1.2.2 and
gym-pusht 0.1.8.
"""

from __future__ import annotations

from pathlib import Path

MODEL = """
import types
def model():
    vis = types.SimpleNamespace(quality=types.SimpleNamespace(), global_=types.SimpleNamespace(offwidth=1, offheight=1))
    return types.SimpleNamespace(ncam=0, vis=vis)
"""

# Observation i is the number i, but for hand.x, which is where the episode begins; closed fingers solve it.
METAWORLD = """
import gymnasium, numpy as np
from gymnasium.utils import seeding
from fake_model import model
class Reach(gymnasium.Env):
    max_path_length, dt = 6, 0.0125
    def __init__(self, seed=None, render_mode=None):
        self.model, self._freeze_rand_vec, self.seeded_rand_vec = model(), True, False
        self.seed(seed)
        self._last = self.np_random.uniform()
    def seed(self, seed):
        self.np_random, _ = seeding.np_random(seed)
    def reset(self, seed=None, options=None):  # its seed is of no effect
        self.count = 0
        if not self._freeze_rand_vec:
            self._last = (self.np_random if self.seeded_rand_vec else np.random).uniform()
        return self._observe(), {}
    def step(self, action):
        if self.count >= self.max_path_length:
            raise ValueError("You must reset the env manually once truncate==True")
        self.count += 1
        info = {"success": float(action[3] > 0.5)}
        return self._observe(), 7.5, False, self.count == self.max_path_length, info
    def _observe(self):
        return np.concatenate([[self._last], np.arange(1.0, 39.0)])
ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE = {"reach-v3-goal-observable": Reach}
"""
POLICIES = """
import numpy as np
class Policy:
    def get_action(self, obs):
        assert len(obs) == 39
        return np.array([obs[0], 0.0, -obs[38], 0.25])
ENV_POLICY_MAP = {"reach-v3": Policy}
"""

# Most starts lie within 4 cm of the goal; closing the gripper solves it. Observation i of the arm is the number i.
OGBENCH = """
import gymnasium, numpy as np
from fake_model import model
class Cube(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (28,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (5,), np.float32)
    _control_timestep = 0.05
    def __init__(self, mode="task", visualize_info=False, env_type="single"):
        assert mode == "data_collection"
        self.model = model()
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([0.525 + self.np_random.uniform(-0.05, 0.05), 0.1, 0.02])
        return self._observe(), self._info()
    def step(self, action):
        return self._observe(), 0.0, False, False, {**self._info(), "success": bool(action[4] > 0.5)}
    def _observe(self):
        return np.concatenate([np.arange(19.0), 10 * (self.place - [0.425, 0, 0]), np.arange(6.0)])
    def _info(self):
        goal = {"block": 0, "block_pos": np.array([0.525, 0.1, 0.02]), "block_yaw": np.array([np.pi / 2])}
        goal = {f"privileged/target_{key}": value for key, value in goal.items()}
        return {**goal, "privileged/block_0_pos": self.place.copy()}
gymnasium.register("cube-single-v0", entry_point=Cube, max_episode_steps=200, kwargs={"env_type": "single"})
"""
ORACLE = """
import numpy as np
class CubeMarkovOracle:
    def __init__(self, max_step=200, env=None, min_norm=0.4):
        self.aim = None
    def reset(self, ob, info):
        self.aim = np.random.uniform(-1, 1, 5)
    def select_action(self, ob, info):
        assert len(ob) == 28 and "privileged/block_0_pos" in info
        return self.aim
"""

# The share that is covered is the place of the disc along x; the last command is a white mark, as large as the picture.
PUSHT = """
import gymnasium, numpy as np
class PushT(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(np.zeros(5), np.array([512, 512, 512, 512, 2 * np.pi]), dtype=np.float64)
    action_space = gymnasium.spaces.Box(0, 512, (2,), np.float32)
    def __init__(self, obs_type="state", render_mode="rgb_array"):
        assert obs_type == "state"
        self.render_mode, self._last_action = render_mode, None
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(50, 450, 5)
        return self.state.copy(), {"is_success": False}
    def step(self, action):
        self._last_action = action
        self.state[:2] = action
        coverage = action[0] / 512
        solved = coverage > 0.95
        info = {"is_success": solved, "coverage": coverage}
        return self.state.copy(), np.clip(coverage / 0.95, 0.0, 1.0), solved, False, info
    def render(self):
        marked = self._last_action is not None
        return np.full((680, 680, 3), 255 if marked else self.state[0] // 2, np.uint8)
gymnasium.register("gym_pusht/PushT-v0", entry_point=PushT, max_episode_steps=300, kwargs={"obs_type": "state"})
"""

FILES = {
    "mujoco.py": "",
    "fake_model.py": MODEL,
    "metaworld/__init__.py": "",
    "metaworld/env_dict.py": METAWORLD,
    "metaworld/policies.py": POLICIES,
    "ogbench/__init__.py": OGBENCH,
    "ogbench/manipspace/oracles/markov/cube_markov.py": ORACLE,
    "gym_pusht.py": PUSHT,
}


def write(python: str) -> None:
    """Write them where the interpreter `python` of an environment finds them."""
    site = next((Path(python).parents[1] / "lib").glob("python*/site-packages"))
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
