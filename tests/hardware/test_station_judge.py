"""The judgement of a station, on stations that a test makes up: each fault has its line, and nothing else is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hardware.station import (
    Endpoint,
    Finding,
    JointSample,
    LensSample,
    PictureSample,
    SeenStation,
    SeenTopic,
    check_station,
)
from robots.stations import (
    COMPRESSED,
    FLOATS,
    IMAGE,
    JOINT_STATE,
    Camera,
    Contract,
    Intrinsics,
    load_contract,
    load_pair,
)

NOW = 1_700_000_000.0
DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"
CONTRACT = replace(load_contract("fr3"), cameras={"wrist": Camera("/wrist", IMAGE, 0.2, (96, 96))})


def endpoint(node: str, kind: str) -> Endpoint:
    return Endpoint(node, kind, node.encode())


def joints(node: str = "/driver", hz: float = 200, seconds: float = 2.0, **changes: Any) -> list[JointSample]:
    home = (*CONTRACT.robot.home, 0.04, 0.04)
    names = (*CONTRACT.joints, *CONTRACT.gripper_joints)
    times = [NOW - seconds + i / hz for i in range(round(seconds * hz))]
    given = {"names": names, "sender": node.encode(), **changes}
    return [
        JointSample(arrived=t, stamp=t - 0.001, positions=given.get("positions", (home[0] + 1e-6 * (i % 3), *home[1:])),
                    names=given["names"], sender=given["sender"])
        for i, t in enumerate(times)
    ]  # fmt: skip


HAND = endpoint("/franka_gripper", JOINT_STATE)


def fingers(node: str = "/franka_gripper") -> list[JointSample]:
    return joints(node, hz=50, names=CONTRACT.gripper_joints, positions=(0.04, 0.04))


def pictures(hz: float = 30, size: tuple[int, int] = (480, 480), **changes: Any) -> list[PictureSample]:
    times = [NOW - 2.0 + i / hz for i in range(round(2 * hz))]
    return [
        PictureSample(t, t - 0.03, b"/realsense", size, "rgb8", changes.get("checksum", i),
                      changes.get("problem", ""), changes.get("brightness", 100.0), changes.get("frame", "optical"))
        for i, t in enumerate(times)
    ]  # fmt: skip


def station() -> dict[str, SeenTopic]:
    """A station that works."""
    controller = "/controller_manager"
    return {
        "joint_states": SeenTopic((endpoint("/driver", JOINT_STATE),), (), list(joints())),
        "command": SeenTopic((), (endpoint(controller, CONTRACT.command.type),)),
        "gripper": SeenTopic((), (endpoint(controller, FLOATS),)),
        "gripper_states": SeenTopic((HAND,), (), list(fingers())),
        "images.wrist": SeenTopic((endpoint("/realsense", IMAGE),), (), list(pictures())),
        "safety_state": SeenTopic(),
    }


def judge(
    topics: dict[str, SeenTopic], safety: tuple[str, str] | None = None, contract: Contract = CONTRACT
) -> list[Finding]:
    found = check_station(contract, SeenStation(topics, NOW, safety))
    return [finding for findings in found.values() for finding in findings]


def only_wrong(topics: dict[str, SeenTopic], safety: tuple[str, str] | None = None) -> Finding:
    (wrong,) = [finding for finding in judge(topics, safety) if not finding.ok]
    assert wrong.fix and "\n" not in wrong.found + wrong.fix
    return wrong


def test_a_station_that_works() -> None:
    findings = judge(station())
    assert all(finding.ok and not finding.fix for finding in findings), findings
    assert len({finding.name for finding in findings}) == len(findings) == 18


PAIR = load_pair("fr3_pair")


def two(**changed: dict[str, SeenTopic]) -> dict[str, SeenTopic]:
    """A station with two arms that works, but for what `changed` has of one of them."""
    topics = {f"{arm}.{role}": seen for arm in ("left", "right") for role, seen in changed.get(arm, station()).items()}
    return {**topics, "safety_state": SeenTopic(), "images.front": station()["images.wrist"]}


def judge_two(frame: str = "optical", **changed: dict[str, SeenTopic]) -> dict[str, list[Finding]]:
    wrist = {"wrist": Camera("/right/wrist", IMAGE, 0.2, (96, 96), frame=frame)}
    arms = {name: replace(arm, cameras=wrist if name == "right" else {}) for name, arm in PAIR.arms.items()}
    cameras = {"front": Camera("/front", IMAGE, 0.2, (96, 96), frame="optical"), "right_wrist": wrist["wrist"]}
    return check_station(replace(PAIR, arms=arms, cameras=cameras), SeenStation(two(**changed), NOW))


def test_two_arms_are_judged_as_each_alone_and_every_line_names_its_arm() -> None:
    found = judge_two()
    headings = ["Arm left", "Controller left", "Gripper left", "Arm right", "Controller right", "Gripper right"]
    assert list(found) == [*headings, "Cameras right", "Cameras", "Safety"]
    findings = [finding for lines in found.values() for finding in lines]
    assert all(finding.ok for finding in findings), findings
    assert len({finding.name for finding in findings}) == len(findings)
    assert all(one.name.startswith("left ") for heading in headings[:3] for one in found[heading])
    assert {one.name.split()[2] for one in found["Cameras right"]} == {"wrist"}
    assert {one.name.split()[1] for one in found["Cameras"]} == {"front"}
    (line,) = [one for lines in judge_two(frame="").values() for one in lines if not one.ok]
    assert line.name == "right camera wrist frame" and not line.needed, "the front camera may be in its place"


def test_what_is_wrong_with_one_of_two_arms_is_found_there_and_nowhere_else() -> None:
    behind = one("joint_states", samples=[replace(s, stamp=s.arrived - 0.15) for s in joints()])
    stopped = one("command", listeners=())
    for arm, topics, line, words in (
        ("left", behind, "left joint states stamps", "the clock of its sender is behind"),
        ("right", behind, "right joint states stamps", "the clock of its sender is behind"),
        ("right", stopped, "right arm controller", "no subscriber on /right/fr3_arm_controller/joint_trajectory"),
    ):
        wrong = [one for lines in judge_two(**{arm: topics}).values() for one in lines if not one.ok]
        assert [finding.name for finding in wrong] == [line] and words in wrong[0].found and wrong[0].fix


def one(role: str, **changes: Any) -> dict[str, SeenTopic]:
    topics = station()
    topics[role] = replace(topics[role], **changes)
    return topics


DRIVER, RELAY = endpoint("/driver", JOINT_STATE), endpoint("/joint_state_publisher", JOINT_STATE)
AT_HOME = CONTRACT.robot.home
NAMES = (*CONTRACT.joints, *CONTRACT.gripper_joints, "one_more")


@pytest.mark.parametrize(
    ("topics", "name", "found"),
    [
        (one("joint_states", samples=joints(hz=8)), "joint states rate", "8.0 Hz, longest gap 125 ms"),
        (one("joint_states", samples=joints()[:150]), "joint states rate", "longest gap 1255 ms"),
        (
            one("joint_states", samples=[replace(s, stamp=s.arrived - 0.15) for s in joints()]),
            "joint states stamps", "0.15 s ago when it arrives, more than 0.1 s: the clock of its sender is behind",
        ),
        (
            one("joint_states", samples=[replace(s, stamp=s.arrived + 0.06) for s in joints()]),
            "joint states stamps", "0.06 s in the future: the clock of its sender is ahead",
        ),
        (one("joint_states", samples=[replace(s, stamp=NOW - 2) for s in joints()]), "joint states stamps", "399 of"),
        (
            one("joint_states", publishers=(DRIVER, RELAY), samples=sorted(
                [*joints(), *joints("/joint_state_publisher", hz=10)], key=lambda s: s.arrived)),
            "joint states publishers", "/driver (400 messages) and /joint_state_publisher (20 messages)",
        ),
        (one("joint_states", publishers=(DRIVER, RELAY)), "joint states publishers", "nothing was heard of"),
        (
            one("joint_states", samples=joints(positions=(*(57.3 * q for q in AT_HOME), 0.04, 0.04))),
            "joint positions", "outside",
        ),
        (
            one("joint_states", samples=joints(positions=(*AT_HOME[:3], float("inf"), *AT_HOME[4:], 0.04, 0.04))),
            "joint positions", "fr3_joint4 is not a number in 400 of 400",
        ),
        (one("joint_states", samples=joints(names=NAMES)), "joint positions", "not a position per name"),
        (one("gripper_states", publishers=(), samples=[]), "gripper states topic", "no publisher on /franka_gripper"),
        (
            one("gripper_states", publishers=(HAND, RELAY), samples=[*fingers(), *fingers("/joint_state_publisher")]),
            "gripper states publishers",
            "several for fr3_finger_joint1: /franka_gripper (100 messages) and /joint_state_publisher (100 messages)",
        ),
        (one("joint_states", samples=joints(names=("a",) * 9)), "joint names", "no fr3_joint1"),
        (one("joint_states", samples=joints(positions=(*AT_HOME, 0.04, 0.04))), "joint noise", "to the last bit"),
        (one("joint_states", publishers=(), samples=[], elsewhere=("/a",)), "joint states topic", "no publisher"),
        (one("command", listeners=()), "arm controller", "no subscriber"),
        (one("command", listeners=(endpoint("/c", FLOATS),)), "arm controller", f"for {FLOATS}, not"),
        (one("command", publishers=(endpoint("/moveit", FLOATS),)), "arm controller publishers", "/moveit publishes"),
        (
            one("command", publishers=(endpoint("/a/safety", FLOATS), endpoint("/b/safety", FLOATS))),
            "arm controller publishers", "2 safety nodes",
        ),
        (one("gripper", mismatches=("/c cannot receive from /safety: x",)), "gripper controller QoS", "/c cannot"),
        (one("images.wrist", samples=pictures(hz=12)), "camera wrist rate", "actions come at 20 Hz"),
        (one("images.wrist", samples=pictures(hz=4)), "camera wrist rate", "longest gap 250 ms"),
        (one("images.wrist", samples=pictures(size=(64, 64))), "camera wrist size", "smaller"),
        (one("images.wrist", samples=pictures(size=(480, 640))), "camera wrist size", "640×480 rgb8 → 96×96: squashed"),
        (
            one("images.wrist", samples=[*pictures()[:30], *pictures(size=(240, 240))[30:]]),
            "camera wrist size", "2 sizes",
        ),
        (one("images.wrist", samples=pictures(problem="image encoding: got x")), "camera wrist pictures", "got x"),
        (one("images.wrist", samples=pictures(brightness=0.5)), "camera wrist pictures", "all black"),
        (one("images.wrist", samples=pictures(checksum=7)), "camera wrist pictures", "the same 60 times"),
        (
            one("images.wrist", publishers=(endpoint("/realsense", COMPRESSED),), samples=[]),
            "camera wrist topic", f"is {COMPRESSED} from /realsense; the contract expects {IMAGE}",
        ),
    ],
)  # fmt: skip
def test_one_thing_is_wrong_and_nothing_else(topics: dict[str, SeenTopic], name: str, found: str) -> None:
    wrong = only_wrong(topics)
    assert wrong.name == name and found in wrong.found


def test_the_safety_node() -> None:
    node = (endpoint("/robolearn/safety", DIAGNOSTICS),)
    sample = joints()[-1]
    running = one("safety_state", publishers=node, samples=[sample])
    assert all(finding.ok for finding in judge(running, ("disarmed", "")))
    assert "latched: e-stop" in only_wrong(running, ("latched", "e-stop")).found
    assert "no controller" in only_wrong(running, ("disarmed", "no controller")).found
    hung = one("safety_state", publishers=node, samples=[replace(sample, arrived=NOW - 1.0)])
    assert "hardware emergency stop" in only_wrong(hung, ("armed", "")).fix
    two = (*node, endpoint("/left/robolearn/safety", DIAGNOSTICS))
    assert "2 at once" in only_wrong(one("safety_state", publishers=two, samples=[sample]), ("armed", "")).found


def test_fingers_are_looked_for_on_their_own_topic_and_otherwise_beside_the_arm() -> None:
    alone = one("joint_states", samples=joints(names=CONTRACT.joints, positions=(*AT_HOME[:-1], AT_HOME[-1] + 1e-6)))
    assert all(finding.ok for finding in judge(alone) if finding.name != "joint noise")
    beside = replace(CONTRACT, gripper_states=None)
    (wrong,) = [finding for finding in judge(alone, contract=beside) if not finding.ok and finding.needed]
    assert wrong.name == "joint names" and "no fr3_finger_joint1, fr3_finger_joint2" in wrong.found
    two = sorted([*joints(), *fingers("/stranger")], key=lambda s: s.arrived)
    (wrong,) = [f for f in judge(one("joint_states", samples=two), contract=beside) if not f.ok]
    assert wrong.name == "gripper states publishers"


MATRIX = (600.0, 0.0, 240.0, 0.0, 600.0, 240.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("size", "matrix", "wanted", "words"),
    [
        ((480, 480), MATRIX, None, ""),
        ((480, 480), MATRIX, Intrinsics((480, 480), 602, 599, 241, 239), ""),
        ((240, 240), tuple(0.5 * value for value in MATRIX), Intrinsics((480, 480), 600, 600, 240, 240), ""),
        ((480, 480), MATRIX, Intrinsics((480, 480), 640, 600, 240, 240), "the contract has fx, fy, cx, cy 640.0"),
        ((480, 480), MATRIX, Intrinsics((480, 640), 600, 600, 320, 240), "of another shape"),
        ((480, 480), (0.0,) * 9, None, "not calibrated"),
        (None, MATRIX, None, "nothing on /wrist/info"),
    ],
)
def test_the_lens_is_that_of_the_contract(size: Any, matrix: Any, wanted: Intrinsics | None, words: str) -> None:
    camera = replace(CONTRACT.cameras["wrist"], info="/wrist/info", intrinsics=wanted)
    sample = [] if size is None else [LensSample(NOW, NOW, b"/realsense", size, matrix)]
    topics = {**station(), "info.wrist": SeenTopic(samples=list(sample))}
    (line,) = [f for f in judge(topics, contract=replace(CONTRACT, cameras={"wrist": camera})) if "lens" in f.name]
    assert line.ok is not bool(words) and words in line.found


def test_where_the_tcp_is() -> None:
    (tcp,), _ = CONTRACT.robot.chain.forward([CONTRACT.robot.home])
    lower, upper = tcp - 0.1, tcp - 0.01
    contract = replace(CONTRACT, limits=replace(CONTRACT.limits, workspace=[lower, upper]))  # type: ignore[arg-type]
    (wrong,) = [finding for finding in judge(station(), contract=contract) if not finding.ok]
    assert wrong.name == "tcp" and f"{tcp[0]:.3f}" in wrong.found


@pytest.mark.parametrize(
    ("stated", "sent", "others", "found", "fix"),
    [
        ("wrist", "/wrist", 1, None, None),
        ("wrist", "front", 0, "its pictures are of front, not of wrist: they would stop the arm", "frame: front"),
        ("", "wrist", 1, "of wrist: cameras that are swapped would not be noticed", "cameras.wrist.frame: wrist"),
        ("", "", 1, "of nothing: cameras that are swapped would not be noticed", "a frame_id in the driver"),
        ("", "wrist", 0, None, None),  # nothing to be swapped with
    ],
)
def test_a_camera_states_the_frame_by_which_it_is_known(
    stated: str, sent: str, others: int, found: str | None, fix: str | None
) -> None:
    wrist = replace(CONTRACT.cameras["wrist"], frame=stated)
    cameras = {"wrist": wrist, **{f"other{i}": replace(wrist, topic=f"/{i}", frame=f"{i}") for i in range(others)}}
    topics = one("images.wrist", samples=pictures(frame=sent))
    other = topics["images.wrist"]
    topics |= {f"images.other{i}": replace(other, samples=pictures(frame=f"{i}")) for i in range(others)}
    lines = [f for f in judge(topics, contract=replace(CONTRACT, cameras=cameras)) if f.name.endswith("frame")]
    assert [f.ok for f in lines] == ([] if found is None else [False])
    if found is not None:
        assert found in lines[0].found and fix in lines[0].fix and lines[0].needed == bool(stated)


def test_a_camera_on_its_side_is_judged_by_its_upright_pictures() -> None:
    camera = replace(CONTRACT.cameras["wrist"], rotate=90, size=(96, 72))
    contract = replace(CONTRACT, cameras={"wrist": camera})
    found = judge(one("images.wrist", samples=pictures(size=(480, 640))), contract=contract)
    (size,) = [finding for finding in found if finding.name == "camera wrist size"]
    assert size.ok and size.found == "640×480 rgb8, turned by 90° → 72×96", size.found


def test_only_what_moves_or_sees_keeps_the_arm_still() -> None:
    squashed = only_wrong(one("images.wrist", samples=pictures(size=(480, 640))))
    assert not squashed.needed and only_wrong(one("command", listeners=())).needed
