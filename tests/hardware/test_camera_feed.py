"""The newest pictures of a station's cameras, for a person to look at."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos
from hardware.ros2.camera_feed import FRESH_S, CameraFeed
from hardware.ros2.process import Background, wait_until
from robots.stations import Camera, load_contract

pytestmark = [pytest.mark.realtime]


@pytest.mark.long
def test_pictures_are_those_of_now_as_large_as_they_were_taken_and_turned() -> None:
    cameras = {
        "front": Camera("/feed/front", "sensor_msgs/msg/Image", 0.3, (8, 8), rotate=90),
        "wrist": Camera("/feed/wrist", "sensor_msgs/msg/CompressedImage", 0.3, (8, 8)),
        "absent": Camera("/feed/absent", "sensor_msgs/msg/Image", 0.3, (8, 8)),
    }
    contract = dataclasses.replace(load_contract("sim"), cameras=cameras)
    lying = np.zeros((20, 30, 3), np.uint8)
    lying[:, :5] = 200  # the left edge of what lies is the upper one of what stands
    with Background() as background:
        feed = CameraFeed(background, contract)
        assert feed.pictures() == {}
        node = background.add(Node("cameras", context=background.context))
        front = node.create_publisher(Image, "/feed/front", qos.sensor(2))
        wrist = node.create_publisher(CompressedImage, "/feed/wrist", qos.sensor(2))

        def sent() -> bool:
            front.publish(messages.image(lying, time.time()))
            wrist.publish(messages.compressed_image(np.full((10, 10, 3), 77, np.uint8), time.time()))
            return set(feed.pictures()) == {"front", "wrist"}

        wait_until(sent, 20, "pictures of both cameras")
        seen = feed.pictures()["front"]
        assert seen.shape == (30, 20, 3) and (seen[:5] == 200).all() and (seen[5:] == 0).all()
        assert abs(int(feed.pictures()["wrist"].mean()) - 77) <= 2
        spoilt = CompressedImage(data=b"no picture")
        wrist.publish(spoilt)
        wait_until(lambda: "wrist" not in feed.pictures(), 5, "the spoilt picture")
        time.sleep(FRESH_S + 0.1)
        assert feed.pictures() == {}, "of a second ago"
