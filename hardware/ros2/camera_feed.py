"""The newest pictures of a station's cameras, for a person to look at."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background
from robolearn.core import BadInput
from robots.stations import AnyContract
from robots.stations.pictures import raw_picture, turned

FRESH_S = 1.0  # a picture that is older is not of now
NAME = "film"  # of its node and its enclave: who looks through the cameras


class CameraFeed:
    """Receives the cameras of a station, by a node that spins in `background`."""

    def __init__(self, background: Background, contract: AnyContract) -> None:
        nodes = topics.namespace_of_nodes(contract.namespace)
        node = background.add(Node(NAME, namespace=nodes, context=background.context))
        self._cameras, self._newest = contract.cameras, dict[str, tuple[float, Any]]()
        for name, camera in contract.cameras.items():
            kind = messages.message_type(camera.type)
            node.create_subscription(kind, camera.topic, partial(self._on_picture, name), qos.sensor(2))

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """Camera → (H, W, 3), turned as the contract has it, neither cut nor resized; those of now that can be read."""
        found = {}
        for name, (arrived, message) in list(self._newest.items()):
            camera = self._cameras[name]
            if time.monotonic() - arrived <= FRESH_S:
                try:
                    found[name] = np.ascontiguousarray(turned(raw_picture(message, camera.depth), camera.rotate))
                except BadInput:
                    continue  # whoever needs it is told
        return found

    def _on_picture(self, name: str, message: Any) -> None:
        self._newest[name] = (time.monotonic(), message)
