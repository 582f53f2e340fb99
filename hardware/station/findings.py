"""Judges a station by its contract: line by line what is there, and what to mend where something is wrong.

The words are for the person at the arm: what was found, and one thing to do about it. Nothing here moves anything or
depends on ROS; `hardware.ros2.station_watch` does the looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hardware.observing.timing import SILENT_S
from hardware.safety.states import SafetyState
from hardware.station import joints, pictures
from hardware.station.seen import Finding, Rhythm, SeenStation, SeenTopic, publishers, rhythm, stamps
from robots.stations import Contract, Gripper, Topic

__all__ = ["Finding", "check_station"]

SAFETY_STATE = "safety_state"  # the role of the safety node's report beside those of the contract


@dataclass(frozen=True)
class _Judge:
    contract: Contract
    seen: SeenStation

    def joint_states(self) -> Iterator[Finding]:
        topic, seen = self.contract.joint_states, self.seen.topics["joint_states"]
        yield publishers("joint states", "joint_states", topic, seen)
        if not seen.samples:
            return
        yield from joints.one_speaker(self.contract, seen)
        timeout = self.contract.limits.state_timeout_s
        why = "the filter stops the arm at limits.state_timeout_s"
        yield rhythm("joint states", Rhythm.of(seen.samples, self.seen.ended), timeout, why, 0.0)
        yield stamps("joint states", seen.samples, timeout)
        yield from joints.values(self.contract, seen)

    def command(self, name: str, role: str, topic: Topic) -> Iterator[Finding]:
        """The controller that takes set-points: it is subscribed, and only the safety node publishes."""
        seen = self.seen.topics[role]
        right = [one for one in seen.listeners if one.type == topic.type]
        wrong = [one for one in seen.listeners if one.type != topic.type]
        if right:
            yield Finding(name, True, f"{_names(right)} listens on {topic.topic}")
        elif wrong:
            found = f"{_names(wrong)} listens on {topic.topic} for {wrong[0].type}, not {topic.type}"
            yield Finding(name, False, found, f"{role}.type: {wrong[0].type} in the contract, or another controller")
        else:
            yield Finding(name, False, f"no subscriber on {topic.topic}", _start(role, seen))
        yield from (Finding(f"{name} QoS", False, words, "change the QoS of one of them") for words in seen.mismatches)
        others = [one for one in seen.publishers if one.node.rpartition("/")[2] != "safety"]
        safety = [one for one in seen.publishers if one not in others]
        if others:
            found = f"{_names(others)} publishes to {topic.topic}: only the safety node may"
            yield Finding(f"{name} publishers", False, found, f"end {_names(others)}")
        elif len(safety) > 1:
            found = f"{len(safety)} safety nodes publish to {topic.topic}"
            yield Finding(f"{name} publishers", False, found, "end one deployment, or give each arm a namespace")
        else:
            yield Finding(f"{name} publishers", True, "the safety node alone" if safety else "none before deployment")

    def cameras(self) -> Iterator[Finding]:
        for name, camera in self.contract.cameras.items():
            seen = self.seen.topics[f"images.{name}"]
            what = f"camera {name}"
            yield publishers(what, f"cameras.{name}", camera, seen)
            if not seen.samples:
                continue
            yield from pictures.one_camera(what, seen)
            why = f"cameras.{name}.max_age_s"
            rate = self.contract.control_hz
            yield rhythm(what, Rhythm.of(seen.samples, self.seen.ended), camera.max_age_s, why, rate)
            yield stamps(what, seen.samples, camera.max_age_s)
            yield from pictures.values(what, name, camera, seen, simulated=self.contract.simulated)
            if camera.info:
                yield pictures.lens(what, name, camera, self.seen.topics[f"info.{name}"])

    def objects(self) -> Iterator[Finding]:
        if (topic := self.contract.objects) is not None:
            seen = self.seen.topics["objects"]
            yield publishers("objects", "objects", topic, seen)
            if seen.samples:
                yield rhythm("objects", Rhythm.of(seen.samples, self.seen.ended), topic.max_age_s, "objects.max_age_s")

    def safety_node(self) -> Finding:
        seen, name = self.seen.topics[SAFETY_STATE], "safety node"
        if not seen.publishers and not seen.samples:
            return Finding(name, True, "not running; robolearn deploy, record and ros2 launch start it")
        who = _names(seen.publishers) or "one that has gone"
        if len(seen.publishers) > 1:
            return Finding(
                name, False, f"{len(seen.publishers)} at once: {who}", "end one, or give each arm a namespace"
            )
        if self.seen.safety is None or self.seen.ended - seen.samples[-1].arrived > SILENT_S:
            return Finding(name, False, f"{who} is there and silent", "hardware emergency stop, then start it again")
        state, reason = self.seen.safety
        if state == SafetyState.LATCHED:
            return Finding(name, False, f"latched: {reason}", "mend that, then reset by R of robolearn operate")
        if reason:
            return Finding(name, False, f"{state}: {reason}", "the arm cannot be armed before that is mended")
        return Finding(name, True, f"{who} is {state}")


def check_station(contract: Contract, seen: SeenStation) -> dict[str, list[Finding]]:
    """Heading → what was found under it, in the order of mending: without joint states nothing else matters."""
    judge = _Judge(contract, seen)
    found = {
        "Arm": [*judge.joint_states()],
        "Controller": [*judge.command("arm controller", "command", contract.command)],
    }
    if contract.command.posture is not None:
        found["Controller"] += judge.command("posture controller", "command.posture", contract.command.posture)
    if isinstance(contract.gripper, Gripper):
        found["Gripper"] = [*judge.command("gripper controller", "gripper", contract.gripper)]
    if contract.cameras:
        found["Cameras"] = [*judge.cameras()]
    if contract.objects is not None:
        found["Objects"] = [*judge.objects()]
    found["Safety"] = [judge.safety_node()]
    return found


def _names(endpoints: object) -> str:
    return " and ".join(sorted({one.node for one in endpoints}))  # type: ignore[attr-defined]


def _start(role: str, seen: SeenTopic) -> str:
    there = f"; of that type there are {', '.join(seen.elsewhere[:4])}" if seen.elsewhere else ""
    return f"start the controller, or correct {role}.topic in the contract{there}"
