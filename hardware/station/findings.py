"""Judges an arm and the cameras of a station by the contract: what is there, and how to fix it where it is wrong.

The words are for the person at the arm: what was found, and one thing to do about it. Nothing here moves anything or
depends on ROS; `hardware.ros2.station_watch` does the looking.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hardware.observing.clocks import clock_problem
from hardware.station.seen import (
    Endpoint,
    Finding,
    JointSample,
    LensSample,
    PictureSample,
    Rhythm,
    SeenStation,
    SeenTopic,
    StationSample,
)
from robolearn.core import BadInput
from robots.own import FACTS, GUESS, STATION, assumed_of
from robots.stations import AnyContract, Camera, Contract, Gripper, Topic
from robots.stations.pictures import crop_of


@dataclass(frozen=True)
class _Judge:
    contract: Contract
    seen: SeenStation

    def joint_states(self) -> Iterator[Finding]:
        topic, seen = self.contract.joint_states, self.seen.topics["joint_states"]
        yield publishers("joint states", "joint_states", topic, seen)
        if not seen.samples:
            return
        yield from one_speaker(self.contract, seen)
        timeout = self.contract.limits.state_timeout_s
        why = "the filter stops the arm at limits.state_timeout_s"
        yield rhythm("joint states", Rhythm.of(seen.samples, self.seen.ended), timeout, why, 0.0)
        yield stamps("joint states", seen.samples, timeout)
        yield from joint_values(self.contract, seen, self._gripper())

    def gripper_states(self) -> Iterator[Finding]:
        """The gripper's joints, on a topic of their own or beside the arm's."""
        topic, seen = self.contract.gripper_states, self._gripper()
        if topic is not None:
            yield publishers("gripper states", "gripper.states", topic, seen)
        yield from one_gripper(self.contract, seen)

    def _gripper(self) -> SeenTopic:
        return self.seen.topics["joint_states" if self.contract.gripper_states is None else "gripper_states"]

    def command(self, name: str, role: str, topic: Topic) -> Iterator[Finding]:
        """The controller that takes set-points: it is subscribed, and only the safety node publishes."""
        seen = self.seen.topics[role]
        right = [one for one in seen.listeners if one.type == topic.type]
        wrong = [one for one in seen.listeners if one.type != topic.type]
        if right:
            yield Finding(name, True, f"{names(right)} listens on {topic.topic}")
        elif wrong:
            found = f"{names(wrong)} listens on {topic.topic} for {wrong[0].type}, not {topic.type}"
            yield Finding(name, False, found, f"{role}.type: {wrong[0].type} in the contract, or another controller")
        else:
            yield Finding(name, False, f"no subscriber on {topic.topic}", _start("the controller", role, seen))
        yield from (Finding(f"{name} QoS", False, words, "change the QoS of one of them") for words in seen.mismatches)
        others = [one for one in seen.publishers if one.node.rpartition("/")[2] != "safety"]
        safety = [one for one in seen.publishers if one not in others]
        if others:
            found = f"{names(others)} publishes to {topic.topic}: only the safety node may"
            yield Finding(f"{name} publishers", False, found, f"end {names(others)}")
        elif len(safety) > 1:
            found = f"{len(safety)} safety nodes publish to {topic.topic}"
            yield Finding(f"{name} publishers", False, found, "end one deployment, or give each arm a namespace")
        else:
            yield Finding(f"{name} publishers", True, "the safety node alone" if safety else "none before deployment")


def check_arm(contract: Contract, seen: SeenStation) -> dict[str, list[Finding]]:
    """Heading → what was found under it of an arm, its controllers and its gripper."""
    judge = _Judge(contract, seen)
    found = {
        "Arm": [*judge.joint_states()],
        "Controller": [*judge.command("arm controller", "command", contract.command)],
    }
    if contract.command.posture is not None:
        found["Controller"] += judge.command("posture controller", "command.posture", contract.command.posture)
    gripper = [*judge.gripper_states()] if contract.gripper_joints else []
    if isinstance(contract.gripper, Gripper):
        gripper += judge.command("gripper controller", "gripper", contract.gripper)
    if gripper:
        found["Gripper"] = gripper
    return found


def check_cameras(
    cameras: Mapping[str, Camera], contract: AnyContract, seen: SeenStation, *, alone: bool
) -> Iterator[Finding]:
    """Findings of some cameras of an arm or a station, of `contract`; `alone`: the station has one camera."""
    for name, camera in cameras.items():
        pictures, what = seen.topics[f"images.{name}"], f"camera {name}"
        yield publishers(what, f"cameras.{name}", camera, pictures)
        if not pictures.samples:
            continue
        yield from one_camera(what, pictures)
        why = f"cameras.{name}.max_age_s"
        yield rhythm(what, Rhythm.of(pictures.samples, seen.ended), camera.max_age_s, why, contract.control_hz)
        yield stamps(what, pictures.samples, camera.max_age_s)
        yield from picture_values(what, name, camera, pictures, simulated=contract.simulated)
        yield from picture_frame(what, name, camera, pictures, alone=alone)
        if camera.info:
            yield lens(what, name, camera, seen.topics[f"info.{name}"])


def check_assumed(contract: Contract) -> list[Finding]:
    """Values of an arm of one's own that no source states."""
    return [_assumed(contract, line) for line in assumed_of(contract.robot)]


def _assumed(contract: Contract, line: str) -> Finding:
    """A value of an arm of one's own that no source states; a guess of the contract is to be confirmed before a real
    arm moves."""
    guess = line.startswith(GUESS)
    fix = f"look it up or measure it, correct {STATION if guess else FACTS}, and take the line out of its `assumed`"
    return Finding("assumed", False, line, fix, needed=guess and not contract.simulated)


def names(endpoints: Iterable[Endpoint]) -> str:
    return " and ".join(sorted({one.node for one in endpoints}))


def _start(what: str, role: str, seen: SeenTopic) -> str:
    there = f"; of that type there are {', '.join(seen.elsewhere[:4])}" if seen.elsewhere else ""
    return f"start {what}, or correct {role}.topic in the contract{there}"


DARK = 2.0  # mean of a picture [0 to 255] below which a lens is covered or the camera sends nothing
LENS = 0.01  # of the width, by which focal lengths and centre may differ from the contract's
SQUASHED = 1.02  # ratio of the two scales, beyond which pictures are squashed to their size


def one_camera(what: str, seen: SeenTopic) -> Iterator[Finding]:
    """Two cameras on one topic alternate."""
    senders = seen.senders(seen.samples)
    if len({sample.sender for sample in seen.samples}) > 1:
        found = f"several: {' and '.join(sorted(senders))}"
        yield Finding(f"{what} publishers", False, found, "end one of them, or give it another topic")


def picture_values(what: str, name: str, camera: Camera, seen: SeenTopic, *, simulated: bool) -> Iterator[Finding]:
    """Encoding, size and content. A `simulated` world at rest looks the same in every picture; a real one has noise."""
    samples = [s for s in seen.samples if isinstance(s, PictureSample)]
    newest = samples[-1]
    if newest.problem:
        yield Finding(f"{what} pictures", False, newest.problem, f"another encoding, or cameras.{name}.type")
        return
    yield _picture_size(what, name, camera, samples)
    if max(s.brightness for s in samples) < DARK:
        yield Finding(f"{what} pictures", False, "all black", "the lens cap, exposure, the light")
    elif not simulated and len(samples) > 3 and len({s.checksum for s in samples}) == 1:
        found = f"the same {len(samples)} times, to the last bit"
        yield Finding(f"{what} pictures", False, found, "the camera has stopped: start its driver again", needed=False)
    else:
        yield Finding(f"{what} pictures", True, f"{len({s.checksum for s in samples})} different ones")


def _picture_size(what: str, name: str, camera: Camera, samples: list[PictureSample]) -> Finding:
    """The size of the raw pictures, and whether the policy's can be cut and made of them."""
    newest, sizes = samples[-1], sorted({s.size for s in samples})
    (height, width), (want_height, want_width) = newest.size, camera.size
    upright = (width, height) if camera.rotate % 180 else newest.size
    line = f"{what} size"
    if len(sizes) > 1:
        return Finding(line, False, f"{len(sizes)} sizes, {sizes[0]} to {sizes[-1]}", "one source for the topic")
    try:
        _, _, cut_height, cut_width = crop_of(camera, upright)
    except BadInput as error:
        return Finding(line, False, str(error), f"cameras.{name}.crop, or another mode of the camera")
    cut = f", cut to {cut_width}×{cut_height}" if (cut_height, cut_width) != upright else ""
    turn = f", turned by {camera.rotate}°" if camera.rotate else ""
    found = f"{width}×{height} {newest.encoding}{turn}{cut} → {want_width}×{want_height}"
    if cut_height < want_height or cut_width < want_width:
        fix = f"a larger mode of the camera, or cameras.{name}.size: [{cut_height}, {cut_width}]"
        return Finding(line, False, f"{found}: smaller than the policy's", fix)
    ratio = (cut_width / want_width) / (cut_height / want_height)
    if not 1 / SQUASHED <= ratio <= SQUASHED:
        fix = f"right if the policy was trained so; otherwise cameras.{name}.crop: center"
        return Finding(line, False, f"{found}: squashed", fix, needed=False)
    return Finding(line, True, found)


def picture_frame(what: str, name: str, camera: Camera, seen: SeenTopic, *, alone: bool) -> Iterator[Finding]:
    """The frame that the pictures state, by which nodes notice swapped cameras; one that is `alone` cannot be one."""
    stated = [s.frame.lstrip("/") for s in seen.samples if isinstance(s, PictureSample) and not s.problem]
    if not stated:
        return
    sent, line = stated[-1], f"{what} frame"
    said = sent or "nothing"
    if camera.frame and sent != camera.frame:
        found = f"its pictures are of {said}, not of {camera.frame}: they would stop the arm"
        yield Finding(line, False, found, f"the right camera on {camera.topic}, or cameras.{name}.frame: {sent}")
    elif not camera.frame and not alone:
        fix = f"cameras.{name}.frame: {sent}" if sent else "a frame_id in the driver, then the same as its frame"
        found = f"not in the contract; its pictures are of {said}: cameras that are swapped would not be noticed"
        yield Finding(line, False, found, fix, needed=False)


def lens(what: str, name: str, camera: Camera, seen: SeenTopic) -> Finding:
    """The driver's camera info against the contract's intrinsics."""
    line, wanted = f"{what} lens", camera.intrinsics
    samples = [s for s in seen.samples if isinstance(s, LensSample)]
    if not samples:
        fix = f"start the driver's info, or leave cameras.{name}.info out"
        return Finding(line, False, f"nothing on {camera.info}", fix, needed=False)
    (height, width), k = samples[-1].size, samples[-1].matrix
    if not (k[0] > 0 and k[4] > 0):
        return Finding(line, False, "not calibrated: its matrix is 0", "calibrate the lens (camera_calibration)", False)
    found = f"{width}×{height}, fx {k[0]:.1f}, fy {k[4]:.1f}, cx {k[2]:.1f}, cy {k[5]:.1f} px"
    if wanted is None:
        return Finding(line, True, found)
    scale = height / wanted.size[0], width / wanted.size[1]
    own = (wanted.fx * scale[1], wanted.fy * scale[0], wanted.cx * scale[1], wanted.cy * scale[0])
    off = max(abs(a - b) / width for a, b in zip((k[0], k[4], k[2], k[5]), own, strict=True))
    same_shape = abs(scale[0] / scale[1] - 1.0) < LENS
    if off <= LENS and same_shape:
        return Finding(line, True, found)
    numbers = ", ".join(f"{value:.1f}" for value in own)
    expected = f"the contract has fx, fy, cx, cy {numbers} px at that size" if same_shape else "of another shape"
    fix = f"cameras.{name}.intrinsics of this camera and mode; then robolearn calibrate again"
    return Finding(line, False, f"{found}; {expected}", fix)


def one_speaker(contract: Contract, seen: SeenTopic) -> Iterator[Finding]:
    """Publishers of the arm's joint states; a gripper may have a publisher of its own."""
    arm = [s for s in _joint_samples(seen) if not set(contract.joints).isdisjoint(s.names)]
    speakers = seen.senders(arm)
    silent = sorted({one.node for one in seen.publishers} - set(seen.senders(seen.samples)))
    if len({s.sender for s in arm}) > 1 or len(speakers) > 1:
        who = " and ".join(f"{name} ({count} messages)" for name, count in sorted(speakers.items()))
        fix = "end all but the driver's; mostly it is a forgotten joint_state_publisher"
        yield Finding("joint states publishers", False, f"several for the arm's joints: {who}", fix)
    elif silent:
        found = f"nothing was heard of {' and '.join(silent)}: the arm is not armed beside it"
        yield Finding("joint states publishers", False, found, f"end {' and '.join(silent)}")
    elif speakers:
        yield Finding("joint states publishers", True, f"one for the arm: {' and '.join(speakers)}")


def one_gripper(contract: Contract, seen: SeenTopic) -> Iterator[Finding]:
    """Publishers of each of the gripper's joints: of two, none is believed."""
    for joint in contract.gripper_joints:
        own = [s for s in _joint_samples(seen) if joint in s.names]
        if len({s.sender for s in own}) > 1:
            who = " and ".join(f"{name} ({count} messages)" for name, count in sorted(seen.senders(own).items()))
            found = f"several for {joint}: {who}"
            yield Finding("gripper states publishers", False, found, "end all but the gripper's driver")
            return


def joint_values(contract: Contract, seen: SeenTopic, gripper: SeenTopic) -> Iterator[Finding]:
    """Names and positions; those of the gripper may be on a topic of their own, as they were seen there."""
    samples = _joint_samples(seen)
    there = {name for sample in (*samples, *_joint_samples(gripper)) for name in sample.names}
    missing = [name for name in (*contract.joints, *contract.gripper_joints) if name not in there]
    if missing:
        found = f"no {_list(missing)}; there are {_list(sorted(there)) or 'none'}"
        yield Finding("joint names", False, found, "joints and gripper.joints of the contract as the driver calls them")
        if set(missing) & set(contract.joints):
            return
    else:
        yield Finding(
            "joint names", True, f"all {len(contract.joints)} of the arm, {len(contract.gripper_joints)} more"
        )
    whole = [s for s in samples if set(contract.joints) <= set(s.names)]
    ragged = sum(len(s.names) != len(s.positions) for s in samples)
    if ragged:
        yield Finding("joint positions", False, f"{ragged} messages have not a position per name", "fix the driver")
    elif not whole:
        found = "all joints of the arm are never in one message"
        yield Finding("joint positions", False, found, "one joint_state_broadcaster for the arm")
    else:
        q = np.array([[s.positions[s.names.index(name)] for name in contract.joints] for s in whole])
        yield from _positions(contract, q)


def _positions(contract: Contract, q: np.ndarray) -> Iterator[Finding]:
    """Judge (N, n) positions [rad]."""
    bad = ~np.isfinite(q)
    if bad.any():
        name = contract.joints[int(np.argmax(bad.any(0)))]
        found = f"{name} is not a number in {int(bad.any(1).sum())} of {len(q)} messages"
        yield Finding("joint positions", False, found, "the driver's encoder or calibration of that joint")
        return
    lower, upper = contract.limits.lower, contract.limits.upper
    outside = (q.min(0) < lower) | (q.max(0) > upper)
    if outside.any():
        i = int(np.argmax(outside))
        found = f"{contract.joints[i]} at {q[-1, i]:.3f} rad, outside {lower[i]:.3f} to {upper[i]:.3f}"
        fix = "move it inside by hand or with the vendor's program; if it is inside, units (degrees?) or zero are wrong"
        yield Finding("joint positions", False, found, fix)
        return
    margin = math.degrees(float(np.minimum(q - lower, upper - q).min()))
    yield Finding("joint positions", True, f"finite, within limits, {margin:.0f}° from the nearest one")
    (tcp,), _ = contract.robot.chain.forward(q[-1:])
    where = ", ".join(f"{v:.3f}" for v in tcp)
    box = contract.limits.workspace
    if box is None or ((box[0] <= tcp).all() and (tcp <= box[1]).all()):
        yield Finding("tcp", True, f"at ({where}) m" + ("" if box is None else ", in the workspace"))
    else:
        fix = "move the arm into limits.workspace, or widen that"
        yield Finding("tcp", False, f"at ({where}) m, outside the workspace", fix)
    if not contract.simulated and len(q) > 10 and (q == q[0]).all():
        found = "the same to the last bit in all messages"
        fix = "at rest that may be; if it stays while you move the arm, a relay repeats a dead driver's last message"
        yield Finding("joint noise", False, found, fix, needed=False)


def _list(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _joint_samples(seen: SeenTopic) -> list[JointSample]:
    return [s for s in seen.samples if isinstance(s, JointSample)]


SLOW = 0.8  # share of the rate that is needed at which a topic counts as slow


def publishers(what: str, key: str, topic: Topic, seen: SeenTopic) -> Finding:
    """`topic` is published, in the contract's type (`key`: its section there)."""
    right = names(one for one in seen.publishers if one.type == topic.type)
    wrong = [one for one in seen.publishers if one.type != topic.type]
    name = f"{what} topic"
    if right and seen.samples:
        return Finding(name, True, f"{topic.topic}, {topic.type}, from {right}")
    if right:
        why = f": {seen.mismatches[0]}" if seen.mismatches else ""
        fix = "change its QoS" if why else "look at that node: its device, its log"
        return Finding(name, False, f"{right} publishes {topic.topic}, but nothing arrives{why}", fix)
    if wrong:
        found = f"{topic.topic} is {wrong[0].type} from {wrong[0].node}; the contract expects {topic.type}"
        return Finding(name, False, found, f"{key}.type: {wrong[0].type} in the contract, or the topic that has it")
    return Finding(name, False, f"no publisher on {topic.topic}", _start("its driver", key, seen))


def rhythm(what: str, beat: Rhythm, longest: float, why: str, least_hz: float = 0.0) -> Finding:
    """Messages come at `least_hz` [Hz] at least, and never `longest` [s] apart (`why`: what that comes from)."""
    name, gap = f"{what} rate", 1e3 * beat.gap
    found = f"{beat.hz:.1f} Hz, longest gap {gap:.0f} ms"
    if beat.count < 2:
        found = f"{beat.count} message, then nothing for {gap:.0f} ms"
    if beat.gap > longest:
        fix = f"a faster driver, or a network that loses less: at most {1e3 * longest:.0f} ms, {why}"
        return Finding(name, False, found, fix)
    if beat.hz < SLOW * least_hz:
        return Finding(name, False, f"{found}; actions come at {least_hz:g} Hz", f"set it to {least_hz:g} Hz or more")
    return Finding(name, True, found)


def stamps(what: str, samples: Sequence[StationSample], oldest: float) -> Finding:
    """Stamps rise, and are `oldest` [s] at most when they arrive."""
    name, age = f"{what} stamps", statistics.median(sample.age for sample in samples)
    if any(sample.stamp == 0 for sample in samples):
        return Finding(name, False, "0: never set", "let the driver stamp its messages with the time of measurement")
    by_sender: dict[bytes | None, list[float]] = {}
    for sample in samples:
        by_sender.setdefault(sample.sender, []).append(sample.stamp)
    repeated = sum(b <= a for times in by_sender.values() for a, b in pairwise(times))
    if repeated:
        fix = "a node repeats or reorders messages: subscribe to the driver's own topic"
        return Finding(name, False, f"{repeated} of {len(samples)} do not rise", fix)
    if problem := clock_problem(age, age, oldest):
        found, _, fix = problem.partition("; ")
        return Finding(name, False, found, fix)
    found = f"{1e3 * age:.1f} ms old at arrival, at most {1e3 * max(s.age for s in samples):.0f} ms"
    return Finding(name, True, found)
