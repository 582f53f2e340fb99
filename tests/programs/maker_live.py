"""What the nodes of a deployment ask a trajectory controller for, each millisecond, heard by somebody beside them.

`robolearn deploy --rehearse` runs a policy on the FR3's emulated driver. A node of our own hears the messages to the
controller, with the times at which they arrived; the emulator's controller, on a clock of its own and beginning anew
where the scene is reset, makes set-points of them. Nodes are killed, held up and interrupted meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

os.environ.setdefault("ROS_DOMAIN_ID", "71")
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from rclpy.node import Node
from rehearse_arms import trained
from running import Running

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages
from hardware.ros2.process import Background, wait_until
from hardware.ros2.runtime import realtime
from hardware.ros2.sim_arm_node import COMMANDS
from robolearn.bench.emulators.trajectory_controller import PERIOD_S, TrajectoryController, TrajectoryPoint
from robots.stations import load_contract

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 3
Heard = list[tuple[float, messages.JointTrajectory]]
LISTENS = 20  # real-time priority beside nodes with 10: what is heard late would seem to have been sent late
ELSEWHERE = 0.05  # [rad] so far away begins, after a silence, the motion of an arm that was put elsewhere
RESTS_S = 1.0  # without a message, an arm has come to rest by itself
MOVES = 200  # messages to the controller, a second of them, before something is done to a node
KILLED = ("safety", "streamer", "policy", "sim_arm")


def kill(node: str) -> Callable[[Running], None]:
    return lambda running: os.kill(running.pid(node), signal.SIGKILL)


def hold_up(running: Running) -> None:
    """The safety node does not run for 20 to 200 ms, ten times."""
    pid = running.pid("safety")
    for seconds in np.linspace(0.02, 0.2, 10):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)


def interrupt(running: Running) -> None:
    """Ctrl-C."""
    os.kill(running.process.pid, signal.SIGINT)


FAULTS: dict[str, Callable[[Running], None]] = {
    **{f"kill {node}": kill(node) for node in KILLED}, "hold up": hold_up, "Ctrl-C": interrupt,
}  # fmt: skip


def live(episodes: int) -> dict[str, np.ndarray]:
    """Name → (T, 7) set-points of each motion: of `episodes` of a trained policy, and one in which each fault comes."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        policy = trained(Path(place), "fr3")
        for name, fault in {"episodes": None, **FAULTS}.items():
            heard = deployment(policy, Path(place) / name.replace(" ", "-"), 1 if fault else episodes, fault)
            for k, motion in enumerate(motions(heard)):
                found[f"filtered, live, {name} {k}"] = motion
    return found


def deployment(policy: Path, logs: Path, episodes: int, fault: Callable[[Running], None] | None) -> Heard:
    """What was sent to the controller, and when it arrived [s]; `fault` comes a second after the first motion."""
    contract, heard = load_contract("fr3"), []
    words = ("deploy", "--rehearse", "--robot", "fr3", "--policy", policy, "--episodes", episodes, "--seconds", 10)
    with Background(DOMAIN) as ros:
        node = ros.add(Node("beside", context=ros.context))
        take = lambda message, info: heard.append((1e-9 * info["received_timestamp"], message))  # noqa: E731
        node.create_subscription(messages.JointTrajectory, contract.command.topic, take, COMMANDS)
        running = Running(logs, *words, domain=DOMAIN)
        realtime(LISTENS)
        try:
            if fault is not None:
                ended = lambda: running.process.poll() is not None  # noqa: E731
                wait_until(lambda: moving(heard) > MOVES or ended(), 120.0, "the arm to move")
                assert not ended(), running.end()[2]
                with suppress(ProcessLookupError):  # the episode has ended
                    fault(running)
            code, _, said = running.end()
            if code and fault is None:
                print(f"the deployment ended before its episodes were done: {said}", file=sys.stderr)
        finally:
            running.close()
    return heard


def moving(heard: Heard) -> int:
    """Messages whose motion goes on behind the point that is due."""
    return sum(np.ptp([p.positions for p in message.points], axis=0).max() > 1e-3 for _, message in list(heard))


def motions(heard: Heard) -> Iterator[np.ndarray]:
    """(T, n) set-points of each motion, from rest to rest."""
    joints = load_contract("fr3").joints
    way: list[np.ndarray] = []
    leads, now, velocity, last_at = TrajectoryController(joints, np.zeros(7)), 0.0, np.zeros(7), -np.inf
    for at, message in [*heard, (np.inf, None)]:
        while way and now < min(at, last_at + RESTS_S):
            now += PERIOD_S
            way.append(np.array(leads.sample(now, way[-1], velocity)))
            velocity = (way[-1] - way[-2]) / PERIOD_S
        points = [TrajectoryPoint(messages.seconds(p.time_from_start), np.array(p.positions), np.array(p.velocities))
                  for p in (message.points if message else ())]  # fmt: skip
        silent = at - last_at
        reset = points and way and np.abs(points[0].positions - way[-1]).max() > ELSEWHERE
        if not points or silent > RESTS_S or (reset and silent > 0.2 * RESTS_S):
            if way:
                yield np.array(way)
            if not points:
                return
            leads, now, velocity = TrajectoryController(joints, points[0].positions), at, np.zeros(7)
            way = [points[0].positions]
        if why := leads.accept(tuple(message.joint_names), points, messages.seconds(message.header.stamp), now):
            print(f"the controller refuses a message: {why}", file=sys.stderr)
        last_at = at
