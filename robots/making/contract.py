"""The contract of an arm that was made of a model: what the model says, and guesses that a person has to confirm."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from robots.making.source import SourceModel, path_to
from robots.own import GUESS

TABLE_Z = 0.0  # [m]
WORKSPACE = ((0.25, -0.40, 0.01), (0.75, 0.40, 0.65))  # of the tcp [m]


@dataclass(frozen=True)
class DriverGripper:
    """The gripper as its driver has it.

    Attributes:
      joints: as the driver calls them.
      closed, opened: position of each when closed and when open [rad or m].
      guess: what nobody has stated of it, in words; empty: nothing.
    """

    joints: tuple[str, ...]
    closed: float
    opened: float
    guess: str = ""


def driver_gripper(source: SourceModel, fingers: tuple[str, ...] = ()) -> DriverGripper:
    """The gripper of the source, before anything of it is left out: its `fingers` where they are kept, else the first
    joint behind the arm, one with an actuator before others. Knuckles that turn mostly close upwards, fingers that
    slide open upwards: for a joint that is not kept this is a guess."""
    spec = source.spec
    if fingers:
        return DriverGripper(fingers, 0.0, float(spec.joint(fingers[0]).range[1]))
    last = spec.joint(source.joints[-1]).parent.name
    behind = [
        joint for joint in spec.joints
        if joint.name not in source.joints and joint.range[1] > joint.range[0]
        and last in {body.name for body in path_to(joint.parent)}
    ]  # fmt: skip
    if not behind:
        return DriverGripper(("gripper_joint",), 0.0, 1.0, "the model has no gripper")
    driven = {one.target for one in spec.actuators if one.trntype == mujoco.mjtTrn.mjTRN_JOINT}
    joint = next((one for one in behind if one.name in driven), behind[0])
    low, high = (float(value) for value in joint.range)
    turns = joint.type == mujoco.mjtJoint.mjJNT_HINGE
    closed, opened = (high, low) if turns else (low, high)
    return DriverGripper((joint.name,), closed, opened, "the model does not say which end is closed")


def guesses(gripper: DriverGripper) -> list[str]:
    """The lines of `assumed` that a person has to confirm before a real arm moves."""
    table = f"{GUESS}a table at z = {TABLE_Z:g} m of the base, and the workspace above it"
    if not gripper.guess:
        return [table]
    joints = ", ".join(gripper.joints)
    return [f"{GUESS}gripper joint {joints}, closed at {gripper.closed:g}, open at {gripper.opened:g}: {gripper.guess}",
            table]  # fmt: skip


def contract_text(name: str, joints: tuple[str, ...], gripper: DriverGripper) -> str:
    """The text of the contract, for ros2_control."""
    lower, upper = (", ".join(f"{x:.2f}" for x in corner) for corner in WORKSPACE)
    listed = "".join(f"  - {joint}\n" for joint in joints)
    return f"""\
# {name} on ros2_control. What a person has to look up is marked; `robolearn doctor --robot {name}` compares it with the
# running station, and its topics with those that are there.
name: {name}
robot: {name}
driver: ros2_control
action_kind: {"tcp_delta" if len(joints) >= 6 else "joint_position"}
control_hz: 20
stream_hz: 200
# As the driver calls them, base to tip, in the order of the controller's `joints`.
joints:
{listed}\
# joint_state_broadcaster
joint_states:
  topic: joint_states
  type: sensor_msgs/msg/JointState
# The controller that takes set-points: a joint_trajectory_controller. For a forward_command_controller instead:
#   {{topic: forward_position_controller/commands, type: std_msgs/msg/Float64MultiArray}}
command:
  topic: joint_trajectory_controller/joint_trajectory
  type: trajectory_msgs/msg/JointTrajectory
  horizon_s: 0.05 # set-points are sent that much ahead: no motion ends because a message comes late
# Its joint as the driver calls it, and where it is closed and open.
gripper:
  joints: [{", ".join(gripper.joints)}]
  closed: {round(gripper.closed, 6)}
  open: {round(gripper.opened, 6)}
  topic: gripper_controller/commands
  type: std_msgs/msg/Float64MultiArray
  unit: joint
limits:
  velocity_share: 0.5
  acceleration_share: 0.5
  jerk_share: 0.1 # a trajectory controller that interpolates at 1 kHz has five times the jerk of its set-points
  workspace: # of the tcp, in the base frame [m]: measure the table's
    lower: [{lower}]
    upper: [{upper}]
  obstacles:
    table: {{normal: [0, 0, 1], offset: {TABLE_Z}}}
"""
