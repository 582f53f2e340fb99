"""Contracts: the shipped ones hold, and every mistake in a file is named in one line with its place."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.core import ArraySpec, BadInput, check_compatible
from robots import ROBOTS
from robots.limits import Box, Limits, Plane
from robots.stations import contract_names, load_contract
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from contract_files import load, put, refuse, shipped

# --- the shipped ones --------------------------------------------------------------------------------------


def test_four_come_with_the_package() -> None:
    assert contract_names() == ("fr3", "sim", "so101", "ur5e")


@pytest.mark.parametrize("name", contract_names())
def test_a_shipped_contract_fits_its_robot(name: str) -> None:
    contract = load_contract(name)
    robot, limits, own = contract.robot, contract.limits, Limits.of(contract.robot)
    assert contract.name == name and Path(contract.path).name == f"{name}.yaml"
    assert len(contract.joints) == len(robot.joints) == limits.n
    # franka_ros2 relays to /joint_states with stamps of its own.
    places = {"fr3": "/franka/joint_states", "so101": "/follower/joint_states"}
    assert contract.joint_states.topic == places.get(name, "/joint_states")
    assert contract.interface.embodiment == robot.name
    home = np.array(robot.home)
    assert (limits.lower < home).all() and (home < limits.upper).all()
    if name == "sim":
        np.testing.assert_array_equal(limits.velocity, own.velocity)
        assert limits.workspace is None
    else:
        np.testing.assert_allclose(limits.velocity, 0.5 * own.velocity)
        np.testing.assert_allclose(limits.acceleration, 0.3 * own.acceleration)
        assert limits.workspace is not None
        (tcp,), _ = robot.chain.forward(home[None])
        assert (limits.workspace[0] < tcp).all() and (tcp < limits.workspace[1]).all()


@pytest.mark.parametrize("name", contract_names())
def test_gripper_units_go_there_and_back(name: str) -> None:
    contract = load_contract(name)
    widest = contract.robot.gripper.max_width
    closed, opened = contract.gripper_range
    n = len(contract.gripper_joints)
    assert contract.gripper_width([closed] * n) == pytest.approx(0.0)
    assert contract.gripper_width([opened] * n) == pytest.approx(widest)
    assert contract.gripper_width([0.5 * (closed + opened)] * n) == pytest.approx(0.5 * widest)
    values = contract.gripper_values(0.03)
    if contract.gripper is not None and contract.gripper.unit == "opening":
        assert values == (0.03,)
    else:
        assert contract.gripper_width(values) == pytest.approx(0.03)


def test_the_robotiq_closes_as_its_joint_rises() -> None:
    contract = load_contract("ur5e")
    assert contract.gripper_values(0.085) == pytest.approx((0.0,))
    assert contract.gripper_values(0.0) == pytest.approx((0.7929,))


# --- what it offers to policies ----------------------------------------------------------------------------


def test_only_a_contract_that_says_so_is_simulated(tmp_path: Path) -> None:
    assert [name for name in contract_names() if load_contract(name).simulated] == ["sim"]
    content = shipped("sim")
    del content["simulated"]
    assert not load(tmp_path, content).simulated
    named = tmp_path / "sim.yaml"
    named.write_text(yaml.safe_dump(content))
    assert not load_contract(named).simulated, "whatever the file is called"
    assert load(tmp_path, {**shipped("fr3"), "simulated": True, "name": "mine"}).simulated


def test_the_simulated_arm_offers_what_the_simulator_offers() -> None:
    trained = make_env("lift", 1).interface
    contract = load_contract("sim").with_cameras(()).with_objects(trained.observation["objects"].names)
    assert contract.interface == trained
    check_compatible(trained, contract.interface, what="policy")


def test_cameras_are_offered_as_the_simulator_offers_them(tmp_path: Path) -> None:
    camera = {"topic": "/camera/front/image_raw", "type": "sensor_msgs/msg/Image", "size": [64, 80]}
    contract = load(tmp_path, put(shipped("sim"), "cameras", {"front": camera}))
    assert contract.interface.observation["images.front"].shape == (64, 80, 3)
    assert contract.interface.observation["images.front"].dtype == "uint8"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fr3", "policy: it was made for panda, this is fr3: one arm, one policy. .* data of fr3 makes"),
        ("ur5e", "policy: it was made for panda, this is ur5e: one arm, one policy. .* data of ur5e makes"),
        ("so101", "policy: it was made for panda, this is so101: one arm, one policy. .* data of so101 makes"),
        ("sim", "policy: observation: got no 'objects', expected objects"),
    ],
)
def test_a_policy_for_something_else_is_refused(name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_compatible(make_env("lift", 1).interface, load_contract(name).interface, what="policy")


def test_a_real_arm_knows_no_objects() -> None:
    with pytest.raises(BadInput, match="contract ur5e: got no objects topic"):
        load_contract("ur5e").with_objects(["cube_x"])
    assert load_contract("ur5e").with_objects([]).object_names == ()


# --- mistakes ----------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"contract: got ur5; available: fr3, sim, so101, ur5e, <path>.yaml .*ur5e\?"):
        load_contract("ur5")


FELT = {"topic": "/felt", "type": "sensor_msgs/msg/JointState"}
WRENCH_FELT = {"topic": "/felt", "type": "geometry_msgs/msg/WrenchStamped"}


@pytest.mark.parametrize(
    ("felt", "feature", "names", "most"),
    [
        (FELT | {"max_torque": [5.0] * 7}, "external_torque", ROBOTS["panda"].joints, (5.0,) * 7),
        (WRENCH_FELT | {"max_force": 40.0, "max_moment": 5.0}, "wrench", ("fx", "fy", "fz", "mx", "my", "mz"), (40, 5)),
    ],
)
def test_contact_is_a_feature(tmp_path: Path, felt: dict, feature: str, names: tuple, most: tuple) -> None:
    contract = load(tmp_path, put(shipped("sim"), "contact", felt))
    assert contract.contact is not None and contract.contact.most == most
    assert contract.interface.observation[feature] == ArraySpec((len(names),), names=names)
    assert contract.topics[feature].topic == "/felt"
    plain = load_contract("sim")
    assert plain.contact is None and feature not in plain.interface.observation and feature not in plain.topics


def swapped(names: Sequence[str]) -> list[str]:
    return [names[1], names[0], *names[2:]]


@pytest.mark.parametrize(
    ("station", "called"),
    [
        ("sim", "panda_joint{i}"), ("sim", "l_panda_joint{i}"), ("sim", "J{i}"), ("fr3", "fr3_joint_{i}"),
        ("fr3", "left_fr3v2_joint{i}"), ("fr3", "no{i}"), ("ur5e", "{own}"), ("ur5e", "{plain}"), ("ur5e", "{upper}"),
        ("ur5e", "left_ur5e_{own}"), ("ur5e", "joint_{i}"), ("so101", "{own}.pos"), ("so101", "{camel}"),
        ("so101", "motor_{i}"),
    ],
)  # fmt: skip
def test_joints_in_another_order_are_refused_whatever_they_are_called(
    tmp_path: Path, station: str, called: str
) -> None:
    own = load_contract(station).robot.joints
    names = [
        called.format(i=i, own=name, plain=name.removesuffix("_joint"), upper=name.upper(),
                      camel="".join(word.title() for word in name.split("_")))
        for i, name in enumerate(own, 1)
    ]  # fmt: skip
    assert load(tmp_path, put(shipped(station), "joints", names)).joints == tuple(names)
    with pytest.raises(BadInput, match=r"joints: got .*, expected base to tip: "):
        load(tmp_path, put(shipped(station), "joints", swapped(names)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("robt", "panda", "unknown key: got robt; available: robot"),
        ("comand", {}, r"unknown key: got comand;.*\(did you mean command\?\)"),
        ("limits.velocty", [1.0] * 7, r"unknown key in limits: got velocty;.*\(did you mean velocity\?\)"),
        ("command.tpye", "x", r"unknown key in command: got tpye;.*\(did you mean type\?\)"),
        ("cameras.front.fps", 30, "unknown key in cameras.front: got fps"),
        ("robot", "pandas", r"robot: got pandas; available: panda, .*did you mean panda"),
        ("robot", None, "missing; expected the key 'robot'"),
        ("robot", ["panda"], "robot: got \\['panda'\\]"),
        ("action_kind", "tcp_deltas", r"action_kind: got tcp_deltas;.*did you mean tcp_delta\?"),
        ("control_hz", 0, "control_hz: got 0, expected 1 to 100"),
        ("control_hz", "20 Hz", "control_hz: got 20 Hz, expected a number"),
        ("control_hz", True, "control_hz: got True, expected a number"),
        ("control_hz", float("nan"), "control_hz: got nan, expected 1 to 100"),
        ("stream_hz", 10, "stream_hz: got 10, expected 50 to 1000"),
        ("stream_hz", 2000, "stream_hz: got 2000, expected 50 to 1000"),
        ("joints", [f"panda_joint{i}" for i in range(1, 7)], "joints: got 6, expected 7 entries"),
        ("joints", "panda_joint1", "joints: got panda_joint1, expected a list of 7"),
        ("joints", ["panda_joint1"] * 2 + list("abcde"), "joints: got panda_joint1 2 times, expected every name once"),
        ("joints", [1, *"abcdef"], "joints.0: got 1, expected a word"),
        ("joints", [f"l_panda_joint{i}" for i in (2, 1, 3, 4, 5, 6, 7)], "joints: got l_panda_joint2.*base to tip"),
        ("joints", [f"joint{i}" for i in (2, 1, 3, 4, 5, 6, 7)], "joints: got joint2.*base to tip"),
        ("joints", [f"J{i}\x07" for i in range(1, 8)], "joints.*a word without control characters"),
        ("gripper.joints", ["left\nright"], "gripper.joints.*a word without control characters"),
        ("joint_states", "/joint_states", "joint_states: got /joint_states, expected key: value lines"),
        ("joint_states.topic", "joint states", "joint_states.topic: got joint states, expected a ROS topic name"),
        ("joint_states.topic", "/a//b", "joint_states.topic"),
        ("joint_states.type", "sensor_msgs/msg/Image", "joint_states.type: got sensor_msgs/msg/Image; available"),
        ("joint_states.max_age_s", -1, "joint_states.max_age_s: got -1, expected 0.001 to 5"),
        (
            "command.type",
            "std_msgs/msg/Float32MultiArray",
            r"command.type:.*did you mean std_msgs/msg/Float64MultiArray",
        ),
        ("command.topic", None, "command: missing; expected the key 'topic'"),
        (
            "command.topic",
            "/joint_states",
            "command.topic: got /joint_states, expected another topic than joint_states",
        ),
        ("gripper.joints", [], "gripper.joints: got \\[\\], expected at least one"),
        (
            "gripper.joints",
            ["panda_joint1"],
            "gripper.joints: got panda_joint1, expected joints that are not the arm's",
        ),
        ("gripper.unit", "mm", "gripper.unit: got mm; available: opening, joint"),
        ("gripper.open", 0.0, "gripper: got 0 for both, expected two positions"),
        ("gripper.type", "geometry_msgs/msg/PoseStamped", "gripper.type"),
        ("objects.type", "std_msgs/msg/String", "objects.type"),
        ("contact", {"topic": "/f", "type": "std_msgs/msg/String"}, "contact.type: got std_msgs/msg/String; available"),
        ("contact", FELT, "contact: missing; expected max_torque"),
        ("contact", FELT | {"max_force": 9.0}, "contact: got max_force, expected max_torque"),
        ("contact", FELT | {"max_torque": 20.0}, "contact.max_torque: got 20.0, expected a list of 7"),
        ("contact", FELT | {"max_torque": [20.0] * 7}, "contact: got 20, expected torques above 0 and below .* 12 Nm"),
        ("contact", FELT | {"max_torque": [5.0] * 6 + [0.0]}, "contact: got 0, expected torques above 0"),
        ("contact", WRENCH_FELT | {"max_force": 40.0}, "contact: got max_force, expected max_force and max_moment"),
        ("contact", WRENCH_FELT | {"max_force": -4.0, "max_moment": 1.0}, "contact.max_force: got -4.0, expected more"),
        ("contact", FELT | {"topic": "/joint_states", "max_torque": [5.0] * 7}, "contact.topic: got /joint_states"),
        ("cameras", ["front"], "cameras: got"),
        ("cameras.front", {"topic": "/c"}, "cameras.front: missing; expected the key 'type'"),
        (
            "cameras.front",
            {"topic": "/c", "type": "sensor_msgs/msg/Image", "size": [96]},
            "cameras.front.size: got 1, expected 2 entries",
        ),
        (
            "cameras.front",
            {"topic": "/c", "type": "sensor_msgs/msg/Image", "size": [96, 9.5]},
            "cameras.front.size.1: got 9.5, expected a whole number",
        ),
        ("cameras.front", {"topic": "/c", "type": "sensor_msgs/msg/PointCloud2"}, "cameras.front.type"),
        ("limits", {"velocity_share": 1.1}, "limits.velocity_share: got 1.1, expected at most 1$"),
        ("limits", {"acceleration_share": 2.0}, "limits.acceleration_share: got 2.0, expected at most 1$"),
        ("limits", {"jerk_share": 3}, "limits.jerk_share: got 3, expected at most 1$"),
        ("limits", {"velocity": [2.2] * 7}, "limits: limit velocity of joint 1: got 2.2, expected at most 2.175"),
        ("limits", {"velocity_share": 0}, "limits.velocity_share: got 0, expected more than 0"),
        ("limits", {"velocity_share": 0.5, "velocity": [1.0] * 7}, "either velocity or velocity_share"),
        ("limits", {"velocity": [1.0] * 6}, "limits.velocity: got 6, expected 7 entries"),
        ("limits", {"velocity": 1.0}, "limits.velocity: got 1.0, expected a list of 7"),
        ("limits", {"lower": [-3.0] * 7}, "limits: limit lower of joint 1: got -3.0, expected at least -2.8973"),
        ("limits", {"max_jump": 3.0}, "limits: limit max_jump: got 3.0, expected at most"),
        ("limits", {"command_timeout_s": 1.0}, "limits: limit command_timeout_s: got 1.0, expected at most 0.1"),
        ("limits", {"collision_distance": 0.0}, "limits: limit collision_distance"),
        ("limits", {"workspace": {"lower": [0, 0, 0]}}, "limits.workspace: missing; expected the key 'upper'"),
        ("limits", {"workspace": {"lower": [0, 0, 1], "upper": [1, 1, 0]}}, "limits: workspace"),
        ("limits", {"obstacles": {"table": {"normal": [0, 0]}}}, "limits.obstacles.table.normal: got 2, expected 3"),
        ("limits", {"obstacles": {"t": {"normal": [0, 0, 0]}}}, "limits: plane t"),
        ("limits", {"obstacles": {"t": {"nrmal": [0, 0, 1]}}}, "unknown key in limits.obstacles.t: got nrmal"),
        ("limits", {"obstacles": {"t": {"normal": [0, 0, 1], "yaw": 1.0}}}, "limits.obstacles.t: got normal, yaw"),
        ("limits", {"obstacles": {"t": {"lower": [0, 0, 0]}}}, "limits.obstacles.t: got lower, expected normal and"),
        ("limits", {"obstacles": {"p": {"lower": [0, 0, 1], "upper": [1, 1, 0]}}}, "limits: box p"),
        ("limits", {"obstacles": ["table"]}, "limits.obstacles: got"),
        ("limits", {"held": {"lower": [0, 0, 1], "upper": [1, 1, 0]}}, "limits: held"),
        ("limits", {"jerk": [1e-6] * 7}, "limits: limit jerk: got 1e-06, expected at least 1.0"),
        ("limits", {"state_timeout_s": 1.0}, "limits: limit state_timeout_s: got 1.0, expected at most 0.3"),
        ("limits", {"gripper_max": 0.2}, "limits: limit gripper_max: got 0.2, expected at most 0.08"),
        ("limits", {"max_jump": float("nan")}, "limits.max_jump: got nan, expected a finite number"),
        ("limits", {"max_jump": "0.1"}, "limits.max_jump: got 0.1, expected a number"),
        ("limits", {"max_jump": True}, "limits.max_jump: got True, expected a number"),
        ("limits", {"jerk": [1.0] * 6 + [float("inf")]}, "limits.jerk.6: got inf, expected a finite number"),
        ("limits", {"velocity_share": -0.5}, "limits.velocity_share: got -0.5, expected more than 0"),
        ("limits.velocty", None, "unknown key in limits: got velocty"),
        ("gripper.topic", "grip per", "gripper.topic: got grip per, expected a ROS topic name"),
        ("gripper.type", None, "gripper: missing; expected the key 'type'"),
        ("cameras.a-b", {"topic": "/c", "type": "sensor_msgs/msg/Image"}, "cameras: got a-b, expected a camera name"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, where: str, value: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(tmp_path, put(shipped("sim"), where, value))
    refuse(tmp_path, put(shipped("sim"), where, value))


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("robot: panda\nrobot: fr3\n", "station.yaml line 2: got the key 'robot' stands there twice"),
        ("robot: [panda\n", "station.yaml line 2"),
        ("robot: !!python/object:os.system x\n", "station.yaml line 1"),
        ("", "station.yaml: got None, expected key: value lines"),
        ("- a\n- b\n", "station.yaml: got "),
        ("? [a, b]\n: 1\n", "station.yaml"),
        ("7: 1\n", "unknown key: got 7"),
        ("robot: " + "[" * 100_000, "station.yaml: got nested too deeply"),
        (
            "a: &a [x, x]\n"
            + "".join(f"{b}: &{b} [{'*' + a + ', '}*{a}]\n" for a, b in pairwise("abcdefghijklmnopqrs")),
            "values, more than 20,000",
        ),
        ("a: &a [*a]\n", "values, more than 20,000"),
        ("x: " + "y" * 2_000_000, "station.yaml: got more than 1,000,000 bytes, expected a contract"),
    ],
)
def test_what_is_no_contract_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refuse(tmp_path, text)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "station.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadInput, match=r"station.yaml: got .*expected YAML"):
        load_contract(path)


# --- what is allowed ---------------------------------------------------------------------------------------


def test_a_station_of_ones_own(tmp_path: Path) -> None:
    """Prefixed joints, a tightened limit, a Cartesian controller, a gripper that is only measured."""
    data = shipped("ur5e")
    data["joints"] = [f"left_{name}" for name in data["joints"]]
    data["command"] = {"topic": "/target_pose", "type": "geometry_msgs/msg/PoseStamped"}
    data["gripper"] = {"joints": ["knuckle"], "closed": 0.8, "open": 0.0}
    data["limits"] = {"velocity": [0.5] * 6, "max_jump": 0.1}
    contract = load(tmp_path, data)
    assert contract.name == "station" and contract.joints[0] == "left_shoulder_pan_joint"
    assert contract.gripper is None and contract.gripper_joints == ("knuckle",)
    assert contract.limits.max_jump == 0.1
    np.testing.assert_array_equal(contract.limits.velocity, [0.5] * 6)
    assert contract.interface == load_contract("ur5e").interface


def test_what_stands_around_the_arm(tmp_path: Path) -> None:
    data = put(shipped("ur5e"), "limits.obstacles.post", {"lower": [0.5, 0.5, 0], "upper": [0.6, 0.6, 1], "yaw": 0.3})
    data = put(data, "limits.held", {"lower": [-0.01, -0.02, -0.03], "upper": [0.01, 0.02, 0.03]})
    limits = load(tmp_path, put(data, "limits.state_timeout_s", 0.25)).limits
    post, table = limits.obstacles  # as the file has them
    assert isinstance(table, Plane) and table.name == "table" and table.normal.tolist() == [0, 0, 1]
    assert isinstance(post, Box) and post.yaw == 0.3 and post.centre == pytest.approx([0.55, 0.55, 0.5])
    np.testing.assert_array_equal(limits.held, [[-0.01, -0.02, -0.03], [0.01, 0.02, 0.03]])
    assert limits.state_timeout_s == 0.25


def test_an_arm_without_gripper_or_limits_section(tmp_path: Path) -> None:
    data = shipped("fr3")
    del data["gripper"], data["limits"]
    contract = load(tmp_path, data)
    assert contract.gripper is None and contract.gripper_joints == ()
    np.testing.assert_array_equal(contract.limits.velocity, ROBOTS["fr3"].velocity)
