"""The topics of an arm's driver among those of a live graph, by the names of its joints.

What is looked for: joint states that have all joints of the arm, the controller whose `joints` they are, and the one
whose `joints` are the gripper's. A driver may put one prefix before the names of the model (``left_joint1``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robolearn.core import BadInput
from robots.stations.values import FLOATS, TRAJECTORY


@dataclass(frozen=True)
class LiveJoints:
    """A topic of joint states, and the names in its messages; none: no message came."""

    topic: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class LiveController:
    """A topic that a controller listens to; `joints` are its parameter of that name, empty where it states none."""

    topic: str
    type: str
    node: str
    joints: tuple[str, ...]


@dataclass(frozen=True)
class LiveGraph:
    """Topics of a running station. `cameras`: of pictures that somebody publishes."""

    joint_states: tuple[LiveJoints, ...] = ()
    controllers: tuple[LiveController, ...] = ()
    cameras: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverTopics:
    """Topics of one arm's driver.

    Attributes:
      joints: as the driver calls them, in the order of the arm.
      joint_states: None where nothing has all of them.
      command, gripper: their controllers, or None.
      cameras: topics of pictures.
      missing: what was not found, in words, with what there is.
    """

    joints: tuple[str, ...]
    joint_states: str | None
    command: LiveController | None
    gripper: LiveController | None
    cameras: tuple[str, ...]
    missing: tuple[str, ...]

    def values(self) -> dict[tuple[str, ...], str]:
        """Key of the contract → its value in YAML, of what was found."""
        found: dict[tuple[str, ...], str] = {("joints",): f"[{', '.join(self.joints)}]"}
        if self.joint_states is not None:
            found["joint_states", "topic"] = self.joint_states
        for key, controller in (("command", self.command), ("gripper", self.gripper)):
            if controller is not None:
                found |= {(key, "topic"): controller.topic, (key, "type"): controller.type}
        if self.gripper is not None:
            found["gripper", "joints"] = f"[{', '.join(self.gripper.joints)}]"
        if self.command is not None and self.command.type != TRAJECTORY:
            found["command", "horizon_s"] = "0.0"  # set-points of a vector are for now
        return found


def find_driver(graph: LiveGraph, joints: Sequence[str], gripper: Sequence[str], prefix: str = "") -> DriverTopics:
    """The driver of the arm with `joints` (base to tip), as the model calls them, and the joints of `gripper`.

    Args:
      prefix: before the names, where there are several arms; by default the one that is there.

    Raises:
      BadInput: joint states of several arms are there, and no prefix is given.
    """
    missing: list[str] = []
    prefixes = sorted({one for heard in graph.joint_states for one in _prefixes(heard.names, joints)})
    if prefix:
        prefixes = [one for one in prefixes if one == prefix]
    if len(prefixes) > 1:
        raise BadInput("arms on the graph", got=f"{len(prefixes)}", expected="one, or --prefix", available=prefixes)
    before = prefixes[0] if prefixes else prefix
    named = tuple(before + joint for joint in joints)
    states = [heard.topic for heard in graph.joint_states if set(named) <= set(heard.names)]
    if not states:
        heard = "; ".join(f"{one.topic}: {', '.join(one.names) or 'no message'}" for one in graph.joint_states)
        missing.append(f"joint states of {', '.join(named)} (there is {heard or 'no topic of joint states'})")
    elif len(states) > 1:
        missing.append(f"one topic of joint states: {', '.join(states)} have them, the first is taken")
    command = _controller(graph, named, "the arm", missing)
    fingers = tuple(before + joint.removeprefix(before) for joint in gripper)
    hand = _controller(graph, fingers, "the gripper", missing) if fingers else None
    return DriverTopics(named, states[0] if states else None, command, hand, graph.cameras, tuple(missing))


def _prefixes(names: Sequence[str], joints: Sequence[str]) -> set[str]:
    """Prefixes of all of `joints` among `names`."""
    ends = {name.removesuffix(joints[0]) for name in names if name.endswith(joints[0])}
    return {one for one in ends if {one + joint for joint in joints} <= set(names)}


def _controller(graph: LiveGraph, joints: tuple[str, ...], whose: str, missing: list[str]) -> LiveController | None:
    """The controller of `joints`, a trajectory's before others. A vector has its numbers in the order of the
    controller's joints, so that it must be the arm's; a trajectory names them."""
    for kind in (TRAJECTORY, FLOATS):
        for one in graph.controllers:
            if one.type == kind and (one.joints == joints or (kind == TRAJECTORY and set(one.joints) == set(joints))):
                return one
    there = "; ".join(f"{one.topic}: {', '.join(one.joints) or 'joints not stated'}" for one in graph.controllers)
    missing.append(f"a controller of {whose} with the joints {', '.join(joints)} (there is {there or 'none'})")
    return None
