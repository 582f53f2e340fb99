"""Handover: the left arm takes a stick at its far end and hands it to the right arm, which carries it to its side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.embedded.task import Array, State
from sim.experts.waypoints import View, Waypoint, Waypoints, downward, yaw_of
from sim.tasks.lift_two import HALF, HOVER, YAW, BarTask, add_bar, along, grasp, take

LENGTH = 0.30  # of the stick [m]
GRASPS = 0.12  # from its middle to where each arm takes it [m]
HEIGHT = 0.12  # above the table, at which it changes hands [m]
OVER = 0.10  # how far on the right side its middle has to be [m]
RELEASED = 0.055  # gripper opening that counts as let go [m]

# Where each tcp starts, relative to its home: three coordinates [m] and yaw [rad]. The grippers have turned already.
LEFT = ((-0.05, 0.05), (-0.05, 0.05), (-0.15, -0.08), (-0.15 - np.pi / 2, 0.15 - np.pi / 2))
RIGHT = ((-0.05, 0.05), (-0.05, 0.05), (-0.15, -0.08), (-0.15 - np.pi / 2, 0.15 - np.pi / 2))
STARTS = np.array([(0.42, 0.56), (0.20, 0.32), YAW, *LEFT, *RIGHT])  # stick, then tcps


@dataclass(frozen=True)
class Handover(BarTask):
    """Reward 1 and the end of the episode when the right arm alone holds the stick, off the table, on its side."""

    name: str = "handover"
    prompt: str = "hand the stick over to the right arm"
    max_episode_steps: int = 200
    starts: ClassVar[Array] = STARTS
    grasps: ClassVar[float] = GRASPS

    def script(self) -> HandoverScript:
        return HandoverScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        add_bar(spec, LENGTH, 0.06, (0.20, 0.42, 0.80, 1.0))

    def success(self, state: State) -> NDArray[np.bool_]:
        bar = state.bodies["bar"]
        lowest = bar.pos[:, 2] - 0.5 * LENGTH * np.abs(bar.rot[:, 2, 1])
        let_go = (state.width[:, 0] > RELEASED) & (_between(state, 0) > 0.08)
        return let_go & (_between(state, 1) < 0.05) & (bar.pos[:, 1] < -OVER) & (lowest > 2 * HALF)

    def failure(self, state: State) -> NDArray[np.bool_]:
        return state.bodies["bar"].pos[:, 2] < -HALF  # it fell off the table

    def progress(self, state: State) -> Array:
        bar = state.bodies["bar"].pos
        reach = 1.0 - np.tanh(5.0 * np.stack([_between(state, k) for k in range(2)], -1))
        raised = np.clip((bar[:, 2] - HALF) / HEIGHT, 0.0, 1.0)
        over = np.clip((STARTS[1].mean() - bar[:, 1]) / (STARTS[1].mean() + OVER), 0.0, 1.0)
        return 0.15 * reach.sum(-1) + 0.2 * raised + 0.5 * raised * over


def _between(state: State, k: int) -> Array:
    """(N,) distance of the tcp of arm `k` from the stick's axis between its ends [m]."""
    bar = state.bodies["bar"]
    axis, away = bar.rot[:, :, 1], state.tcp_pos[:, k] - bar.pos
    on = np.clip((away * axis).sum(-1), -0.5 * LENGTH, 0.5 * LENGTH)
    return np.linalg.norm(away - on[:, None] * axis, axis=-1)


# --- the demonstrator

MEETING = np.array([0.48, 0.0])  # where the middle of the stick is when it changes hands [m]


class HandoverScript:
    """Left: hover, descend, close, up, to the middle. Right: hover, descend, close. Then left opens, and both leave."""

    phases = 9
    strategies = 2

    def plan_both(
        self, phase: int, views: tuple[View, ...], strategy: NDArray[np.int64], bias: Array, memory: Array
    ) -> Waypoints:
        left, right = views
        aims = [grasp(view, side, GRASPS, strategy, bias) for view, side in zip(views, (1.0, -1.0), strict=True)]
        if phase < 5:
            return self._bring(phase, left, aims[0], strategy, memory[:, 0]), _stay(right, memory[:, 1], 1.0)
        if phase < 8:
            return _stay(left, memory[:, 0], -1.0), take(phase - 5, *aims[1], HOVER[strategy])
        # The left hand opens, then rises; the right one carries the stick away as soon as the other is off it.
        up, gone = memory[:, 0] + RISE, left.tcp_pos[:, 2] > memory[:, 0, 2] + 0.06
        freed = np.where((left.width > RELEASED)[:, None], up, left.tcp_pos)
        aside = np.where(gone[:, None], memory[:, 1] + ASIDE, memory[:, 1])
        return _go(left, freed, 1.0), _go(right, aside, -1.0, speed=0.7)

    def _bring(
        self, phase: int, view: View, aim: tuple[Array, Array], strategy: NDArray[np.int64], memory: Array
    ) -> Waypoint:  # fmt: skip
        """The left arm's way from the table to the middle."""
        if phase < 3:
            return take(phase, *aim, HOVER[strategy])
        if phase == 3:
            return _go(view, memory + np.array([0.0, 0.0, HEIGHT]), -1.0)
        # The tcp goes where the stick, wherever the gripper holds it, comes to lie across the middle.
        middle = view.vector("bar")
        goal = view.tcp_pos - middle
        goal[:, :2] += MEETING
        goal[:, 2] += middle[:, 2]
        rot = along(np.broadcast_to([0.0, 1.0, 0.0], goal.shape), yaw_of(view.tcp_rot))
        return Waypoint(goal, rot, -1.0, tolerance=0.015, dwell=1)


RISE, ASIDE = np.array([0.0, 0.0, 0.12]), np.array([0.0, -0.25, 0.06])  # of the two hands in the end [m]


def _go(view: View, pos: Array, opening: float, speed: float = 1.0) -> Waypoint:
    return Waypoint(pos, downward(yaw_of(view.tcp_rot)), opening, speed=speed, tolerance=0.015)


def _stay(view: View, pos: Array, opening: float) -> Waypoint:
    """Hold still; the other arm is not kept waiting."""
    return Waypoint(pos, downward(yaw_of(view.tcp_rot)), opening, tolerance=np.inf)
