"""N worlds with an arm and a task, stepped together by `mujoco.batch.Batch` on a pool of threads.

Nothing here runs Python per world, except the drawing of a new start when an episode begins.

Set-points travel as they do behind the safety filter of a real arm (`robots.control`), and take effect late by a
delay that differs from world to world, so that a policy means the same thing in both.

The j-th episode of world w depends on (seed, start id of w, j) and its actions alone: not on the number of threads,
nor on the number of worlds, nor on earlier episodes. Its dynamics are drawn with its start (`robots.dynamics`).
Policies and the meaning of an action see the arm as measured; success, `objects` and pictures are of the true one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface, NonFinite, StepResult, check_choice
from robolearn.core.machine import available_cpus
from robolearn.core.scene import Scene
from robots import CONTROL_HZ, PAIRS, PANDA, AnyRobot, make_control
from robots.control import travel
from robots.dynamics_file import load_dynamics
from robots.spec import proprio_spec
from robots.stations import Contract
from sim.embedded.camera import IMAGE_SIZE, Cameras, TaskView, usual_processes
from sim.embedded.dynamics import Episode
from sim.embedded.physics import Physics
from sim.embedded.scene import check_station
from sim.embedded.task import Array, State, Task
from sim.embedded.visual_randomisation import VisualRandomiser, randomisation_named
from sim.shaping import SCALE, SHAPING_GAMMA, shape
from sim.vector import declare, first_starts

REWARDS = ("sparse", "dense")

log = logging.getLogger(__name__)


class MujocoWorlds(VectorEnv):
    """A `robolearn.core.ChunkEnv` on MuJoCo's batched engine.

    Args:
      robot: by default a Panda, or two.
      action_kind: ``"tcp_delta"`` or ``"joint_position"``; empty: the arm's own.
      cameras: names of cameras to observe (``"front"``, ``"side"``, ``"wrist"``); each adds ``images.<name>``.
      image_size: edge of the square camera observations [px].
      reward: ``"sparse"`` (1 on success) or ``"dense"``, the same with potential-based shaping (`sim.shaping`).
      shaping_gamma: γ of the shaping, a control step.
      randomise: draw friction, mass and delay of commands anew in each episode, and all else that `dynamics` has.
      looks: ``"none"``, ``"mild"`` or ``"wild"``: how much colours, light, cameras and the like differ from episode to
        episode; see `sim.embedded.visual_randomisation`.
      dynamics: a level or file of dynamics, see `robots.dynamics`.
      station: whose cameras it has, by its contract; see `sim.embedded.scene`.
      threads: worker threads of the physics; 0 uses every CPU that this process may run on.
      render_processes: that draw the pictures, 0 for none but this one; None: as many as threads, where it pays.

    Attributes:
      reports_success: True; ``infos["success"]`` is always there.
      continuing: False; success and failure end episodes.

    Raises:
      BadInput: an unknown camera, reward or action kind, an arm that does not fit, or no GL for cameras.
    """

    reports_success = True
    continuing = False
    steps_together = False

    def __init__(
        self, task: Task, num_envs: int, *, robot: AnyRobot | None = None, action_kind: str = "",
        cameras: tuple[str, ...] = (), image_size: int = IMAGE_SIZE, reward: str = "sparse",
        shaping_gamma: float = SHAPING_GAMMA, randomise: bool = True, looks: str = "none", dynamics: str = "none",
        station: Contract | None = None, threads: int = 0, render_processes: int | None = None,
        physics: Callable[..., Physics] = Physics,
    ) -> None:  # fmt: skip
        robot = robot or (PANDA if task.arms == 1 else PAIRS["panda_pair"])
        if station is not None:
            check_station(station, robot)
        if num_envs < 1:
            raise BadInput("number of worlds", got=num_envs, expected="1 or more")
        check_choice("reward", reward, REWARDS)
        if not 0.0 < shaping_gamma <= 1.0:
            raise BadInput("shaping_gamma", got=shaping_gamma, expected="above 0, at most 1")
        self.num_envs, self.robot = num_envs, robot
        self.world_task = task
        self.task, self.prompt, self.max_episode_steps = task.name, task.prompt, task.max_episode_steps
        self._shaping_gamma = shaping_gamma if reward == "dense" else None
        action_kind = action_kind or robot.action_kind
        self._control = make_control(action_kind, robot)
        self._view: TaskView | None = None  # made for the first scene
        threads = threads or available_cpus()
        randomisation = replace(randomisation_named(looks), cousins=task.cousins, thing=task.thing)
        self.physics = physics(
            robot, task, num_envs, threads, randomise=randomise, patterns=bool(randomisation.textures),
            station=station, dynamics=load_dynamics(dynamics),
        )  # fmt: skip
        self.model, self.batch = self.physics.model, self.physics.batch
        self._substeps = round(1.0 / CONTROL_HZ / task.timestep)
        self._randomiser = VisualRandomiser(self.model, randomisation, num_envs, task.bodies)
        if render_processes is None:
            render_processes = usual_processes(num_envs, threads)
        self._cameras = Cameras(
            self.model, cameras, image_size, num_envs=num_envs, bodies=task.bodies, randomisation=randomisation,
            processes=min(render_processes, num_envs),
        )  # fmt: skip

        n_joints = len(robot.joints)
        observation = {
            "proprio": proprio_spec(robot),
            "objects": ArraySpec((len(task.observation_names),), names=task.observation_names),
            **self._cameras.specs,
        }
        observation |= task.privileged
        noted = {"cousins": task.cousins.described()} if task.cousins else {}
        self.interface = Interface(observation, self._control.spec, CONTROL_HZ, robot.name, action_kind, noted)
        declare(self, self.interface)

        self._seed = 0
        self._worlds = np.arange(num_envs)
        self._ids = self._worlds
        self._episode = np.full(num_envs, -1)  # number of the episode in the sequence of the world's start id
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._potential = np.zeros(num_envs)  # Φ of the current states, where the reward is shaped
        self._goal, self._set_q, self._set_v = np.zeros((3, num_envs, n_joints))
        self._max_velocity, self._max_acceleration = np.array(robot.velocity), np.array(robot.acceleration)
        self._observation: dict[str, NDArray] = {}

    # --- Gymnasium -----------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray], dict[str, Any]]:
        """Begin a new episode in every world.

        Args:
          seed: begins the sequences of episodes anew; None goes on in them.
          options: see `robolearn.core.Env`; by default the start id of world w is w.

        Raises:
          BadInput: another option, or ids of another shape.
        """
        ids, first = first_starts(options, self.num_envs)
        unseeded = self._episode[0] < 0
        if seed is not None or unseeded:
            self._seed = int(np.random.default_rng().integers(2**63)) if seed is None else int(seed)
        if seed is not None or unseeded or ids is not None:
            self._ids = self._worlds if ids is None else ids
            self._episode[:] = first - 1
        self._begin(self._worlds)
        self._observation = self._look(self._numbers(self._state(), self._seen), self._worlds)
        self._potential = self._phi(self.truth)
        return self._observation, {"success": np.zeros(self.num_envs, dtype=bool)}

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """One control step; see `robolearn.core.Env.step`."""
        actions = self._checked(actions, (self.num_envs, self._control.spec.size), active)
        return self._step(actions, None if active is None or active.all() else active)

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        n = self.num_envs
        chunks = self._checked(chunks, (n, *np.shape(chunks)[1:2], self._control.spec.size), active)
        if chunks.shape[1] == 0:
            raise BadInput("action chunks", got=f"shape {chunks.shape}", expected="at least one action")
        going = np.ones(n, dtype=bool) if active is None else active.copy()
        rewards, steps = np.zeros(chunks.shape[:2], dtype=np.float32), np.zeros(n, dtype=np.int64)
        terminated, truncated, success = (np.zeros(n, dtype=bool) for _ in range(3))
        infos: dict[str, Any] = {}
        final: dict[str, NDArray] = {}
        for i in range(chunks.shape[1]):
            # No policy sees what is between two decisions: only the last step is drawn, and where an episode ends.
            looking = i + 1 == chunks.shape[1]
            _, r, term, trunc, infos = self._step(chunks[:, i], None if going.all() else going, looking=looking)
            rewards[:, i] = r
            terminated |= term
            truncated |= trunc
            success |= infos["success"]
            steps += infos["steps"]
            ended = infos["_final_obs"]
            if final or ended.any():  # what ended earlier keeps its last observation
                before, final = final, dict(infos["final_obs"])
                for key, value in before.items():
                    final[key] = np.where(going.reshape(-1, *[1] * (value.ndim - 1)), final[key], value)
            going &= ~ended
            if not going.any():
                break
        infos |= {"success": success, "steps": steps, "step_rewards": rewards}
        infos["_final_obs"] = terminated | truncated
        if final:
            infos["final_obs"] = final
        return self._observation, rewards.sum(axis=1), terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        """Free the renderer."""
        self._cameras.close()

    # --- one control step ----------------------------------------------------------------------------------

    def _step(
        self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None, *, looking: bool = True
    ) -> StepResult:
        """One control step; without `looking` pictures are drawn only in the worlds whose episodes end with it."""
        n = self.num_envs
        ids = None if active is None else np.flatnonzero(active)
        rows = self._worlds if ids is None else ids
        seen = self._seen
        tcp = seen.tcp_pos[rows], seen.tcp_rot[rows]
        goal, width = self._control.targets(seen.q[rows], tcp, actions[rows])
        broken = self._move(rows, goal, width)
        broken |= self.physics.diverged()
        moved = np.ones(n, dtype=bool) if active is None else active
        self._elapsed += moved

        if broken.any():
            self._report_broken(broken)
        self.physics.look(rows)
        state = self._state()
        observation = self._numbers(state, self._seen)
        if broken.any():
            for key, value in observation.items():
                value[broken] = self._observation[key][broken]  # the last one that made sense
        alive = moved & ~broken
        success = alive & self.world_task.success(state)
        terminated = self._ends(success) | (alive & self.world_task.failure(state))
        truncated = (moved & (self._elapsed >= self.max_episode_steps) & ~terminated) | broken
        reward = success.astype(np.float64)
        ended = terminated | truncated
        observation = self._look(observation, np.flatnonzero(alive if looking else alive & ended))
        infos: dict[str, Any] = {
            "success": success,
            "steps": moved.astype(np.int64),
            "_final_obs": ended,
            "final_obs": observation,
        }
        if self._shaping_gamma is not None:
            potential = np.where(alive, self._phi(state), self._potential)
            shaped = shape(reward, self._potential, potential, ended, self._shaping_gamma)
            reward = np.where(alive, shaped, 0.0)
            self._potential = potential
        if ended.any():
            observation = self._begin_again(np.flatnonzero(ended), observation)
            self._potential = self._phi(self.truth)
        self._observation = observation
        return observation, reward.astype(np.float32), terminated, truncated, infos

    def _ends(self, success: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(N,) success ends the episode."""
        return success

    def _move(self, rows: NDArray[np.int64], goal: Array, width: Array) -> NDArray[np.bool_]:
        """One control step of physics in the worlds `rows`; (N,) which of them failed.

        Args:
          rows: (M,) worlds.
          goal: (M, n) joint set-points [rad].
          width: (M,) openings of the grippers [m].
        """
        delay = self.physics.delay[rows]
        arms = np.empty((len(rows), self._substeps, goal.shape[1]))
        travel(
            self._set_q, self._set_v, self._goal, goal, delay, self._max_velocity, self._max_acceleration,
            self.world_task.timestep, rows, arms,
        )  # fmt: skip
        return self.physics.follow(rows, arms, width, self._elapsed[rows])

    def _checked(
        self, actions: NDArray[np.float32], expected: tuple[int, ...], active: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        if self._episode[0] < 0:
            raise BadInput("step", got="a step before the first reset", expected="env.reset(seed=...)")
        actions = np.asarray(actions)
        if actions.shape != expected:
            raise BadInput("actions", got=f"shape {actions.shape}", expected=expected)
        bad = ~np.isfinite(actions).reshape(self.num_envs, -1).all(1)
        if active is not None:
            bad &= active  # the action of a world that rests does not matter
        if bad.any():
            raise NonFinite(f"action of world {int(bad.argmax())} is not finite")
        return actions

    def _phi(self, state: State) -> Array:
        """(N,) Φ, or zeros where the reward is not shaped."""
        return self._potential if self._shaping_gamma is None else SCALE * self.world_task.progress(state)

    def _state(self) -> State:
        self.truth = self.physics.state()
        self._seen = self.physics.measured(self.truth, self._elapsed, self._worlds)
        return self.truth

    def _numbers(self, state: State, seen: State) -> dict[str, NDArray]:
        """feature → (M, …) of the M worlds that are in `state`, with the arms as `seen`: all but pictures."""
        hidden = {"objects": self.world_task.observe(state), **self.world_task.truth(state)}
        numbers = {key: value.astype(np.float32) for key, value in hidden.items()}
        return {"proprio": self.robot.proprio(seen.q, seen.width, seen.tcp_pos, seen.tcp_rot), **numbers}

    def _look(self, observation: dict[str, NDArray], worlds: NDArray[np.int64]) -> dict[str, NDArray]:
        """Add pictures to `observation`: new ones of `worlds` (M,), of the others those that it has, or the last."""
        for key, spec in self._cameras.specs.items():
            before = observation.get(key, self._observation.get(key))
            shape = (self.num_envs, *spec.shape)
            observation[key] = np.zeros(shape, np.uint8) if before is None else before.copy()
        if self._cameras.specs and len(worlds):
            states, episodes = self.physics.drawn_state(worlds), self._numbered(worlds)
            for key, pictures in self._cameras.render(worlds, states, episodes).items():
                observation[key][worlds] = pictures
        return observation

    def _begin(self, ids: NDArray[np.int64]) -> None:
        """Put the worlds `ids` at the start of a new episode."""
        self._episode[ids] += 1
        self._goal[ids] = self._set_q[ids] = self.physics.begin(ids, self._keys(ids))
        self._set_v[ids] = 0.0
        self._elapsed[ids] = 0

    def _begin_again(self, ids: NDArray[np.int64], observation: dict[str, NDArray]) -> dict[str, NDArray]:
        """Begin new episodes in the worlds `ids` (M,); returns `observation` of all with their first ones in it."""
        self._begin(ids)
        return self._seen_anew(ids, observation)

    def _seen_anew(self, ids: NDArray[np.int64], observation: dict[str, NDArray]) -> dict[str, NDArray]:
        """`observation` of all worlds, with what is seen now in the worlds `ids` (M,)."""
        state = self.physics.state(ids)
        self.truth.put(ids, state)
        seen = self.physics.measured(state, self._elapsed[ids], ids)
        if self._seen is not self.truth:
            self._seen.put(ids, seen)
        observation = {key: value.copy() for key, value in observation.items()}
        for key, value in self._numbers(state, seen).items():
            observation[key][ids] = value
        return self._look(observation, ids)

    @property
    def _drawn(self) -> NDArray[np.int64]:
        """(N,) the episodes that start, dynamics and looks were drawn for."""
        return self._episode

    def _keys(self, worlds: NDArray[np.int64]) -> list[Episode]:
        return [(self._seed, int(self._ids[w]), int(self._drawn[w])) for w in worlds]

    def _numbered(self, worlds: NDArray[np.int64]) -> NDArray[np.int64]:
        """(M, 3) seed, start id and number of the episodes that `worlds` (M,) were drawn for."""
        return np.stack([np.full(len(worlds), self._seed), self._ids[worlds], self._drawn[worlds]], axis=1)

    def _report_broken(self, broken: NDArray[np.bool_]) -> None:
        worlds = np.flatnonzero(broken)
        log.warning("physics diverged in world(s) %s of %s: reset", ", ".join(map(str, worlds)), self.task)
        self.physics.clear(worlds)

    # --- exact resume --------------------------------------------------------------------------------------

    def scene(self, world: int = 0) -> Scene:
        """The things around the arm of a world, for display alone."""
        self._view = TaskView(self.physics.model, self.robot) if self._view is None else self._view
        appearance = self._randomiser.appearance(world, self._numbered(np.array([world]))[0])
        return self._view.scene(*self.physics.positions(world), appearance)

    def snapshot(self) -> dict[str, NDArray]:
        """Everything that the future of these worlds depends on."""
        return {
            "seed": np.array([self._seed]),
            "start_ids": self._ids.copy(),
            "episode": self._episode.copy(),
            "state": self.batch.state.copy(),
            "elapsed": self._elapsed.copy(),
            "motion": np.stack([self._goal, self._set_q, self._set_v]),
            **({} if self.physics.arms is None else {k: v.copy() for k, v in self.physics.arms.state().items()}),
        }

    def restore(self, snapshot: dict[str, NDArray]) -> dict[str, NDArray]:
        """Continue from `snapshot`; returns the current observation."""
        if snapshot["state"].shape != self.batch.state.shape:
            raise BadInput("snapshot", got=snapshot["state"].shape, expected=self.batch.state.shape)
        self._seed = int(snapshot["seed"][0])
        self._ids, self._episode = snapshot["start_ids"].copy(), snapshot["episode"].copy()
        # The dynamics are no part of the state.
        self.physics.draw_physics(self._worlds, self._keys(self._worlds))
        if self.physics.arms is not None:
            self.physics.arms.load_state(snapshot)
        self.batch.state[:] = snapshot["state"]
        self._elapsed[:] = snapshot["elapsed"]
        self._goal[:], self._set_q[:], self._set_v[:] = snapshot["motion"]
        self._observation = self._look(self._numbers(self._state(), self._seen), self._worlds)
        self._potential = self._phi(self.truth)
        return self._observation

    def physics_step(self) -> None:
        """One control step of bare physics with the set-points as they are: the bound that benchmarks compare with."""
        self.batch.step(nstep=self._substeps)

    def frame(self, world: int = 0) -> NDArray[np.uint8]:
        """(360, 480, 3) picture of one world from the front."""
        episode = self._numbered(np.array([world]))[0]
        return self._cameras.frame(self.batch.get_data(world), self._randomiser.appearance(world, episode))
