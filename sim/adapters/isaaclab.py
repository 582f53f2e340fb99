"""Our tasks in Isaac Lab: its physics in an interpreter of its own, all else as in the embedded worlds.

Starts, actions, observation, success, limit and scripts are those of the task of the same name, computed here from the
state that Isaac Lab returns after each control step. Only a control step's steps of time are taken there, in all worlds
at once. So a policy of `lift` acts in ``isaaclab:lift``, and back. Pictures are drawn here, by MuJoCo, from that state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, RobolearnError, check_choice
from robots import CONTROL_HZ, ROBOTS, RobotSpec
from sim.adapters.other_makers import install_command, interpreter
from sim.bridge.far.stepped import QPOS, QVEL
from sim.bridge.pools import EnvFactory, WorkerPool
from sim.embedded.dynamics import Episode
from sim.embedded.physics import Physics
from sim.embedded.scene import add_table, let_collide
from sim.embedded.task import Array, Task, fits
from sim.embedded.world import MujocoWorlds
from sim.registry import WorldConfig, own_task
from sim.tasks import TASKS

FAMILY = "isaaclab"
NAMES = ("lift", "lift_to", "pick_place")  # tasks whose things are free bodies, or are there to be seen only
BUILDER = ".isaaclab:build"


def names() -> list[str]:
    """The tasks."""
    return list(NAMES)


def make(config: WorldConfig, num_envs: int) -> IsaacLabWorlds:
    """`num_envs` worlds of a task of `NAMES`.

    Raises:
      BadInput: another task, an arm that cannot do it, no environment, no GPU, or another major version of Isaac Lab.
    """
    name = own_task(config.task)
    check_choice(f"task of {FAMILY}", name, NAMES)
    share = 1.0 if config.start_range is None else config.start_range
    if not 0.0 < share <= 1.0:
        raise BadInput("start range", got=share, expected="above 0, at most 1")
    task = TASKS[name](start_range=share)
    able = [arm for arm, robot in ROBOTS.items() if fits(robot, name)]
    check_choice("robot", config.arm, able)
    return IsaacLabWorlds(config, task, ROBOTS[config.arm], num_envs)


def pieces(robot: RobotSpec, task: Task) -> dict[str, Any]:
    """MJCF of a scene in parts, and the servos of its joints: arguments of `sim.bridge.far.isaaclab.build`."""
    arm = robot.model_spec()
    let_collide(arm, robot)
    free = [body.name for body in _scene(robot, task).worldbody.bodies if body.joints]
    fixed = _scene(robot, task)
    for body in list(fixed.worldbody.bodies):  # those without joints are there to be seen only
        fixed.delete(body)
    things = {}
    for name in free:
        alone = _scene(robot, task)
        for part in [*alone.worldbody.geoms, *(body for body in alone.worldbody.bodies if body.name != name)]:
            alone.delete(part)
        things[name] = _text(alone, name)
    return {"arm": _text(arm, "arm"), "fixed": _text(fixed, "fixed"), "things": things, "joints": _servos(robot)}


def _scene(robot: RobotSpec, task: Task) -> mujoco.MjSpec:
    """The table and the task's things."""
    spec = mujoco.MjSpec()
    add_table(spec, robot)
    task.build(spec)
    return spec


def _text(spec: mujoco.MjSpec, name: str) -> str:
    spec.modelname = name
    spec.compile()
    return spec.to_xml()


def _servos(robot: RobotSpec) -> dict[str, list[float]]:
    """Joint → its home [rad or m], k_p, k_v and largest force of its servo, 0 where there is no limit."""
    model = robot.model_spec().compile()
    home = [*robot.home, *robot.fingers_of(np.array(robot.gripper.max_width))]
    found = {}
    for name, position in zip((*robot.joints, *robot.fingers), home, strict=True):
        servo = model.actuator(name)
        most = float(servo.forcerange[1]) if servo.forcelimited[0] else 0.0
        found[name] = [float(position), float(servo.gainprm[0]), -float(servo.biasprm[2]), most]
    return found


class IsaacLabPhysics(Physics):
    """`Physics` whose steps of time are Isaac Lab's; the states of MuJoCo's batch are copies of what it returns.

    Drawn are the starts and the delay of commands; friction and masses are as modelled. Isaac Lab is started by `open`.
    """

    def __init__(
        self, config: WorldConfig, robot: RobotSpec, task: Task, num_worlds: int, *args: Any, **kw: Any
    ) -> None:
        super().__init__(robot, task, num_worlds, *args, **kw)
        family, named = config.family, str(config.world_python or "")
        self._python, self._task_name = interpreter(family, config.task, named), config.task
        scene = pieces(robot, task)
        wanted = {"task": config.task, "count": num_worlds, "timestep": task.timestep, "device": config.sim_device}
        self._factory = EnvFactory(BUILDER, scene | wanted, install_command(family, named))
        self._broken = ""
        joints = [self.model.joint(name) for name in scene["joints"]]
        self._wired_u = np.array([self.model.actuator(name).id for name in scene["joints"]])
        columns = [self._free[name] for name in scene["things"]]
        self._wired_q = np.array(
            [*(int(joint.qposadr[0]) for joint in joints), *(q + i for q, _ in columns for i in range(7))]
        )
        self._wired_v = np.array(
            [*(int(joint.dofadr[0]) for joint in joints), *(v + i for _, v in columns for i in range(6))]
        )

    def open(self) -> tuple[str, ...]:
        """Start Isaac Lab, which takes half a minute, or one and a half the first time; its versions and device."""
        self.pool = WorkerPool(self._factory, self.num_worlds, 1, self._task_name, self._python)
        return self.pool.facts.says

    def begin(self, worlds: NDArray[np.int64], episodes: list[Episode]) -> Array:
        q = super().begin(worlds, episodes)
        with self._asked(worlds) as block:
            block.actions[worlds, 0] = self.qpos[np.ix_(worlds, self._wired_q)]
            self.pool.reset(begin=True)
        return q

    def follow(
        self, rows: NDArray[np.int64], arms: Array, width: Array, elapsed: NDArray[np.int64] | None = None
    ) -> NDArray[np.bool_]:
        control = self.controls(rows, arms, width, elapsed)
        steps = control.shape[1]
        self._ctrl[rows] = control[:, -1]
        with self._asked(rows, steps) as block:
            block.actions[rows, :steps, : len(self._wired_u)] = control[..., self._wired_u]
            self.pool.chunk(steps)
        self.qpos[np.ix_(rows, self._wired_q)] = block.observation[QPOS][rows]
        self.qvel[np.ix_(rows, self._wired_v)] = block.observation[QVEL][rows]
        return np.zeros(self.num_worlds, dtype=bool)  # what makes no sense is found by `diverged`

    @contextmanager
    def _asked(self, rows: NDArray[np.int64], steps: int = 1) -> Iterator[Any]:
        """The arrays of a request for the worlds `rows` (M,). Where it fails the worlds are of no use any more."""
        if self._broken:
            raise RobolearnError(f"this env cannot be used any more: {self._broken}")
        try:
            self.pool.room_for(steps)
            self.pool.block.active[:] = False
            self.pool.block.active[rows] = True
            yield self.pool.block
        except BaseException as error:
            self._broken = str(error) or type(error).__name__
            self.pool.close()
            raise

    def close(self) -> None:
        """End Isaac Lab's process."""
        self._broken = self._broken or "it is closed"
        self.pool.close()


class IsaacLabWorlds(MujocoWorlds):
    """`MujocoWorlds` on `IsaacLabPhysics`.

    Attributes:
      says: what is as in the task of the same name, and what is not, in words.
    """

    physics: IsaacLabPhysics

    def __init__(self, config: WorldConfig, task: Task, robot: RobotSpec, num_envs: int) -> None:
        if num_envs < 1:
            raise BadInput("number of worlds", got=num_envs, expected="at least 1")
        super().__init__(
            task, num_envs, robot=robot, cameras=config.cameras, image_size=config.image_size, reward=config.reward,
            shaping_gamma=config.shaping_gamma, action_kind=config.action_kind, threads=1,
            render_processes=config.render_processes, physics=partial(IsaacLabPhysics, config),
        )  # fmt: skip
        self.task = config.task
        self.says = (
            *self.physics.open(),
            f"starts, actions, success and limit are those of {task.name}, at {CONTROL_HZ:g} Hz in "
            f"{self._substeps} steps of time",
            "friction and masses are as modelled in each episode; only starts and the delay of commands are drawn",
            "pictures are drawn by MuJoCo from Isaac Lab's states",
        )

    def snapshot(self) -> None:  # type: ignore[override]
        """None: Isaac Lab's solver remembers more than positions and velocities."""
        return None

    def restore(self, snapshot: dict[str, NDArray]) -> dict[str, NDArray]:
        """Raises RobolearnError."""
        raise RobolearnError(f"{self.task} cannot be restored from a snapshot")

    def close(self, **kwargs: Any) -> None:
        super().close(**kwargs)
        self.physics.close()


__all__ = ["IsaacLabPhysics", "IsaacLabWorlds", "make", "names", "pieces"]
