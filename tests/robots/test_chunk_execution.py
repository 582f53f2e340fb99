"""A late prediction is continued from where the arm is by now: by hand, and judged by where MuJoCo has the arm."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.wrappers.wrapper import DelayedPolicy
from robolearn.core import ArraySpec, Interface, Observation, Policy
from robolearn.rollout import Engine, Episodes, PolicyAgent
from robots.chunk_execution import Delayed, ExecutionHistory
from robots.control import DELTA_POS
from sim.registry import make_env

NAMES = ("dx", "dy", "dz", "rx", "ry", "rz", "gripper")
INTERFACE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((7,), names=NAMES), 20.0, action_kind="tcp_delta")


def straight(horizon: int, **step: float) -> NDArray[np.float32]:
    """(Tp, Da) the same displacement in each step; the gripper opens by a tenth in each."""
    path = np.zeros((horizon, 7), np.float32)
    for name, value in step.items():
        path[:, NAMES.index(name)] = value
    path[:, 6] = np.arange(horizon) / 10
    return path


def caught(paths: list[NDArray], age: int, interface: Interface = INTERFACE, keep: int = 1, **executed: float):
    """(keep, 3, Da) of one world."""
    done = np.zeros((1, 7), np.float32)
    for name, value in executed.items():
        done[0, NAMES.index(name)] = value
    delayed = Delayed({}, np.array([age]), done)
    return delayed.catch_up(np.stack(paths)[None], interface, steps=3, keep=keep)[0]


def column(chunk: NDArray, name: str) -> list[float]:
    return [round(float(value), 5) for value in chunk[:, NAMES.index(name)]]


def test_what_was_predicted_and_executed_goes_on() -> None:
    (chunk,) = caught([straight(8, dx=0.2)], age=3, dx=0.6)
    assert column(chunk, "dx") == [0.2, 0.2, 0.2] and column(chunk, "gripper") == [0.3, 0.4, 0.5]
    assert column(chunk, "dy") == [0, 0, 0]


def test_who_was_quicker_leaves_out_what_is_done_and_who_was_slower_does_it() -> None:
    """P = 0, .2, .4, …: at .85 it is at step 4, .05 beyond, and P_5 is .15 away; at .25 it is at step 1."""
    (quick,) = caught([straight(8, dx=0.2)], age=3, dx=0.85)
    assert column(quick, "dx") == [0.15, 0.2, 0.2] and column(quick, "gripper") == [0.4, 0.5, 0.6]
    (slow,) = caught([straight(8, dx=0.2)], age=3, dx=0.25)
    assert column(slow, "dx") == [0.15, 0.2, 0.2] and column(slow, "gripper") == [0.1, 0.2, 0.3]


def test_it_comes_back_to_the_path_as_quickly_as_actions_can() -> None:
    (chunk,) = caught([straight(8, dx=0.2)], age=3, dx=0.6, dy=1.5, rz=0.4)
    assert column(chunk, "dy") == [-1.0, -0.5, 0.0] and column(chunk, "rz") == [-0.4, 0.0, 0.0]
    assert column(chunk, "dx") == [0.2, 0.2, 0.2]


def test_how_far_along_it_is_does_not_depend_on_rotations() -> None:
    """At three steps of translation without any of the rotation: it is at step 3, and turns what is missing."""
    (chunk,) = caught([straight(8, dx=0.2, rz=0.3)], age=3, dx=0.6)
    assert column(chunk, "gripper") == [0.3, 0.4, 0.5] and column(chunk, "rz") == [1.0, 0.5, 0.3]


def test_where_the_path_stands_still_time_goes_on() -> None:
    """It closes the gripper for five steps, without a motion: three of them are over."""
    path = straight(8)
    path[5:, 2] = 0.5
    (chunk,) = caught([path], age=3)
    assert column(chunk, "gripper") == [0.3, 0.4, 0.5] and column(chunk, "dz") == [0, 0, 0.5]


def test_the_prediction_ends_somewhere() -> None:
    """Far beyond its end: step Tp − H is the last to begin at, and the arm comes back to P_6, P_7 and P_8."""
    (chunk,) = caught([straight(8, dx=0.2)], age=3, dx=1.7)
    assert column(chunk, "dx") == [-0.5, 0.2, 0.2] and column(chunk, "gripper") == [0.5, 0.6, 0.7]


def test_predictions_that_the_arm_has_begun_to_follow_come_first() -> None:
    left, ahead, right = straight(8, dy=0.2), straight(8, dx=0.2), straight(8, dy=-0.2)
    # |P_k − E|: of `right` .17 (k = 2), of `ahead` .483 (k = 1), of `left` .503 (k = 0)
    chunks = caught([left, ahead, right], age=3, keep=2, dy=-0.48, dx=0.15)
    assert [column(chunk, "dy") for chunk in chunks] == [[-0.12, -0.2, -0.2], [0.48, 0.0, 0.0]]


def test_before_anything_was_done_the_first_prediction_is_the_first() -> None:
    chunks = caught([straight(8, dx=0.1), straight(8, dx=0.3)], age=0, keep=2)
    assert [column(chunk, "dx") for chunk in chunks] == [[0.1, 0.1, 0.1], [0.3, 0.3, 0.3]]


@pytest.mark.parametrize(("age", "first"), [(0, 0.0), (2, 0.2), (7, 0.5)])
def test_where_actions_are_no_displacements_time_counts(age: int, first: float) -> None:
    joints = Interface({"proprio": ArraySpec((1,))}, ArraySpec((7,), names=NAMES), 20.0, action_kind="joint_position")
    (chunk,) = caught([straight(8, dx=0.2)], age, joints, dx=-3.0)
    assert column(chunk, "gripper") == [round(first + k / 10, 5) for k in range(3)] and column(chunk, "dx") == [0.2] * 3


def test_what_was_executed_since_belongs_to_the_episode() -> None:
    """d = 3, two worlds; the second one's episode begins anew after two steps."""
    history = ExecutionHistory(3, INTERFACE)
    steps = np.arange(5, dtype=np.float32)
    for t in steps:
        if t == 2:
            history.begin(np.array([False, True]))
        history.observe({"proprio": np.array([[t], [10 + t]], np.float32)})
        late = history.delayed()
        history.execute(np.full((2, 1, 7), 0.1 * 2**t, np.float32))
    # at t = 4: world 0 saw o_1 and did .2, .4 and .8 since; world 1 began at t = 2 and did .4 and .8
    assert late.age.tolist() == [3, 2]
    assert late.before["proprio"][:, 0].tolist() == [1, 12]
    np.testing.assert_allclose(late.executed[:, 0], [1.4, 1.2])


class Nearing(Policy):
    """Predicts the way to a point 10 cm below where the arm began, at a tempo that it draws anew each time."""

    def __init__(self, interface: Interface) -> None:
        self.interface, self.execute_steps = interface, 4
        self.height = interface.observation["proprio"].names.index("tcp_z")
        self.goal: NDArray | None = None

    def reset(self, seed: int) -> None:
        self.random, self.goal = np.random.default_rng(seed), None

    def bind(self, offered: Interface) -> None: ...

    def begin(self, worlds: NDArray) -> None: ...

    observes_every_step = False

    def observe(self, observation: Observation) -> None: ...

    def act(self, observation: Observation) -> NDArray[np.float32]:
        height = observation["proprio"][:, self.height]
        if self.goal is None:
            self.goal = height - 0.1
        chunk = np.zeros((len(height), 12, 7), np.float32)
        left = (height - self.goal) / DELTA_POS  # along the tool's z, which points down
        for w, tempo in enumerate(self.random.choice([0.2, 0.9], len(height))):
            for k in range(12):
                chunk[w, k, 2] = np.clip(left[w], -tempo, tempo)
                left[w] -= chunk[w, k, 2]
        return chunk


@pytest.mark.parametrize("delay", [0, 5])
def test_mujocos_arm_stops_where_it_should(delay: int) -> None:
    """Predictions of changing tempo, five steps late: the arm stands 10 cm lower after four seconds, as without delay.
    By time alone it is six centimetres short of that then, since what comes next is at another place by then."""
    env = make_env("lift", 8, threads=1)
    policy = Nearing(env.interface)
    late = DelayedPolicy(policy, delay)
    late.reset(3)
    engine = Engine(env)
    engine.reset(seed=5)
    start, heights = engine.observation["proprio"][:, policy.height].copy(), []
    for turn in engine.turns(PolicyAgent(late), Episodes(np.ones(8, np.int64))):
        heights.append(turn.observation["proprio"][:, policy.height].copy())
        if len(heights) == 20:
            break
    env.close()
    reached = start - np.array(heights)
    assert np.abs(reached[-3:] - 0.1).max() < 0.01, np.round(reached, 3)
    assert reached.max() < 0.115
