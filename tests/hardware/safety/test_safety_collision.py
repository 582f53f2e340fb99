"""The arm's shapes and their distances, judged by MuJoCo on the arm's own model."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from hardware.safety import Limits, PoseTarget, SafetyState
from hardware.safety.collision import HELD, Collision
from robolearn.bench.safety.collisions import Attack, CollisionReference, compare_postures
from robolearn.core import BadInput
from robots import PANDA, ROBOTS, RobotSpec
from robots.limits import Box, Plane
from robots.shapes import read_pieces

HOME = np.array(PANDA.home)
TABLE = Plane("table", np.array([0.0, 0.0, 1.0]))


def collision(robot: RobotSpec, limits: Limits | None = None) -> Collision:
    return Collision(robot.chain, robot.pieces, limits or Limits.of(robot), np.array(robot.home))


@pytest.mark.parametrize("name", ROBOTS)
def test_every_distance_is_mujocos_or_a_little_less(name: str) -> None:
    """All pairs of geoms that do not belong to the gripper, at random postures."""
    robot = ROBOTS[name]
    found = collision(robot)
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data, points = mujoco.MjData(model), np.zeros(6)
    at = [int(model.joint(joint).qposadr[0]) for joint in robot.joints]
    n = robot.chain.n
    fixed = [k for k, piece in enumerate(robot.pieces) if piece.group <= n]
    pairs = found.arm.pairs.tolist()
    rows = [k for k, (a, b, _) in enumerate(pairs) if a in fixed and b in fixed]
    assert len(robot.pieces) == model.ngeom and len(rows) > 100
    rng = np.random.default_rng(0)
    for _ in range(20):
        q = rng.uniform(robot.lower, robot.upper)
        gaps = found.gaps(q)
        data.qpos[at] = q
        mujoco.mj_kinematics(model, data)
        for row in rows:
            a, b, _ = pairs[row]
            true = mujoco.mj_geomDistance(model, data, a, b, 1.0, points)
            if 0.0 < true < 1.0:
                assert true - 0.012 <= gaps[row] <= true + 1e-5, (robot.pieces[a].body, robot.pieces[b].body)


@pytest.mark.long
@pytest.mark.parametrize("name", ROBOTS)
def test_a_distance_that_was_measured_is_not_believed_after_the_arm_has_gone_on(name: str) -> None:
    """Small steps far across all postures: whatever MuJoCo finds nearer than allowed is found, too."""
    robot = ROBOTS[name]
    found, n = collision(robot), robot.chain.n
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data, points = mujoco.MjData(model), np.zeros(6)
    at = [int(model.joint(joint).qposadr[0]) for joint in robot.joints]
    fixed = {k for k, piece in enumerate(robot.pieces) if piece.group <= n}
    rows = [k for k, (a, b, _) in enumerate(found.arm.pairs.tolist()) if {a, b} <= fixed]
    rng = np.random.default_rng(1)
    q, near = np.array(robot.home), 0
    for _ in range(12):
        for goal in np.linspace(q, rng.uniform(robot.lower, robot.upper), 40)[1:]:
            excess = found.look(np.stack([q, goal]))[0].excess
            q = goal
            data.qpos[at] = q
            mujoco.mj_kinematics(model, data)
            for row in rows:
                a, b, _ = found.arm.pairs[row]
                lacks = found.arm.allowed[row, 0] - mujoco.mj_geomDistance(model, data, a, b, 0.1, points)
                assert excess >= lacks - 1e-5, (robot.pieces[a].body, robot.pieces[b].body)
                near += lacks > 0.0
    assert near > 0 or name == "so101", "of the SO-101 only the gripper reaches anything"


@pytest.mark.long
@pytest.mark.parametrize("name", ROBOTS)
def test_random_postures_are_judged_as_mujoco_judges_them(name: str) -> None:
    """A sample of `robolearn benchmark safety --postures 100000`."""
    found = compare_postures(ROBOTS[name], Limits.of(ROBOTS[name]), 1000, seed=1)
    assert found["overlapping"] > 0 and found["let_through"] == 0, found
    assert found["refused"] > found["overlapping"] and found["refused_clear"] == found["refused_far"] == 0, found


@pytest.mark.parametrize("name", ROBOTS)
def test_an_armed_filter_cannot_be_driven_into_itself_or_a_table(name: str) -> None:
    robot = ROBOTS[name]
    attack = Attack(robot, Limits.of(robot).tightened(obstacles=(TABLE,)), 0.01, seed=0)
    attack.run(4)
    assert attack.overlaps == 0 and attack.commands > 100 and attack.stopped > 0, vars(attack)


def test_an_attack_sees_a_filter_that_lets_it(monkeypatch) -> None:
    monkeypatch.setattr("hardware.safety.geometry.Geometry.keeps_apart", lambda self, excess: None)
    attack = Attack(ROBOTS["ur5e"], Limits.of(ROBOTS["ur5e"]), 0.01, seed=0)
    attack.run(4)
    assert attack.overlaps > 0


def test_fingers_count_wherever_they_may_be() -> None:
    """Pieces of a gripper hold their geoms at every opening."""
    for robot in ROBOTS.values():
        model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
        data = mujoco.MjData(model)
        swept = [k for k, piece in enumerate(robot.pieces) if piece.group > robot.chain.n]
        assert swept
        for share in np.linspace(0.0, 1.0, 13):
            for joint in robot.gripper.joints:
                low, high = model.joint(joint).range
                data.qpos[model.joint(joint).qposadr[0]] = low + share * (high - low)
            mujoco.mj_kinematics(model, data)
            last = int(model.joint(robot.joints[-1]).bodyid[0])
            for k in swept:
                piece = robot.pieces[k]
                link = data.xmat[last].reshape(3, 3)
                centre = (data.geom_xpos[k] - data.xpos[last]) @ link
                turned = link.T @ data.geom_xmat[k].reshape(3, 3)
                half = model.geom_size[k] if model.geom_type[k] == mujoco.mjtGeom.mjGEOM_BOX else np.zeros(3)
                for direction in np.random.default_rng(k).normal(size=(50, 3)):
                    direction /= np.linalg.norm(direction)
                    farthest = direction @ centre + np.abs(direction @ turned) @ half
                    assert farthest <= (piece.points @ direction).max() + piece.radius + 1e-9


def test_a_mesh_lies_in_a_polytope(tmp_path) -> None:
    path = tmp_path / "arm.xml"
    path.write_text("""<mujoco><asset><mesh name="m" vertex="0 0 0  .3 0 0  0 .2 0  0 0 .1  .3 .2 .1"/></asset>
      <worldbody><geom type="plane" size="1 1 1"/>
      <body name="a"><joint name="j" range="-1 1"/><geom mesh="m" type="mesh"/>
      <body name="b" pos="0 0 .3"><joint name="k" range="-1 1" axis="1 0 0"/><geom size=".04"/></body></body>
      </worldbody></mujoco>""")
    mesh, sphere = read_pieces(path, ("j", "k"))
    assert (mesh.link, sphere.link, sphere.radius) == (1, 2, 0.04) and 8 < len(mesh.points) <= 48
    for corner in ([0, 0, 0], [0.3, 0, 0], [0, 0.2, 0], [0, 0, 0.1], [0.3, 0.2, 0.1]):
        for direction in np.random.default_rng(0).normal(size=(50, 3)):
            assert (
                direction @ corner <= (mesh.points @ direction).max() + mesh.radius * np.linalg.norm(direction) + 1e-9
            )


def test_a_finger_without_range_is_refused(tmp_path) -> None:
    path = tmp_path / "arm.xml"
    path.write_text("""<mujoco><worldbody><body name="a"><joint name="j" range="-1 1"/><geom size=".1"/>
      <body name="b"><joint name="wheel"/><geom size=".1"/></body></body></worldbody></mujoco>""")
    with pytest.raises(BadInput, match=r"joint wheel of arm.xml: expected a hinge or slide with a range"):
        read_pieces(path, ("j",))


def test_what_lies_between_two_postures_is_not_passed_over() -> None:
    """A post thinner than the arm's step: clear before it and behind it, and in the way."""
    tcp = PANDA.chain.forward(HOME[None])[0][0]
    post = Box("post", np.array([tcp[0] - 0.3, -0.01, 0.0]), np.array([1.0, 0.01, 1.2]))
    limits = Limits.of(PANDA).tightened(obstacles=(post,))
    found = collision(PANDA, limits)
    turn = np.eye(7)[0]
    before, behind = HOME + 0.7 * turn, HOME - 0.7 * turn
    for q in (before, behind):
        assert found.look(q[None])[1].excess == 0.0
    _, nearest = found.look(np.stack([before, behind]))
    assert nearest.excess > 0.0 and "post" in nearest.names
    dense = np.linspace(before, behind, 200)
    _, nearest = found.look(np.stack([before, behind]), 1.0, lambda: dense)
    assert nearest.gap < 0.0
    away = np.linspace(before, before + 0.3 * turn, 5)
    assert found.look(away)[1].excess == 0.0


def down(rig, steps: int = 400, by: float = 0.02) -> None:
    """The tcp straight down, and on; a goal is so far [m] below it."""
    for _ in range(steps):
        x, y, z = PANDA.chain.forward(rig.measured[None])[0][0]
        rig.tick(PoseTarget(np.array([x, y, z - by]), np.array([0.0, 1.0, 0.0, 0.0])))


def test_the_arm_stops_above_the_table_and_comes_back(make_rig) -> None:
    limits = Limits.of(PANDA).tightened(obstacles=(TABLE,))
    judge = CollisionReference(PANDA, limits)
    rig = make_rig(limits).arm()
    down(rig)
    assert rig.filter.state is SafetyState.ARMED, rig.filter.reason
    assert "of table, allowed 0.005 m; waiting at the border" in rig.filter.reason
    assert rig.filter.status()["refusals"]["obstacle"] > 0
    assert max(judge.depth(q) for q in rig.sent) == 0.0
    assert judge.look(rig.measured).around < 0.02, "it goes as far as it may"
    still = np.array(rig.sent)[-30:]
    assert np.ptp(still, axis=0).max() < 1e-9, "it does not push against the border"
    down(rig, 200, by=-0.01)
    assert rig.filter.state is SafetyState.ARMED and rig.filter.reason == "" and rig.worst().max() <= 1.0
    assert PANDA.chain.forward(rig.measured[None])[0][0][2] > 0.06


def test_what_the_gripper_holds_stays_above_the_table(make_rig) -> None:
    lowest = []
    for held in (None, [[-0.02, -0.02, -0.05], [0.02, 0.02, 0.06]]):
        limits = Limits.of(PANDA).tightened(obstacles=(TABLE,), held=held)
        judge = CollisionReference(PANDA, limits)
        rig = make_rig(limits).arm()
        down(rig)
        assert max(judge.depth(q) for q in rig.sent) == 0.0
        lowest.append(PANDA.chain.forward(rig.measured[None])[0][0][2])
    assert HELD in rig.filter.reason
    assert 0.02 < lowest[1] - lowest[0] < 0.09, "z of the tcp points down: the box reaches 6 cm below it"


def test_links_stay_out_of_a_turned_box(make_rig) -> None:
    """The elbow meets a post, not the tcp."""
    post = Box("camera post", np.array([0.25, 0.25, 0.0]), np.array([0.35, 0.35, 1.0]), yaw=0.6)
    limits = Limits.of(PANDA).tightened(obstacles=(post,))
    judge = CollisionReference(PANDA, limits)
    rig = make_rig(limits).arm()
    for _ in range(300):
        rig.tick(rig.goal(rig.measured + 0.2 * np.eye(7)[0]))
    assert rig.filter.state is SafetyState.ARMED and "camera post" in rig.filter.reason
    assert max(judge.depth(q) for q in rig.sent) == 0.0 and judge.look(rig.measured).around < 0.03


def test_an_arm_inside_an_obstacle_is_not_armed(make_rig) -> None:
    limits = Limits.of(PANDA).tightened(obstacles=(dataclasses.replace(TABLE, offset=0.3),))
    with pytest.raises(Exception, match=r"not armed: .* would come within -0\.\d+ m of table"):
        make_rig(limits).arm()


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        (lambda: Plane("table", np.zeros(3)), "plane table"),
        (lambda: Plane("table", np.array([0.0, 0.0, np.nan])), "three finite numbers"),
        (lambda: Plane("table", "up"), "three numbers"),
        (lambda: Box("post", np.ones(3), np.zeros(3)), "lower corner below upper corner"),
        (lambda: Box("post", np.zeros(3), np.ones(3), np.inf), "yaw inf"),
    ],
)
def test_an_obstacle_that_is_none(obstacle, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        obstacle()
