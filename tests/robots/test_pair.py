"""Two arms as one robot: its model by MuJoCo on the arms' own files, its numbers by hand."""

from __future__ import annotations

from math import cos, pi, sin
from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml

from robolearn.cli.main import main
from robolearn.core import BadInput
from robots import PAIRS, PANDA, UR5E, PairSpec, make_control, robot_named
from robots.chunk_execution import ActionParts
from robots.limits import Box, Limits, Plane
from robots.spec import ArmPart, Base, proprio_spec
from robots.stations import contract_names, load_any_contract, load_contract, load_pair, pair_names

# Two arms that differ in everything, of which one is turned.
MIXED = PairSpec(
    "mixed", (ArmPart("left", PANDA, Base((0.1, 0.4, 0.2), 0.5)), ArmPart("right", UR5E, Base((0.9, -0.3, 0.0), pi)))
)


def turned(yaw: float) -> np.ndarray:
    return np.array([[cos(yaw), -sin(yaw), 0], [sin(yaw), cos(yaw), 0], [0, 0, 1]])


def posture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(MIXED.lower, MIXED.upper)


def test_what_each_arm_has_stands_in_the_order_of_the_parts() -> None:
    assert MIXED.joints[:2] == ("left_panda_joint1", "left_panda_joint2") and len(MIXED.joints) == 13
    assert MIXED.joints[7] == "right_shoulder_pan_joint" and len(set(MIXED.joints)) == 13
    for name in ("home", "velocity", "acceleration", "jerk", "lower", "upper"):
        assert list(getattr(MIXED, name)) == [*getattr(PANDA, name), *getattr(UR5E, name)]
    assert MIXED.fingers == ("left_panda_finger_left", "left_panda_finger_right", "right_ur5e_finger_left",
                             "right_ur5e_finger_right")  # fmt: skip


def test_every_body_of_the_model_is_where_its_own_model_and_its_base_say() -> None:
    model = MIXED.model_spec().compile()
    data, q = mujoco.MjData(model), posture(0)
    data.qpos[[model.joint(name).qposadr[0] for name in MIXED.joints]] = q
    mujoco.mj_kinematics(model, data)
    bases = (([0.1, 0.4, 0.2], turned(0.5)), ([0.9, -0.3, 0.0], turned(pi)))
    seen = 0
    for part, own, (pos, rot) in zip(("left", "right"), (PANDA, UR5E), bases, strict=True):
        alone = mujoco.MjModel.from_xml_path(str(own.mjcf))
        there = mujoco.MjData(alone)
        there.qpos[[alone.joint(name).qposadr[0] for name in own.joints]] = q[:7] if part == "left" else q[7:]
        mujoco.mj_kinematics(alone, there)
        for i in range(1, alone.nbody):
            name = f"{part}_{alone.body(i).name}"
            np.testing.assert_allclose(data.body(name).xpos, pos + rot @ there.xpos[i], atol=1e-9)
            seen += 1
    assert seen == model.nbody - 1 and model.nu == 9 + 8


def test_the_tcps_are_those_of_the_model_in_the_frame_of_the_station() -> None:
    model = MIXED.model_spec().compile()
    data = mujoco.MjData(model)
    at = [model.joint(name).qposadr[0] for name in MIXED.joints]
    for seed in range(5):
        data.qpos[at] = posture(seed)
        mujoco.mj_kinematics(model, data)
        pos, rot = MIXED.forward(posture(seed)[None])
        for k, site in enumerate(("left_tcp", "right_tcp")):
            np.testing.assert_allclose(pos[0, k], data.site(site).xpos, atol=1e-9)
            np.testing.assert_allclose(rot[0, k].ravel(), data.site(site).xmat, atol=1e-9)


@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
def test_an_action_is_the_left_arms_and_then_the_rights(kind: str) -> None:
    control, q = make_control(kind, MIXED), np.array([MIXED.home])
    left, right = make_control(kind, PANDA), make_control(kind, UR5E)
    action = np.random.default_rng(1).uniform(-1, 1, (1, control.spec.size))
    split = left.spec.size
    assert control.spec.names[split - 1 : split + 1] == ("left_gripper", f"right_{right.spec.names[0]}")
    goal, width = control.targets(q, None, action)
    one = left.targets(q[:, :7], None, action[:, :split])
    other = right.targets(q[:, 7:], None, action[:, split:])
    np.testing.assert_array_equal(goal, np.concatenate([one[0], other[0]], 1))
    assert width.tolist() == [[one[1][0], other[1][0]]]
    back = control.targets(q, None, control.actions(q, goal, width))
    np.testing.assert_allclose(back[0], goal, atol=1e-6)
    np.testing.assert_allclose(back[1], width, atol=1e-9)


def test_the_components_of_an_action_are_known_by_their_endings() -> None:
    parts = ActionParts.named(make_control("tcp_delta", MIXED).spec.names, displacements=True)
    assert np.flatnonzero(parts.opening).tolist() == [6, 13]
    assert np.flatnonzero(parts.along).tolist() == [0, 1, 2, 7, 8, 9]


def test_proprioception_is_each_arms_own_in_its_own_base_frame() -> None:
    q = posture(3)[None]
    found = MIXED.proprio(q, np.array([[0.01, 0.02]]), *MIXED.forward(q))[0]
    names = proprio_spec(MIXED).names
    assert len(found) == len(names) == 17 + 16 and names[17] == "right_shoulder_pan_joint"
    values = dict(zip(names, found.tolist(), strict=True))
    assert values["left_gripper_width"] == pytest.approx(0.01) and values["right_gripper_width"] == pytest.approx(0.02)
    model = mujoco.MjModel.from_xml_path(str(UR5E.mjcf))
    data = mujoco.MjData(model)
    data.qpos[[model.joint(name).qposadr[0] for name in UR5E.joints]] = q[0, 7:]
    mujoco.mj_kinematics(model, data)
    tcp = [values[f"right_tcp_{axis}"] for axis in "xyz"]
    np.testing.assert_allclose(tcp, data.site("tcp").xpos, atol=1e-6)
    assert values["right_tcp_rot0"] == pytest.approx(data.site("tcp").xmat[0], abs=1e-6)


def test_openings_of_two_grippers() -> None:
    width = np.array([[0.08, 0.0], [0.02, 0.085]])
    fingers = MIXED.fingers_of(width)
    np.testing.assert_allclose(fingers, [[0.04, 0.04, 0.0, 0.0], [0.01, 0.01, 0.0425, 0.0425]])
    np.testing.assert_allclose(MIXED.width_of(fingers), width)


def test_limits_of_two_arms_and_obstacles_where_they_are_in_the_station() -> None:
    wall = Plane("wall", np.array([1.0, 0.0, 0.0]), 0.1)  # x ≥ 0.1 of the arm
    table = Plane("table", np.array([0.0, 0.0, 1.0]), 0.0)
    post = Box("post", np.array([0.2, 0.0, 0.0]), np.array([0.4, 0.1, 1.0]), yaw=0.2)
    pair = PairSpec(
        "two", (ArmPart("a", PANDA, Base((0.0, 0.3, 0.0))), ArmPart("b", PANDA, Base((0.0, -0.35, 0.0), pi / 2)))
    )
    own = Limits.of(PANDA)
    box = np.array([[0.2, -0.4, 0.0], [0.8, 0.4, 0.9]])
    left = own.tightened(obstacles=(table,), max_jump=0.1, workspace=box)
    right = own.tightened(obstacles=(table, wall, post), collision_distance=0.03, velocity=1.0, command_timeout_s=0.05)
    limits = Limits.joined(pair, [left, right])
    assert limits.velocity.tolist() == [*PANDA.velocity, *[1.0] * 7]
    assert (limits.collision_distance, limits.command_timeout_s, limits.n) == (0.03, 0.05, 14)
    names = [obstacle.name for obstacle in limits.obstacles]
    assert names == ["a table", "b wall", "b post"], "the table that both stand on is one"
    _, moved, turned_post = limits.obstacles
    # Turned to the left by a right angle, x of the arm is y of the station: y ≥ 0.1 − 0.35.
    assert isinstance(moved, Plane) and isinstance(turned_post, Box)
    np.testing.assert_allclose([*moved.normal, moved.offset], [0.0, 1.0, 0.0, -0.25], atol=1e-12)
    np.testing.assert_allclose(turned_post.centre, [-0.05, -0.05, 0.5], atol=1e-12)
    assert turned_post.yaw == pytest.approx(0.2 + pi / 2)
    np.testing.assert_allclose(turned_post.half, [0.1, 0.05, 0.5])
    assert [one.max_jump for one in limits.each] == [0.1, 0.35]
    assert limits.each[0].workspace is not None and limits.each[1].workspace is None
    assert [one.max_jump for one in limits.tightened(max_jump=0.05).each] == [0.05, 0.05]
    with pytest.raises(BadInput, match="workspace of two arms: got one for both"):
        limits.tightened(workspace=box)
    with pytest.raises(BadInput, match="workspace: got None, expected a box inside"):
        limits.tightened(arms=(own, right))


@pytest.mark.parametrize("names", [(), ("left",), ("left", "left"), ("left", "right", "third"), ("", "right")])
def test_a_pair_is_two_arms_with_names(names: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match=r"arms of odd: (got .*,|missing;) expected two, with names that differ"):
        PairSpec("odd", tuple(ArmPart(name, PANDA) for name in names))


def test_a_pair_is_found_by_its_name() -> None:
    assert robot_named("so101_pair") is PAIRS["so101_pair"] and robot_named("panda") is PANDA
    with pytest.raises(BadInput, match=r"robot: got pair; available: .*so101_pair"):
        robot_named("pair")


# --- contracts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pair_names())
def test_shipped_contracts_of_two_arms(name: str) -> None:
    contract = load_pair(name)
    assert [part.base for part in contract.robot.parts] == [part.base for part in PAIRS[name].parts]
    topics = [topic.topic for arm in contract.arms.values() for topic in arm.topics.values()]
    assert len(set(topics)) == len(topics) and {topic.split("/")[1] for topic in topics} == {"left", "right"}
    assert len(set(contract.joints)) == contract.limits.n == len(contract.robot.joints)
    assert contract.interface.embodiment == name
    cameras = {f"{side}_{camera}" for side, arm in contract.arms.items() for camera in arm.cameras}
    assert set(contract.cameras) == cameras | ({"front"} if name == "panda_pair" else set())
    assert set(contract.interface.observation) == {"proprio", *(f"images.{camera}" for camera in contract.cameras)}
    assert load_any_contract(name).name == name and contract.simulated == (name == "panda_pair")


LEFT, RIGHT = ({"contract": "so101", "servos": {"port": f"/dev/ttyACM{k}", "calibration": f"arm{k}"}} for k in range(2))


def file(folder: Path, **changes: object) -> Path:
    base = {"position": [0.0, 0.2, 0.0], "yaw": 0.1}
    data = {"robot": "so101_pair", "arms": {"right": RIGHT, "left": {**LEFT, "base": base}}}
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump(data | changes))
    return path


def test_a_contract_of_ones_own(tmp_path: Path) -> None:
    contract = load_pair(file(tmp_path, collision_distance=0.05))
    assert list(contract.arms) == ["left", "right"], "in the order of the robot, not of the file"
    left, right = contract.robot.parts
    assert left.base == Base((0.0, 0.2, 0.0), 0.1) and right.base == PAIRS["so101_pair"].parts[1].base
    assert contract.limits.collision_distance == 0.05 and contract.name == "two"
    own = yaml.safe_load((Path(load_contract("so101").path)).read_text()) | {"control_hz": 10}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(own))
    arms = {"left": {**LEFT, "contract": "mine.yaml", "namespace": "l"}, "right": {**RIGHT, "contract": "mine.yaml"}}
    contract = load_pair(file(tmp_path, arms=arms))
    assert contract.control_hz == 10 and contract.arms["left"].joint_states.topic == "/l/joint_states"


def test_each_of_two_arms_has_a_bus_of_servos_of_its_own() -> None:
    servos = {name: arm.servos for name, arm in load_pair("so101_pair").arms.items()}
    assert {name: (one.port, one.calibration) for name, one in servos.items() if one} == {
        "left": ("/dev/ttyACM0", "left"), "right": ("/dev/ttyACM1", "right")
    }  # fmt: skip


ONE = {"contract": "so101"}


REFUSED: dict[str, dict[str, object]] = {
    r"two.yaml: robot: got so101; available: panda_pair, fr3_pair, so101_pair": {"robot": "so101"},
    r"two.yaml: arms: got left, expected two arms": {"arms": {"left": ONE}},
    r"two.yaml: arms: got left, middle, expected left, right": {"arms": {"left": ONE, "middle": ONE}},
    r"arms.right.contract: got a contract of panda, expected one of so101": {
        "arms": {"left": ONE, "right": {"contract": "sim"}}
    },
    r"two.yaml: arms.right: contract: got nowhere": {"arms": {"left": ONE, "right": {"contract": "nowhere"}}},
    r"arms.right: joint_states: got /left/joint_states, expected another topic than left's joint_states": {
        "arms": {"left": ONE, "right": ONE | {"namespace": "left"}}
    },
    r"two.yaml: arms.right.base.yaw: got 9.0, expected -6.3 to 6.3": {
        "arms": {"left": ONE, "right": ONE | {"base": {"yaw": 9.0}}}
    },
    r"two.yaml: unknown key in arms.right: got place": {"arms": {"left": ONE, "right": ONE | {"place": 1}}},
    r"arms.left: camera of contract so101: got up; available: none": {
        "arms": {"left": ONE | {"cameras": ["up"]}, "right": ONE}
    },
    r"two.yaml: objects: got /left/joint_states, expected another topic than joint_states of an arm": {
        "objects": {"topic": "left/joint_states", "type": "sensor_msgs/msg/JointState"}
    },
    r"two.yaml: arms.right.servos.port: got /dev/ttyACM0, expected another than left's": {
        "arms": {"left": ONE, "right": ONE}
    },
    r"two.yaml: arms.right.servos.calibration: got arm0, expected another than left's": {
        "arms": {"left": LEFT, "right": {**RIGHT, "servos": {"port": "/dev/ttyACM1", "calibration": "arm0"}}}
    },
    r"two.yaml: arms.left.servos.port: got COM3, expected a serial port such as /dev/ttyACM0": {
        "arms": {"left": {**ONE, "servos": {"port": "COM3", "calibration": "arm0"}}, "right": RIGHT}
    },
    r"two.yaml: arms.left.servos: got /dev/ttyACM0, expected none: sim has none": {
        "robot": "panda_pair",
        "arms": {"left": {**LEFT, "contract": "sim"}, "right": {"contract": "sim"}},
    },
    r"two.yaml: limit collision_distance: got 0.001, expected at least 0.02": {"collision_distance": 0.001},
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_contract_of_two_arms_is_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        load_pair(file(tmp_path, **REFUSED[words]))
    assert "\n" not in str(refused.value)


def test_two_arms_at_two_rates_are_refused(tmp_path: Path) -> None:
    own = yaml.safe_load((Path(load_contract("so101").path)).read_text()) | {"control_hz": 10}
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(own))
    with pytest.raises(BadInput, match=r"two.yaml: control_hz: got 20.0 of left, 10.0 of right"):
        load_pair(file(tmp_path, arms={"left": ONE, "right": {"contract": "slow.yaml"}}))


def test_a_real_arm_beside_a_simulated_one_is_refused(tmp_path: Path) -> None:
    own = yaml.safe_load((Path(load_contract("so101").path)).read_text()) | {"simulated": True}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(own))
    with pytest.raises(BadInput, match=r"two.yaml: simulated: got False of left, True of right"):
        load_pair(file(tmp_path, arms={"left": ONE, "right": {"contract": "other.yaml"}}))


@pytest.mark.parametrize("name", ["two", "nowhere"])
def test_a_contract_of_one_arm_or_two_is_found(tmp_path: Path, name: str) -> None:
    assert list(load_any_contract(file(tmp_path)).arms) == ["left", "right"]
    assert (
        list(load_any_contract("sim", "/left").arms) == [""] and load_any_contract("sim", "/left").namespace == "/left"
    )
    with pytest.raises(BadInput, match=rf"contract: got {name}; available: .*sim, .*so101_pair"):
        load_any_contract(name)


def test_what_drives_one_arm_refuses_a_station_with_two(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"two.yaml: got a station with two arms, expected a contract of one arm"):
        load_contract(file(tmp_path))
    with pytest.raises(BadInput, match=r"fr3_pair.yaml: got a station with two arms, expected a contract of one arm"):
        load_contract("fr3_pair")
    with pytest.raises(BadInput, match=r"contract of two arms: got sim; available: fr3_pair, panda_pair"):
        load_pair("sim")
    assert not set(pair_names()) & set(contract_names())


def test_the_list_has_the_pairs(capsys: pytest.CaptureFixture) -> None:
    assert main(["robots"]) == 0
    out = capsys.readouterr().out
    assert "left so101 at 0, 0.15, 0; right so101 at 0, -0.15, 0" in " ".join(out.split()) and "panda_pair" in out
