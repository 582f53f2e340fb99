"""The whole path from policy to arm on a fake clock: chunks, stream, filter, an arm that follows, and the monitor.

policy ──chunks──► stream ──targets──► filter ──► arm ──joint states──► all; operator ──dead-man──► filter. What
travels on any of the four arrows passes a `Link`, which loses, delays, repeats, spoils or invents messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hardware.execution.streamer import Streamer, StreamStop, StreamTarget
from hardware.observing.joints import JointReader
from hardware.observing.monitor import LimitMonitor
from hardware.safety import JointTarget, SafetyRefused, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robots import make_control
from robots.control import GRIPPER
from robots.stations import load_contract

CONTRACT = load_contract("sim")
CONTROL = make_control(CONTRACT.action_kind, CONTRACT.robot)
PERIOD, STEP = 1.0 / CONTRACT.stream_hz, 1.0 / CONTRACT.control_hz
STEPS = 4  # actions in a chunk
WALL = 1.7e9  # the time of day when the fake clock is at 0 [s]

Fault = Callable[[Any, random.Random], list[tuple[float, Any]]]


def passes(message: Any, _: random.Random) -> list[tuple[float, Any]]:
    """As it should be: (delay [s], message), once and at once."""
    return [(0.0, message)]


class Link:
    """Messages on their way. `fault`: what becomes of each; `depth`: how many wait at the other end."""

    def __init__(self, seed: int, depth: int = 1) -> None:
        self.fault: Fault = passes
        self._random, self._depth = random.Random(seed), depth
        self._way: list[tuple[float, int, Any]] = []
        self._sent = 0

    def send(self, message: Any, now: float) -> None:
        for delay, what in self.fault(message, self._random):
            self._sent += 1
            self._way.append((now + delay, self._sent, what))

    def take(self, now: float) -> list[Any]:
        """What has arrived by now and was not overwritten by newer."""
        arrived = sorted(m for m in self._way if m[0] <= now)
        self._way = [m for m in self._way if m[0] > now]
        return [m[2] for m in arrived[-self._depth :]]


@dataclass(frozen=True)
class Chunk:
    stamp: float
    actions: Any
    names: tuple[str, ...] = CONTROL.spec.names
    times: Any = field(default_factory=lambda: np.arange(STEPS) * STEP)
    sender: object = "policy"

    def but(self, **changes: Any) -> Chunk:
        return replace(self, **changes)


class FaultRig:
    """Attributes: `now` [s], the four links by name, `latency` of the policy [s], `wall` the stamping clock's offset,
    `paused`: process → until when it does not run, `commands` as (time, positions), `supervisor` and `streamer` as in
    the nodes."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 10.0
        self.wall = WALL
        self.latency = 0.02
        self.links = {name: Link(seed + i) for i, name in enumerate(("chunks", "targets", "states", "deadman"))}
        clock, wall = (lambda: self.now), (lambda: self.wall + self.now)
        self.supervisor = SafetySupervisor(CONTRACT, clock, wall)
        self.supervisor.streamers_alive(1, "targets")
        self.filter = self.supervisor.filter
        self.streamer = Streamer(CONTRACT, self._send, grace_s=STEP, clock=clock, wall=wall)  # as on a real arm
        self.joints = JointReader(CONTRACT, clock)  # the policy's
        self.monitor = LimitMonitor.of(CONTRACT.robot, PERIOD)
        self.paused: dict[str, float] = {}
        self.arm_q = np.array(CONTRACT.robot.home)
        self.commands: list[tuple[float, np.ndarray]] = []
        self.held, self.asks = True, True
        self.act: Callable[[int], np.ndarray] = swing
        self._calls = 0
        self._ticks = 0
        self._due = -np.inf
        self._thinking: tuple[float, Chunk] | None = None

    # --- a period goes by ------------------------------------------------------------------------------------

    def tick(self) -> None:
        self.now += PERIOD
        self._ticks += 1
        self._arm()
        if self.runs("policy"):
            self._policy()
        if self.runs("streamer"):
            self._streamer()
        if self._ticks % 10 == 0:
            self.links["deadman"].send(self.held, self.now)
        if self.runs("safety"):
            self._safety()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.tick()

    def runs(self, process: str) -> bool:
        return self.now >= self.paused.get(process, 0.0)

    def moving(self) -> FaultRig:
        """Armed and in motion, in the middle of a chunk."""
        self.run(0.3)
        self.arm()
        self.run(0.86)
        assert self.filter.state is SafetyState.ARMED, self.filter.reason
        assert self.travel(self.now - 0.5) > 0.01
        return self

    def arm(self) -> None:
        """What the service of the safety node does."""
        if reason := self.supervisor.refusal("targets"):
            raise SafetyRefused(reason)
        self.supervisor.arm()

    def travel(self, since: float) -> float:
        """How far a joint was commanded to go since then [rad]."""
        sent = [q for at, q in self.commands if at >= since]
        return float(np.ptp(sent, axis=0).max()) if sent else 0.0

    @property
    def last_command(self) -> float:
        return self.commands[-1][0]

    # --- who takes part --------------------------------------------------------------------------------------

    def _arm(self) -> None:
        names, at = (*CONTRACT.joints, *CONTRACT.gripper_joints), self.wall + self.now
        q = np.concatenate([self.arm_q, [0.02, 0.02]])
        self.monitor.state(self.arm_q, self.now)
        self.links["states"].send((names, q, at), self.now)
        self._heard = self.links["states"].take(self.now)
        for message in self._heard:
            self.joints.update(*message)

    def _policy(self) -> None:
        self.streamer.heartbeat()
        armed = self.filter.state is SafetyState.ARMED
        if self._thinking is not None and self.now >= self._thinking[0]:
            self.links["chunks"].send(self._thinking[1], self.now)
            self._thinking = None
        if not armed:
            self._due, self._thinking = -np.inf, None
        stamp = self.joints.freshness.stamp
        if not (armed and self.asks) or self._thinking is not None or stamp < self._due or self.joints.problem():
            return
        self._due = stamp + STEPS * STEP
        self._calls += 1
        actions = self.act(self._calls)
        self._thinking = (self.now + self.latency, Chunk(stamp, actions, times=np.arange(len(actions)) * STEP))

    def _streamer(self) -> None:
        self.streamer.safety(str(self.supervisor.arming) if self.filter.state is SafetyState.ARMED else "")
        for message in self._heard:
            self.streamer.joint_state(*message)
        for chunk in self.links["chunks"].take(self.now):
            stamp_ns = round(1e9 * chunk.stamp) if np.isfinite(chunk.stamp) else 0
            self.streamer.chunk(stamp_ns, chunk.names, chunk.actions, chunk.times, chunk.sender)
        self.streamer.tick()

    def _send(self, what: StreamTarget | StreamStop) -> None:
        if isinstance(what, StreamStop):
            self.links["targets"].send(what.reason, self.now)
        else:
            assert abs(1e-9 * what.stamp_ns + what.after_s - (self.wall + self.now)) < 1e-3, "when it is sent"
            *positions, gripper = what.positions
            self.links["targets"].send(JointTarget(CONTRACT.joints, np.array(positions), gripper), self.now)

    def _safety(self) -> None:
        if not self.supervisor.due():
            return
        for message in self._heard:
            self.supervisor.joint_state(*message)
        for held in self.links["deadman"].take(self.now):
            self.supervisor.deadman(held)
        for target in self.links["targets"].take(self.now):
            if isinstance(target, str):
                self.supervisor.stop_request(target)
            else:
                values = [*np.asarray(target.positions), target.gripper]
                self.supervisor.target((*target.names, GRIPPER), values, round(1e9 * (self.wall + self.now)))
        command = self.supervisor.step()
        if command is not None:
            self.supervisor.filter.sent()
            self.monitor.command(command.positions, self.now)
            self.commands.append((self.now, command.positions))
            self.arm_q = command.positions.copy()


def swing(call: int) -> np.ndarray:
    """To and fro, as fast as an action can."""
    actions = np.zeros((STEPS, CONTROL.spec.size))
    actions[:, call // 4 % 3] = 1.0 if call % 4 < 2 else -1.0
    return actions
