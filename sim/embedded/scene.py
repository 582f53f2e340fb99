"""The MJCF of a world: arm, table, lights, cameras or those of a station, then the task's own bodies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from robolearn.core.errors import BadInput
from robots import PAIRS, ROBOTS, AnyRobot, RobotSpec
from robots.dynamics import NONE, DynamicsConfig
from robots.stations import Camera, Contract
from sim.embedded.cousin_scenes import prepare_cousins
from sim.embedded.distractor import add_distractor
from sim.embedded.dynamics import prepare
from sim.embedded.task import Task, WorkspaceLayout, fits, layout_of
from sim.embedded.visual_randomisation import add_patterns

# Contacts between what is grasped and the pads: stiff enough that the fingers do not sink in, soft enough for the
# time step (the time constant must be at least two steps).
TOUCHED: dict[str, Any] = {"contype": 2, "conaffinity": 3, "condim": 4}
GRASPED = {**TOUCHED, "solref": [0.01, 1.0], "solimp": [0.95, 0.99, 0.001, 0.5, 2.0]}


def check_robot(robot: AnyRobot, task: str, arms: int = 1) -> None:
    """Raise BadInput where `robot` cannot do `task`, which needs so many arms."""
    if not fits(robot, task, arms):
        raise BadInput(
            f"robot of {task}",
            got=robot.name,
            expected="an arm that can do it" if arms == 1 else f"{arms} arms that can do it",
            available=[name for name, other in [*ROBOTS.items(), *PAIRS.items()] if fits(other, task, arms)],
            hint=layout_of(robot).why if len(robot.parts) == arms else "",
        )


def build_model(
    robot: AnyRobot,
    task: Task,
    *,
    patterns: bool = False,
    station: Contract | None = None,
    dynamics: DynamicsConfig = NONE,
) -> mujoco.MjModel:
    """Compile the model of `task` with `robot` at the origin of a table whose top is z = 0; two arms stand on it
    where the pair says.

    Args:
      patterns: surfaces may get one, see `sim.embedded.visual_randomisation`.
      station: whose cameras are mounted as its contract says, see `mount`.
      dynamics: what the arm's parameters need, see `prepare`.
    """
    spec = robot.model_spec()
    if isinstance(robot, RobotSpec):
        prepare(spec, robot, dynamics)
    let_collide(spec, robot)
    set_solver(spec, task.timestep)
    _furnish(spec, layout_of(robot))
    if patterns:
        add_patterns(spec)
    if station is not None and isinstance(robot, RobotSpec):
        mount(spec, robot, station.cameras)
    add_table(spec, robot)
    task.build(spec)
    if task.distractor:
        add_distractor(spec, GRASPED)
    if task.cousins is not None:
        prepare_cousins(spec, task.cousins, task.thing)
    return spec.compile()


def add_table(spec: mujoco.MjSpec, robot: AnyRobot) -> None:
    """The table before `robot`, whose top is z = 0."""
    spec.worldbody.add_geom(
        name="table",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0.35, 0.0, -0.02],
        size=[*layout_of(robot).table, 0.02],
        contype=2,
        conaffinity=3,
        friction=[0.8, 0.01, 0.0001],
        rgba=[0.79, 0.72, 0.62, 1.0],
    )


def set_solver(spec: mujoco.MjSpec, timestep: float) -> None:
    """Options of the physics of every world, with steps of `timestep` [s]."""
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 3.0  # friction is stiffer than the normal force: grasped things do not creep
    spec.option.iterations = 100
    spec.option.ls_iterations = 50
    # A diverging world must be seen and reported, not silently put back to its default pose.
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)


MEETS = (0, 4, 8)  # bit of the k-th arm of several


def let_collide(spec: mujoco.MjSpec, robot: AnyRobot) -> None:
    """Let the links of an arm meet table, objects and the other arm. They do not meet each other: ``contype &
    conaffinity`` is 0.

    The base and the first link, which turns about the vertical, come near neither table nor objects.
    """
    several = len(robot.parts) > 1
    for k, part in enumerate(robot.parts):
        first = spec.joint(part.named(part.robot.joints[0])).parent
        still = {first.name, first.parent.name}
        own, other = (MEETS[1 + k], MEETS[2 - k]) if several else (0, 0)
        for geom in (one for one in spec.geoms if one.parent.name.startswith(part.named(""))):
            near = (1, 2) if geom.parent.name not in still else (geom.contype, geom.conaffinity)
            geom.contype, geom.conaffinity = near[0] | own, near[1] | other


def _furnish(spec: mujoco.MjSpec, layout: WorkspaceLayout) -> None:
    spec.visual.headlight.ambient = [0.40, 0.40, 0.42]
    spec.visual.headlight.diffuse = [0.25, 0.25, 0.25]
    spec.visual.headlight.specular = [0.05, 0.05, 0.05]
    spec.visual.map.znear = 0.005
    spec.visual.global_.offwidth = 1280
    spec.visual.global_.offheight = 960
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.93, 0.95, 0.98],
        rgb2=[0.62, 0.68, 0.76],
        width=128,
        height=128,
    )
    world = spec.worldbody
    world.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        pos=[0, 0, -0.75],
        size=[3, 3, 0.1],
        contype=0,  # for what falls off the table; no arm reaches it
        conaffinity=2,
        rgba=[0.55, 0.57, 0.60, 1.0],
    )
    world.add_light(pos=[0.9, -0.8, 1.8], dir=[-0.35, 0.45, -1.0], diffuse=[0.5, 0.5, 0.48], castshadow=True)
    s = layout.scale
    front, side = [1.20 * s, 0.48 * s, 0.62 * s], [0.5 * s, -0.95 * s, 0.45 * s]
    world.add_camera(name="front", pos=front, xyaxes=[-0.56, 0.83, 0, -0.42, -0.28, 0.86], fovy=40)
    world.add_camera(name="side", pos=side, xyaxes=[1, 0, 0, 0, 0.38, 0.92], fovy=42)


HALF_TURN = np.array([0.0, 1.0, 0.0, 0.0])  # Rx(π), wxyz


def check_station(station: Contract, robot: AnyRobot) -> None:
    """Raise `BadInput` for a station of another arm, or one that does not say where any camera is."""
    if station.robot.name != robot.name:
        raise BadInput("--station", got=f"one with {station.robot.name}", expected=f"one with {robot.name}")
    if not any(camera.pose for camera in station.cameras.values()):
        raise BadInput(
            f"--station {station.name}", got="no camera with a pose",
            expected="cameras.<name>.pose in its contract, which `robolearn calibrate` measures",
        )  # fmt: skip


def mount(spec: mujoco.MjSpec, robot: RobotSpec, cameras: Mapping[str, Camera]) -> None:
    """Put the `cameras` of a contract that have a pose into `spec`, in the place of its own of the same names.

        T_world_camera = T_world_parent · T_parent_camera · Rz(−rotate) · Rx(π)          parent: base or flange

    A contract's camera looks along z with y down, as in OpenCV; MuJoCo's along −z with y up. Of the lens the vertical
    field of view is taken, 2 atan(h / 2 f_y): a centre beside the middle and distortion are not drawn.
    """
    flange = spec.joint(robot.joints[-1]).parent
    for name, camera in cameras.items():
        if camera.pose is None:
            continue
        own = spec.camera(name)
        fovy = field_of_view(camera) if camera.intrinsics else (own.fovy if own is not None else 45.0)
        if own is not None:
            spec.delete(own)
        on_arm = camera.pose.parent == "flange"
        at = np.array(camera.pose.pose.position) + (np.array(robot.flange) if on_arm else 0.0)
        quat = np.empty(4)
        half = -0.5 * math.radians(camera.rotate)
        upright = np.empty(4)
        mujoco.mju_mulQuat(
            upright, np.array(camera.pose.pose.quaternion), np.array([math.cos(half), 0, 0, math.sin(half)])
        )
        mujoco.mju_mulQuat(quat, upright, HALF_TURN)
        (flange if on_arm else spec.worldbody).add_camera(name=name, pos=at, quat=quat, fovy=fovy)


def field_of_view(camera: Camera) -> float:
    """Vertical field of view [degrees] of what the policy gets of the picture."""
    assert camera.intrinsics is not None
    height, width = camera.intrinsics.size
    focal = camera.intrinsics.fy
    if camera.rotate % 180:
        height, width, focal = width, height, camera.intrinsics.fx
    if camera.crop == "center":  # the largest part in the middle that has the shape of `size`
        height = min(height, round(width * camera.size[0] / camera.size[1]))
    elif camera.crop is not None:
        height = int(camera.crop[2])
    return math.degrees(2.0 * math.atan(0.5 * height / focal))
