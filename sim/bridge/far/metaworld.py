"""MetaWorld's 50 tasks of a Sawyer arm: ``metaworld:<task>``, such as ``metaworld:peg-insert-side-v3``.

Yu et al., "Meta-World", arXiv 1910.10897; package metaworld 3. The goal is seen, as the experts need it. Its classes
with a seen goal keep the first start of their seed for all episodes: here each episode draws its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE
from metaworld.policies import ENV_POLICY_MAP
from numpy.typing import NDArray

from .errors import BadInput
from .facts import Facts, Features, Spec
from .model_cameras import FilmedEnv, ModelCameras

FILM = "corner2"  # camera of videos
SAYS = (
    "an action moves the hand by up to 1 cm along x, y and z of the world, presses the fingers together (1) or apart",
    "observed are hand and fingers (proprio), objects and goal (objects), each also as one step before; metres",
    "success is its own and ends the episode with a reward of 1; its dense reward is left out",
)


def names() -> list[str]:
    """The tasks."""
    return sorted(ENV_POLICY_MAP)


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> MetaWorldSingle:
    """One world of ``metaworld:<task>``."""
    name = task.partition(":")[2]
    if name not in ENV_POLICY_MAP:
        raise BadInput("metaworld task", got=name, available=names())
    return MetaWorldSingle(name, task, tuple(cameras), image_size)


def facts(name: str, task: str, control_hz: float, limit: int, pictures: dict[str, Spec]) -> Facts:
    """Those of a task, by whatever it is simulated."""
    hand, things = ("hand.x", "hand.y", "hand.z", "fingers"), [f"object.{i}" for i in range(14)]
    before = [[f"before.{name}" for name in part] for part in (hand, things)]
    specs = {
        "proprio": Spec((8,), names=(*hand, *before[0])),
        "objects": Spec((31,), names=(*things, *before[1], "goal.x", "goal.y", "goal.z")),
        **pictures,
    }
    return Facts(
        observation=specs,
        action=4,
        control_hz=control_hz,
        embodiment="sawyer",
        task=task,
        prompt=name.rsplit("-v", 1)[0].replace("-", " "),
        max_episode_steps=limit,
        reports_success=True,
        demonstrates=True,
        says=SAYS,
    )


def features(raw: NDArray[np.float64]) -> Features:
    """The observation that MetaWorld's own numbers (…, 39) make."""
    return {
        "proprio": np.concatenate([raw[..., :4], raw[..., 18:22]], axis=-1).astype(np.float32),
        "objects": np.concatenate([raw[..., 4:18], raw[..., 22:39]], axis=-1).astype(np.float32),
    }


class MetaWorldSingle(FilmedEnv):
    """A MetaWorld env as an `AdapterEnv`; cameras by the names of its model."""

    def __init__(self, name: str, task: str, cameras: tuple[str, ...], image_size: int) -> None:
        self._env = ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{name}-goal-observable"](seed=0)
        self._env._freeze_rand_vec, self._env.seeded_rand_vec = False, True
        self._expert = ENV_POLICY_MAP[name]()
        self._cameras = ModelCameras(self._env, task, cameras, image_size, FILM)
        self._raw: NDArray[np.float64] = np.zeros(0)
        super().__init__(
            facts(name, task, float(1.0 / self._env.dt), int(self._env.max_path_length), self._cameras.specs)
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        """As in Gymnasium; MetaWorld takes its seed apart."""
        if seed is not None:
            self._env.seed(seed)
        self._raw, _ = self._env.reset()
        return self._features(), {"success": False}

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (4,) in [-1, 1]."""
        self._raw, _, _, truncated, info = self._env.step(np.asarray(action, np.float32))
        success = bool(info["success"])
        return self._features(), float(success), success, bool(truncated) and not success, {"success": success}

    def demonstrate(self) -> NDArray[np.float32]:
        """The action of MetaWorld's own policy of the task, which aims by the numbers that are observed."""
        return self._expert.get_action(self._raw)

    def _features(self) -> Features:
        return {**features(self._raw), **self._cameras.pictures()}
