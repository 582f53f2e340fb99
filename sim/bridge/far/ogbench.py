"""OGBench's cubes, moved by a UR5e: ``ogbench:cube-single`` to ``cube-octuple``.

Park et al., "OGBench", arXiv 2410.20092. Its own tasks are few and fixed. Here an episode is a piece of what its public
data are made of, in its mode for collecting: a scene and the goal of one cube are drawn, and its oracle demonstrates.
The goal, which OGBench hands over apart, is seen among the objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import ogbench  # noqa: F401 - registers its envs
from numpy.typing import NDArray
from ogbench.manipspace.oracles.markov.cube_markov import CubeMarkovOracle

from .errors import BadInput
from .facts import Facts, Features, Spec
from .model_cameras import FilmedEnv, ModelCameras

CUBES = {"cube-single": 1, "cube-double": 2, "cube-triple": 3, "cube-quadruple": 4, "cube-octuple": 8}
ARM = 19  # its first numbers: joints and their rates (6 each), hand, yaw (cos, sin), opening, contact
ARM_NAMES = (
    *(f"joint_{i}" for i in range(6)),
    *(f"joint_rate_{i}" for i in range(6)),
    *("hand.x", "hand.y", "hand.z", "hand.cos_yaw", "hand.sin_yaw", "opening", "contact"),
)
CUBE_NAMES = ("x", "y", "z", "qw", "qx", "qy", "qz", "cos_yaw", "sin_yaw")
CENTRE, SCALE = np.array([0.425, 0.0, 0.0]), 10.0  # of its positions: 10 (p − centre) of p in metres
NEAR = 0.04  # [m] of the goal is a success of OGBench
LIMIT = 200  # steps of an episode
FILM = "front"  # camera of videos
SAYS = (
    "an action moves the hand by up to 5 cm along x, y and z of the world, turns it by 0.3 rad, closes (1) the gripper",
    "positions are 10 (p - (0.425, 0, 0)) in metres, as OGBench gives them; goal: whose turn it is, where to, its yaw",
    "success is its own (within 4 cm) and ends the episode with a reward of 1; starts that are solved are drawn again",
)


def names() -> list[str]:
    """The tasks."""
    return list(CUBES)


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> OgbenchSingle:
    """One world of ``ogbench:<task>``."""
    name = task.partition(":")[2]
    if name not in CUBES:
        raise BadInput("ogbench task", got=name, available=names())
    return OgbenchSingle(name, task, tuple(cameras), image_size)


class OgbenchSingle(FilmedEnv):
    """A scene of cubes as an `AdapterEnv`; cameras by the names of its model."""

    def __init__(self, name: str, task: str, cameras: tuple[str, ...], image_size: int) -> None:
        made = gymnasium.make(f"{name}-v0", mode="data_collection", visualize_info=True, disable_env_checker=True)
        self._env = made.unwrapped
        self._count, self._steps = CUBES[name], 0
        self._oracle = CubeMarkovOracle(env=self._env, min_norm=0.4)
        self._env.reset(seed=0)
        self._cameras = ModelCameras(self._env, task, cameras, image_size, FILM)
        cubes = [f"cube_{i}.{part}" for i in range(self._count) for part in CUBE_NAMES]
        goal = (
            *(f"goal.is_cube_{i}" for i in range(self._count)),
            "goal.x",
            "goal.y",
            "goal.z",
            "goal.cos_yaw",
            "goal.sin_yaw",
        )
        specs = {
            "proprio": Spec((ARM,), names=ARM_NAMES),
            "objects": Spec((len(cubes) + len(goal),), names=(*cubes, *goal)),
            **self._cameras.specs,
        }
        super().__init__(
            Facts(
                observation=specs,
                action=5,
                control_hz=float(1.0 / self._env._control_timestep),
                embodiment="ur5e",
                task=task,
                prompt="put the cube in its place",
                max_episode_steps=LIMIT,
                reports_success=True,
                demonstrates=True,
                says=SAYS,
            )
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        """As in Gymnasium. The oracle draws from numpy's global generator, which is seeded for it."""
        self._raw, self._info = self._env.reset(seed=seed)
        while self._solved():  # 3% of the starts of one cube; the draws go on from the seed
            self._raw, self._info = self._env.reset()
        self._steps = 0
        if seed is not None:
            np.random.seed(seed % 2**32)
        self._oracle.reset(self._raw, self._info)
        return self._features(), {"success": False}

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (5,) in [-1, 1]."""
        self._raw, _, _, _, self._info = self._env.step(np.asarray(action, np.float64))
        self._steps += 1
        success = bool(self._info["success"])
        return self._features(), float(success), success, self._steps >= LIMIT and not success, {"success": success}

    def demonstrate(self) -> NDArray[np.float32]:
        """The action of OGBench's oracle, without the noise of its data."""
        return self._oracle.select_action(self._raw, self._info)

    def _solved(self) -> bool:
        """True where a start is a success before the first step, which alone reports it."""
        info = self._info
        place = info[f"privileged/block_{info['privileged/target_block']}_pos"]
        return bool(np.linalg.norm(place - info["privileged/target_block_pos"]) <= NEAR)

    def _features(self) -> Features:
        block, yaw = self._info["privileged/target_block"], self._info["privileged/target_block_yaw"][0]
        place = (self._info["privileged/target_block_pos"] - CENTRE) * SCALE
        goal = [*np.eye(self._count)[block], *place, np.cos(yaw), np.sin(yaw)]
        features: Features = {
            "proprio": self._raw[:ARM].astype(np.float32),
            "objects": np.concatenate([self._raw[ARM:], goal]).astype(np.float32),
        }
        return {**features, **self._cameras.pictures()}
