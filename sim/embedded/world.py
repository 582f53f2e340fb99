"""N worlds with an arm and a task, stepped together by `mujoco.batch.Batch` on a pool of threads.

Nothing here runs Python per world, except the drawing of a new start when an episode begins.

Set-points travel as they do behind the safety filter of a real arm (`robots.motion`), and take effect late by a
delay that differs from world to world, so that a policy means the same thing in both.

The trajectory of world w depends on (seed, w) and its actions alone: not on the number of threads, nor on the
number of worlds.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from robolearn.core.cpus import available_cpus
from robolearn.core.errors import BadInput, NonFinite
from robolearn.core.protocols import StepResult
from robolearn.core.specs import ArraySpec, Interface
from robots import CONTROL_HZ, PANDA, RobotSpec, make_control
from robots.motion import advance
from robots.proprio import proprio, proprio_spec
from sim.embedded.camera import Cameras
from sim.embedded.physics import Physics
from sim.embedded.task import Array, State, Task

log = logging.getLogger(__name__)


class MujocoWorlds(VectorEnv):
    """A `robolearn.core.ChunkEnv` on MuJoCo's batched engine.

    Args:
      task: what is to be done.
      num_envs: number of worlds N.
      robot: the arm.
      action_kind: ``"tcp_delta"`` or ``"joint_position"``.
      cameras: names of cameras to observe (``"front"``, ``"side"``, ``"wrist"``); each adds ``images.<name>``.
      image_size: edge of the square camera observations [px].
      reward: ``"sparse"`` (1 on success) or ``"dense"``.
      randomise: give each world its own friction, mass and delay of commands.
      threads: worker threads; 0 uses every CPU that this process may run on.

    Raises:
      BadInput: an unknown camera, reward or action kind, or no GL for cameras.
    """

    steps_together = False

    def __init__(
        self,
        task: Task,
        num_envs: int,
        *,
        robot: RobotSpec = PANDA,
        action_kind: str = "tcp_delta",
        cameras: tuple[str, ...] = (),
        image_size: int = 96,
        reward: str = "sparse",
        randomise: bool = True,
        threads: int = 0,
    ) -> None:
        if num_envs < 1:
            raise BadInput("number of worlds", got=num_envs, expected="1 or more")
        if reward not in ("sparse", "dense"):
            raise BadInput("reward", got=reward, available=("sparse", "dense"))
        self.num_envs = num_envs
        self.robot = robot
        self.world_task = task
        self.task, self.prompt, self.max_episode_steps = task.name, task.prompt, task.max_episode_steps
        self._dense = reward == "dense"
        self._randomise = randomise
        self._control = make_control(action_kind, robot)
        self._physics = Physics(robot, task, num_envs, threads or available_cpus())
        self.model, self.batch = self._physics.model, self._physics.batch
        self._substeps = round(1.0 / CONTROL_HZ / task.timestep)
        self._cameras = Cameras(self.model, cameras, image_size)

        n_joints = len(robot.joints)
        observation = {
            "proprio": proprio_spec(robot),
            "objects": ArraySpec((len(task.observation_names),), names=task.observation_names),
            **self._cameras.specs,
        }
        self.interface = Interface(observation, self._control.spec, CONTROL_HZ, robot.name, action_kind)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_fps": CONTROL_HZ}
        self.single_observation_space = gym.spaces.Dict({k: _space(s) for k, s in observation.items()})
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, self._control.spec.shape, np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._seed = 0
        self._rngs: list[np.random.Generator] = []
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._delay = np.zeros(num_envs, dtype=np.int64)  # physics steps before a command takes effect
        self._goal, self._set_q, self._set_v = np.zeros((3, num_envs, n_joints))
        self._max_velocity, self._max_acceleration = np.array(robot.velocity), np.array(robot.acceleration)
        self._observation: dict[str, NDArray] = {}

    # --- Gymnasium -----------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray], dict[str, Any]]:
        """Begin a new episode in every world; with a seed, begin the whole sequence of episodes anew."""
        if seed is not None or not self._rngs:
            self._seed = int(np.random.default_rng().integers(2**63)) if seed is None else int(seed)
            self._rngs = [np.random.default_rng([self._seed, w]) for w in range(self.num_envs)]
            if self._randomise:
                self._delay = self._physics.randomise(self._rngs)
        self._begin(np.arange(self.num_envs))
        self._observation = self._observe(self._state())
        return self._observation, {"success": np.zeros(self.num_envs, dtype=bool)}

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """One control step; see `robolearn.core.Env.step`."""
        actions = self._shaped(actions, (self.num_envs, self._control.spec.size))
        return self._step(actions, None if active is None or active.all() else active)

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """See `robolearn.core.Env.step_chunk`."""
        n = self.num_envs
        chunks = self._shaped(chunks, (n, *np.shape(chunks)[1:2], self._control.spec.size))
        going = np.ones(n, dtype=bool) if active is None else active.copy()
        rewards, steps = np.zeros(chunks.shape[:2], dtype=np.float32), np.zeros(n, dtype=np.int64)
        terminated, truncated, success = (np.zeros(n, dtype=bool) for _ in range(3))
        final: dict[str, NDArray] = {}
        for i in range(chunks.shape[1]):
            steps += going
            _, r, term, trunc, infos = self._step(chunks[:, i], None if going.all() else going)
            rewards[:, i] = r
            terminated |= term
            truncated |= trunc
            success |= infos["success"]
            ended = infos["_final_obs"]
            if ended.any():
                for key, value in infos["final_obs"].items():
                    final.setdefault(key, np.zeros_like(value))[ended] = value[ended]
                going &= ~ended
                if not going.any():
                    break
        infos = {"success": success, "steps": steps, "step_rewards": rewards}
        infos |= {"final_obs": final, "_final_obs": terminated | truncated}
        return self._observation, rewards.sum(axis=1), terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        """Free the renderer."""
        self._cameras.close()

    # --- one control step ----------------------------------------------------------------------------------

    def _step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None) -> StepResult:
        if not self._rngs:
            raise BadInput("step", got="a step before the first reset", expected="env.reset(seed=...)")
        if not np.isfinite(actions).all():
            raise NonFinite(f"action of world {int(np.argwhere(~np.isfinite(actions))[0, 0])} is not finite")
        n = self.num_envs
        ids = None if active is None else np.flatnonzero(active)
        rows = np.arange(n) if ids is None else ids
        truth = self._truth
        tcp = truth.tcp_pos[rows], truth.tcp_rot[rows]
        goal, width = self._control.targets(truth.q[rows], tcp, actions[rows])
        broken = self._move(rows, goal, 0.5 * width)
        broken |= self._physics.astray()
        moved = np.ones(n, dtype=bool) if active is None else active
        self._elapsed += moved

        if broken.any():
            self._report_broken(broken)
        state = self._state()
        observation = self._observe(state)
        if broken.any():
            for key, value in observation.items():
                value[broken] = self._observation[key][broken]  # the last one that made sense
        alive = moved & ~broken
        success = alive & self.world_task.success(state)
        terminated = success | (alive & self.world_task.failure(state))
        truncated = (moved & (self._elapsed >= self.max_episode_steps) & ~terminated) | broken
        reward = (alive * self.world_task.dense_reward(state) if self._dense else success).astype(np.float32)

        ended = terminated | truncated
        infos: dict[str, Any] = {"success": success, "_final_obs": ended, "final_obs": {}}
        if ended.any():
            infos["final_obs"] = observation
            self._begin(np.flatnonzero(ended))
            observation = self._observe(self._state())
        self._observation = observation
        return observation, reward, terminated, truncated, infos

    def _move(self, rows: NDArray[np.int64], goal: Array, finger: Array) -> NDArray[np.bool_]:
        """One control step of physics in the worlds `rows`; (N,) which of them failed.

        Args:
          rows: (M,) worlds.
          goal: (M, n) joint set-points [rad].
          finger: (M,) set-points of each finger [m].
        """
        broken = np.zeros(self.num_envs, dtype=bool)
        everywhere = None if len(rows) == self.num_envs else rows
        for i in range(self._substeps):
            now = self._delay[rows] == i
            if now.any():
                self._goal[rows[now]] = goal[now]
                self._physics.command_fingers(rows[now], finger[now])
            advance(
                self._set_q, self._set_v, self._goal, self._max_velocity, self._max_acceleration,
                self.world_task.timestep, rows,
            )  # fmt: skip
            self._physics.command_arms(rows, self._set_q[rows])
            failed = self._physics.step(everywhere)
            if failed is not None:
                broken |= failed
        return broken

    def _shaped(self, actions: NDArray[np.float32], expected: tuple[int, ...]) -> NDArray[np.float32]:
        actions = np.asarray(actions)
        if actions.shape != expected:
            raise BadInput("actions", got=f"shape {actions.shape}", expected=expected)
        return actions

    def _state(self) -> State:
        self._truth = self._physics.state()
        return self._truth

    def _observe(self, state: State) -> dict[str, NDArray]:
        return {
            "proprio": proprio(state.q, state.width, state.tcp_pos, state.tcp_rot),
            "objects": self.world_task.observe(state).astype(np.float32),
            **self._cameras.render(self.batch),
        }

    def _begin(self, ids: NDArray[np.int64]) -> None:
        """Put the worlds `ids` at the start of a new episode."""
        self._goal[ids] = self._set_q[ids] = self._physics.begin(ids, self._rngs)
        self._set_v[ids] = 0.0
        self._elapsed[ids] = 0

    def _report_broken(self, broken: NDArray[np.bool_]) -> None:
        worlds = np.flatnonzero(broken)
        log.warning("physics diverged in world(s) %s of %s: reset", ", ".join(map(str, worlds)), self.task)
        self._physics.clear(worlds)

    # --- exact resume --------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, NDArray]:
        """Everything that the future of these worlds depends on."""
        rngs = json.dumps([rng.bit_generator.state for rng in self._rngs]).encode()
        return {
            "seed": np.array([self._seed]),
            "state": self.batch.state.copy(),
            "elapsed": self._elapsed.copy(),
            "motion": np.stack([self._goal, self._set_q, self._set_v]),
            "rngs": np.frombuffer(rngs, dtype=np.uint8).copy(),
        }

    def restore(self, snapshot: dict[str, NDArray]) -> dict[str, NDArray]:
        """Continue from `snapshot`; returns the current observation."""
        if snapshot["state"].shape != self.batch.state.shape:
            raise BadInput("snapshot", got=snapshot["state"].shape, expected=self.batch.state.shape)
        self.reset(seed=int(snapshot["seed"][0]))
        self.batch.state[:] = snapshot["state"]
        self._elapsed[:] = snapshot["elapsed"]
        self._goal[:], self._set_q[:], self._set_v[:] = snapshot["motion"]
        for rng, state in zip(self._rngs, json.loads(snapshot["rngs"].tobytes()), strict=True):
            rng.bit_generator.state = state
        self._observation = self._observe(self._state())
        return self._observation

    def physics_step(self) -> None:
        """One control step of bare physics with the set-points as they are: the bound that benchmarks compare with."""
        self.batch.step(nstep=self._substeps)

    def frame(self, world: int = 0) -> NDArray[np.uint8]:
        """(360, 480, 3) picture of one world from the front."""
        return self._cameras.frame(self.batch, world)


def _space(spec: ArraySpec) -> gym.spaces.Box:
    if spec.dtype == "uint8":
        return gym.spaces.Box(0, 255, spec.shape, np.uint8)
    return gym.spaces.Box(-np.inf, np.inf, spec.shape, np.float32)
