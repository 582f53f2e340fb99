"""Judges a station of one arm or of two by its contract, line by line; of two arms each line names its arm."""

from __future__ import annotations

from dataclasses import replace

from hardware.observing.timing import SILENT_S
from hardware.safety.states import SafetyState
from hardware.station.findings import check_arm, check_assumed, check_cameras, names, publishers, rhythm
from hardware.station.seen import SAFETY_STATE, Finding, Rhythm, SeenStation
from robots.stations import AnyContract, Topic


def check_station(contract: AnyContract, seen: SeenStation) -> dict[str, list[Finding]]:
    """Heading → what was found under it, in the order of fixing: without joint states nothing else matters."""
    found: dict[str, list[Finding]] = {}
    cameras, alone = dict(contract.cameras), len(contract.cameras) == 1
    for name, arm in contract.arms.items():
        if not name:
            found |= check_arm(arm, seen)
            continue
        there = seen.of_arm(name)
        lines = check_arm(arm, there) | {"Cameras": [*check_cameras(arm.cameras, arm, there, alone=alone)]}
        found |= {f"{heading} {name}": _named(name, of) for heading, of in lines.items() if of}
        cameras = {key: one for key, one in cameras.items() if key.removeprefix(f"{name}_") not in arm.cameras}
    if cameras:
        found["Cameras"] = [*check_cameras(cameras, contract, seen, alone=alone)]
    if contract.objects is not None:
        found["Objects"] = _objects(contract.objects, seen)
    found["Safety"] = [_safety_node(seen)]
    if assumed := [one for name, arm in contract.arms.items() for one in _named(name, check_assumed(arm))]:
        found["Not stated"] = assumed
    return found


def _named(arm: str, findings: list[Finding]) -> list[Finding]:
    return [replace(one, name=f"{arm} {one.name}") if arm else one for one in findings]


def _objects(topic: Topic, seen: SeenStation) -> list[Finding]:
    objects = seen.topics["objects"]
    found = [publishers("objects", "objects", topic, objects)]
    if objects.samples:
        found.append(rhythm("objects", Rhythm.of(objects.samples, seen.ended), topic.max_age_s, "objects.max_age_s"))
    return found


def _safety_node(seen: SeenStation) -> Finding:
    reports, name = seen.topics[SAFETY_STATE], "safety node"
    if not reports.publishers and not reports.samples:
        return Finding(name, True, "not running; robolearn deploy, record and ros2 launch start it")
    who = names(reports.publishers) or "one that has gone"
    if len(reports.publishers) > 1:
        found = f"{len(reports.publishers)} at once: {who}"
        return Finding(name, False, found, "end one, or give each arm a namespace")
    if seen.safety is None or seen.ended - reports.samples[-1].arrived > SILENT_S:
        return Finding(name, False, f"{who} is there and silent", "hardware emergency stop, then start it again")
    state, reason = seen.safety
    if state == SafetyState.LATCHED:
        return Finding(name, False, f"latched: {reason}", "fix that, then reset by R of robolearn operate")
    if reason:
        return Finding(name, False, f"{state}: {reason}", "the arm cannot be armed before that is fixed")
    return Finding(name, True, f"{who} is {state}")
