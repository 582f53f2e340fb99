"""The node `gripper`: passes the opening that the safety node commands on to a gripper that knows only actions.

    franka_msgs/action/Grasp            franka_gripper: `<name>/move` opens, `<name>/grasp` closes with `force`
    control_msgs/action/GripperCommand  Robotiq's and others: the position of the gripper's joint, `force` as its effort

It listens to the contract's gripper topic only while the action's servers are there: the safety node does not arm an
arm whose gripper nobody listens for.
"""

from __future__ import annotations

import logging
from typing import Any, Unpack

from rclpy.action.client import ActionClient
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from hardware.gripper_goals import GripperGoals
from hardware.observer import JointReader
from hardware.ros2 import messages, qos
from hardware.ros2.observation_inputs import hear_joints
from hardware.ros2.station_node import StationNode, StationOptions
from robolearn.core import BadInput
from robots.stations import FRANKA_GRASP, Contract, GripperAction

log = logging.getLogger(__name__)

LOOK_S = 0.25
TICK_S = 0.02


def has_actions(contract: Contract) -> bool:
    """Whether the gripper is reached by this node; the doubles of drivers do without actions that are not installed.

    Raises:
      BadInput: those of a real arm are not installed.
    """
    if contract.gripper is None or contract.gripper.action is None:
        return False
    try:
        messages.installed_type(contract.gripper.action.type)
    except BadInput:
        if not contract.simulated:
            raise
        return False
    return True


class GripperNode(StationNode):
    """Openings in, goals out. Args: see `StationNode`."""

    def __init__(self, **station: Unpack[StationOptions]) -> None:
        super().__init__("gripper", {}, **station)

    def configure(self) -> None:
        contract = self.contract = self.station()
        if contract.gripper is None or contract.gripper.action is None:
            raise BadInput(f"contract {contract.name}", got="no gripper.action", expected="one, for this node")
        self._action: GripperAction = contract.gripper.action
        self._goals = GripperGoals(contract.robot.gripper.max_width)
        self._reader = JointReader(contract)
        self._joints = hear_joints(self, contract, self._on_joints)
        self._actions: dict[bool, ActionClient] = {}  # closing → client
        kind, name = self._action.type, self._action.name
        if kind == FRANKA_GRASP:
            self._actions[False] = ActionClient(
                self, messages.installed_type(kind.replace("Grasp", "Move")), f"{name}/move"
            )
            self._actions[True] = ActionClient(self, messages.installed_type(kind), f"{name}/grasp")
        else:
            self._actions[False] = self._actions[True] = ActionClient(self, messages.installed_type(kind), name)
        self._heard: Any = None  # the subscription to openings
        self._handle: Any = None  # of the goal under way
        self._cancelling = False
        self.every(LOOK_S, self._look)
        self.every(TICK_S, self._tick)

    def _look(self) -> None:
        there = all(client.server_is_ready() for client in self._actions.values())
        assert self.contract.gripper is not None
        topic = self.contract.gripper.topic
        if there and self._heard is None:
            self._heard = self.create_subscription(Float64MultiArray, topic, self._on_opening, qos.CONTROLLER)
        elif not there and self._heard is not None:
            log.error("the gripper's action servers are gone")
            self.destroy_subscription(self._heard)
            self._heard = self._handle = None
            self._cancelling = False
            self._goals.done(started=False)

    def _on_joints(self, message: JointState, info: MessageInfo) -> None:
        self._reader.update(*messages.named(message), messages.seconds(message.header.stamp))

    def _on_opening(self, message: Float64MultiArray) -> None:
        values = list(message.data)
        if not values:
            return
        self._goals.want(values[0] if self.contract.gripper_takes_opening else self.contract.gripper_width(values))

    def _tick(self) -> None:
        for take in self._joints:
            take()
        goals = self._goals
        if not goals.due or self._heard is None:
            return
        if not goals.busy:
            width, closing = goals.begin(self._reader.width)
            future = self._actions[closing].send_goal_async(self._goal(width, closing))
            future.add_done_callback(self._on_answer)
        elif self._handle is not None and not self._cancelling:
            self._cancelling = True
            self._handle.cancel_goal_async()

    def _goal(self, width: float, closing: bool) -> Any:
        action = self._action
        kind = messages.installed_type(action.type)
        if action.type != FRANKA_GRASP:
            goal = kind.Goal()
            goal.command.position = float(self.contract.gripper_joint_positions(width)[0])
            goal.command.max_effort = action.force
            return goal
        if not closing:
            return messages.installed_type(action.type.replace("Grasp", "Move")).Goal(width=width, speed=action.speed)
        goal = kind.Goal(width=width, speed=action.speed, force=action.force)
        # Whatever is held is held: the policy says how far to close, not what it holds.
        goal.epsilon.inner = goal.epsilon.outer = self.contract.robot.gripper.max_width
        return goal

    def _on_answer(self, future: Any) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            log.error("the gripper refused a goal of %.3f m", self._goals.goal)
            self._goals.done(started=False)
            return
        self._handle = handle
        handle.get_result_async().add_done_callback(self._on_result)

    def _on_result(self, future: Any) -> None:
        self._handle, self._cancelling = None, False
        self._goals.done()
