"""Distances, condition numbers and poses against numbers by hand and against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.safety import Limits
from hardware.safety.checks import Refused
from hardware.safety.collision import Collision
from hardware.safety.geometry import Geometry
from hardware.safety.gjk import distance
from hardware.safety.motion import Motion
from hardware.safety.tcp import WORST_CONDITION
from robolearn.core.se3 import matrix_to_quat
from robots import PANDA, ROBOTS
from robots.chain import Chain
from robots.shapes import Piece

LIMITS = Limits.of(PANDA)
BASE = np.eye(7)[0]  # the first joint, by 1 rad


@pytest.fixture(scope="module")
def geometry() -> Geometry:
    return of_panda(LIMITS)


def of_panda(limits: Limits) -> Geometry:
    return Geometry(PANDA.chain, PANDA.pieces, limits, np.array(PANDA.home))


@pytest.mark.parametrize(
    ("p1", "q1", "p2", "q2", "distance_"),
    [
        ((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), 1.0),  # parallel
        ((0, 0, 0), (1, 0, 0), (0.5, -1, 2), (0.5, 1, 2), 2.0),  # crossing above
        ((0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), 1.0),  # in line
        ((0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 2, 0), 1.0),  # end to end
        ((0, 0, 0), (1, 0, 0), (-3, 4, 0), (-3, 9, 0), 5.0),
        ((0, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0), 0.0),  # crossing
    ],
)
def test_segments(p1, q1, p2, q2, distance_) -> None:
    points = np.array([p1, q1, p2, q2], dtype=float)
    base = np.array([1.0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    for a, b in ((0, 2), (2, 0)):
        axis = np.array([0.0, 0.0, 1.0])
        found = distance(points, a, a + 2, base, b, b + 2, base, np.inf, axis, np.empty((5, 3)))
        assert np.isclose(found, distance_, atol=1e-6)
        enough = distance(points, a, a + 2, base, b, b + 2, base, 0.5, axis, np.empty((5, 3)))
        assert min(distance_, 0.5) - 1e-6 <= enough <= distance_ + 1e-6


def planar(lengths: tuple[float, ...]) -> Chain:
    """Links in the x-y plane, joints about z."""
    n = len(lengths)
    offsets = np.zeros((n, 3))
    offsets[1:, 0] = lengths[:-1]
    eye = np.eye(3)
    return Chain(
        offsets, np.tile(eye, (n, 1, 1)), np.tile([0.0, 0.0, 1.0], (n, 1)), np.array([lengths[-1], 0.0, 0.0]), eye,
        np.full(n, -3.0), np.full(n, 3.0),
    )  # fmt: skip


def bars(n: int, radius: float) -> tuple[Piece, ...]:
    """Capsules along links of 1 m."""
    ends = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    return tuple(Piece(f"bar {i}", i, i, ends, radius) for i in range(1, n + 1))


def test_distances_of_a_planar_arm() -> None:
    """Three bars of 1 m and 10 cm radius: bent by 100° twice, the end of the last is nearest to the beginning."""
    chain, bend = planar((1.0, 1.0, 1.0)), np.radians(100.0)
    limits = Limits(*(np.full(3, x) for x in (-3.0, 3.0, 1.0, 1.0, 1.0)), collision_distance=0.7)
    found = Collision(chain, bars(3, 0.1), limits, np.zeros(3))
    own, _ = found.look(np.array([[0.3, bend, bend]]))
    end = np.hypot(1.0 + np.cos(bend) + np.cos(2 * bend), np.sin(bend) + np.sin(2 * bend))
    assert np.isclose(own.gap, end - 0.2, atol=1e-5) and np.isclose(own.excess, 0.7 - own.gap)
    assert own.names == ("bar 1", "bar 3") and own.allowed == 0.7
    # An equilateral triangle: the tip touches the base.
    own, _ = found.look(np.array([[0.0, 2 * np.pi / 3, 2 * np.pi / 3]]))
    assert np.isclose(own.gap, -0.2, atol=1e-5)
    geometry = Geometry(chain, bars(3, 0.1), limits, np.zeros(3))
    assert geometry.condition(np.zeros(3)) == WORST_CONDITION or geometry.condition(np.zeros(3)) > 1e3


def test_neighbours_are_left_to_the_joint_limits() -> None:
    chain = planar((1.0, 1.0))
    limits = Limits(*(np.full(2, x) for x in (-3.0, 3.0, 1.0, 1.0, 1.0)))
    assert Collision(chain, bars(2, 0.1), limits, np.zeros(2)).look(np.array([[0.0, 3.0]]))[0].excess == 0.0


def test_what_is_near_at_home_may_be_as_near_as_there() -> None:
    """Bars 1 and 3 are 8 mm apart at home: 5 mm nearer is the limit for them."""
    chain = planar((1.0, 0.208, 1.0))
    limits = Limits(*(np.full(3, x) for x in (-3.0, 3.0, 1.0, 1.0, 1.0)))
    home = np.array([0.0, np.pi / 2, np.pi / 2])
    bars_ = (bars(3, 0.1)[0], bars(3, 0.1)[2])
    found = Collision(chain, bars_, limits, home)
    assert found.look(home[None])[0].excess == 0.0
    assert found.look(np.array([[0.0, np.pi / 2, np.pi / 2 + 0.001]]))[0].excess == 0.0
    own, _ = found.look(np.array([[0.0, np.pi / 2, np.pi / 2 + 0.01]]))
    assert own.excess > 0.0 and np.isclose(own.allowed, 0.003, atol=1e-5)


def test_condition_number(geometry) -> None:
    rng = np.random.default_rng(0)
    origins = [np.zeros(3), *PANDA.chain.offset_pos, PANDA.chain.tcp_pos]
    length = sum(np.linalg.norm(step) for step in origins)
    for q in rng.uniform(PANDA.lower, PANDA.upper, (50, 7)):
        jac = PANDA.chain.jacobian(q[None])[0]
        jac[:3] /= 0.5 * length
        assert np.isclose(geometry.condition(q), np.linalg.cond(jac), rtol=1e-6)


def test_pose(geometry) -> None:
    rng = np.random.default_rng(1)
    for q in rng.uniform(PANDA.lower, PANDA.upper, (50, 7)):
        pos, quat = geometry.pose(q)
        there, rot = PANDA.chain.forward(q[None])
        assert np.allclose(pos, there[0]) and np.allclose(quat, matrix_to_quat(rot)[0], atol=1e-7)


@pytest.mark.parametrize("name", ROBOTS)
def test_every_robot_may_be_at_home(name: str) -> None:
    robot = ROBOTS[name]
    limits = Limits.of(robot)
    home = np.array(robot.home)
    geometry = Geometry(robot.chain, robot.pieces, limits, home)
    assert geometry.condition(home) < 0.5 * limits.singularity
    assert geometry.outside(home)[0] == 0.0
    geometry.begin(home)
    assert not any(np.hstack(geometry.check(home[None])))


def test_worse_is_refused_and_better_is_not() -> None:
    """The way back from outside is open."""
    home = np.array(PANDA.home)
    box = [[0.2, -0.1, 0.0], [0.8, 0.1, 0.6]]
    geometry = of_panda(LIMITS.tightened(workspace=box))
    turned = [home + angle * BASE for angle in (0.3, 0.35, 0.25, 0.1)]
    geometry.begin(turned[0])
    with pytest.raises(Refused, match=r"y = 0\.17.. m, workspace -0\.100 to 0\.100 m"):
        geometry.check(turned[1][None])
    geometry.keep(geometry.check(turned[2][None]))
    with pytest.raises(Refused):
        geometry.check(turned[0][None])
    geometry.keep(geometry.check(turned[3][None]))
    with pytest.raises(Refused):
        geometry.check(turned[2][None])


def test_all_of_the_way_is_looked_at() -> None:
    home = np.array(PANDA.home)
    geometry = of_panda(LIMITS.tightened(workspace=[[0.2, -0.1, 0.0], [0.8, 0.1, 0.6]]))
    geometry.begin(home)
    with pytest.raises(Refused, match=r"y = 0\.1"):
        geometry.check(np.stack([home, home + 0.3 * BASE, home]))


@pytest.mark.long
def test_the_tcp_does_not_swing_out_between_two_postures() -> None:
    """Braked from any state that is taken, no set-point is outside, though the few postures alone may all be inside."""
    home, rng = np.array(PANDA.home), np.random.default_rng(0)
    tcp = PANDA.chain.forward(home[None])[0][0]
    box = np.stack([tcp - 0.15, tcp + np.array([0.15, 0.15, 1e-3])])  # the arm is 1 mm below the ceiling
    limits = Limits.of(PANDA).tightened(workspace=box)
    motion, geometry = Motion(limits, 0.01), of_panda(limits)

    def outside(postures) -> float:
        pos = PANDA.chain.forward(postures)[0]
        return max((box[0] - pos).max(), (pos - box[1]).max())

    taken = fooled = 0
    for _ in range(3000):
        state = (home.tolist(), (rng.uniform(-1.0, 1.0, 7) * limits.velocity).tolist(), [0.0] * 7)
        way = motion.way_to_rest(state)
        points = motion.set_points_to_rest(state, way.seconds)
        fooled += outside(way.postures) <= 0.0 and outside(points) > 1e-4
        geometry.begin(home)
        try:
            geometry.check(way.postures, way.seconds, lambda points=points: points)
        except Refused:
            continue
        taken += 1
        assert outside(points) <= 1e-9
    assert taken > 100 and fooled > 0
