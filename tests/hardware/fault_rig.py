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

from hardware.action_chunk_buffer import ActionChunkBuffer, ChunkRefused
from hardware.monitor import LimitMonitor
from hardware.observer import JointReader
from hardware.safety import JointTarget, SafetyFilter, SafetyState
from robots import make_control
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
    source: object = "policy"

    def but(self, **changes: Any) -> Chunk:
        return replace(self, **changes)


class FaultRig:
    """Attributes: `now` [s], the four links by name, `latency` of the policy [s], `wall` the stamping clock's offset,
    `paused`: process → until when it does not run, `commands` as (time, positions)."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 10.0
        self.wall = WALL
        self.latency = 0.02
        self.filter = SafetyFilter(CONTRACT.robot, CONTRACT.joints, CONTRACT.limits, PERIOD, lambda: self.now)
        self.stream = ActionChunkBuffer(CONTROL.spec.names, STEP, clock=lambda: self.now)
        self.joints = JointReader(CONTRACT, lambda: self.now)
        self.monitor = LimitMonitor.of(CONTRACT.robot, PERIOD)
        self.links = {name: Link(seed + i) for i, name in enumerate(("chunks", "targets", "states", "deadman"))}
        self.paused: dict[str, float] = {}
        self.arm_q = np.array(CONTRACT.robot.home)
        self.commands: list[tuple[float, np.ndarray]] = []
        self.held, self.asks = True, True
        self.act: Callable[[int], np.ndarray] = swing
        self._calls = 0
        self._ticks = 0
        self._due = -np.inf
        self._thinking: tuple[float, Chunk] | None = None
        self._armed = False
        self._stop = ""
        self._step: tuple[float, int] = (0.0, -1)
        self._target: JointTarget | None = None

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
        self.run(0.1)
        self.filter.arm()
        self.run(0.86)
        assert self.filter.state is SafetyState.ARMED, self.filter.reason
        assert self.travel(self.now - 0.5) > 0.01
        return self

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
        armed = self.filter.state is SafetyState.ARMED
        if self._thinking is not None and self.now >= self._thinking[0]:
            self.links["chunks"].send(self._thinking[1], self.now)
            self._thinking = None
        if not armed:
            self._due, self._thinking = -np.inf, None
        stamp = self.joints.source.stamp
        if not (armed and self.asks) or self._thinking is not None or stamp < self._due or self.joints.problem():
            return
        self._due = stamp + STEPS * STEP
        self._calls += 1
        self._thinking = (self.now + self.latency, Chunk(stamp, self.act(self._calls)))

    def _streamer(self) -> None:
        """As in `hardware.ros2.streamer_node`."""
        armed = self.filter.state is SafetyState.ARMED
        if armed != self._armed:
            self._armed, self._stop, self._step = armed, "", (0.0, -1)
            self.stream.clear()
        for chunk in self.links["chunks"].take(self.now):
            if armed and not self._stop:
                try:
                    self.stream.accept(
                        chunk.stamp, self.wall + self.now, chunk.names, chunk.actions, chunk.times, chunk.source
                    )
                except ChunkRefused as error:
                    self._halt(str(error))
        if not armed:
            return
        if self._stop:
            self.links["targets"].send(self._stop, self.now)
        elif self.stream.running:
            step = None
            if problem := self.joints.problem():
                self._halt(problem)
            elif (step := self.stream.step()) is None:
                self._halt(self.stream.reason)
            if step is None:
                return
            if not step.held and (step.stamp, step.index) != self._step:
                self._step = (step.stamp, step.index)
                assert self.joints.q is not None
                goal, width = CONTROL.targets(self.joints.q[None], None, step.action[None])
                self._target = JointTarget(CONTRACT.joints, goal[0], float(width[0]))
            self.links["targets"].send(self._target, self.now)

    def _halt(self, reason: str) -> None:
        if not self._stop:
            self._stop = reason
            self.stream.halt(reason)
            self.links["targets"].send(reason, self.now)

    def _safety(self) -> None:
        for names, q, _ in self._heard:
            self.filter.measured(names, q)
        for held in self.links["deadman"].take(self.now):
            self.filter.deadman(held)
        for target in self.links["targets"].take(self.now):
            if isinstance(target, str):
                self.filter.stop(target)
            else:
                self.filter.target(target)
        command = self.filter.step()
        if command is not None:
            self.monitor.command(command.positions, self.now)
            self.commands.append((self.now, command.positions))
            self.arm_q = command.positions.copy()


def swing(call: int) -> np.ndarray:
    """To and fro, as fast as an action can."""
    actions = np.zeros((STEPS, CONTROL.spec.size))
    actions[:, call // 4 % 3] = 1.0 if call % 4 < 2 else -1.0
    return actions
