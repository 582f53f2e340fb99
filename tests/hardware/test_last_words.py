"""What a node says as it ends is heard, and whoever does not listen keeps no node from ending."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from rclpy.duration import Duration

from hardware.ros2 import process
from hardware.ros2.process import ACKNOWLEDGE_S, wait_until

pytestmark = pytest.mark.realtime

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "ROS_DOMAIN_ID": str(int(os.environ["ROS_DOMAIN_ID"]) + 5),
}
ENDS = 8  # nodes of one program, one after the other: without a wait, about every fifth loses its last words
TOPICS = 20
WORDS = 3
PROGRAM = f"""
import os, signal, sys
from hardware.node_parameters import NodeParameters
from hardware.ros2 import qos
from hardware.ros2.process import host
from hardware.ros2.runtime import Node
from std_msgs.msg import Int64

TOPICS = [f"/count_{{i}}" for i in range({TOPICS})]

class Listener(Node):
    def configure(self):
        for topic in TOPICS:
            hear = lambda message, topic=topic: print(topic, message.data, flush=True)
            self.create_subscription(Int64, topic, hear, qos.stream(lease_s=None, depth=100))

class Talker(Node):
    "Counts on each topic and ends at once; halts a listener, where told to, before the last word."
    def configure(self):
        self.said = 0
        self.voices = [self.create_publisher(Int64, topic, qos.COMMAND) for topic in TOPICS]
        self.every(0.01, self.talk)

    def talk(self):
        if self.done or not all(voice.get_subscription_count() for voice in self.voices):
            return
        self.said += 1
        self.done = self.said == {WORDS}
        if self.done and len(sys.argv) > 2:
            os.kill(int(sys.argv[2]), signal.SIGSTOP)
        for voice in self.voices:
            voice.publish(Int64(data=self.said))

if sys.argv[1] == "listener":
    host(lambda: Listener("listener", NodeParameters()), [])
else:
    for _ in range({ENDS} if sys.argv[1] == "talkers" else 1):
        host(lambda: Talker("talker", NodeParameters()), [])
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, env=ENVIRONMENT, text=True
    )


@pytest.fixture
def listener() -> Iterator[subprocess.Popen[str]]:
    process = start("listener")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_last_words_are_heard(listener: subprocess.Popen[str]) -> None:
    assert start("talkers").wait(60) == 0
    time.sleep(0.5)
    listener.send_signal(signal.SIGTERM)
    said, _ = listener.communicate(timeout=10)
    last = Counter(topic for topic, word in map(str.split, said.splitlines()) if int(word) == WORDS)
    assert last.total() == ENDS * TOPICS, last


@pytest.mark.long
def test_whoever_does_not_listen_keeps_no_node_from_ending(listener: subprocess.Popen[str]) -> None:
    state = Path(f"/proc/{listener.pid}/stat")
    talker = start("talker", str(listener.pid))
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", 60, "a listener that is halted")
    halted = time.monotonic()
    assert talker.wait(60) == 0
    # Once for all topics; the rest is the end of a process on a busy machine.
    assert ACKNOWLEDGE_S < time.monotonic() - halted < 0.5 * ACKNOWLEDGE_S * TOPICS


def test_a_middleware_that_cannot_tell_gets_the_same_time(caplog: pytest.LogCaptureFixture) -> None:
    class Mute:
        def wait_for_all_acked(self, timeout: Duration) -> None:
            raise RuntimeError("unsupported")

    node = SimpleNamespace(
        publishers=[Mute(), Mute()], context=SimpleNamespace(ok=lambda: True), get_name=lambda: "safety"
    )
    began = time.monotonic()
    process.wait_acknowledged(node)  # type: ignore[arg-type]
    assert ACKNOWLEDGE_S <= time.monotonic() - began < 1.5 * ACKNOWLEDGE_S
    assert "safety" in caplog.text and "unsupported" in caplog.text
