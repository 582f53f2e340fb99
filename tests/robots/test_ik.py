"""Inverse kinematics: exact where a pose can be reached, inside the limits and calm where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robots import PANDA, SO101, IKConfig, solve

CHAIN = PANDA.chain
HOME = np.array(PANDA.home)
THOROUGH = IKConfig(iterations=50, posture_gain=0.0)


def draw(n: int, seed: int, margin: float = 0.3) -> NDArray:
    """(n, 7) joint positions well inside the limits."""
    return np.random.default_rng(seed).uniform(PANDA.lower + margin, PANDA.upper - margin, (n, 7))


def error(q: NDArray, pos: NDArray, rot: NDArray) -> tuple[NDArray, NDArray]:
    """Distance [m] and angle [rad] between the tcp at `q` and a pose."""
    p, R = CHAIN.forward(q)
    return np.linalg.norm(p - pos, axis=-1), Rotation.from_matrix(np.swapaxes(R, -1, -2) @ rot).magnitude()


def test_reachable_poses_are_reached_from_nearby() -> None:
    goal = draw(200, 0)
    start = goal + np.random.default_rng(1).uniform(-0.15, 0.15, goal.shape)
    pos, rot = CHAIN.forward(goal)
    before = error(start, pos, rot)
    q = start
    for _ in range(40):  # as a controller does: each call begins where the last one ended
        q = solve(CHAIN, q, pos, rot, rest=HOME, config=IKConfig(iterations=3, posture_gain=0.0))
    after = error(q, pos, rot)
    assert before[0].min() > 1e-3
    assert after[0].max() < 1e-4 and after[1].max() < 1e-4


def test_a_control_step_is_followed_within_a_tenth_of_a_millimetre() -> None:
    """The default settings, at the size of a full action: 4 cm and 0.2 rad from around home."""
    rng = np.random.default_rng(2)
    q = HOME + rng.uniform(-0.2, 0.2, (100, 7))
    pos, rot = CHAIN.forward(q)
    pos = pos + rng.uniform(-0.04, 0.04, (100, 3))
    rot = rot @ Rotation.from_rotvec(rng.uniform(-0.2, 0.2, (100, 3))).as_matrix()
    away, turned = error(solve(CHAIN, q, pos, rot, rest=HOME), pos, rot)
    assert np.median(away) < 1e-4 and away.max() < 1e-3
    assert np.median(turned) < 1e-3 and turned.max() < 5e-3


def test_large_turns_go_the_right_way() -> None:
    """log(R* Rᵀ) is exact up to π; a first-order error would be 18 % short at 1 rad and turn back at 3."""
    pos, rot = CHAIN.forward(HOME[None])
    turn = Rotation.from_rotvec([0.0, 0.0, 1.5]).as_matrix()
    q = solve(CHAIN, HOME[None], pos, rot @ turn, rest=HOME, config=THOROUGH)
    away, turned = error(q, pos, rot @ turn)
    assert away[0] < 1e-4 and turned[0] < 1e-4
    one = solve(CHAIN, HOME[None], pos, rot @ turn, rest=HOME, config=IKConfig(iterations=1, posture_gain=0.0))
    assert one[0, 6] - HOME[6] == pytest.approx(1.5, abs=0.1)  # joint 7 does it alone


def test_the_limits_hold_whatever_is_asked() -> None:
    rng = np.random.default_rng(3)
    start = rng.uniform(PANDA.lower, PANDA.upper, (300, 7))
    pos, rot = rng.uniform(-1.0, 1.0, (300, 3)), Rotation.random(300, random_state=3).as_matrix()
    for config in (IKConfig(), IKConfig(iterations=1), THOROUGH, IKConfig(limit_margin=0.0)):
        q = solve(CHAIN, start, pos, rot, rest=HOME, config=config)
        assert np.isfinite(q).all()
        assert (q >= PANDA.lower + config.limit_margin).all() and (q <= PANDA.upper - config.limit_margin).all()


@pytest.mark.parametrize("joint", range(7))
@pytest.mark.parametrize("upper", [False, True])
def test_a_start_at_a_limit_can_leave_it(joint: int, upper: bool) -> None:
    """A joint on its limit is neither stuck there nor pushed through it."""
    goal = HOME.copy()
    limit, inward = (PANDA.upper[joint], -1) if upper else (PANDA.lower[joint], 1)
    goal[joint] = limit + inward * 0.10
    start = goal.copy()
    start[joint] = limit
    pos, rot = CHAIN.forward(goal[None])
    q = solve(CHAIN, start[None], pos, rot, rest=HOME, config=THOROUGH)
    assert (q > PANDA.lower).all() and (q < PANDA.upper).all()
    away, turned = error(q, pos, rot)
    assert away[0] < 1e-3 and turned[0] < 1e-3


def test_the_others_take_over_for_a_joint_on_its_limit() -> None:
    """The motion would push joint 4 further through its limit; the redundant arm still gets there."""
    start = np.array([0.3, 0.4, 0.2, PANDA.lower[3] + 0.02, 0.3, 2.0, 0.5])
    free = CHAIN.jacobian(start[None])[0].copy()
    free[:, 3] = 0.0
    twist = np.array([-0.3, -0.3, 0.6, -0.1, -0.1, -0.1])
    # A motion that the six other joints can make, to which the plain pseudo-inverse would use joint 4 as well.
    q = start + 0.05 * np.linalg.pinv(free) @ twist
    target_pos, target_rot = CHAIN.forward(q[None])
    naive = np.linalg.pinv(CHAIN.jacobian(start[None])[0]) @ twist
    assert naive[3] < 0
    got = start[None]
    for _ in range(20):
        got = solve(CHAIN, got, target_pos, target_rot, rest=HOME, config=THOROUGH)
    away, turned = error(got, target_pos, target_rot)
    assert got[0, 3] >= PANDA.lower[3] + 0.02
    assert away[0] < 1e-4 and turned[0] < 1e-3


def test_a_start_outside_the_limits_is_brought_back() -> None:
    start = HOME.copy()
    start[3] = PANDA.upper[3] + 0.2
    pos, rot = CHAIN.forward(start[None])
    q = solve(CHAIN, start[None], pos, rot, rest=HOME, max_step=np.full(7, 0.01))
    assert q[0, 3] <= PANDA.upper[3] - 0.02


def test_max_step_scales_and_never_bends() -> None:
    pos, rot = CHAIN.forward(HOME[None])
    pos = pos + np.array([0.1, 0.15, 0.05])
    unlimited = solve(CHAIN, HOME[None], pos, rot, rest=HOME) - HOME
    max_step = np.asarray(PANDA.velocity) / 20
    assert (np.abs(unlimited) > max_step).any()
    limited = solve(CHAIN, HOME[None], pos, rot, rest=HOME, max_step=max_step) - HOME
    assert np.max(np.abs(limited) / max_step) == pytest.approx(1.0)  # no slower than it must be
    scale = np.linalg.norm(limited) / np.linalg.norm(unlimited)
    np.testing.assert_allclose(limited, scale * unlimited, atol=1e-12)
    small = CHAIN.forward(HOME[None])[0] + 1e-3
    free = solve(CHAIN, HOME[None], small, rot, rest=HOME)
    np.testing.assert_array_equal(solve(CHAIN, HOME[None], small, rot, rest=HOME, max_step=max_step), free)


def test_a_batch_is_a_loop() -> None:
    start, goal = draw(20, 4), draw(20, 5)
    pos, rot = CHAIN.forward(goal)
    batch = solve(CHAIN, start, pos, rot, rest=HOME)
    for i in range(20):
        one = solve(CHAIN, start[i : i + 1], pos[i : i + 1], rot[i : i + 1], rest=HOME)
        np.testing.assert_array_equal(one[0], batch[i])


def test_the_input_is_not_changed() -> None:
    start, goal = draw(5, 6), draw(5, 7)
    pos, rot = CHAIN.forward(goal)
    copies = [x.copy() for x in (start, pos, rot)]
    solve(CHAIN, start, pos, rot, rest=HOME)
    for value, copy in zip((start, pos, rot), copies, strict=True):
        np.testing.assert_array_equal(value, copy)


def test_out_of_reach_stays_finite() -> None:
    _pos, rot = CHAIN.forward(HOME[None])
    straight = np.array([[0.0, 0.0, 0.0, -0.0698, 0.0, 0.0, 0.0]])  # singular
    for target in ([10.0, 0.0, 0.3], [0.0, 0.0, 0.0], [0.0, 0.0, 1e6]):
        for start in (HOME[None], straight):
            q = solve(CHAIN, start, np.array([target]), rot, rest=HOME, config=THOROUGH)
            assert np.isfinite(q).all() and (q > PANDA.lower).all() and (q < PANDA.upper).all()


def test_an_arm_that_is_pulled_out_of_reach_stretches() -> None:
    """As an operator does who pushes the stick and does not let go: 4 cm ahead of the tcp, for ten seconds."""
    pos, rot = CHAIN.forward(HOME[None])
    height, q, max_step = pos[0, 2], HOME[None], np.asarray(PANDA.velocity) / 20
    for _ in range(200):
        pos = CHAIN.forward(q)[0] + np.array([0.04, 0.0, 0.0])
        pos[:, 1:] = 0.0, height
        new = solve(CHAIN, q, pos, rot, rest=HOME, max_step=max_step)
        assert np.isfinite(new).all() and (new > PANDA.lower).all() and (new < PANDA.upper).all()
        assert (np.abs(new - q) <= max_step + 1e-12).all()
        q = new
    assert CHAIN.forward(q)[0][0, 0] > 0.7


def test_the_elbow_drifts_to_its_rest_posture_while_the_tcp_stays() -> None:
    q = HOME + np.array([0.5, 0.2, -0.4, 0.1, 0.3, 0.1, 0.0])
    pos, rot = CHAIN.forward(q[None])
    first = q
    for _ in range(200):
        q = solve(CHAIN, q[None], pos, rot, rest=HOME)[0]
    away, turned = error(q[None], pos, rot)
    assert away[0] < 1e-3 and turned[0] < 2e-3
    # Of the way home, what the tcp's six constraints leave: the projection on the null space.
    assert np.linalg.norm(q - HOME) < 0.8 * np.linalg.norm(first - HOME)


def test_the_posture_term_does_not_move_the_tcp() -> None:
    """(I − J⁺J): to first order. Unprojected, two per cent of the way home would move it tenfold."""
    q = HOME + np.array([0.5, 0.2, -0.4, 0.1, 0.3, 0.1, 0.0])
    pos, rot = CHAIN.forward(q[None])
    moved = solve(CHAIN, q[None], pos, rot, rest=HOME, config=IKConfig(iterations=1, posture_gain=0.05))
    unprojected = error(q + 0.05 * (HOME - q)[None], pos, rot)
    away, turned = error(moved, pos, rot)
    assert np.linalg.norm(moved - q) > 1e-3
    assert away[0] < 0.1 * unprojected[0][0] and turned[0] < 0.1 * unprojected[1][0]


def test_what_five_joints_cannot_take_is_given_up_by_weight() -> None:
    """Straight down at a height where the wrist is at its limit: either the place is missed, or the direction."""
    chain, rest, goal = SO101.chain, np.array(SO101.home), np.array([[0.20, 0.0, 0.10]])
    _, down = chain.forward(rest[None])
    missed = []
    for weight in (1.0, 10.0):
        q, config = rest[None], IKConfig(posture_gain=0.0, position_weight=weight)
        for _ in range(30):
            q = solve(chain, q, goal, down, rest=rest, config=config)
        pos, rot = chain.forward(q)
        turned = Rotation.from_matrix(np.swapaxes(rot, -1, -2) @ down).magnitude()[0]
        missed.append((float(np.linalg.norm(pos - goal)), float(turned)))
    (far, straight), (near, tilted) = missed
    assert near < 0.5 * far and tilted > 10.0 * straight and far > 0.01
