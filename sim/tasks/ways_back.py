"""The ways back: bring the cube of `lift` or of `pick_place` to a place on the table, let go, and return.

A task and its way back take turns in a world that nobody resets (`sim.embedded.two_way`). As a task of its own a way
back begins where the other one ends, or has failed. The place differs from episode to episode and nothing in the world
shows it: it is the `target` of the observation, beside `objects`, as in `lift_to`. A way back that only had to succeed
would be done soonest straight down, and the way there would meet the same start again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.embedded.task import HOME, Array, Start, State, Task, draw
from sim.experts.waypoints import Script, View, Waypoint, downward, yaw_of
from sim.tasks import lift, pick_place
from sim.tasks.lift import HALF, OPEN, RAISED, Lift, LiftScript, cube_pose, held
from sim.tasks.pick_place import AT_REST, PickPlace, carry

PLACE = "place"  # the body that nothing shows
NEAR = 0.03  # largest distance of the cube from the place [m]
FAILED = 0.3  # share of starts that the other task has not solved
OPENED = 0.07  # opening of a gripper that has let go [m]
TCP = np.array(lift.TCP[:3])  # where the tcp of the other task begins, relative to its home [m]
RETURN, REACHED = np.array(HOME) + TCP.mean(1), 0.5 * np.ptp(TCP, axis=1) + 0.02


@dataclass(frozen=True)
class WayBack(Task):
    """Reward 1 and the end of the episode when the cube lies still at the place and the open gripper has returned."""

    there: Lift = field(default_factory=Lift)

    @property
    def starts(self) -> Array:
        """(k, 2) ranges of x, y and yaw of the cube that the other task begins with, and of more."""
        return pick_place.STARTS if isinstance(self.there, PickPlace) else lift.STARTS

    def script(self) -> Script:
        return BackScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        self.there.build(spec)
        spec.worldbody.add_body(name=PLACE, mocap=True)  # without a shape: no camera sees it

    def start(self, rng: np.random.Generator) -> Start:
        solved = rng.random() >= FAILED
        start = lying(rng, self.start_range, self.starts)
        if isinstance(self.there, PickPlace):
            return from_disc(rng, self.start_range, start, solved)
        return from_gripper(rng, self.start_range, start) if solved else start

    def observe(self, state: State) -> Array:
        return self.there.observe(state)

    def target(self, state: State) -> Array:
        return state.bodies[PLACE].pos[:, :2]

    def success(self, state: State) -> NDArray[np.bool_]:
        cube = state.bodies["cube"]
        still = np.linalg.norm(cube.linear, axis=-1) < AT_REST
        lies = (_beside(state) < NEAR) & still & (cube.pos[:, 2] < HALF + 0.005)
        returned = (np.abs(state.tcp_pos - RETURN) < REACHED).all(1)
        return lies & returned & (state.width > OPEN)

    def failure(self, state: State) -> NDArray[np.bool_]:
        return self.there.failure(state)

    def progress(self, state: State) -> Array:
        cube = state.bodies["cube"].pos
        reach = 1.0 - np.tanh(8.0 * np.linalg.norm(cube - state.tcp_pos, axis=-1))
        return 0.4 * reach + 0.6 * (1.0 - np.tanh(6.0 * _beside(state)))


def back_from(there: Lift, prompt: str, max_episode_steps: int) -> WayBack:
    """The way back from the task `there`, in its scene."""
    return WayBack(
        name=f"{there.name}_back", prompt=prompt, max_episode_steps=max_episode_steps, bodies=(*there.bodies, PLACE),
        randomised=there.randomised, observation_names=there.observation_names, patience=there.patience,
        target_names=("place_x", "place_y"), start_range=there.start_range,
        thing=there.thing, there=there,
    )  # fmt: skip


def lift_back(start_range: float = 1.0) -> WayBack:
    """From the raised gripper to the table."""
    return back_from(Lift(start_range=start_range), "put the cube back", 140)


def pick_place_back(start_range: float = 1.0) -> WayBack:
    """From the disc to where the cube of `pick_place` begins."""
    return back_from(PickPlace(start_range=start_range), "bring the cube back from the green disc", 180)


BACK: dict[str, Callable[..., WayBack]] = {"lift": lift_back, "pick_place": pick_place_back}
"""Task → its way back."""


def draw_place(rng: np.random.Generator, share: float, starts: Array) -> Array:
    """(7,) a place in the middle `share` of where the cube begins, by the ranges of x, y, … (k, 2) [m]."""
    return np.array([*draw(rng, starts[:2], share), 0.0, 1.0, 0.0, 0.0, 0.0])


def _beside(state: State) -> Array:
    """(N,) distance of the cube from the place, seen from above [m]."""
    return np.linalg.norm((state.bodies["cube"].pos - state.bodies[PLACE].pos)[:, :2], axis=-1)


def lying(rng: np.random.Generator, share: float, starts: Array) -> Start:
    """The cube on the table and the arm at home: the other task was not solved."""
    x, y, yaw = draw(rng, starts[:3], share)
    bodies = {"cube": cube_pose(x, y, yaw), PLACE: draw_place(rng, share, starts)}
    return Start(draw(rng, TCP, share), yaw, OPENED, bodies)


IN_GRIPPER = np.array([(0.0, 0.015), (-0.008, 0.008), (-0.006, 0.006)])  # higher than raised; the cube in the tcp frame
ON_DISC = np.array([(-0.02, 0.02), (-0.02, 0.02), (0.05, 0.10)])  # the cube from its middle; height of the tcp


def from_gripper(rng: np.random.Generator, share: float, start: Start) -> Start:
    """The cube of `start` in the gripper, as high as `lift` ends."""
    x, y, higher, along, up = draw(rng, np.concatenate([lift.STARTS[:2], IN_GRIPPER]), share)
    tcp = np.array([x, y, HALF + RAISED + higher]) - HOME
    cube = np.array([along, 0.0, up, 1.0, 0.0, 0.0, 0.0])
    return Start(tcp, start.tcp_yaw, 2 * HALF - 0.0004, {PLACE: start.bodies[PLACE]}, {"cube": cube})


def from_disc(rng: np.random.Generator, share: float, start: Start, solved: bool) -> Start:
    """`start` with a disc; where `pick_place` has been `solved` the cube lies there, and the tcp is above it."""
    x, y, aside, along, height = draw(rng, np.concatenate([pick_place.STARTS[3:5], ON_DISC]), share)
    bodies = {**start.bodies, "target": np.array([x, y, 0.001, 1.0, 0.0, 0.0, 0.0])}
    if not solved:
        return replace(start, bodies=bodies)
    bodies["cube"] = cube_pose(x + aside, y + along, float(start.tcp_yaw))
    return Start(np.array([x + aside, y + along, height]) - HOME, start.tcp_yaw, OPENED, bodies)


# --- the demonstrator

CARRY = 0.09  # height of the tcp on the way [m]


class BackScript:
    """Grasp the cube where it is not held, raise it, carry it to the place, lower it, let go, return."""

    phases = 9
    strategies = 2

    def __init__(self) -> None:
        self._lift = LiftScript()

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        has = held(view)[:, None]
        rot = downward(yaw_of(view.tcp_rot))
        if phase < 3:
            there = self._lift.plan(phase, view, strategy, bias, memory)
            aside = np.linalg.norm((view.tcp_pos - view.vector("cube"))[:, :2], axis=1)
            above = (aside < 0.02) & (view.width > OPEN) & (phase == 0)  # where the other task ends: it need not hover
            pos = np.where(has | above[:, None], view.tcp_pos, there.pos)
            turned = np.where(has[:, :, None], rot, there.rot)
            opening = np.where(has[:, 0], -1.0, there.opening)
            return Waypoint(pos, turned, opening, there.speed, there.tolerance, 0 if has.all() else there.dwell)
        place = np.column_stack([view.objects["place_x"], view.objects["place_y"], np.zeros(len(memory))])
        goal = place + np.clip(view.tcp_pos - view.vector("cube"), -0.03, 0.03)
        if phase < 6:
            return carry(phase, view, goal, np.minimum(CARRY, view.ceiling), memory)
        if phase == 6:
            return Waypoint(memory, rot, 1.0, dwell=4)
        if phase == 7:
            return Waypoint(memory + np.array([0.0, 0.0, 0.06]), rot, 1.0, speed=0.5)
        home = np.tile(RETURN, (len(memory), 1))
        home[:, 2] = np.minimum(home[:, 2], view.ceiling)
        return Waypoint(home, downward(np.zeros(len(memory))), 1.0)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        aside = np.hypot(*(view.vector("cube")[:, i] - view.objects[f"place_{'xy'[i]}"] for i in range(2)))
        phase = np.minimum(self._lift.resume(view, strategy), 2)
        carried, high = held(view), view.tcp_pos[:, 2] > np.minimum(CARRY, view.ceiling) - 0.02
        phase[carried] = np.where(aside < 0.02, 5, np.where(high, 4, 3))[carried]
        put = (aside < NEAR) & (view.vector("cube")[:, 2] < 0.027) & (view.width > OPEN)
        phase[put] = np.where(view.tcp_pos[:, 2] > 0.05, 8, 7)[put]
        return phase
