"""Lift to a goal: bring the cube of `lift` to a place in the air that differs from episode to episode.

Nothing in the world shows the place, so a policy has to be told: it is the `target` of the observation, beside
`objects`, and the end of a demonstration from the same start.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.embedded.task import Array, Start, State, draw
from sim.experts.waypoints import Script, View, Waypoint, downward, yaw_of
from sim.tasks.lift import STARTS, Lift, LiftScript, cube_pose

NEAR = 0.04  # largest distance of the cube's centre from the goal [m]
SLOW = 0.10  # speed below which it has arrived [m/s]

GOALS = np.array([(0.42, 0.58), (-0.12, 0.12), (0.10, 0.22)])  # where the cube's centre is to come [m]


@dataclass(frozen=True)
class LiftTo(Lift):
    """Reward 1 and the end of the episode when the cube is within 4 cm of its goal, and slow."""

    name: str = "lift_to"
    prompt: str = "lift the cube to the goal"
    max_episode_steps: int = 100
    bodies: tuple[str, ...] = ("cube", "target")
    has_distractor: bool = False
    target_names: tuple[str, ...] = ("target_x", "target_y", "target_z")

    def script(self) -> Script:
        return LiftToScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        super().build(spec)
        spec.worldbody.add_body(name="target", mocap=True)  # without a shape: no camera sees it

    def start(self, rng: np.random.Generator) -> Start:
        x, y, yaw, *offset, tcp_yaw = draw(rng, STARTS, self.start_range)
        target = np.concatenate([draw(rng, GOALS, self.start_range), [1.0, 0.0, 0.0, 0.0]])
        return Start(np.array(offset), tcp_yaw, bodies={"cube": cube_pose(x, y, yaw), "target": target})

    def target(self, state: State) -> Array:
        return state.bodies["target"].pos

    def success(self, state: State) -> NDArray[np.bool_]:
        slow = np.linalg.norm(state.bodies["cube"].linear, axis=-1) < SLOW
        return (self._distance(state) < NEAR) & slow

    def brought(self, state: State) -> Array:
        return 1.0 - np.tanh(6.0 * self._distance(state))

    def _distance(self, state: State) -> Array:
        return np.linalg.norm(state.bodies["cube"].pos - state.bodies["target"].pos, axis=-1)


# --- the demonstrator


class LiftToScript(LiftScript):
    """Hover, descend, close, bring."""

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        if phase < 3:
            return super().plan(phase, view, strategy, bias, memory)
        # The tcp goes where the cube, wherever it sits in the gripper, comes to its goal.
        goal = view.vector("target") + np.clip(view.tcp_pos - view.vector("cube"), -0.03, 0.03)
        return Waypoint(goal, downward(yaw_of(view.tcp_rot)), -1.0)
