"""Observations under a fake clock: in the policy's order, and never from a source that cannot be believed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hardware.observing.joints import JointReader
from hardware.observing.observer import NotObserved, Observer
from hardware.observing.timing import Freshness, Latencies
from robolearn.core import BadInput
from robolearn.core.se3 import rot6d
from robots.stations import WRENCH, Camera, ContactSensing, Contract, load_contract

WALL = 1.7e9
FEATURES = ("proprio", "objects", "images.front")


class Clock:
    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t

    @property
    def wall(self) -> float:
        return WALL + self.t


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def contract() -> Contract:
    camera = Camera("/camera/front/image_raw", "sensor_msgs/msg/Image", 0.3, (8, 8))
    sim = load_contract("sim").with_objects(("cube_x", "cube_y"))
    return dataclasses.replace(sim, cameras={"front": camera})


def picture(value: int = 200) -> np.ndarray:
    return np.full((8, 8, 3), value, np.uint8)


class Arm:
    """Feeds an observer."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self.observer, self.clock = observer, clock
        self.q = np.array(observer.contract.robot.home)
        self.names = (*observer.contract.joints, *observer.contract.gripper_joints)

    def joints(self, stamp: float | None = None) -> bool:
        values = [*self.q, 0.01, 0.02]
        return self.observer.joints.update(self.names, values, self.clock.wall if stamp is None else stamp)

    def all(self, print_: int = 1) -> None:
        self.joints()
        self.observer.objects(("cube_y", "extra", "cube_x"), (2.0, 9.0, 1.0), self.clock.wall)
        self.observer.image("front", print_, picture, self.clock.wall)


@pytest.fixture
def arm(contract: Contract, clock: Clock) -> Arm:
    return Arm(Observer(contract, FEATURES, clock), clock)


@pytest.mark.long
def test_what_the_arm_feels_is_observed_while_it_is_fresh(contract: Contract, clock: Clock) -> None:
    felt = ContactSensing("/felt", WRENCH, max_force=40.0, max_moment=5.0)
    arm = Arm(Observer(dataclasses.replace(contract, contact=felt), ("proprio", "wrench"), clock), clock)
    arm.joints()
    with pytest.raises(NotObserved, match="contact on /felt: nothing arrived yet"):
        arm.observer.observation()
    assert arm.observer.contact is not None
    arm.observer.contact.update(("fx", "fy", "fz", "mx", "my", "mz"), (1, 2, 3, 4, 5, 6), clock.wall)
    seen = arm.observer.observation()["wrench"]
    assert seen.tolist() == [[1, 2, 3, 4, 5, 6]] and seen.dtype == np.float32
    assert arm.observer.source_stamps()["wrench"] == clock.wall
    clock.t += 0.11
    arm.joints()
    with pytest.raises(NotObserved, match=r"contact on /felt: silent for 0\.11"):
        arm.observer.observation()
    assert Observer(dataclasses.replace(contract, contact=felt), ("proprio",), clock).contact is None


def test_an_observation_is_in_the_policys_order(arm: Arm, contract: Contract) -> None:
    arm.all()
    seen = arm.observer.observation()
    pos, rot = contract.robot.chain.forward(arm.q[None])
    expected = np.concatenate([arm.q, [0.03], pos[0], rot6d(rot)[0]])
    np.testing.assert_allclose(seen["proprio"], expected[None], atol=1e-6)
    assert seen["objects"].tolist() == [[1.0, 2.0]]
    assert seen["images.front"].shape == (1, 8, 8, 3)
    for name, spec in contract.interface.observation.items():
        assert seen[name].shape == (1, *spec.shape) and seen[name].dtype == spec.dtype


def test_joints_come_in_any_order_and_company(contract: Contract, clock: Clock) -> None:
    reader = JointReader(contract, clock)
    rng = np.random.default_rng(0)
    names = [*contract.joints, "spare"]
    order = rng.permutation(len(names))
    assert reader.update([names[i] for i in order], [float(i) for i in order], clock.wall)
    assert reader.q is not None and reader.q.tolist() == list(range(7))
    assert "no gripper joint" in reader.problem()
    # The gripper speaks for itself; that is no joint state of the arm.
    assert not reader.update(contract.gripper_joints, (0.03, 0.03), clock.wall + 1)
    assert reader.problem() == "" and reader.width == pytest.approx(0.06)


@pytest.mark.parametrize(("names", "values"), [(["lift"], []), (["lift", "lift"], [0.0, 0.0]), ([], [1.0])])
def test_joint_states_of_others_are_passed_over_whatever_their_shape(arm: Arm, clock: Clock, names, values) -> None:
    arm.all()
    assert not arm.observer.joints.update(names, values, clock.wall)
    assert arm.observer.problem() == ""


def test_a_gripper_that_speaks_for_itself_is_missed_when_it_is_silent(contract: Contract, clock: Clock) -> None:
    reader = JointReader(contract, clock)
    limit_s = 10 * contract.joint_states.max_age_s

    def arm_alone() -> str:
        assert reader.update(contract.joints, np.zeros(7), clock.wall)
        return reader.problem()

    reader.update(contract.gripper_joints, (0.03, 0.03), clock.wall)
    clock.t += 0.95 * limit_s
    assert arm_alone() == ""
    clock.t += 0.1 * limit_s
    assert f"gripper joint {contract.gripper_joints[0]!r} silent for" in arm_alone()
    clock.t += 0.01
    reader.update(contract.gripper_joints, (0.01, 0.01), clock.wall)
    assert arm_alone() == "" and reader.width == pytest.approx(0.02)


def test_a_second_publisher_of_the_grippers_joints_is_not_believed(contract: Contract, clock: Clock) -> None:
    reader = JointReader(contract, clock, {1: "/driver", 2: "/stranger"}.__getitem__)
    names = (*contract.joints, *contract.gripper_joints)

    def driver() -> str:
        clock.t += 0.02
        reader.update(names, [*np.zeros(7), 0.03, 0.03], clock.wall, 1)
        return reader.problem()

    assert driver() == "" and reader.width == pytest.approx(0.06)
    reader.update(contract.gripper_joints, (0.0, 0.0), clock.wall, 2)
    assert "gripper joint 'panda_finger_left' on /joint_states: 2 publishers at once, /driver and /stranger" in (
        reader.problem()
    )
    assert reader.width == pytest.approx(0.06)
    for _ in range(40):
        assert "2 publishers" in driver()
    for _ in range(12):
        found = driver()
    assert found == "" and reader.width == pytest.approx(0.06)


def test_fingers_of_two_publishers_and_a_topic_of_their_own(contract: Contract, clock: Clock) -> None:
    """Each finger has its own, and a relay repeats both beside the arm until their own topic is heard."""
    states = dataclasses.replace(contract.joint_states, topic="/fingers")
    reader = JointReader(dataclasses.replace(contract, gripper_states=states), clock)
    names = (*contract.joints, *contract.gripper_joints)
    reader.update(names, [*np.zeros(7), 0.04, 0.04], clock.wall, "relay")
    assert reader.problem() == "" and reader.width == pytest.approx(0.08)
    for _ in range(5):
        clock.t += 0.05
        for publisher, name in zip("ab", contract.gripper_joints, strict=True):
            reader.gripper([name], [0.01], publisher)
        reader.update(names, [*np.zeros(7), 0.04, 0.04], clock.wall, "relay")
        assert reader.problem() == "" and reader.width == pytest.approx(0.02)
    reader.gripper(contract.gripper_joints[:1], [0.0], "stranger")
    assert "gripper joint 'panda_finger_left' on /fingers: 2 publishers at once, a and stranger" in reader.problem()
    with pytest.raises(NotObserved, match="2 publishers"):
        seen = Observer(contract, ("proprio",), clock)
        seen.joints = reader
        seen.observation()


@pytest.mark.parametrize(
    ("names", "values", "why"),
    [
        (slice(1, None), 6, "no joint 'panda_joint1'"),
        (slice(None), 6, "7 names and 6 values"),
        (slice(None), 8, "7 names and 8 values"),
        (slice(None), "nan", "not finite"),
        ("twice", 7, "a name twice"),
    ],
)
def test_joint_states_that_are_no_good_are_named(contract: Contract, clock: Clock, names, values, why: str) -> None:
    reader = JointReader(contract, clock)
    given = [contract.joints[0]] * 7 if names == "twice" else contract.joints[names]
    q = np.full(7, np.nan) if values == "nan" else np.zeros(values)
    assert not reader.update(given, q, clock.wall)
    assert reader.q is None and why in reader.problem()


def test_silence(clock: Clock) -> None:
    source = Freshness("it", 0.1, clock)
    assert source.problem() == "it: nothing arrived yet" and source.age == np.inf
    assert source.update(clock.wall) and source.problem() == ""
    clock.t += 0.11
    assert source.problem() == "it: silent for 0.11 s"
    assert source.update(clock.wall) and source.problem() == ""


def test_a_repeated_stamp_is_frozen(clock: Clock) -> None:
    source = Freshness("it", 0.1, clock)
    stamp = clock.wall
    for _ in range(12):
        source.update(stamp)
        clock.t += 0.01
    source.update(stamp)
    assert "frozen" in source.problem()


def test_what_is_silent_has_been_so_and_what_is_wrong_otherwise_may_be_so_for_once(arm: Arm) -> None:
    """Each input by its own age: joint states 0.1 s, objects 0.1 s, the camera 0.3 s."""
    assert arm.observer.silence() == "", "nothing has arrived, which is waited for"
    inputs = (("joints", "joint states", 0.1), ("objects", "objects", 0.1), ("image", "camera front", 0.3))
    for left_out, name, seconds in inputs:
        arm.all()
        begun, found = arm.clock.t, ""
        for _ in range(60):
            arm.clock.t += 0.01
            if left_out != "joints":
                arm.joints()
            if left_out != "objects":
                arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
            if left_out != "image":
                arm.observer.image("front", round(arm.clock.t * 100), picture, arm.clock.wall)
            if found := arm.observer.silence():
                break
        assert name in found and "silent" in found and found == arm.observer.problem()
        assert seconds < arm.clock.t - begun < seconds + 0.015
    arm.all()
    arm.observer.image("front", 2, picture, arm.clock.wall - 1.0)
    assert "older than the joint states" in arm.observer.problem() and arm.observer.silence() == ""
    arm.clock.t += 0.35
    arm.joints()
    arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
    arm.observer.image("front", 3, picture, arm.clock.wall - 1.0)
    assert "older than the joint states" in arm.observer.problem() and arm.observer.silence() == "", "it is late still"


def test_older_messages_are_passed_over(arm: Arm) -> None:
    arm.all()
    old = arm.clock.wall
    arm.clock.t += 0.01
    q = arm.q.copy()
    assert arm.joints()
    arm.q = q + 1.0
    assert not arm.joints(old)
    assert arm.observer.joints.q is not None and np.array_equal(arm.observer.joints.q, q)


def test_a_clock_that_is_set_back_stops_the_arm_and_is_then_believed(clock: Clock) -> None:
    source = Freshness("it", 0.1, clock)
    source.update(clock.wall)
    problems = set()
    for _ in range(120):
        clock.t += 0.01
        source.update(clock.wall - 10.0)
        problems.add(source.problem().split(",")[0])
    assert "it: frozen" in problems and source.problem() == ""


@pytest.mark.parametrize("stamp", [0.0, -1.0])
def test_messages_without_a_stamp_are_not_used(clock: Clock, stamp: float) -> None:
    source = Freshness("it", 0.1, clock)
    assert not source.update(stamp) and "no stamp" in source.problem()


def test_every_source_is_watched(arm: Arm) -> None:
    for feed, name in ((arm.joints, "joint states"), (None, "objects")):
        arm.all()
        for _ in range(3):
            arm.clock.t += 0.05
            if feed is None:
                arm.joints()
        assert name in arm.observer.problem()
        with pytest.raises(NotObserved, match=name):
            arm.observer.observation()


def test_objects_that_are_no_good_are_named(arm: Arm) -> None:
    arm.all()
    assert not arm.observer.objects(("cube_x",), (1.0,), arm.clock.wall + 1)
    assert "no 'cube_y'" in arm.observer.problem()
    assert not arm.observer.objects(("cube_x", "cube_y"), (1.0, np.inf), arm.clock.wall + 1)
    assert "not finite" in arm.observer.problem()


def test_a_picture_that_stays_while_the_arm_moves_is_frozen(arm: Arm) -> None:
    arm.all(print_=1)
    for _ in range(3):
        arm.clock.t += 0.05
        arm.all(print_=1)
    assert arm.observer.problem() == ""  # an arm at rest looks the same
    arm.q[1] += 0.06
    arm.clock.t += 0.05
    arm.all(print_=1)
    assert "the same picture although the arm moved" in arm.observer.problem()
    arm.clock.t += 0.05
    arm.all(print_=2)
    assert "the same picture but for single pixels" in arm.observer.problem(), "other bytes, and no other pixel"
    arm.clock.t += 0.05
    arm.joints()
    arm.observer.image("front", 3, lambda: picture(90), arm.clock.wall)
    assert arm.observer.problem() == ""


RNG = np.random.default_rng(0)
SCENE = RNG.integers(40, 200, (84, 84, 3)).astype(np.uint8)


def noisy(scene: np.ndarray, deviation: float) -> np.ndarray:
    return np.clip(scene + RNG.normal(0, deviation, scene.shape), 0, 255).astype(np.uint8)


def one_bit(scene: np.ndarray) -> np.ndarray:
    """A bit of a pixel is another one every time."""
    flipped = scene.copy()
    flipped.reshape(-1)[RNG.integers(flipped.size)] ^= 1 << int(RNG.integers(8))
    return flipped


def with_the_arm(share: float) -> np.ndarray:
    """Something dark and 12 pixels wide stands in the scene."""
    scene, at = SCENE.copy(), round(share * 60)
    scene[20:60, at : at + 12] = 15
    return scene


@pytest.mark.parametrize(
    ("show", "frozen"),
    [
        (lambda share: one_bit(SCENE), "single pixels"),
        (lambda share: noisy(SCENE, 3.0), "noise"),  # somebody adds noise to a picture that stands
        (lambda share: with_the_arm(share), ""),  # without any noise, as a simulation's
        (lambda share: noisy(with_the_arm(share), 3.0), ""),
        (lambda share: noisy(np.roll(SCENE, round(20 * share), 1), 1.0), ""),  # a camera at the wrist
    ],
)
def test_a_picture_that_changes_by_noise_alone_is_frozen(arm: Arm, show, frozen: str) -> None:
    home, problems = arm.q.copy(), set()
    for i in range(60):
        arm.q = home + np.array([0.8, 0.3, 0, 0, 0, 0, 0]) * i / 59  # the tcp goes half a metre
        arm.clock.t += 0.05
        arm.joints()
        arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
        pixels = show(i / 59)
        arm.observer.image("front", i, lambda pixels=pixels: pixels, arm.clock.wall)
        problems.add(arm.observer.problem())
    if frozen:
        assert any(f"the same picture but for {frozen}" in one for one in problems), problems
        assert frozen in arm.observer.problem(), "and stays so"
    else:
        assert problems == {""}


def test_a_frozen_camera_is_believed_again_once_it_shows_something_else(arm: Arm) -> None:
    def shows(i: int, pixels: np.ndarray) -> str:
        arm.clock.t += 0.05
        arm.joints()
        arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
        arm.observer.image("front", i, lambda: pixels, arm.clock.wall)
        return arm.observer.problem()

    home = arm.q.copy()
    assert not shows(0, SCENE)
    arm.q[1] += 0.2
    assert "single pixels" in shows(1, one_bit(SCENE))
    arm.q = home  # back, and the camera is as it was
    assert "single pixels" in shows(2, one_bit(SCENE))
    assert not shows(3, noisy(SCENE, 1.0)), "its driver was started again"
    arm.q = home + 0.2 * np.eye(7)[1]
    assert not shows(4, noisy(with_the_arm(0.5), 1.0))


def test_a_camera_with_noise_that_sees_an_arm_at_rest_is_not_frozen(arm: Arm) -> None:
    for i in range(60):
        arm.clock.t += 0.05
        arm.joints()
        arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
        pixels = noisy(SCENE, 1.0)
        arm.observer.image("front", i, lambda pixels=pixels: pixels, arm.clock.wall)
        assert arm.observer.problem() == ""


@pytest.mark.parametrize(
    ("behind", "says"),
    [(0.4, "0.40 s older than the joint states"), (60.0, "60.00 s older"), (-0.4, "0.40 s younger"), (0.25, ""),
     (-0.1, "")],
)  # fmt: skip
def test_pictures_of_another_time_than_the_joint_states(arm: Arm, behind: float, says: str) -> None:
    """They come ten times a second, and their stamps rise; 0.3 s are allowed."""
    for i in range(10):
        arm.clock.t += 0.1
        arm.joints()
        arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
        arm.observer.image("front", i, picture, arm.clock.wall - behind)
    problem = arm.observer.problem()
    assert problem == "" if not says else says in problem and "clock" in problem and "chronyc makestep" in problem
    if says:
        with pytest.raises(NotObserved, match="camera front on /camera/front/image_raw"):
            arm.observer.observation()


def test_a_camera_that_is_late_from_now_on_is_noticed_with_its_next_picture(arm: Arm) -> None:
    """Its stamps are older than the last, and would be passed over until nothing newer has come for as long."""
    arm.all()
    arm.clock.t += 0.04
    arm.joints()
    arm.observer.image("front", 2, lambda: picture(90), arm.clock.wall - 0.1)
    assert arm.observer.problem() == "", "out of order, and not too old: another one has overtaken it"
    assert (arm.observer.observation()["images.front"] == 200).all(), "which is the one to be seen"
    arm.observer.image("front", 3, picture, arm.clock.wall - 1.0)
    assert "its picture is 1.00 s older than the joint states" in arm.observer.problem()
    arm.observer.image("front", 4, picture, arm.clock.wall)
    assert arm.observer.problem() == ""


def test_what_pictures_show_is_judged_between_decisions_and_decodes_each_once(arm: Arm) -> None:
    assert arm.observer.pictures_problem() == "", "nothing has arrived"
    decoded = []

    def dark() -> np.ndarray:
        decoded.append(1)
        return picture(3)

    arm.all()
    arm.clock.t += 0.04
    arm.joints()
    arm.observer.image("front", 2, dark, arm.clock.wall)
    for _ in range(3):
        assert arm.observer.pictures_problem().endswith("the picture is black")
    with pytest.raises(NotObserved, match="the picture is black"):
        arm.observer.observation()
    assert len(decoded) == 1 and arm.observer.problem() == ""


def test_pictures_of_two_publishers_are_not_mixed(arm: Arm) -> None:
    arm.observer.describe = {1: "/driver", 2: "/stranger"}.__getitem__
    for i in range(20):
        arm.clock.t += 0.05
        arm.joints()
        arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
        arm.observer.image("front", i, picture, arm.clock.wall, publisher=2 if i == 15 else 1)
        if i < 15:
            assert arm.observer.problem() == ""
    assert "2 publishers at once, /stranger and /driver" in arm.observer.problem()
    with pytest.raises(NotObserved, match="2 publishers"):
        arm.observer.observation()


def test_two_cameras_that_show_the_very_same_are_refused(contract: Contract, clock: Clock) -> None:
    front = contract.cameras["front"]
    wrist = dataclasses.replace(front, topic="/camera/wrist/image_raw")
    for topic, refused in ((wrist.topic, True), (front.topic, False)):  # two cuts of one topic are meant
        cameras = {"front": front, "wrist": dataclasses.replace(wrist, topic=topic)}
        features = (*FEATURES, "images.wrist")
        arm = Arm(Observer(dataclasses.replace(contract, cameras=cameras), features, clock), clock)
        for i in range(3):
            arm.clock.t += 0.05
            arm.all(print_=i)
            arm.observer.image("wrist", i, picture, clock.wall)
        assert ("the very picture of camera wrist" in arm.observer.problem()) == refused
        for i in range(77, 79):  # one of each, and only then the other
            clock.t += 0.01
            arm.observer.image("front", 100 + i, picture, clock.wall)
            assert ("the very picture of camera wrist" in arm.observer.problem()) == (refused and i == 77)
            arm.observer.image("wrist", i, picture, clock.wall)
        assert arm.observer.problem() == ""


def test_pictures_of_another_camera_are_refused_by_name(contract: Contract, clock: Clock) -> None:
    camera = dataclasses.replace(contract.cameras["front"], frame="front_optical")
    arm = Arm(Observer(dataclasses.replace(contract, cameras={"front": camera}), FEATURES, clock), clock)
    arm.all()
    with pytest.raises(NotObserved, match=r"camera front on .*its pictures are of nothing"):
        arm.observer.observation()
    for frame, swapped in (("front_optical", False), ("/front_optical", False), ("wrist_optical", True), ("", True)):
        arm.clock.t += 0.01
        arm.joints()
        arm.observer.objects(("cube_y", "cube_x"), (2.0, 1.0), arm.clock.wall)
        arm.observer.image("front", 2, picture, arm.clock.wall, frame)
        assert ("swapped" in arm.observer.problem()) == swapped, frame
    assert "its pictures are of nothing, not of front_optical" in arm.observer.problem()


def test_a_black_picture_and_one_that_cannot_be_read(arm: Arm) -> None:
    arm.all()
    arm.clock.t += 0.01
    arm.observer.image("front", 3, lambda: picture(3), arm.clock.wall)
    with pytest.raises(NotObserved, match="black"):
        arm.observer.observation()

    def broken() -> np.ndarray:
        raise BadInput("image encoding", got="yuv")

    arm.clock.t += 0.01
    arm.observer.image("front", 4, broken, arm.clock.wall)
    with pytest.raises(NotObserved, match="camera front on /camera/front/image_raw: image encoding: got yuv"):
        arm.observer.observation()


def test_a_policy_that_needs_objects_is_refused_without_a_topic(contract: Contract) -> None:
    with pytest.raises(BadInput, match="no objects topic"):
        Observer(dataclasses.replace(contract, objects=None), FEATURES)


def test_latencies() -> None:
    latencies = Latencies(size=100)
    assert latencies.summary_ms() == {}
    for i in range(1000):
        latencies.add(1e-3 * i)
    assert len(latencies) == 100 and latencies.summary_ms() == {"p50": 949.5, "p99": 998.01}
