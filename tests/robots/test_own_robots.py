"""Robot folders of one's own, of a URDF and an MJCF: judged by MuJoCo on the source, and by arithmetic on the URDF."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
import yaml
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from robolearn.core import BadInput
from robots import PANDA, UR5E, RobotSpec
from robots.making.check import check_model
from robots.making.folder import MadeRobot, RobotRequest, make_robot
from robots.making.model import TCP
from robots.own import GUESS, check_confirmed, read_robot

# An arm of six joints: name, xyz and rpy of the origin, range, velocity, effort (shoulder, elbow, wrist as a UR5's).
H = math.pi / 2
JOINTS = [
    ("pan", (0, 0, 0.16), (0, 0, 0), (-6, 6), 1.2, 150),
    ("lift", (0, 0, 0), (H, 0, 0), (-3.1, 3.1), 1.1, 150),
    ("elbow", (-0.425, 0, 0), (0, 0, 0), (-2.8, 2.8), 1.3, 120),
    ("wrist_1", (-0.39, 0, 0.13), (0, 0, 0), (-6, 6), 2.1, 28),
    ("wrist_2", (0, -0.1, 0), (H, 0, 0), (-6, 6), 2.2, 27),
    ("wrist_3", (0, 0.1, 0), (H, math.pi, math.pi), (-6, 6), 2.3, 26),
]


def urdf(extra: str = "") -> str:
    links = [
        '<link name="base"><collision><geometry><cylinder radius="0.06" length="0.1"/></geometry></collision></link>'
    ]
    before = "base"
    for name, xyz, rpy, (low, high), velocity, effort in JOINTS:
        links.append(
            f'<link name="{name}_link"><inertial><mass value="2"/><inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" '
            'ixz="0" iyz="0"/></inertial><collision><geometry><sphere radius="0.03"/></geometry></collision></link>'
            f'<joint name="{name}" type="revolute"><parent link="{before}"/><child link="{name}_link"/>'
            f'<origin xyz="{" ".join(map(str, xyz))}" rpy="{" ".join(map(str, rpy))}"/><axis xyz="0 0 1"/>'
            f'<limit lower="{low}" upper="{high}" velocity="{velocity}" effort="{effort}"/></joint>'
        )
        before = f"{name}_link"
    links.append(
        f'<link name="mount"/><joint name="flange" type="fixed"><parent link="{before}"/><child link="mount"/>'
        '<origin xyz="0 0 0.02" rpy="0 0 0.5"/></joint>'
        '<link name="tool0"/><joint name="tool" type="fixed"><parent link="mount"/><child link="tool0"/>'
        '<origin xyz="0.01 0 0.01" rpy="0 0 0"/></joint>'
    )
    return f'<robot name="arm">{"".join(links)}{extra}</robot>'


def by_hand(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pose of tool0 by the URDF's own rules, without MuJoCo."""
    p, r = np.zeros(3), np.eye(3)
    for (_, xyz, rpy, *_), angle in zip(JOINTS, q, strict=True):
        p = p + r @ xyz
        r = r @ Rotation.from_euler("xyz", rpy).as_matrix() @ Rotation.from_rotvec([0, 0, angle]).as_matrix()
    turned = r @ Rotation.from_euler("z", 0.5).as_matrix()
    return p + r @ [0, 0, 0.02] + turned @ [0.01, 0, 0.01], turned


@pytest.fixture(scope="module")
def kinova() -> Path:
    import robosuite

    return Path(robosuite.__file__).parent / "models" / "assets" / "robots" / "kinova3" / "robot.xml"


@pytest.fixture(scope="module")
def made(kinova: Path, tmp_path_factory: pytest.TempPathFactory) -> MadeRobot:
    return make_robot(RobotRequest(kinova, "kinova3", velocity=(1.3,)), tmp_path_factory.mktemp("arms") / "kinova3")


@pytest.fixture
def folder(made: MadeRobot, tmp_path: Path) -> Path:
    """A folder that may be spoiled."""
    return Path(shutil.copytree(made.folder, tmp_path / "kinova3"))


def test_a_urdf_becomes_an_arm_with_its_limits_and_its_kinematics(tmp_path: Path):
    (tmp_path / "arm.urdf").write_text(urdf())
    made = make_robot(RobotRequest(tmp_path / "arm.urdf", "sixer"), tmp_path / "arms" / "sixer")
    robot, facts = read_robot(made.folder)
    assert robot.joints == ("pan", "lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
    assert robot.velocity == (1.2, 1.1, 1.3, 2.1, 2.2, 2.3) and robot.effort == (150, 150, 120, 28, 27, 26)
    np.testing.assert_allclose(np.c_[robot.lower, robot.upper], [limits for *_, limits, _, _ in JOINTS], atol=1e-9)
    assert not any("velocity" in line or "effort" in line or "range" in line for line in facts.assumed)
    q = np.random.default_rng(0).uniform(robot.lower, robot.upper, (30, 6))
    tcp, rot = robot.chain.forward(q)
    for row, p, r in zip(q, tcp, rot, strict=True):
        tool, turned = by_hand(row)
        np.testing.assert_allclose(r, turned, atol=1e-6)
        np.testing.assert_allclose(p, tool + turned @ [0, 0, TCP], atol=1e-6)
    flange, _ = robot.flange_chain.forward(q)
    np.testing.assert_allclose(flange[0], by_hand(q[0])[0], atol=1e-6)
    assert [one.rule for one in check_model(robot) if not one.ok] == []


@pytest.mark.long
def test_an_mjcf_with_meshes_becomes_an_arm_whose_links_are_those_of_the_source(made: MadeRobot, kinova: Path):
    robot, facts = read_robot(made.folder)
    source = mujoco.MjModel.from_xml_path(str(kinova))
    data = mujoco.MjData(source)
    for q in np.random.default_rng(1).uniform(robot.lower, robot.upper, (20, 7)):
        data.qpos[:] = q
        mujoco.mj_kinematics(source, data)
        hand = data.body("right_hand")
        p, r = (x[0] for x in robot.chain.forward(q[None]))
        np.testing.assert_allclose(r, hand.xmat.reshape(3, 3), atol=1e-9)
        np.testing.assert_allclose(p, hand.xpos + r @ [0, 0, TCP], atol=1e-9)
    assert robot.effort == (32, 32, 32, 32, 32, 13, 13) and robot.velocity == (1.3,) * 7  # the file's, and as given
    own = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    assert own.body("Bracelet_Link").mass == pytest.approx(source.body("Bracelet_Link").mass)
    assert own.mesh("forearm_link").id >= 0 and own.nmesh == source.nmesh
    home, rot = robot.chain.forward(np.array([robot.home]))
    np.testing.assert_allclose(home[0], (0.5, 0.0, 0.28), atol=1e-3)
    np.testing.assert_allclose(rot[0], np.diag([1.0, -1.0, -1.0]), atol=5e-3)
    assert any("Actuator1, Actuator3, Actuator5, Actuator7" in line for line in facts.assumed)
    assert [one.found for one in check_model(robot) if not one.ok] == []


@pytest.mark.long
def test_a_folder_with_meshes_may_be_named_from_the_working_directory(
    kinova: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    made = make_robot(RobotRequest(kinova, "kinova3", velocity=(1.3,)), Path("robots.own/kinova3"))
    assert made.folder == Path("robots.own/kinova3") and list(made.folder.glob("meshes/*"))
    model = (tmp_path / made.folder / "model.xml").read_text()
    assert str(tmp_path) not in model and "robots.own" not in model
    monkeypatch.chdir("/")
    mujoco.MjModel.from_xml_path(str(tmp_path / made.folder / "model.xml"))


def swap(pattern: str, new: str, count: int = 1) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed, n = re.subn(pattern, new, text, count=count)
        assert n, pattern
        return changed

    return change


BROKEN = {
    "a camera wrist": swap(r'<camera name="wrist"', '<camera name="hand"'),
    "weight of all links": swap(r' gravcomp="1"', "", 0),
    "position servo": swap(r'<general name="Actuator2".*?/>', '<motor name="Actuator2" joint="Actuator2"/>'),
    "stated effort": swap(r'forcerange="-32 32"', 'forcerange="-64 64"'),
    "pads hold": swap(r' condim="4"', "", 0),
    "fingers slide along y": swap(r'axis="0 1 0"', 'axis="1 0 0"'),
    "open as wide": swap(r'range="0 0.0425"', 'range="0 0.03"'),
    "hinges with ranges": swap(r'(<joint name="Actuator3") range="[^"]*"(.*?) limited="true"', r'\1\2 limited="false"'),
    "there are no others": swap(
        r'(<body name="kinova3_hand"[^>]*>)', r'\1<joint name="loose" axis="1 0 0" range="-1 1"/>'
    ),
    "tcp looking down": swap(r'(<body name="kinova3_hand") ', r'\1 quat="0.9 0.4 0 0" '),
    "servos follow": swap(r'<joint name="Actuator4"', '<joint name="Actuator4" damping="2000"'),
    "every link has a shape": swap(r'<geom name="f_collision".*?/>', ""),
}


@pytest.mark.long
@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_of_the_model_is_named_where_it_is_broken(rule: str, folder: Path):
    model = folder / "model.xml"
    model.write_text(BROKEN[rule](model.read_text()))
    broken = [one.rule for one in check_model(read_robot(folder)[0]) if not one.ok]
    assert any(rule in one for one in broken), broken


@pytest.mark.long
def test_a_home_at_the_end_of_a_range_and_one_out_of_reach_are_named(folder: Path):
    facts = folder / "robot.yaml"
    content = yaml.safe_load(facts.read_text())
    content["home"][1] = 2.40
    facts.write_text(yaml.safe_dump(content))
    found = {one.rule.split(" ")[0]: one for one in check_model(read_robot(folder)[0])}
    assert "Actuator2 is 0.01 rad from the end" in found["home"].found and not found["the"].ok


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"velocity": [1.0] * 6}, "velocity: got 6 values, expected 7"),
        ({"jerk": [0.0] * 7}, "jerk: got 0.0, expected more than 0"),
        ({"name": "kinova"}, "name: got kinova, expected that of its folder, kinova3"),
        ({"colour": "red"}, "colour: got red"),
        ({"home": "up"}, "home: got up"),
        ({"gripper": {"joints": ["a"], "max_width": 0.1, "max_speed": 0.1, "max_force": 1.0}}, "expected 2 names"),
    ],
)
def test_facts_that_are_none_are_refused_in_one_line(change: dict, expected: str, folder: Path):
    facts = folder / "robot.yaml"
    facts.write_text(yaml.safe_dump(yaml.safe_load(facts.read_text()) | change))
    with pytest.raises(BadInput, match=re.escape(expected)):
        read_robot(folder)


@pytest.mark.long
def test_what_cannot_become_an_arm_is_refused(kinova: Path, tmp_path: Path):
    (tmp_path / "arm.urdf").write_text(urdf().replace("<sphere", '<mesh filename="package://arm/a.stl"/><sphere', 1))
    (tmp_path / "short.xml").write_text(
        "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>"
    )
    (tmp_path / "none.xml").write_text("<mujoco><worldbody>")
    cases: list[tuple[RobotRequest, str]] = [
        (RobotRequest(tmp_path / "arm.urdf", "a"), "package://arm/a.stl is not in the folders above"),
        (RobotRequest(tmp_path / "short.xml", "a"), "expected five joints or more"),
        (RobotRequest(tmp_path / "none.xml", "a"), "that MuJoCo compiles"),
        (RobotRequest(tmp_path / "nowhere.xml", "a"), "expected a URDF or MJCF file"),
        (RobotRequest(kinova, "a b"), "letters, digits and _"),
        (RobotRequest(kinova, "a", tip="base"), "a body behind Actuator7"),
        (RobotRequest(kinova, "a", joints=("Actuator1", "elbow")), "one chain; available: Actuator1"),
        (RobotRequest(kinova, "a", velocity=(1.0, 2.0)), "1 or 7 values above 0"),
        (RobotRequest(kinova, "a", home_tcp=(1.5, 0.0, 0.3)), "mm away at best"),
        (RobotRequest(kinova, "a", width=0.5), "0.01 to 0.2 m"),
        (RobotRequest(kinova, "a", tcp_site="right_hand"), "got no slide, expected two slides from 0"),
        (RobotRequest(kinova, "a", tcp_site="right_center"), "expected a site or body behind the last joint"),
    ]
    for wanted, expected in cases:
        with pytest.raises(BadInput, match=re.escape(expected)):
            make_robot(wanted, tmp_path / "arms" / "a")
        assert not list((tmp_path / "arms").glob("*")) if (tmp_path / "arms").exists() else True


def test_a_gripper_of_the_source_is_left_out_and_said_so(tmp_path: Path):
    knuckle = (
        '<link name="knuckle"><inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" '
        'iyz="0"/></inertial></link><joint name="finger_joint" type="revolute"><parent link="tool0"/>'
        '<child link="knuckle"/><axis xyz="1 0 0"/><limit lower="0" upper="0.8" velocity="1" effort="10"/></joint>'
    )
    (tmp_path / "arm.urdf").write_text(urdf(knuckle))
    joints = tuple(name for name, *_ in JOINTS)
    made = make_robot(RobotRequest(tmp_path / "arm.urdf", "sixer", joints, "tool0"), tmp_path / "sixer")
    assert made.left_out == ("body knuckle and what hangs on it",) and made.joints == joints


KNUCKLE = (
    '<link name="knuckle"><inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" '
    'iyz="0"/></inertial></link><joint name="drive_joint" type="{kind}"><parent link="tool0"/>'
    '<child link="knuckle"/><axis xyz="1 0 0"/><limit lower="0" upper="0.85" velocity="1" effort="10"/></joint>'
)


@pytest.mark.parametrize(
    ("extra", "joint", "closed", "opened"),
    [
        (KNUCKLE.format(kind="revolute"), "drive_joint", 0.85, 0.0),
        (KNUCKLE.format(kind="prismatic"), "drive_joint", 0.0, 0.85),
        ("", "gripper_joint", 0.0, 1.0),
    ],
)
def test_the_contracts_gripper_is_that_of_the_model_and_what_is_guessed_is_to_be_confirmed(
    extra: str, joint: str, closed: float, opened: float, tmp_path: Path
):
    (tmp_path / "arm.urdf").write_text(urdf(extra))
    joints = tuple(name for name, *_ in JOINTS)
    made = make_robot(RobotRequest(tmp_path / "arm.urdf", "sixer", joints, "tool0"), tmp_path / "sixer")
    robot, facts = read_robot(made.folder)
    gripper = yaml.safe_load((made.folder / "station.yaml").read_text())["gripper"]
    assert (gripper["joints"], gripper["closed"], gripper["open"]) == ([joint], closed, opened)
    guessed = [line for line in facts.assumed if line.startswith(GUESS)]
    assert len(guessed) == 2 and "table at z = 0 m" in guessed[1]
    assert f"gripper joint {joint}, closed at {closed:g}, open at {opened:g}" in guessed[0]
    with pytest.raises(BadInput, match=f"sixer, a real arm: got guesses in its contract: gripper joint {joint}"):
        check_confirmed(robot)


def test_a_gripper_that_is_kept_is_no_guess(tmp_path: Path):
    made = make_robot(RobotRequest(PANDA.mjcf, "own", tcp_site=PANDA.tcp_site), tmp_path / "own")
    gripper = yaml.safe_load((made.folder / "station.yaml").read_text())["gripper"]
    assert (gripper["joints"], gripper["closed"], gripper["open"]) == (list(PANDA.gripper.joints), 0.0, 0.04)
    assert [line.split()[1:3] for line in made.assumed if line.startswith(GUESS)] == [["a", "table"]]


@pytest.mark.long
def test_a_tcp_site_of_the_source_gives_way_to_that_of_a_gripper_of_ours(tmp_path: Path):
    assert PANDA.tcp_site == "tcp"  # a name that ours has, too
    made = make_robot(RobotRequest(PANDA.mjcf, "own"), tmp_path / "own")
    model = mujoco.MjModel.from_xml_path(str(made.folder / "model.xml"))
    assert model.nsite == 1 and model.site("tcp").pos == pytest.approx([0.0, 0.0, TCP])


def test_a_real_arm_does_not_move_by_guesses_of_its_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """By no command, and by no launch file, whose safety node asks the same."""
    from hardware.ros2.safety_node import SafetyNode
    from hardware.station import SeenStation, SeenTopic, check_station
    from robolearn.deploy.processes import arm_programs
    from robots import ROBOTS
    from robots.stations import load_contract

    (tmp_path / "arm.urdf").write_text(urdf())
    made = make_robot(RobotRequest(tmp_path / "arm.urdf", "sixer"), tmp_path / "sixer")
    monkeypatch.setitem(ROBOTS.data, "sixer", read_robot(made.folder)[0])
    real = load_contract(str(made.folder / "station.yaml"))
    assert not real.simulated and (real.gripper_range, real.gripper_joints) == ((0.0, 1.0), ("gripper_joint",))
    node: Any = SimpleNamespace(any_station=lambda: real, value=lambda name: False)
    for start in (lambda: arm_programs(real, "sixer", 0, False, "", 0), lambda: SafetyNode.configure(node)):
        with pytest.raises(BadInput, match=r"guesses in its contract.*take these lines out of `assumed` in .*robot.ya"):
            start()
    assert arm_programs(replace(real, simulated=True), "sixer", 0, False, "", 0)
    assert arm_programs(real, "sixer", 0, False, "", 0, dry_run=True)

    def stated() -> dict[str, bool]:
        found = check_station(real, SeenStation(defaultdict(SeenTopic), 1.0))
        return {one.found: one.needed for one in found.get("Not stated", [])}

    needed = stated()
    assert sum(needed.values()) == 2 and "jerk: 500 rad/s³ of every joint" in needed
    facts = made.folder / "robot.yaml"
    content = yaml.safe_load(facts.read_text())
    content["assumed"] = [line for line in content["assumed"] if not line.startswith(GUESS)]
    facts.write_text(yaml.safe_dump(content))
    caplog.clear()
    assert arm_programs(real, "sixer", 0, False, "", 0)
    assert "sixer moves by what nobody has stated: jerk: 500 rad/s³ of every joint" in caplog.text
    assert stated() and not any(stated().values())


def test_shapes_for_the_filter_hold_every_vertex_of_a_mesh_and_little_else(made: MadeRobot):
    """Judged by the hulls of scipy: of the shape, of the mesh, and of the box around it."""
    robot, _ = read_robot(made.folder)
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    shares = []
    for geom, piece in zip(range(model.ngeom), robot.pieces, strict=True):
        if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_MESH:
            continue
        assert piece.body == model.body(model.geom_bodyid[geom]).name
        i = model.geom_dataid[geom]
        vertices = model.mesh_vert[model.mesh_vertadr[i] :][: model.mesh_vertnum[i]].astype(float)
        world = vertices @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        link = model.joint(robot.joints[piece.link - 1]).bodyid[0] if piece.link else 0
        shape = piece.points @ data.xmat[link].reshape(3, 3).T + data.xpos[link]
        hull = ConvexHull(shape)
        outside = (world @ hull.equations[:, :3].T + hull.equations[:, 3]).max()
        assert outside <= 1e-6, "without the radius already"
        box = np.prod(2 * model.geom_aabb[geom, 3:])
        shares.append((hull.volume / ConvexHull(vertices).volume, hull.volume / box))
    assert len(shares) == 8 and max(own for own, _ in shares) < 1.6
    assert np.mean([box for _, box in shares]) < 0.9


@pytest.mark.parametrize("shipped", [PANDA, UR5E], ids=lambda robot: robot.name)
def test_two_fingers_of_the_source_are_kept_with_their_tcp(shipped: RobotSpec, tmp_path: Path):
    wanted = RobotRequest(shipped.mjcf, "own", tcp_site=shipped.tcp_site)
    made = make_robot(wanted, tmp_path / "own")
    robot, _ = read_robot(made.folder)
    assert (robot.joints, robot.gripper.joints) == (shipped.joints, shipped.gripper.joints)
    assert robot.gripper.max_width == pytest.approx(shipped.gripper.max_width) and robot.effort == shipped.effort
    q = np.random.default_rng(0).uniform(shipped.lower, shipped.upper, (30, len(shipped.joints)))
    for own, known in zip(robot.chain.forward(q), shipped.chain.forward(q), strict=True):
        np.testing.assert_allclose(own, known, atol=5e-6)
    assert [one.found for one in check_model(robot) if not one.ok] == []
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera, tcp = data.camera("wrist"), data.site("tcp")
    seen = (tcp.xpos - camera.xpos) @ camera.xmat.reshape(3, 3)  # MuJoCo's cameras look along −z
    assert -0.25 < seen[2] < -0.05 and abs(seen[0]) < 0.01


@pytest.mark.long
def test_another_process_knows_the_arms_of_a_folder(folder: Path):
    top = folder.parent
    shutil.copytree(folder, top / "panda")  # no folder replaces a shipped arm
    (top / "broken").mkdir()
    (top / "broken" / "robot.yaml").write_text("name: broken\n")
    program = (
        "from robots import ROBOTS, PANDA; from robots.stations import contract_names, load_contract;"
        "c = load_contract('kinova3'); print(*ROBOTS); print(*contract_names());"
        "print(c.robot.name, c.driver, ROBOTS['panda'] is PANDA)"
    )
    environment = {"ROBOLEARN_ROBOTS": str(top), "PATH": "/usr/bin:/bin", "HOME": str(top)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    names, contracts, own = done.stdout.splitlines()
    assert names == "panda fr3 ur5e so101 kinova3" and "kinova3" in contracts.split() and "broken" not in contracts
    assert own == "kinova3 ros2_control True" and "broken is left out" in done.stderr
    assert f"{top / 'panda'} is left out: the name panda is taken by robolearn" in done.stderr
