"""Takes the pictures of a calibration live: one whenever the arm rests in a new posture and shows the board."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import JointState

from hardware.calibration import Board, Shot
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background
from robolearn.core import BadInput
from robots.stations import Contract
from robots.stations.pictures import raw_picture

REST_S = 0.5  # at rest before and while a picture is taken
STILL = 1e-3  # [rad] within which that is rest
NEW = 0.1  # [rad] that at least one joint is away from where it was in each picture before
POLL_S = 0.02


class ShotTaker:
    """Receives joint states and one camera of a station, by a node that spins in `background`.

    Attributes:
      shots: the pictures taken, with the `board` in them.
      note: why none is being taken now.
    """

    def __init__(self, background: Background, contract: Contract, camera: str, board: Board) -> None:
        nodes = topics.namespace_of_nodes(contract.namespace)
        node = background.add(Node("calibrate", namespace=nodes, context=background.context))
        self.shots: list[Shot] = []
        self.note = "no joint states"
        self._contract, self._board, self._camera = contract, board, contract.cameras[camera]
        self._past: deque[tuple[float, np.ndarray]] = deque()
        self._picture: tuple[float, Any] | None = None
        node.create_subscription(JointState, contract.joint_states.topic, self._on_joints, qos.sensor(50))
        kind = messages.message_type(self._camera.type)
        node.create_subscription(kind, self._camera.topic, self._on_picture, qos.sensor(2))

    def look(self) -> bool:
        """Take a picture, if one can be taken now; True where it was."""
        self.note = self._take()
        return not self.note

    def _take(self) -> str:
        """The reason why no picture is taken, or nothing."""
        past, newest = list(self._past), self._picture
        if not past or time.monotonic() - past[-1][0] > REST_S:
            return f"no joint states on {self._contract.joint_states.topic}"
        if newest is None or time.monotonic() - newest[0] > 2 * REST_S:
            return f"no pictures on {self._camera.topic}"
        arrived, message = newest
        q = np.array([positions for at, positions in past if at >= arrived - REST_S])
        if past[0][0] > arrived - REST_S or len(q) < 2 or np.ptp(q, axis=0).max() > STILL:
            return "hold the arm still"
        here = q.mean(axis=0)
        if any(np.abs(here - shot.positions).max() < NEW for shot in self.shots):
            return "move on, and tilt the hand to another side"
        picture = raw_picture(message, self._camera.depth)
        if self._board.detect(picture) is None:
            return "the board is not seen"
        self.shots.append(Shot(picture, tuple(here.tolist())))
        return ""

    def _on_joints(self, message: JointState) -> None:
        try:
            positions = messages.pick(message, self._contract.joints)
        except BadInput:
            return  # the gripper's
        now = time.monotonic()
        self._past.append((now, positions))
        while now - self._past[0][0] > 4 * REST_S:
            self._past.popleft()

    def _on_picture(self, message: Any) -> None:
        self._picture = (time.monotonic(), message)


def take_shots(
    contract: Contract, camera: str, board: Board, count: int, say: Callable[[str], None], *, domain: int | None = None
) -> list[Shot]:
    """Take `count` pictures while a person moves the arm from posture to posture; fewer after a Ctrl-C."""
    said = ""
    with Background(domain) as background:
        taker = ShotTaker(background, contract, camera, board)
        try:
            while len(taker.shots) < count:
                news = f"picture {len(taker.shots)} of {count}" if taker.look() else taker.note
                if news != said:
                    say(said := news)
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            say(f"ended after {len(taker.shots)} pictures")
        return taker.shots
