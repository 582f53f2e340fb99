"""Worlds of which the first one's episodes are noted as clips, for a page that plays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Interface, Observation, StepResult
from robolearn.core.scene import Scene
from robolearn.rollout.engine import execute


@dataclass
class Clip:
    """One episode of the first world."""

    number: int  # the how-many-th of that world, from 0
    # before each control step: (n,) joints [rad], (arms,) openings of the grippers [m], what stands around
    frames: list[tuple[NDArray[np.float64], NDArray[np.float64], Scene]] = field(default_factory=list)
    outcome: str = ""  # in a word, once it has ended
    note: str = ""  # what was known of the work when it ended


class ClipPlayer(Protocol):
    """The page that plays clips; `wants` is true while it is looked at and no clip waits."""

    @property
    def wants(self) -> bool: ...

    def give(self, clip: Clip) -> None: ...

    def close(self) -> None: ...


class WatchedEnv:
    """A `ChunkEnv`: `env`, whose first world is shown on a page. `joints`: how many each arm has; in the `proprio` of
    an arm they come first, and then the opening of its gripper."""

    def __init__(self, env: Any, player: ClipPlayer, joints: Sequence[int]) -> None:
        self._env, self.player = env, player
        names = env.interface.observation["proprio"].names
        self._openings = [i for i, name in enumerate(names) if name.endswith("gripper_width")]
        self._joints = [i for at, n in zip(self._openings, joints, strict=True) for i in range(at - n, at)]
        self.num_envs: int = env.num_envs
        self.interface: Interface = env.interface
        self.task: str = env.task
        self.prompt: str = env.prompt
        self.max_episode_steps: int = env.max_episode_steps
        self.reports_success: bool = env.reports_success
        self.continuing: bool = env.continuing
        self.steps_together: bool = env.steps_together
        self.note = ""
        self._observation: Observation = {}
        self._number = -1
        self.clip: Clip | None = None  # of the running episode, where it is noted from its beginning

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        self._observation, infos = self._env.reset(seed=seed, options=options)
        self._begin()
        return self._observation, infos

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        if active is None or active[0]:
            self._note(self._observation)
        result = self._env.step(actions, active)
        self._observation, _, terminated, truncated, infos = result
        if (active is None or active[0]) and (terminated[0] or truncated[0]):
            self._ended(infos.get("success"))
        return result

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        if self.clip is None:
            result = self._env.step_chunk(chunks, active)
        else:
            result = self._noted_chunk(chunks, np.ones(self.num_envs, np.bool_) if active is None else active)
        self._observation, _, terminated, truncated, infos = result
        if (active is None or active[0]) and (terminated[0] or truncated[0]):
            self._ended(infos.get("success"))
        return result

    def snapshot(self) -> dict[str, NDArray] | None:
        return self._env.snapshot()

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        """See `Env.restore`; the running episode is not shown."""
        self._observation, self.clip = self._env.restore(snapshot), None
        return self._observation

    def frame(self, world: int = 0) -> NDArray[np.uint8] | None:
        return self._env.frame(world)

    def close(self, **kwargs: Any) -> None:
        """Close the page and the worlds."""
        self.player.close()
        self._env.close(**kwargs)

    # ---------------------------------------------------------------------------------------------------------

    def _noted_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_]) -> StepResult:
        def before(a: int, observation: Observation, going: NDArray[np.bool_]) -> None:
            if going[0]:
                self._note(observation)

        return execute(self._env, chunks, active, self._observation, before).as_result()

    def _begin(self) -> None:
        self._number += 1
        self.clip = Clip(self._number) if self.player.wants else None

    def _note(self, observation: Observation) -> None:
        if self.clip is not None:
            proprio = observation["proprio"][0]
            joints, openings = (proprio[at].astype(np.float64) for at in (self._joints, self._openings))
            self.clip.frames.append((joints, openings, self._env.scene(0)))

    def _ended(self, success: NDArray[np.bool_] | None) -> None:
        if self.clip is not None:
            self.clip.outcome = "" if success is None else "solved" if success[0] else "not solved"
            self.clip.note = self.note
            self.player.give(self.clip)
        self._begin()
