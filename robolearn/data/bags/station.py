"""What a bag's topics mean, in plain values: made from a robot contract by the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Interface
from robots.spec import RobotSpec

EPISODE_EVENTS = "/robolearn/episode_event"
"""std_msgs/String of JSON: {"event": "start" | "success" | "failure" | "discard" | "redo", "task": words, optional}.

An exported end holds the rest of what a data set stores, see `robolearn.data.bags.events.Ending`: {"terminated": …,
"truncated": …, "frames_ns": […], "interventions": [frame, …], "rewards": [[frame, reward], …], "known": false}.
"""

FLOATS = "std_msgs/msg/Float64MultiArray"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
POSE = "geometry_msgs/msg/PoseStamped"
JOINT_STATE = "sensor_msgs/msg/JointState"
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
STRING = "std_msgs/msg/String"


@dataclass(frozen=True)
class Channel:
    """A topic: its name, its message type in full, and how old its newest message may be [s]."""

    topic: str
    type: str
    max_age_s: float = 0.1


@dataclass(frozen=True, eq=False)
class Station:
    """The topics of an arm, and how their messages become observations and actions.

    Attributes:
      name: for messages.
      robot: the arm.
      interface: what a data set of it holds; ``objects`` and ``images.<camera>`` only where they are wanted.
      joints: (n,) names of the arm's joints in messages, base to tip.
      gripper_joints: names of the gripper's.
      joint_states: where both are measured.
      command: where set-points go: joint positions, a trajectory, or poses of the tcp.
      gripper: where openings go, or None.
      objects: where the task's privileged vector comes from, or None.
      cameras: camera → where its images come from.
      gripper_width: positions of the gripper joints → opening [m].
      gripper_values: opening [m] → numbers of a gripper command.
      gripper_joint_values: opening [m] → positions of the gripper joints.
      opening: a gripper command of `FLOATS` is the opening [m] itself.
      picture: an Image or CompressedImage and (height, width) → (H, W, 3) rgb; raises `BadInput`.
    """

    name: str
    robot: RobotSpec
    interface: Interface
    joints: tuple[str, ...]
    gripper_joints: tuple[str, ...]
    joint_states: Channel
    command: Channel
    gripper: Channel | None
    objects: Channel | None
    gripper_width: Callable[[Sequence[float]], float]
    gripper_values: Callable[[float], Sequence[float]]
    gripper_joint_values: Callable[[float], Sequence[float]]
    opening: bool
    picture: Callable[[Any, tuple[int, int]], NDArray[np.uint8]]
    cameras: Mapping[str, Channel] = field(default_factory=dict)

    @property
    def channels(self) -> dict[str, Channel]:
        """Role → topic, for all that a data set of the interface needs."""
        found = {"joint_states": self.joint_states, "command": self.command}
        if self.gripper is not None:
            found["gripper"] = self.gripper
        if "objects" in self.interface.observation and self.objects is not None:
            found["objects"] = self.objects
        wanted = {f"images.{name}": channel for name, channel in self.cameras.items()}
        return found | {key: channel for key, channel in wanted.items() if key in self.interface.observation}
