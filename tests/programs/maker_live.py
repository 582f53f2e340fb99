"""What the nodes of a deployment ask a trajectory controller for, each millisecond, heard by somebody beside them.

`robolearn deploy --rehearse` runs a policy on the FR3's emulated driver, a person's process moves it, or both in turn.
A node of our own hears the messages to the controller, with the times at which they arrived; the emulator's controller,
on a clock of its own and beginning anew where the scene is reset, makes set-points of them. Nodes are killed, held up
and interrupted meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

import numpy as np

os.environ.setdefault("ROS_DOMAIN_ID", "71")
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from rclpy.node import Node
from rehearse_arms import trained
from running import ROOT, Running

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages
from hardware.ros2.process import Background, wait_until
from hardware.ros2.runtime import realtime
from hardware.ros2.sim_driver import COMMANDS
from robolearn.bench.emulators.rehearsal import rehearsal
from robolearn.bench.emulators.trajectory_controller import PERIOD_S, TrajectoryController, TrajectoryPoint
from robolearn.deploy.processes import Program, StackProcesses, arm_programs
from robots.stations import load_contract

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 3
Heard = list[tuple[float, messages.JointTrajectory]]
LISTENS = 20  # real-time priority beside nodes with 10: what is heard late would seem to have been sent late
ELSEWHERE = 0.05  # [rad] so far away begins, after a silence, the motion of an arm that was put elsewhere
RESTS_S = 1.0  # without a message, an arm has come to rest by itself
MOVES = 200  # messages to the controller, a second of them, before something is done to a node
DELAYED = 3  # control steps by which the chunks of a slow policy come late
END_S = 120.0
PRIORITY = 10


class Nodes(Protocol):
    """A station's nodes, and what moves its arm."""

    def pid(self, node: str) -> int: ...
    def ended(self) -> bool: ...
    def interrupt(self) -> None: ...
    def end(self) -> str:
        """Wait for the end of what moves the arm, and end the rest; what went wrong, or nothing."""
        ...

    def close(self) -> None: ...


class Deployed:
    """`robolearn deploy --rehearse`."""

    def __init__(self, logs: Path, policy: Path, seed: int, episodes: int, *words: object) -> None:
        words = ("--policy", policy, "--episodes", episodes, "--seed", seed, "--seconds", 10, *words)
        self._running = Running(logs, "deploy", "--rehearse", "--robot", "fr3", *words, domain=DOMAIN)
        self.pid, self.close = self._running.pid, self._running.close

    def ended(self) -> bool:
        return self._running.process.poll() is not None

    def interrupt(self) -> None:
        os.kill(self._running.process.pid, signal.SIGINT)

    def end(self) -> str:
        code, _, said = self._running.end()
        return said if code else ""


class Operated:
    """A person's process beside the nodes of a rehearsal; with a policy the two move the arm in turn."""

    def __init__(self, logs: Path, policy: Path | None, seed: int) -> None:
        self._stack = ExitStack()
        path = self._stack.enter_context(rehearsal("fr3"))
        words = (sys.executable, str(Path(__file__).with_name("maker_person.py")), path, str(seed))
        person = Program("person", (*words, *([str(policy)] if policy else ())))
        emulator = ("robolearn.bench.emulators.node", "60")
        arm = arm_programs(load_contract(path), path, PRIORITY, False, "lift", seed, emulator)
        own = {"ROS_DOMAIN_ID": str(DOMAIN), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._nodes = self._stack.enter_context(StackProcesses([person, *arm], logs, own))

    def pid(self, node: str) -> int:
        return self._nodes.pids[node]

    def ended(self) -> bool:
        return "person" in self._nodes.codes

    def interrupt(self) -> None:
        os.kill(self.pid("person"), signal.SIGINT)

    def end(self) -> str:
        wait_until(self.ended, END_S, "the person's end")
        code = self._nodes.codes["person"]
        self.close()
        return f"the person's process ended with exit code {code}" if code else ""

    def close(self) -> None:
        self._stack.close()


def kill(node: str) -> Callable[[Nodes], None]:
    return lambda nodes: os.kill(nodes.pid(node), signal.SIGKILL)


def hold_up(nodes: Nodes) -> None:
    """The safety node does not run for 20 to 200 ms, ten times."""
    pid = nodes.pid("safety")
    for seconds in np.linspace(0.02, 0.2, 10):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)


Fault = Callable[[Nodes], None]
DEPLOYED: dict[str, Fault] = {
    **{f"kill {node}": kill(node) for node in ("safety", "streamer", "policy", "sim_arm")},
    "hold up": hold_up, "Ctrl-C": lambda nodes: nodes.interrupt(),
}  # fmt: skip
OPERATED: dict[str, Fault] = {
    "kill teleop": kill("person"), "kill safety in teleoperation": kill("safety"),
    "kill driver in teleoperation": kill("sim_arm"),
}  # fmt: skip
HANDED: dict[str, Fault] = {"kill in a hand-over": kill("person"), "safety held up in a hand-over": hold_up}


def live(episodes: int) -> dict[str, np.ndarray]:
    """Name → (T, 7) set-points of each motion: of `episodes` of a trained policy, half as many with late chunks, with a
    person, and with both in turn, and of one in which each fault comes."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        policy = trained(Path(place), "fr3")
        some = max(episodes // 2, 1)
        deployed: dict[str, tuple[Callable[[Path, int], Nodes], Fault | None]] = {
            "episodes": (lambda logs, seed: Deployed(logs, policy, seed, episodes), None),
            "late chunks": (lambda logs, seed: Deployed(logs, policy, seed, some, "--delay-steps", DELAYED), None),
            **{name: (lambda logs, seed: Deployed(logs, policy, seed, 1), fault) for name, fault in DEPLOYED.items()},
            **{f"teleoperation {k}": (lambda logs, seed: Operated(logs, None, seed), None) for k in range(some)},
            **{name: (lambda logs, seed: Operated(logs, None, seed), fault) for name, fault in OPERATED.items()},
            **{f"hand-over {k}": (lambda logs, seed: Operated(logs, policy, seed), None) for k in range(some)},
            **{name: (lambda logs, seed: Operated(logs, policy, seed), fault) for name, fault in HANDED.items()},
        }
        for seed, (name, (start, fault)) in enumerate(deployed.items()):
            heard = beside(lambda: start(Path(place) / f"logs-{seed}", seed), fault)  # noqa: B023
            made = list(motions(heard))
            print(f"live, {name}: {len(heard)} messages, {len(made)} motions", file=sys.stderr, flush=True)
            found |= {f"filtered, live, {name}, {k}": motion for k, motion in enumerate(made)}
    return found


def beside(start: Callable[[], Nodes], fault: Fault | None) -> Heard:
    """What was sent to the controller, and when it arrived [s]; `fault` comes a second after the first motion."""
    contract, heard = load_contract("fr3"), []
    with Background(DOMAIN) as ros:
        node = ros.add(Node("beside", context=ros.context))
        take = lambda message, info: heard.append((1e-9 * info["received_timestamp"], message))  # noqa: E731
        node.create_subscription(messages.JointTrajectory, contract.command.topic, take, COMMANDS)
        nodes = start()
        realtime(LISTENS)
        try:
            if fault is not None:
                wait_until(lambda: moving(heard) > MOVES or nodes.ended(), END_S, "the arm to move")
                assert not nodes.ended(), nodes.end()
                with suppress(ProcessLookupError, KeyError):  # the episode has ended
                    fault(nodes)
            said = nodes.end()
            if said and fault is None:
                print(f"it ended before it was done: {said}", file=sys.stderr)
        finally:
            nodes.close()
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
