"""ALOHA, two ViperX arms above a table: ``aloha:transfer_cube`` and ``aloha:insertion``.

Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware", arXiv 2304.13705; package gym-aloha.
Its action space says [-1, 1], its actions are radians: here [-1, 1] spans the limits of each actuator. It draws three
pictures of 640 × 480 a step, whoever looks: here it draws what is observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gym_aloha.constants import JOINTS
from numpy.typing import NDArray

from .errors import BadInput
from .facts import Facts, Features, Spec
from .model_cameras import FilmedEnv, ModelCameras

TASKS = {
    "transfer_cube": ("AlohaTransferCube-v0", "pass the cube from the right hand to the left hand", ("cube",)),
    "insertion": ("AlohaInsertion-v0", "insert the peg into the socket, both held", ("peg", "socket")),
}
"""Name → its id, the task in words, and what lies on the table."""
SOLVED = 4  # the reward that is its success; 1 to 3 are stages on the way
FILM = "top"  # camera of videos
LEFT, RIGHT, ARM, GRIPPER = 0, 7, 6, 6  # of 14 numbers: where an arm begins, its joints, its gripper
SAYS = (
    "an action is where joints shall be, left arm then right: -1 and 1 are the limits of each, of the grippers closed, "
    "open; 0 is no rest",
    "observed are joints [rad], grippers (0 closed, 1 open), their rates, poses of the things [m, quaternion]",
    "success is its own (reward 4) and ends the episode with a reward of 1; its rewards for stages are left out",
)


def names() -> list[str]:
    """The tasks."""
    return list(TASKS)


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> AlohaSingle:
    """One world of ``aloha:<task>``."""
    name = task.partition(":")[2]
    if name not in TASKS:
        raise BadInput("aloha task", got=name, available=names())
    return AlohaSingle(name, task, tuple(cameras), image_size)


class AlohaSingle(FilmedEnv):
    """A gym-aloha env as an `AdapterEnv`; cameras by the names of its model."""

    def __init__(self, name: str, task: str, cameras: tuple[str, ...], image_size: int) -> None:
        env_id, prompt, things = TASKS[name]
        made = gymnasium.make(f"gym_aloha:gym_aloha/{env_id}", obs_type="pixels_agent_pos", disable_env_checker=True)
        self._env = made.unwrapped
        inner = self._env._env
        physics, self._task = inner.physics, inner.task
        self._task.get_observation = self._observe  # its own draws
        model = physics.model.ptr
        self._cameras = ModelCameras(
            SimpleNamespace(model=model, data=physics.data.ptr), task, cameras, image_size, FILM
        )
        low, high = model.actuator_ctrlrange.T
        arms = [
            arm + joint for arm in (0, ARM + 2) for joint in range(ARM)
        ]  # each arm has two fingers behind its joints
        joints = [arm + joint for arm in (LEFT, RIGHT) for joint in range(ARM)]
        self._low, self._high = np.zeros(len(JOINTS)), np.ones(len(JOINTS))
        self._low[joints], self._high[joints] = low[arms], high[arms]
        self._steps, limit = 0, int(made.spec.max_episode_steps)  # type: ignore[union-attr]
        poses = [f"{thing}.{part}" for thing in things for part in ("x", "y", "z", "qw", "qx", "qy", "qz")]
        specs = {
            "proprio": Spec((2 * len(JOINTS),), names=(*JOINTS, *(f"{joint}.rate" for joint in JOINTS))),
            "objects": Spec((len(poses),), names=tuple(poses)),
            **self._cameras.specs,
        }
        super().__init__(
            Facts(
                observation=specs,
                action=len(JOINTS),
                control_hz=float(1.0 / inner.control_timestep()),
                embodiment="aloha",
                task=task,
                prompt=prompt,
                max_episode_steps=limit,
                reports_success=True,
                says=SAYS,
            )
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        """As in Gymnasium. Without a seed it would draw from none: the start is drawn by one of ours."""
        super().reset(seed=seed)
        self._steps = 0
        self._env.reset(seed=int(self.np_random.integers(2**31)) if seed is None else seed)
        return self._features(), {"success": False}

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (14,) in [-1, 1]."""
        # a_env = low + (a + 1) / 2 (high − low)
        joints = self._low + 0.5 * (np.asarray(action, np.float64) + 1.0) * (self._high - self._low)
        _, reward, *_ = self._env.step(joints)
        self._steps += 1
        success = reward == SOLVED
        late = self._steps >= self.facts.max_episode_steps and not success
        return self._features(), float(success), success, late, {"success": success}

    def _observe(self, physics: Any) -> dict[str, Any]:
        """The observation that its task hands to its env, without pictures: those that the env asks for are empty."""
        parts = [self._task.get_qpos(physics), self._task.get_qvel(physics)]
        self._seen: Features = {
            "proprio": np.concatenate(parts).astype(np.float32),
            "objects": np.asarray(self._task.get_env_state(physics), np.float32),
        }
        return {"qpos": parts[0], "images": {"top": np.zeros(0, np.uint8)}}

    def _features(self) -> Features:
        return {**self._seen, **self._cameras.pictures()}
