"""One embedded world in real time: it follows the last set-points, as a position controller of each arm does.

The same model, starts, success, failure and time limit as world 0 of `MujocoWorlds`; a test compares the two. On a
real arm the meaning of an action and the motion of set-points belong to other stages, so they are missing here, and
so are delays, but for those of an arm with `dynamics`. Time passes only in `advance`: the caller decides what real
time is.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core.errors import BadInput, look_up
from robolearn.core.scene import Scene
from robots import CONTROL_HZ, PANDA, AnyRobot
from robots.dynamics_file import load_dynamics
from sim.embedded.camera import IMAGE_SIZE, Cameras, TaskView
from sim.embedded.physics import Physics
from sim.embedded.task import Array
from sim.tasks import TASKS

log = logging.getLogger(__name__)

_ONE = np.zeros(1, dtype=np.int64)


class RealtimeWorld:
    """An arm, or two of them, and one task, moved by joint set-points.

    All methods may be called from one thread, and `image` from a second one.

    Args:
      task: an embedded task, e.g. ``"lift"``.
      seed: of the sequence of starts.
      cameras: cameras that `image` may be asked for (``"front"``, ``"side"``, ``"wrist"``).
      image_size: edge of their square pictures [px].
      randomise: draw friction and masses anew in each episode, those of world 0 of `MujocoWorlds` with this seed;
        without, it is world 0 of ``MujocoWorlds(randomise=False)``.
      dynamics: a level or file of dynamics, as `MujocoWorlds` has it; what its sensors say is in `joint_state`.
      limit_s: longest episode [s]; by default the task's, which is for an arm at its full speed.

    Raises:
      BadInput: an unknown task or camera, or an arm that cannot do the task.
    """

    def __init__(
        self, task: str, seed: int, cameras: tuple[str, ...] = (), image_size: int = IMAGE_SIZE, *,
        robot: AnyRobot = PANDA, randomise: bool = True, dynamics: str = "none", limit_s: float | None = None,
    ) -> None:  # fmt: skip
        self.robot, self.task, self.seed = robot, look_up("task", task, TASKS)(), seed
        self.control_hz, self.object_names = CONTROL_HZ, tuple(self.task.observation_names)
        self.episode = -1
        self._most = self.task.max_episode_steps if limit_s is None else round(limit_s * CONTROL_HZ)
        self.physics = Physics(robot, self.task, 1, threads=1, randomise=randomise, dynamics=load_dynamics(dynamics),
                                look_s=self.task.timestep)  # fmt: skip
        self._cameras = Cameras(self.physics.model, cameras, image_size, later=True)
        self._per_control = round(1.0 / CONTROL_HZ / self.task.timestep)
        self._measured = [self._joints_of(arm) for arm in range(len(robot.parts))]
        self._view = TaskView(self.physics.model, robot)
        self._lock = threading.Lock()  # the state, between physics and pictures
        self._shown: mujoco.MjData | None = None
        self.reset()

    def reset(self) -> int:
        """Begin the next episode, the arm at its start and holding there; returns the seed of the sequence."""
        self.episode += 1
        with self._lock:
            q = self.physics.begin(_ONE, [(self.seed, 0, self.episode)])
            self._command = np.append(q[0], self.physics.qpos[0, self.physics.finger_q].mean())
            self._widths = np.atleast_1d(self.physics.commanded_widths()[0])
        self._noise = np.random.default_rng([5, self.seed, self.episode])
        self._ticks, self._due, self._begun, self._pushed = 0, 0.0, False, False
        self._outcome: dict[str, Any] | None = None
        self._broken = False
        return self.seed

    def command(self, q: ArrayLike | None, width: float | None = None, arm: int = 0) -> None:
        """Let an arm follow these set-points from now on, for ever; what is None stays as it is.

        The first command begins the episode: until then the world holds still and its time limit does not run.

        Args:
          q: (n,) joint set-points [rad].
          width: opening of the gripper [m].
          arm: which of them.

        Raises:
          BadInput: wrong length or not finite; nothing is changed then.
        """
        at = self.robot.slices[arm]
        n = at.stop - at.start
        goal = None if q is None else np.asarray(q, dtype=np.float64)
        if goal is not None and (goal.shape != (n,) or not np.isfinite(goal).all()):
            raise BadInput("command", got=goal.tolist(), expected=f"{n} finite joint positions")
        if width is not None and not np.isfinite(width):
            raise BadInput("gripper command", got=width, expected="a finite opening")
        if not self._begun:
            self._begun, self._ticks = True, 0
        if goal is not None:
            self._command[:-1][at] = goal
            self.physics.command_arms(_ONE, self._command[None, :-1])
            self._pushed = False
        if width is not None:
            self._widths[arm] = width
            self.physics.command_grippers(_ONE, self._widths if len(self._widths) == 1 else self._widths[None])
            self._command[-1] = self.robot.parts[arm].robot.gripper.joint_of(np.array(width))

    def push(self, torque: ArrayLike, arm: int = 0) -> None:
        """Let the motors of an arm have (n,) torques [Nm], beside what carries it, in the next step of the physics.
        Raises `BadInput`: wrong length or not finite; nothing is changed then."""
        at = self.robot.slices[arm]
        n, tau = at.stop - at.start, np.asarray(torque, dtype=np.float64)
        if tau.shape != (n,) or not np.isfinite(tau).all():
            raise BadInput("torque", got=tau.tolist(), expected=f"{n} finite torques")
        self.physics.push_arms(_ONE, tau[None], at)
        self._pushed = True

    def advance(self, seconds: float) -> None:
        """Let time pass in whole steps of the physics; what is less than one is kept for the next call."""
        self._due += seconds
        # Half a step of slack: sums of equal parts of a step must not fall one short.
        while self._due > 0.999 * self.task.timestep:
            self._due -= self.task.timestep
            self._step()

    def _step(self) -> None:
        if self._broken:
            return
        arms = self.physics.arms
        if arms is not None and not self._pushed:
            elapsed = np.array([self._ticks // self._per_control])
            x = arms.reach(_ONE, self._command[None, None, :-1], self._command[-1:], elapsed)
            self.physics.command_reached(x[:, 0])
        with self._lock:
            failed = self.physics.step()
        self._ticks += 1
        self.physics.look(_ONE)
        if failed is None and self._ticks % self._per_control:
            return
        if failed is not None or self.physics.diverged().any():
            log.warning("physics diverged in %s: the world stands still until it is reset", self.task.name)
            self._broken = True
            with self._lock:
                self.physics.clear(_ONE)
            self._outcome = self._outcome or {"success": False, "truncated": True, "steps": self.steps}
        elif self._begun and self._outcome is None:
            self._judge()

    def _judge(self) -> None:
        state = self.physics.state()
        success = bool(self.task.success(state)[0])
        terminated = success or bool(self.task.failure(state)[0])
        truncated = not terminated and self.steps >= self._most
        if terminated or truncated:
            self._outcome = {"success": success, "truncated": truncated, "steps": self.steps}

    @property
    def steps(self) -> int:
        """Control steps of 1/20 s since the first command of the episode."""
        return self._ticks // self._per_control if self._begun else 0

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Outcome of the episode, ``{"success", "truncated", "steps"}``, or None; the world goes on afterwards."""
        return self._outcome

    def joint_state(self, arm: int = 0) -> tuple[tuple[str, ...], Array, Array]:
        """Names, positions [rad, m] and velocities [rad/s, m/s] of the joints of an arm, then of its gripper.

        With dynamics, positions have the offsets and the noise of the arm's sensors, and those of its joints are late.
        """
        names, where, how_fast = self._measured[arm]
        q, v = self.physics.qpos[0, where], self.physics.qvel[0, how_fast]
        if self.physics.arms is not None:
            q[: len(self.robot.parts[arm].robot.joints)] = self.physics.arms.sensed(self._noise)
        return names, q, v

    def _joints_of(self, arm: int) -> tuple[tuple[str, ...], NDArray[np.intp], NDArray[np.intp]]:
        """Names of the joints of an arm and its gripper, and where the model keeps their positions and velocities."""
        p, own, at = self.physics, self.robot.parts[arm].robot, self.robot.slices[arm]
        begin = sum(len(part.robot.gripper.joints) for part in self.robot.parts[:arm])
        fingers = slice(begin, begin + len(own.gripper.joints))
        where, how_fast = (p.arm_q[at], p.finger_q[fingers]), (p.arm_v[at], p.finger_v[fingers])
        return (*own.joints, *own.gripper.joints), np.concatenate(where), np.concatenate(how_fast)

    def objects(self) -> tuple[tuple[str, ...], Array]:
        """Names and values of the task's privileged vector."""
        return self.object_names, self.task.observe(self.physics.state())[0].astype(np.float64)

    def scene(self) -> Scene:
        """The things around the arm, at their present poses."""
        return self._view.scene(*self.physics.positions(0))

    def external_torque(self, arm: int = 0) -> Array:
        """(n,) torque of contacts and joint stops on each joint of an arm [Nm]."""
        return self.physics.external_torque()[0][self.robot.slices[arm]]

    def image(self, camera: str) -> NDArray[np.uint8]:
        """(image_size, image_size, 3) picture of the world as it is now; always from one and the same thread. Raises
        `BadInput`: a camera that this world was not made with, or no OpenGL."""
        if f"images.{camera}" not in self._cameras.specs:
            raise BadInput("camera", got=camera, available=[s.removeprefix("images.") for s in self._cameras.specs])
        with self._lock:
            self._shown = self.physics.batch.get_data(0, self._shown)
        return self._cameras.image(self._shown, camera)

    def close(self) -> None:
        """Free the renderer; from the thread that took the pictures. A later picture makes a new one."""
        self._cameras.close()
