"""One filter for two arms: neither meets the other, itself or the table; MuJoCo on the model of both is the judge."""

from __future__ import annotations

import dataclasses
from math import pi

import mujoco
import numpy as np
import pytest

from hardware.safety import JointTarget, Limits, PairTarget, PoseTarget, SafetyFilter, SafetyRefused, SafetyState
from hardware.safety.collision import Collision
from hardware.safety.states import ArmCommand
from robolearn.bench.safety.pair import PairAttack, PairJudge
from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.core.se3 import matrix_to_quat
from robots import PAIRS, PANDA, SO101, UR5E, PairSpec
from robots.limits import Plane
from robots.spec import ArmPart, Base
from robots.stations import load_pair

PERIOD = 0.005
PANDAS = PAIRS["panda_pair"]
# Two that differ, face each other and of which one is turned.
FACING = PairSpec(
    "facing", (ArmPart("left", PANDA, Base((0.0, 0.1, 0.0))), ArmPart("right", UR5E, Base((1.1, 0.0, 0.1), pi)))
)
TABLE = Plane("table", np.array([0.0, 0.0, 1.0]), -0.01)


def collision(pair: PairSpec) -> Collision:
    return Collision([part.chain for part in pair.parts], pair.pieces, Limits.of(pair), np.array(pair.home))


def across(found: Collision, pair: PairSpec) -> list[int]:
    """The rows of pairs of which each arm has one."""
    arms, count = [piece.arm for piece in pair.pieces], len(pair.pieces)
    rows = enumerate(found.arm.pairs.tolist())
    return [k for k, (a, b, kind) in rows if kind == 0 and max(a, b) < count and arms[a] != arms[b]]


class Pair:
    """A filter of two arms on a fake clock; they are where they are commanded to."""

    def __init__(self, pair: PairSpec = PANDAS, limits: Limits | None = None) -> None:
        self.pair, self.now, self.q = pair, 0.0, np.array(pair.home)
        self.filter = SafetyFilter(pair, pair.joints, limits or Limits.of(pair), PERIOD, lambda: self.now)
        self.sent: list[np.ndarray] = []

    def feed(self, which: tuple[int, ...] = (0, 1)) -> None:
        self.filter.deadman(True)
        for k in which:
            at = self.pair.slices[k]
            self.filter.measured(self.pair.joints[at], self.q[at])

    def arm(self, *openings: float | None) -> Pair:
        for _ in range(50):
            self.now += PERIOD
            self.feed()
        self.filter.arm(*openings)
        return self

    def joint(self, k: int, goal: np.ndarray, gripper: float | None = None) -> JointTarget:
        return JointTarget(self.pair.joints[self.pair.slices[k]], goal[self.pair.slices[k]], gripper)

    def tick(self, target: PairTarget, which: tuple[int, ...] = (0, 1)) -> ArmCommand | None:
        self.now += PERIOD
        self.feed(which)
        self.filter.target(target)
        command = self.filter.step()
        if command is not None:
            self.q = command.positions.copy()
            self.sent.append(self.q)
        return command

    def toward(self, goal: np.ndarray, steps: int, most: float = 0.2) -> ArmCommand | None:
        command = None
        for _ in range(steps):
            near = self.q + np.clip(goal - self.q, -most, most)
            command = self.tick(PairTarget((self.joint(0, near), self.joint(1, near))))
        return command


@pytest.mark.parametrize("pair", [PANDAS, FACING], ids=["panda_pair", "facing"])
def test_every_distance_between_two_arms_is_mujocos_or_a_little_less(pair: PairSpec) -> None:
    found, model = collision(pair), pair.model_spec().compile()
    data, points = mujoco.MjData(model), np.zeros(6)
    at = [int(model.joint(joint).qposadr[0]) for joint in pair.joints]
    n = {part.name: len(part.robot.joints) for part in pair.parts}
    hands = [k for k, piece in enumerate(pair.pieces) if "finger" in piece.body]
    rows = [k for k in across(found, pair) if not {*found.arm.pairs[k, :2].tolist()} & {*hands}]
    assert len(pair.pieces) == model.ngeom and len(rows) > 300 and len(n) == 2
    rng, seen = np.random.default_rng(0), 0
    for _ in range(15):
        q = rng.uniform(pair.lower, pair.upper)
        gaps = found.gaps(q)
        data.qpos[at] = q
        mujoco.mj_kinematics(model, data)
        for row in rows:
            a, b = found.arm.pairs[row, :2].tolist()
            true = mujoco.mj_geomDistance(model, data, a, b, 1.0, points)
            if 0.0 < true < 1.0:
                assert true - 0.012 <= gaps[row] <= true + 1e-5, (pair.pieces[a].body, pair.pieces[b].body)
                seen += 1
    assert seen > 1500


def test_all_pieces_of_one_arm_are_looked_at_with_all_of_the_other() -> None:
    found, arms = collision(FACING), [piece.arm for piece in FACING.pieces]
    moving = (
        sum(1 for piece in FACING.pieces if piece.link > 0 and piece.arm == 0),
        sum(1 for piece in FACING.pieces if piece.link > 0 and piece.arm == 1),
    )
    bases = arms.count(0) - moving[0], arms.count(1) - moving[1]
    assert len(across(found, FACING)) == arms.count(0) * arms.count(1) - bases[0] * bases[1]


@pytest.mark.parametrize("moves", [0, 1], ids=["left", "right"])
def test_whichever_arm_comes_near_is_seen_after_the_two_were_measured_far_apart(moves: int) -> None:
    found, judge, rng = collision(PANDAS), PairJudge(PANDAS, Limits.of(PANDAS)), np.random.default_rng(3)
    home, at, seen = np.array(PANDAS.home), PANDAS.slices[moves], 0
    rows = across(found, PANDAS)
    while seen < 4:
        goal = home.copy()
        goal[at] = rng.uniform(PANDAS.lower[at], PANDAS.upper[at])
        if judge.between(goal) > -0.01:
            continue
        found.look(home[None])
        found.arm.allowed[[k for k in range(len(found.arm.pairs)) if k not in rows]] = -10.0  # the arm with itself
        found.look(home[None])
        assert found.look(goal[None])[0].excess > 0.02
        seen += 1


@pytest.mark.long
def test_what_happens_between_two_postures_is_no_nearer_than_is_found() -> None:
    """Long steps of both arms at once: MuJoCo looks at a hundred postures in between."""
    found, judge, rng = collision(FACING), PairJudge(FACING, Limits.of(FACING)), np.random.default_rng(1)
    near = 0
    home = np.array(FACING.home)
    for _ in range(600):
        q = np.clip(home + rng.uniform(-0.5, 0.5, len(home)), FACING.lower, FACING.upper)
        if judge.between(q) >= 0.05 or near >= 8:
            continue
        goal = np.clip(q + rng.uniform(-0.4, 0.4, len(q)), FACING.lower, FACING.upper)
        way = q + np.linspace(0.0, 1.0, 9)[:, None] * (goal - q)
        excess = found.look(np.concatenate([way[:1], way]), 0.2, lambda way=way: np.concatenate([way[:1], way]))[
            0
        ].excess
        gaps = [judge.between(one) for one in q + np.linspace(0.0, 1.0, 60)[:, None] * (goal - q)]
        lacks = 0.02 - min(gaps) - 0.011  # a little less than allowed is allowed in between
        assert excess >= lacks - 1e-5
        near += lacks > 0.0
    assert near >= 5


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRS)
def test_two_arms_cannot_be_driven_into_each_other(name: str) -> None:
    pair = PAIRS[name]
    limits = Limits.joined(pair, [Limits.of(part.robot).tightened(obstacles=(TABLE,)) for part in pair.parts])
    attack = PairAttack(pair, limits, 0.01, seed=0)
    attack.run(1500)
    assert attack.contacts == attack.overlaps == 0 and attack.nearest < 0.03 and attack.stopped > 5, vars(attack)
    assert any("left" in reason and "right" in reason for reason in attack.reasons)


@pytest.mark.long
def test_a_judge_sees_a_filter_that_does_not_know_the_other_arm() -> None:
    attack = PairAttack(PANDAS, Limits.of(PANDAS), 0.01, seed=0)
    found = attack.filter.geometry._collision
    found.arm.allowed[across(found, PANDAS)] = -10.0
    attack.run(400)
    assert attack.contacts > 20


def test_one_target_moves_both_arms_and_each_gripper_goes_its_own_way() -> None:
    pair = Pair().arm(0.02, None)
    goal = pair.q + 0.1 * np.eye(14)[0] - 0.1 * np.eye(14)[9]
    command = None
    for _ in range(200):
        command = pair.tick(PairTarget((pair.joint(0, goal, 0.05), pair.joint(1, goal, 0.08))))
    assert command is not None and pair.filter.state is SafetyState.ARMED
    np.testing.assert_allclose(command.positions, goal, atol=1e-3)
    left, right = command.arms
    np.testing.assert_allclose(np.concatenate([left.positions, right.positions]), command.positions)
    assert (left.gripper, right.gripper) == (pytest.approx(0.05), pytest.approx(0.08)) and command.gripper is None
    for k, arm in enumerate(command.arms):
        np.testing.assert_allclose(
            arm.pose[0], PANDA.chain.forward(command.positions[None, 7 * k : 7 * k + 7])[0][0], atol=1e-9
        )
    assert pair.filter.accepted == pytest.approx([*goal, 0.05, 0.08])
    first = Pair().arm(0.02, None)
    one = first.tick(PairTarget((first.joint(0, goal, 0.08), first.joint(1, goal, 0.08))))
    assert one is not None and one.arms[0].gripper == pytest.approx(0.02 + 0.2 * PERIOD) and one.arms[1].gripper == 0.08


def test_a_pose_is_in_the_base_frame_of_its_arm() -> None:
    """Of two arms that face each other each goes 3 cm along its own x: towards each other in the station."""
    left, right = FACING.parts
    apart = PairSpec("apart", (left, dataclasses.replace(right, base=Base((1.6, 0.0, 0.1), pi))))
    pair = Pair(apart).arm()
    before = apart.forward(pair.q[None])[0][0]
    poses = [part.robot.chain.forward(pair.q[None, at]) for part, at in zip(apart.parts, apart.slices, strict=True)]
    goals = [pos[0] + [0.03, 0.0, 0.0] for pos, _ in poses]
    for _ in range(200):
        pair.tick(
            PairTarget(tuple(PoseTarget(at, matrix_to_quat(rot[0])) for at, (_, rot) in zip(goals, poses, strict=True)))
        )
    assert pair.filter.state is SafetyState.ARMED, pair.filter.reason
    moved = apart.forward(pair.q[None])[0][0] - before
    np.testing.assert_allclose(moved, [[0.03, 0.0, 0.0], [-0.03, 0.0, 0.0]], atol=2e-3)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda p: p.joint(0, p.q), "target: of 1 arms, expected 2"),
        (lambda p: PairTarget((p.joint(0, p.q),)), "target: of 1 arms, expected 2"),
        (lambda p: PairTarget((p.joint(1, p.q), p.joint(0, p.q))), "unknown: right_panda_joint1"),
        (lambda p: PairTarget((p.joint(0, p.q), p.joint(1, p.q + 0.5))), "jump: target: right_panda_joint1"),
        (lambda p: PairTarget((p.joint(0, p.q), p.joint(1, p.q, np.nan))), "gripper: component 1 of 1 is nan"),
    ],
)
def test_half_a_target_moves_neither(target, words: str) -> None:
    pair = Pair().arm()
    pair.filter.target(target(pair))
    assert pair.filter.state is SafetyState.BRAKING and words in pair.filter.reason


def test_an_arm_that_falls_silent_stops_both() -> None:
    pair = Pair().arm()
    hold = PairTarget((pair.joint(0, pair.q), pair.joint(1, pair.q)))
    for _ in range(40):
        pair.tick(hold, which=(0,))
    assert pair.filter.state is not SafetyState.ARMED and "joint state of right is 0.1" in pair.filter.reason
    alone = Pair()
    for _ in range(60):
        alone.now += PERIOD
        alone.feed((1,))
    with pytest.raises(SafetyRefused, match="none has arrived"):
        alone.filter.arm()
    pair = Pair().arm()
    pair.filter.measured(("elbow",), [0.1])
    assert "no joint of any arm; got elbow" in pair.filter.reason


def test_the_workspace_of_each_arm_is_in_its_own_base_frame() -> None:
    """The right arm may come 12 cm to its own left: to y = 0.12 − 0.35 of the station."""
    box = np.array([[0.2, -0.4, 0.05], [0.8, 0.12, 0.9]])
    own = Limits.of(PANDA)
    pair = Pair(PANDAS, Limits.joined(PANDAS, [own, own.tightened(workspace=box)])).arm()
    pair.toward(pair.q + 0.6 * np.eye(14)[7] + 0.3 * np.eye(14)[0], 300)
    assert pair.filter.state is SafetyState.ARMED and "the right tcp would come to y = 0.12" in pair.filter.reason
    highest = max(PANDAS.forward(q[None])[0][0, 1, 1] for q in pair.sent)
    assert -0.235 < highest <= -0.23 + 1e-3


def test_an_arm_outside_its_limits_excuses_no_other() -> None:
    """The left arm starts beyond the singularity that its limits allow; the right one may still not go there."""
    left = Limits.of(PANDA).tightened(singularity=8.0)
    geometry = Pair(PANDAS, Limits.joined(PANDAS, [left, Limits.of(PANDA).tightened(singularity=20.0)])).filter.geometry
    stretched = np.array([0.0, 0.6, 0.0, -0.5, 0.0, 1.2, 0.785])
    home = np.array(PANDA.home)
    assert geometry._tcps[0].condition(np.concatenate([stretched, home])) > 20.0
    geometry.begin(np.concatenate([stretched, home]))
    both = np.concatenate([stretched, stretched])
    geometry.at(both)
    with pytest.raises(Exception, match="the right arm would come near a singularity"):
        geometry.check(np.stack([both, both]))


def test_bases_that_do_not_fit_are_refused() -> None:
    close = PairSpec("close", (ArmPart("left", PANDA), ArmPart("right", PANDA, Base((0.0, 0.05, 0.0)))))
    with pytest.raises(
        BadInput, match=r"bases of two arms: got left_panda_link1 0\.\d+ m from right_panda_link0 at home"
    ):
        SafetyFilter(close, close.joints, Limits.of(close), PERIOD)
    with pytest.raises(BadInput, match="limits: got limits of 1 arms, expected those of 2"):
        limits = Limits.of(PANDAS)
        one = Limits(limits.lower, limits.upper, limits.velocity, limits.acceleration, limits.jerk)
        SafetyFilter(PANDAS, PANDAS.joints, one, PERIOD)
    with pytest.raises(BadInput, match="names that differ"):
        SafetyFilter(PANDAS, PANDA.joints * 2, Limits.of(PANDAS), PERIOD)


def test_the_filter_of_a_station_with_two_arms() -> None:
    """Its contract: the table of both, joint names of both; the arms move and stay above the table."""
    contract = load_pair("so101_pair")
    guard = SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz, lambda: 0.0)
    planes = guard.geometry._collision.arm.planes
    assert planes.tolist() == [[0.0, 0.0, 1.0, 0.0]]
    pieces = [piece for piece in contract.robot.pieces if piece.link > 0]
    assert int((guard.geometry._collision.arm.pairs[:, 2] == 2).sum()) == len(pieces) > 2 * len(SO101.joints)


@pytest.mark.long
def test_the_command_says_how_near_two_arms_come(capsys: pytest.CaptureFixture) -> None:
    assert main(["benchmark", "safety", "--robot", "so101_pair", "--commands", "300"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "300 commands that drive two arms into each other: 0 contacts between them, 0 of one" in out
    assert "with every joint in motion, nothing near and nothing judged," in out and "µs; 300 commands)" in out
    assert main(["benchmark", "safety", "--robot", "pair"]) == 2
