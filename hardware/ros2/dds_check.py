"""The DDS check: do messages go between two processes on this machine; part of `robolearn doctor`.

    python -m hardware.ros2.dds_check

prints one JSON object: ``rmw``, ``domain``, ``range``, ``wait_s`` until the first answer, ``roundtrip_ms`` (median).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import rclpy
from rclpy.utilities import get_rmw_implementation_identifier
from std_msgs.msg import String

from hardware.ros2.process import Background
from hardware.ros2.topics import NAMESPACE

ROUNDS = 20
LIMIT_S = 15.0


def round_trips(limit_s: float = LIMIT_S) -> dict[str, object]:
    """Start a second process, send it messages and wait until they come back. Raises `TimeoutError`: no answer within
    `limit_s`; the message has whether the other process was seen at all."""
    name = f"{NAMESPACE}/doctor_{os.getpid()}"
    command = [sys.executable, "-P", "-m", "hardware.ros2.dds_check", "--echo", name]
    with Background() as background:
        node = background.add(rclpy.create_node(f"doctor_{os.getpid()}", context=background.context))
        heard: list[str] = []
        ping = node.create_publisher(String, f"{name}_ping", 1)
        node.create_subscription(String, f"{name}_pong", lambda message: heard.append(message.data), 1)
        child = subprocess.Popen(command, stdin=subprocess.PIPE)
        began = time.monotonic()
        times: list[float] = []
        wait = 0.0
        try:
            while len(times) < ROUNDS + 1:
                text, sent = f"{len(times)}", time.monotonic()
                ping.publish(String(data=text))
                # What was sent before the two had found each other is lost: send again.
                while text not in heard and time.monotonic() - sent < 0.1:
                    time.sleep(0.0005)
                if text in heard:
                    times.append(time.monotonic() - sent)
                    wait = time.monotonic() - began if len(times) == 1 else wait
                elif time.monotonic() - began > limit_s:
                    seen = "saw each other, but" if ping.get_subscription_count() else "did not see each other:"
                    raise TimeoutError(f"two processes {seen} no message came within {limit_s:g} s")
        finally:
            child.communicate(timeout=5)
    return {
        "rmw": get_rmw_implementation_identifier(),
        "domain": int(os.environ.get("ROS_DOMAIN_ID") or 0),
        "range": os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", ""),
        "wait_s": round(wait, 2),
        "roundtrip_ms": round(1e3 * statistics.median(times[1:]), 2),
    }


def echo(name: str) -> None:
    """Send back whatever comes, until stdin is closed: by the end of the asking process, however it ends."""
    with Background() as background:
        node = background.add(rclpy.create_node(f"doctor_echo_{os.getpid()}", context=background.context))
        pong = node.create_publisher(String, f"{name}_pong", 1)
        node.create_subscription(String, f"{name}_ping", pong.publish, 1)
        sys.stdin.read()


def main(argv: Sequence[str]) -> int:
    """The exit code: 0 messages went there and back, 1 they did not."""
    if argv[:1] == ["--echo"]:
        echo(argv[1])
        return 0
    try:
        print(json.dumps(round_trips()))
    except TimeoutError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
