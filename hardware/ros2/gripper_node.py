"""The node `gripper`: passes the opening that the safety node commands on to a gripper that takes only actions.

    franka_msgs/action/Grasp            franka_gripper: `<name>/move` opens, `<name>/grasp` closes with `force`
    control_msgs/action/GripperCommand  Robotiq's and others: the position of the gripper's joint, `force` as its effort

With the parameter `if_needed` it ends at once where the contract has no such action: launch files cannot read one. Of
two arms each may have such a gripper.

It listens to a contract's gripper topic only while the action's servers are there: the safety node does not arm an
arm whose gripper has no listener.

A driver may die or hang at any moment: a server that was killed counts as there until its lease ends, 20 s with DDS's
defaults, and a goal that it had taken never ends. So each question has its time, after which it is given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from rclpy.action.client import ActionClient
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from hardware.execution.gripper_goals import GripperGoals
from hardware.observing.joints import JointReader
from hardware.ros2 import messages, qos
from hardware.ros2.observation_inputs import hear_joints
from hardware.ros2.runtime import Node
from robolearn.core import BadInput
from robots.stations import FRANKA_GRASP, Contract

ANSWER_S = 2.0  # for taking or refusing a goal, and for ending one that was cancelled


class ActionGoal:
    """A goal that is sent to the action of `client` at once. The motion itself may take as long as it takes. `ended` is
    called once, with True where the goal had been taken; not after `forget`. `clock` is the steady time [s]."""

    def __init__(
        self,
        client: ActionClient,
        goal: Any,
        ended: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ended: Callable[[bool], None] | None = ended
        self._clock = clock
        self._asked: float | None = clock()
        self._handle: Any = None
        self._cancelling = False
        self._future = _send(client, goal)
        self._future.add_done_callback(self._answered)

    @property
    def silent(self) -> bool:
        """True where the server owes an answer for too long."""
        return self._asked is not None and self._clock() - self._asked > ANSWER_S

    def cancel(self) -> None:
        """Ask for its end, once; before it is taken there is nothing to cancel."""
        if self._handle is not None and not self._cancelling:
            self._cancelling, self._asked = True, self._clock()
            self._handle.cancel_goal_async()

    def forget(self) -> None:
        """Whatever comes of it is passed over."""
        self._ended = None
        self._future.cancel()  # and so rclpy forgets it, too

    def _answered(self, future: Any) -> None:
        if self._ended is None:
            return
        self._handle, self._asked = future.result(), None
        if not self._handle.accepted:
            self._end(False)
            return
        self._future = self._handle.get_result_async()
        self._future.add_done_callback(lambda _: self._end(True))

    def _end(self, taken: bool) -> None:
        ended, self._ended, self._asked = self._ended, None, None
        if ended is not None:
            ended(taken)


def _send(client: ActionClient, goal: Any) -> Any:
    """`send_goal_async`, and no more than its future stays with the client. That of rclpy 9 makes two futures and keeps
    the one that never ends; and its executor goes through all that it keeps at each message of the action."""
    known = {id(one) for one in getattr(client, "_futures", ())}
    future = client.send_goal_async(goal)
    for other in list(getattr(client, "_futures", ())):
        if id(other) not in known and other is not future:
            client.remove_future(other)
    return future


log = logging.getLogger(__name__)

LOOK_S = 0.25
TICK_S = 0.02


def has_actions(contract: Contract) -> bool:
    """True where the gripper is reached by this node; emulators of drivers do without actions that are not installed.
    Raises `BadInput`: those of a real arm are not installed."""
    if contract.gripper is None or contract.gripper.action is None:
        return False
    try:
        messages.installed_type(contract.gripper.action.type)
    except BadInput:
        if not contract.simulated:
            raise
        return False
    return True


class ArmGripper:
    """The gripper of one arm behind its action, for the `node` that asks for its goals."""

    def __init__(self, node: Node, contract: Contract) -> None:
        assert contract.gripper is not None and contract.gripper.action is not None
        action = contract.gripper.action
        self._node, self._contract, self._action = node, contract, action
        self._topic = contract.gripper.topic
        self._goals = GripperGoals(contract.robot.gripper.max_width)
        self._reader = JointReader(contract)
        hear_joints(node, contract, self._reader, self._on_joints)
        kind, name = action.type, action.name
        self._actions: dict[bool, ActionClient] = {}  # closing → client
        if kind == FRANKA_GRASP:
            self._actions[False] = ActionClient(
                node, messages.installed_type(kind.replace("Grasp", "Move")), f"{name}/move"
            )
            self._actions[True] = ActionClient(node, messages.installed_type(kind), f"{name}/grasp")
        else:
            self._actions[False] = self._actions[True] = ActionClient(node, messages.installed_type(kind), name)
        self._listens = False  # to openings
        self._goal: ActionGoal | None = None  # under way
        self._refused = 0

    def close(self) -> None:
        """Its node is cleaned up."""
        for client in {id(one): one for one in self._actions.values()}.values():
            client.destroy()

    def look(self) -> None:
        """Listen to openings while the action's servers are there."""
        there = all(client.server_is_ready() for client in self._actions.values())
        if there and not self._listens:
            self._listens = True
            self._node.hear(Float64MultiArray, self._topic, self._on_opening, qos.CONTROLLER)
        elif not there and self._listens:
            log.error("the action servers of %s are gone", self._action.name)
            self.stop_listening()

    def stop_listening(self) -> None:
        """The safety node does not arm an arm whose gripper has no listener."""
        self._listens = False
        self._node.unhear(self._topic)
        self._give_up()

    def _give_up(self) -> None:
        if self._goal is not None:
            self._goal.forget()
            self._ended(False)

    def _on_joints(self, message: JointState, info: MessageInfo) -> None:
        self._reader.update(*messages.named(message), messages.seconds(message.header.stamp), messages.publisher(info))

    def _on_opening(self, message: Float64MultiArray, info: MessageInfo) -> None:
        values = list(message.data)
        if not values:
            return
        self._goals.want(values[0] if self._contract.gripper_takes_opening else self._contract.gripper_width(values))

    def tick(self) -> None:
        """Send the goal that is due."""
        if not self._listens:
            return
        if self._goal is not None and self._goal.silent:
            log.error("%s does not answer: its goal of %.3f m is given up", self._action.name, self._goals.goal)
            self._give_up()
        elif not self._goals.due:
            return
        elif self._goal is not None:
            self._goal.cancel()
        else:
            width, closing = self._goals.begin(self._reader.width)
            self._goal = ActionGoal(self._actions[closing], self._message(width, closing), self._ended)

    def _ended(self, taken: bool) -> None:
        self._goal = None
        if not taken:
            self._refused += 1
            if self._refused == 1:
                what = self._action.name, self._goals.goal
                log.error("%s did not take a goal of %.3f m; sent again twice a second", *what)
        self._goals.done(started=taken)

    def _message(self, width: float, closing: bool) -> Any:
        action = self._action
        kind = messages.installed_type(action.type)
        if action.type != FRANKA_GRASP:
            goal = kind.Goal()
            goal.command.position = float(self._contract.gripper_joint_positions(width)[0])
            goal.command.max_effort = action.force
            return goal
        if not closing:
            return messages.installed_type(action.type.replace("Grasp", "Move")).Goal(width=width, speed=action.speed)
        goal = kind.Goal(width=width, speed=action.speed, force=action.force)
        # Whatever is held is held: the policy says how far to close, not what it holds.
        goal.epsilon.inner = goal.epsilon.outer = self._contract.robot.gripper.max_width
        return goal


class GripperNode(Node):
    """Openings in, goals out. Args: see `Node`."""

    def __init__(self, **station: Any) -> None:
        super().__init__("gripper", **station)

    def configure(self) -> None:
        contract = self.any_station()
        self._grippers = [ArmGripper(self, arm) for arm in contract.arms.values() if has_actions(arm)]
        if self._grippers:
            return
        if not self.value("if_needed"):
            raise BadInput(f"contract {contract.name}", got="no gripper.action", expected="one, for this node")
        log.info("contract %s has no gripper.action: nothing to do", contract.name)
        self.done = True

    def activate(self) -> None:
        if self.done:
            return
        self._looking = self.every(LOOK_S, self._look)
        # A stream of openings wakes an executor a few hundred times a second, which is a whole core: see `beat`.
        self._still = self.beat(TICK_S, self._tick)

    def deactivate(self) -> None:
        if self.done:
            return
        self._still()
        self.destroy_timer(self._looking)
        for gripper in self._grippers:
            gripper.stop_listening()

    def cleanup(self) -> None:
        self.unhear(*(topic for topic, _ in self._inputs))
        for gripper in self._grippers:
            gripper.close()

    def _look(self) -> None:
        for gripper in self._grippers:
            gripper.look()

    def _tick(self) -> None:
        self.take_all()
        for gripper in self._grippers:
            gripper.tick()
