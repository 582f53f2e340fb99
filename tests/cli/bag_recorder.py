"""Bags at realistic, irregular rates, written and read back without robolearn's own reader and writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer

from robolearn.data.convert.bags import EPISODE_EVENTS
from robolearn.data.convert.bags.write import Messages
from robots import make_control
from robots.stations import COMPRESSED, FLOATS, IMAGE, JOINT_STATE, STRING, TRAJECTORY, Contract

T0 = 1_790_000_000_123_456_789  # [ns]
SIZE = (48, 64)

CONTRACT = """
robot: {robot}
action_kind: {kind}
control_hz: 20
stream_hz: 200
joints: [{joints}]
joint_states: {{topic: /joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.06}}
command: {{topic: /arm/command, type: {command}, max_age_s: 0.1{posture}}}
gripper: {{joints: [finger], topic: /hand/command, type: std_msgs/msg/Float64MultiArray, unit: opening{states}}}
cameras:
  front: {{topic: /front/image, type: sensor_msgs/msg/Image, size: [48, 64], max_age_s: 0.2}}
  wrist: {{topic: /wrist/compressed, type: sensor_msgs/msg/CompressedImage, size: [48, 64], max_age_s: 0.2}}
"""


STATES = ", states: {topic: /hand/joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.2}"


def write_contract(
    folder: Path, *, robot: str = "panda", kind: str = "tcp_delta", command: str = FLOATS, states: str = ""
) -> Path:
    from robots import ROBOTS

    path = folder / "station.yaml"
    joints = ", ".join(f"left_{joint}" for joint in ROBOTS[robot].joints)
    # An arm with more than six joints takes a pose with the posture that it is meant by.
    posture = (
        ", posture: {topic: /arm/posture, type: sensor_msgs/msg/JointState}" if command.endswith("PoseStamped") else ""
    )
    contract = CONTRACT.format(robot=robot, kind=kind, joints=joints, command=command, states=states, posture=posture)
    path.write_text(contract)
    return path


class Recorder:
    """Writes a bag of an arm that is moved by random actions, with the rates and the jitter of real drivers."""

    def __init__(self, contract: Contract, seed: int = 0) -> None:
        self.contract, self.rng, self.make = contract, np.random.default_rng(seed), Messages()
        self.said: list[tuple[int, str, str, Any]] = []  # logged [ns], topic, type, message
        self.control = make_control(contract.action_kind, contract.robot)
        self.now = T0

    def say(self, at: float, topic: str, kind: str, message: Any, late: float = 0.0) -> None:
        self.said.append((int(at + late), topic, kind, message))

    def event(self, kind: str, task: str = "") -> None:
        self.say(self.now, EPISODE_EVENTS, STRING, self.make.text(json.dumps({"event": kind, "task": task})))

    def times(self, hz: float, until: int) -> np.ndarray:
        """Irregular stamps [ns] from now on: periods vary by a fifth."""
        count = int((until - self.now) * 1e-9 * hz * 1.5) + 2
        steps = (1e9 / hz) * (1 + 0.2 * self.rng.uniform(-1, 1, count))
        at = self.now + np.cumsum(steps).astype(np.int64)
        return at[at < until]

    def move(self, seconds: float, q: np.ndarray) -> np.ndarray:
        """Joints, commands, openings and images for a while; where the arm is then."""
        c, until, step = self.contract, self.now + int(seconds * 1e9), 50_000_000
        begin = self.now
        frames = int((until - begin) // step) + 1
        path, goals, openings = [q], [], []
        for i in range(frames):
            action = 0.15 * np.sin(0.3 * i + np.arange(self.control.spec.size))
            if c.action_kind == "joint_position":
                lower, upper = c.robot.lower, c.robot.upper
                action[:-1] = np.clip(2 * (path[-1] + 0.02 * action[:-1] - lower) / (upper - lower) - 1, -1, 1)
            goal, _ = self.control.targets(path[-1][None], None, action[None])
            goals.append(goal[0])
            openings.append(0.04 if i % 12 < 6 else 0.01)
            path.append(goal[0])
        knots = begin + step * np.arange(frames + 1)

        def q_at(t: int) -> np.ndarray:
            # The arm moves within the first half of a step: at grid points it stands where the step begins.
            i = min(int((t - begin) // step), frames - 1)
            share = min(1.0, 2 * (t - knots[i]) / step)
            return path[i] + share * (path[i + 1] - path[i])

        names = (*c.joints, "other" if c.gripper_states else "finger", "other_joint")
        order = self.rng.permutation(len(names))
        for t in self.times(200.0, until):
            positions = np.array([*q_at(int(t)), 0.02 + 0.01 * np.sin(1e-9 * (t - T0)), 7.0])
            message = self.make.joint_state([names[k] for k in order], positions[order], int(t))
            self.say(t, "/joint_states", JOINT_STATE, message, late=self.rng.uniform(2e5, 2e6))
        for t in self.times(40.0, until) if c.gripper_states else ():
            message = self.make.joint_state(["finger"], [0.02 + 0.01 * np.sin(1e-9 * (t - T0))], int(t))
            self.say(t, "/hand/joint_states", JOINT_STATE, message, late=self.rng.uniform(2e5, 2e6))
        for t in self.times(100.0, until):
            i = min(int((t - begin) // step), frames - 1)
            values = goals[i]
            if c.command.type == TRAJECTORY:
                message = self.make.trajectory(c.joints, values, 0.05)
            elif c.command.type == FLOATS:
                message = self.make.floats(values)
            else:
                from robolearn.core.se3 import matrix_to_quat

                pos, rot = c.robot.chain.forward(values[None])
                message = self.make.pose(pos[0], matrix_to_quat(rot)[0], int(t))
            self.say(t, c.command.topic, c.command.type, message)
        for i in range(0, frames, 6):
            t = knots[i] + int(self.rng.uniform(1e6, 9e6))
            if t < until:
                self.say(t, "/hand/command", FLOATS, self.make.floats([openings[i]]))
        for topic, kind, hz in (("/front/image", IMAGE, 30.0), ("/wrist/compressed", COMPRESSED, 15.0)):
            for t in self.times(hz, until):
                level = int(1e-9 * (t - T0) * 20) % 200 + 20
                picture = np.full((*SIZE, 3), level, np.uint8)
                picture[:, : SIZE[1] // 2] = (level, 250 - level, 60)
                message = self.make.image(kind, picture, int(t))
                self.say(t, topic, kind, message, late=self.rng.uniform(5e6, 2e7))
        self.now = until
        return path[-2]

    def episode(self, seconds: float, q: np.ndarray, end: str = "success", task: str = "") -> np.ndarray:
        self.event("start", task)
        q = self.move(seconds, q)
        self.event(end)
        return self.move(0.4, q)

    def write(self, path: Path) -> Path:
        with Writer(path, version=8, storage_plugin=StoragePlugin.MCAP) as bag:
            connections: dict[str, Any] = {}
            for at, topic, kind, message in sorted(self.said, key=lambda said: said[0]):
                if topic not in connections:
                    connections[topic] = bag.add_connection(topic, kind, typestore=self.make.store)
                bag.write(connections[topic], at, bytes(self.make.store.serialize_cdr(message, kind)))
        return path


def heard(path: Path) -> dict[str, dict[int, Any]]:
    """Topic → stamp [µs] → message; a message without a stamp counts from when it was recorded."""
    found: dict[str, dict[int, Any]] = {}
    with AnyReader([path]) as reader:
        for connection, logged, raw in reader.messages():
            message: Any = reader.deserialize(raw, connection.msgtype)
            header = getattr(message, "header", None)
            stamp = 0 if header is None else header.stamp.sec * 10**9 + header.stamp.nanosec
            found.setdefault(connection.topic, {})[round((stamp or logged) / 1000)] = message
    return found


def original(at: int, said: dict[int, Any]) -> Any:
    """What was said within a microsecond of `at` [µs]: stored stamps are float64."""
    return next((said[t] for t in (at, at - 1, at + 1) if t in said), None)
