"""Our scenes in Isaac Lab 3.0 without Isaac Sim: Newton's MuJoCo-Warp solver, on a CPU or one GPU.

The MJCF that the near side sends becomes local USD by mujoco-usd-converter; nothing comes from a server. Isaac Lab has
quaternions xyzw and angular velocities in the world's frame: both are turned here, see `stepped`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from isaaclab.actuators import ImplicitActuatorCfg
from isaaclab.app import launch_simulation
from isaaclab.assets import ArticulationCfg, AssetBaseCfg, RigidObjectCfg
from isaaclab.scene import InteractiveScene, InteractiveSceneCfg
from isaaclab.sim import SimulationCfg, SimulationContext, UsdFileCfg
from isaaclab_newton.physics import MJWarpSolverCfg, NewtonCfg
from mujoco_usd_converter import Converter
from pxr import Sdf, Usd

from .stepped import Array

CONTACTS, CONSTRAINTS = 50, 250  # room for them in each world

# As the worlds of our own: see `sim.embedded.scene.set_solver`.
SOLVER = {"iterations": 100, "ls_iterations": 50, "integrator": "implicitfast", "cone": "elliptic", "impratio": 3.0}


def open_scene(
    count: int, arm: str, things: Mapping[str, str], fixed: str, joints: Mapping[str, Sequence[float]],
    timestep: float, device: str,
) -> IsaacScene:  # fmt: skip
    """Start Isaac Lab with this scene and take a first step, which compiles what is not compiled yet."""
    folder = Path(tempfile.mkdtemp(prefix="robolearn-usd-"))
    solver = MJWarpSolverCfg(njmax=CONSTRAINTS, nconmax=CONTACTS, **SOLVER)
    # Without a physics of its own Isaac Lab starts Isaac Sim, and ends the process where there is none.
    config = SimulationCfg(dt=timestep, device=device, physics=NewtonCfg(solver_cfg=solver))
    launch_simulation(config, {"device": device}).__enter__()  # until the process ends
    sim = SimulationContext(config)
    parts = InteractiveSceneCfg(num_envs=count, env_spacing=0.0, replicate_physics=True)
    home = {name: numbers[0] for name, numbers in joints.items()}
    parts.robot = ArticulationCfg(
        prim_path="{ENV_REGEX_NS}/robot",
        spawn=UsdFileCfg(usd_path=to_usd(folder, "arm", arm)),
        init_state=ArticulationCfg.InitialStateCfg(joint_pos=home),
        actuators={  # what stands at the joints, damping and armature, comes with the USD
            name: ImplicitActuatorCfg(
                joint_names_expr=[name], stiffness=kp, damping=kv, joint_effort_limit=force or None
            )
            for name, (_, kp, kv, force) in joints.items()
        },
    )
    spawn = UsdFileCfg(usd_path=to_usd(folder, "fixed", fixed))
    parts.fixed = AssetBaseCfg(prim_path="{ENV_REGEX_NS}/fixed", spawn=spawn)
    for name, mjcf in things.items():
        spawn = UsdFileCfg(usd_path=to_usd(folder, name, mjcf))
        setattr(parts, name, RigidObjectCfg(prim_path=f"{{ENV_REGEX_NS}}/{name}", spawn=spawn))
    made = InteractiveScene(parts)
    sim.reset()
    shutil.rmtree(folder)
    origins = torch.as_tensor(made.env_origins, dtype=torch.float32, device=device)

    def advance() -> None:
        made.write_data_to_sim()
        sim.step(render=False)
        made.update(dt=timestep)

    scene = IsaacScene(made["robot"], [made[name] for name in things], list(joints), origins, advance)
    scene.step(np.tile(np.array([*home.values()], np.float32), (count, 1)))
    return scene


def to_usd(folder: Path, name: str, mjcf: str) -> str:
    """The local USD of an MJCF text."""
    source = folder / f"{name}.xml"
    source.write_text(mjcf)
    made = Converter(layer_structure=False, scene=False).convert(str(source), str(folder / name)).path
    stage = Usd.Stage.Open(made)
    for prim in stage.Traverse():
        if carried := prim.GetAttribute("mjc:body:gravcomp"):  # Newton reads it by another name than is written
            prim.CreateAttribute("mjc:gravcomp", Sdf.ValueTypeNames.Float).Set(carried.Get())
        if "PhysicsArticulationRootAPI" in prim.GetAppliedSchemas():  # the links of our arms do not meet each other
            prim.CreateAttribute("newton:selfCollisionEnabled", Sdf.ValueTypeNames.Bool).Set(False)
    stage.GetRootLayer().Save()
    return made


class IsaacScene:
    """See `stepped.StepEngine`.

    Args:
      robot: the articulation, `things` the rigid objects, `joints` names in the order of the near side.
      origins: (N, 3) of each world in the stage [m].
      advance: takes a step of time in all of them.
    """

    def __init__(
        self, robot: Any, things: Sequence[Any], joints: Sequence[str], origins: Any, advance: Callable[[], None]
    ) -> None:
        self.robot, self._things, self._origins, self._advance = robot, things, origins, advance
        self._columns = torch.tensor([robot.joint_names.index(name) for name in joints], device=origins.device)
        self._order, self._joints = self._columns.int(), len(joints)

    def put(self, worlds: np.ndarray, qpos: Array, qvel: Array) -> None:
        rows = self._tensor(worlds.astype(np.int32))
        q, v, n = self._tensor(qpos), self._tensor(qvel), self._joints
        self.robot.write_joint_position_to_sim_index(
            position=q[:, :n].contiguous(), joint_ids=self._order, env_ids=rows
        )
        self.robot.write_joint_velocity_to_sim_index(
            velocity=v[:, :n].contiguous(), joint_ids=self._order, env_ids=rows
        )
        for k, thing in enumerate(self._things):
            pose, twist = q[:, n + 7 * k : n + 7 * k + 7], v[:, n + 6 * k : n + 6 * k + 6]
            pos, quat = pose[:, :3] + self._origins[rows.long()], pose[:, [4, 5, 6, 3]]
            turned = torch.cat([twist[:, :3], rotate(quat, twist[:, 3:])], 1)
            thing.write_root_link_pose_to_sim_index(root_pose=torch.cat([pos, quat], 1).contiguous(), env_ids=rows)
            thing.write_root_link_velocity_to_sim_index(root_velocity=turned.contiguous(), env_ids=rows)

    def step(self, control: Array) -> None:
        self.robot.actuators.target_command.set_position_index(value=self._tensor(control), joint_ids=self._order)
        self._advance()

    def state(self) -> tuple[Array, Array]:
        data = self.robot.data
        qpos, qvel = [data.joint_pos.torch[:, self._columns]], [data.joint_vel.torch[:, self._columns]]
        for thing in self._things:
            pose, twist = thing.data.root_link_pose_w.torch, thing.data.root_link_vel_w.torch
            quat = pose[:, 3:]
            qpos += [pose[:, :3] - self._origins, quat[:, [3, 0, 1, 2]]]
            qvel += [twist[:, :3], rotate(quat * quat.new_tensor([-1.0, -1.0, -1.0, 1.0]), twist[:, 3:])]
        return torch.cat(qpos, 1).cpu().numpy(), torch.cat(qvel, 1).cpu().numpy()

    def _tensor(self, array: np.ndarray) -> Any:
        return torch.tensor(array, device=self._origins.device)


def rotate(quat: Any, vector: Any) -> Any:
    """(M, 3) `vector` turned by the unit quaternions (M, 4), xyzw."""
    axis, w = quat[:, :3], quat[:, 3:]
    t = 2.0 * torch.cross(axis, vector, dim=1)
    return vector + w * t + torch.cross(axis, t, dim=1)
