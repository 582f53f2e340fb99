"""N worlds of a foreign library as one `gymnasium.vector.VectorEnv` that implements `robolearn.core.Env`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Observation, RobolearnError, StepResult
from sim.bridge.pools import Pool, interface_of
from sim.vector import checked_chunks, declare, first_starts

log = logging.getLogger(__name__)


class AdapterVectorEnv(gymnasium.vector.VectorEnv):
    """N worlds in SAME_STEP autoreset mode, with chunks. See `robolearn.core.Env` for the contract.

    ``infos["final_obs"]`` holds, for every world, the observation right after the executed actions: the last one of
    the episode where ``infos["_final_obs"]`` is true, and the same as the returned observation elsewhere. So it is
    the ``next_observation`` of every world's transition.

    Args:
      pool: the worlds, in this process or in workers; closed by `close`.
      reports_success: a step of the env is known to report success already.

    Attributes:
      reports_success: the task defines a success; ``infos["success"]`` exists then and only then. It becomes true,
        for good, with the first step whose info holds a success.
      continuing: episodes end by the time limit alone.
      max_episode_steps: 0 where the length of an episode is unknown.
      demonstrates: these worlds have an expert of their own, for `demonstrate`.
      says: units, frames and success in words.
    """

    steps_together = False

    def __init__(self, pool: Pool, num_envs: int, *, reports_success: bool = False) -> None:
        facts = pool.facts
        self._pool = pool
        self._broken = ""
        self.num_envs = num_envs
        self.interface = interface_of(facts)
        self.task = facts.task
        self.prompt = facts.prompt
        self.max_episode_steps = facts.max_episode_steps
        self.reports_success = reports_success or facts.reports_success
        self.continuing = facts.continuing
        self.demonstrates = facts.demonstrates
        self.says = facts.says
        declare(self, self.interface)
        self._seed: int | None = None
        for note in facts.notes:
            log.info("%s: %s", facts.task, note)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """Restart all worlds.

        Args:
          seed: the j-th start of world w depends on (seed, start id of w, j) alone. None goes on in that sequence,
            or, before the first seed, begins one at random.
          options: see `robolearn.core.Env`; by default the start id of world w is w.

        Raises:
          BadInput: another option, or ids of another shape.
        """
        ids, first = first_starts(options, self.num_envs)
        restart = seed is not None or ids is not None or self._seed is None
        if seed is not None:
            self._seed = int(seed)
        elif self._seed is None:
            self._seed = int(np.random.SeedSequence().generate_state(1)[0])
        numbers = np.arange(self.num_envs) if ids is None else ids
        with self._whole():
            block = self._pool.block
            block.active[:] = True
            block.starts[:] = np.stack([np.full(self.num_envs, self._seed), numbers, first], axis=1)
            self._pool.reset(begin=restart)
        return _copy(block.observation), {}

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """One control step; `actions` (N, Da) in [-1, 1]. Worlds outside `active` (N,) rest."""
        actions = np.asarray(actions, np.float32)
        if actions.shape != self.action_space.shape:
            raise BadInput("actions", got=f"shape {actions.shape}", expected=self.action_space.shape)
        return self.step_chunk(actions[:, None], active)

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """Execute `chunks` (N, Ta, Da); see `robolearn.core.Env.step_chunk`.

        Raises:
          BadInput: another shape.
          NonFinite: a NaN or infinite action.
          RobolearnError: a world failed or its process died; the env is of no use afterwards.
        """
        n = self.num_envs
        chunks, live = checked_chunks(chunks, n, self._action_shape[0], active)
        steps = chunks.shape[1]
        with self._whole():
            self._pool.room_for(steps)
            block = self._pool.block
            block.active[:] = live
            np.clip(chunks, -1.0, 1.0, out=block.actions[:, :steps])
            self._pool.chunk(steps)
        executed = np.where(live, block.steps, 0)
        terminated, truncated = live & block.terminated, live & block.truncated
        ended = terminated | truncated
        rewards = np.where(np.arange(steps) < executed[:, None], block.rewards[:, :steps], 0.0).astype(np.float32)
        observation = final = _copy(block.observation)
        if ended.any():
            final = _copy(block.observation)
            for key, value in final.items():
                value[ended] = block.final[key][ended]
        self.reports_success |= bool((block.success[live] >= 0).any())
        infos: dict[str, Any] = {"steps": executed, "step_rewards": rewards, "final_obs": final, "_final_obs": ended}
        if self.reports_success:
            infos["success"] = live & (block.success > 0)
        return observation, rewards.sum(axis=1), terminated, truncated, infos

    def demonstrate(self, active: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """(N, Da) actions of the worlds' own experts in their present states; worlds outside `active` get zeros.

        Raises:
          BadInput: these worlds have no expert.
        """
        if not self.demonstrates:
            raise BadInput(f"expert of {self.task}", got="nothing", expected="a world that has one")
        live = np.ones(self.num_envs, bool) if active is None else np.asarray(active, bool)
        with self._whole():
            self._pool.block.active[:] = live
            self._pool.demonstrate()
        return np.where(live[:, None], self._pool.block.actions[:, 0], np.float32(0))

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Close the worlds where one fails: the answers of the others would be taken for those of the next request."""
        if self._broken:
            raise RobolearnError(f"this env cannot be used any more: {self._broken}")
        try:
            yield
        except BaseException as error:
            self._broken = str(error) or type(error).__name__
            self._pool.close()
            raise

    @property
    def _action_shape(self) -> tuple[int, ...]:
        return self.interface.action.shape

    def snapshot(self) -> None:
        """None: the state of a foreign env is not accessible."""
        return None

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        """Raises RobolearnError."""
        raise RobolearnError(f"{self.task} cannot be restored from a snapshot")

    def frame(self, world: int = 0) -> NDArray[np.uint8] | None:
        """An HWC picture of one world, or None where it cannot be drawn."""
        with self._whole():
            return self._pool.frame(world)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the worlds."""
        self._broken = self._broken or "it is closed"
        self._pool.close()


def _copy(observation: dict[str, NDArray]) -> dict[str, NDArray]:
    return {key: value.copy() for key, value in observation.items()}
