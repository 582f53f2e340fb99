"""Messages of a station's topics, checked one by one, and their values on the grid of the control rate.

    frame i at t_i = t_0 + i/hz,    observation: the newest message with stamp ≤ t_i, no older than max_age
                                    action:      the newest command with stamp < t_{i+1}, no older than max_age or 1/hz

so that the action of a frame is what was commanded while it lasted. Times are nanoseconds; stored stamps are seconds in
float64, which at today's dates are exact to 0.24 µs, so `SLACK_NS` forgives that much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.core.se3 import quat_to_matrix
from robolearn.data.convert.bags.arrival import BACK_S
from robolearn.data.convert.bags.recording import EPISODE_EVENTS, Bag, Event, Message, read_event
from robolearn.data.convert.options import Account
from robolearn.data.lerobot.features import IMAGES
from robots.stations import FLOATS, POSE, STRING, TRAJECTORY, WRENCH, Contract, Topic

Times = NDArray[np.int64]

SLACK_NS = 1_000


def grid(begin_ns: int, end_ns: int, hz: float) -> Times:
    """(T,) the times of the frames that end at or before `end_ns`, from `begin_ns` on."""
    count = int((end_ns - begin_ns + SLACK_NS) * hz / 1e9)
    return begin_ns + np.round(np.arange(max(count, 0)) * (1e9 / hz)).astype(np.int64)


def newest(stamps: Times, at: Times) -> NDArray[np.int64]:
    """(T,) the last of the rising (n,) `stamps` at or before each of (T,) `at`; −1 where there is none."""
    return np.searchsorted(stamps, at + SLACK_NS, side="right") - 1


def newest_before(stamps: Times, at: Times) -> NDArray[np.int64]:
    """(T,) the last of the rising (n,) `stamps` before each of (T,) `at`; −1 where there is none."""
    return np.searchsorted(stamps, at - SLACK_NS, side="left") - 1


def check_age(stamps: Times, chosen: NDArray[np.int64], at: Times, max_age_s: float, where: str, begin_ns: int) -> None:
    """Refuse a grid point whose newest message is older than `max_age_s`. Raises `BadInput`: it names the frame, its
    time in the bag, and how old the message is."""
    if not len(at):
        return
    age = np.where(chosen >= 0, at - stamps[np.maximum(chosen, 0)], np.iinfo(np.int64).max)
    late = np.flatnonzero(age > round(max_age_s * 1e9) + 2 * SLACK_NS)
    if not len(late):
        return
    i = int(late[0])
    place = f"{where}, frame {i}, {1e-9 * (at[i] - begin_ns):.3f} s into the bag"
    if chosen[i] < 0:
        raise BadInput(place, got="no message before it", expected=f"one every {max_age_s:g} s at least")
    following = stamps[stamps > stamps[chosen[i]]]
    gap = f"a gap of {1e-9 * (following[0] - stamps[chosen[i]]):.3f} s" if len(following) else "no more messages"
    got = f"{gap}, the newest message is {1e-9 * age[i]:.3f} s old"
    raise BadInput(place, got=got, expected=f"at most {max_age_s:g} s (max_age_s of the contract)")


Array = NDArray[np.float64]

ONE_CLOCK_S = 1.0  # stamps that are further than this from the time of recording are another clock's


@dataclass
class _Growing:
    stamps: list[int] = field(default_factory=list)
    logged: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class TopicSeries:
    """The messages of one role, in the order of their stamps.

    Attributes:
      stamps: (n,) [ns], rising.
      logged: (n,) when they were recorded [ns].
      back: (earliest, latest) [ns] of stamps that came twice over, because the clock stepped back between messages.
      steps_back: (K,) by how much a message is stamped before the one that was recorded before it [ns].
      values: (n, D): joint positions [rad] and opening [m] (NaN where the gripper is measured on a topic of its own),
        set-points, an opening, objects; (n, 0) of cameras.
    """

    stamps: Times
    logged: Times
    values: Array
    back: tuple[tuple[int, int], ...]
    steps_back: Times


@dataclass(frozen=True, eq=False)
class TopicData:
    """The data of a station in a bag: role → series, the episode events, None where their topic is not recorded, and
    the times that the recorder's clock went through twice (`Bag.twice`)."""

    station: Contract
    recording: Bag
    series: dict[str, TopicSeries]
    events: list[Event] | None
    back: tuple[tuple[int, int], ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources whose stamps are stored: every observation, the command, and the gripper's where there is one."""
        gripper = ("gripper",) if self.station.gripper is not None else ()
        return (*self.station.interface.observation, "action", *gripper)


def refuse_raw_torques(station: Contract) -> None:
    """Raise `BadInput` for a contract whose contact is what a message of joint states holds besides positions."""
    if station.contact is not None and station.contact.gravity:
        expected = "a topic of its own, or no contact: take it out of the contract for bags"
        raise BadInput(f"bags of contract {station.name}", got="contact.gravity", expected=expected)


def check_topics(station: Contract, recording: Bag) -> None:
    """Raise `BadInput` where the bag lacks a topic of the station, or has it in another type."""
    refuse_raw_torques(station)
    wanted = dict(station.topics)
    if EPISODE_EVENTS in recording.topics:
        wanted["episode events"] = Topic(EPISODE_EVENTS, STRING)
    for role, channel in wanted.items():
        place = f"bag {recording.path}: topic {channel.topic} ({role} of contract {station.name})"
        if (why := recording.unreadable.get(channel.topic)) is not None:
            raise BadInput(place, got=why, expected=channel.type)
        if channel.topic not in recording.topics:
            hint = (
                "--no-images leaves the cameras out, --cameras names those to take" if role.startswith(IMAGES) else ""
            )
            raise BadInput(place, got="nothing", expected=channel.type, available=sorted(recording.topics), hint=hint)
        if recording.topics[channel.topic] != channel.type:
            raise BadInput(place, got=recording.topics[channel.topic], expected=channel.type)


def read_topics(station: Contract, recording: Bag, account: Account) -> TopicData:
    """Go through the bag once; images are passed over, but for their stamps. Raises `BadInput`: a missing topic or one
    of another type, a malformed message, or stamps of another clock."""
    check_topics(station, recording)
    roles = {channel.topic: role for role, channel in station.topics.items()}
    growing = {role: _Growing() for role in station.topics}
    has_events = EPISODE_EVENTS in recording.topics
    events: list[Event] = []
    fingers: dict[str, float] = {}
    fields: dict[str, None] = {}
    for number, message in enumerate(recording.messages([*roles, EPISODE_EVENTS])):
        at = 1e-9 * (message.logged_ns - recording.begin_ns)
        where = f"bag {recording.path}: {message.topic}, message {number} at {at:.3f} s"
        if message.topic == EPISODE_EVENTS:
            events.append(read_event(message.content.data, message.logged_ns, where))
            continue
        role = roles[message.topic]
        if role == "joint_states":
            fields |= dict.fromkeys(name for name in ("velocity", "effort") if len(getattr(message.content, name)))
        value = _value(role, message, station, fingers, where)
        if value is None:
            continue
        if not np.isfinite(value[: len(station.joints)] if role == "joint_states" else value).all():
            raise BadInput(where, got="NaN or infinity", expected="finite numbers")
        stamp = message.stamp_ns
        if stamp <= 0:
            if role not in ("command", "gripper"):
                raise BadInput(where, got="a message without a stamp", expected="the time of its measurement")
            stamp = message.logged_ns  # a controller takes such a command as meant for now
        grown = growing[role]
        grown.stamps.append(stamp)
        grown.logged.append(message.logged_ns)
        grown.values.append(value)
    series = {
        role: _series(grown, f"bag {recording.path}: {station.topics[role].topic}") for role, grown in growing.items()
    }
    for role, one in series.items():
        if len(one.steps_back):
            by = f"{len(one.steps_back)} times, by {1e-9 * one.steps_back.max():.3g} s at most"
            account.changed.append(f"{station.topics[role].topic}: its stamps step back {by}; they are sorted")
    others = sorted(set(recording.topics) - set(roles) - {EPISODE_EVENTS})
    account.left_out += [f"{topic} ({recording.topics[topic]})" for topic in others]
    account.left_out += [f"{topic}: {why}" for topic, why in sorted(recording.unreadable.items())]
    if fields:
        account.left_out.append(f"of {station.joint_states.topic}: {' and '.join(fields)}")
    # The index of the bag last: it is read where all messages can be used.
    return TopicData(station, recording, series, events if has_events else None, recording.twice())


def _series(grown: _Growing, where: str) -> TopicSeries:
    if not grown.stamps:
        raise BadInput(where, got="no message that can be used", expected="some")
    stamps, logged = np.array(grown.stamps, np.int64), np.array(grown.logged, np.int64)
    apart = 1e-9 * float(np.median(np.abs(stamps - logged)))
    if apart > ONE_CLOCK_S:
        raise BadInput(where, got=f"stamps {apart:.1f} s away from the time of recording", expected="one clock for all")
    last = np.maximum.accumulate(stamps)
    (steps,) = np.nonzero(np.diff(stamps) < -round(1e9 * BACK_S))
    back = tuple((int(stamps[at + 1]), int(max(last[at], logged[at + 1]))) for at in steps)
    # A repeated stamp is a repeated measurement: of equal ones the first stays.
    unique, first = np.unique(stamps, return_index=True)
    falls = -np.diff(stamps)
    return TopicSeries(unique, logged[first], np.array(grown.values, np.float64)[first], back, falls[falls > 0])


def _value(role: str, message: Message, station: Contract, fingers: dict[str, float], where: str) -> Any:
    """The numbers in a message; None where it has none for this role."""
    content = message.content
    if role.startswith("images."):
        return np.zeros(0)
    if role == "joint_states":
        return _joints(content, station, fingers, where)
    if role == "gripper_states":
        width = station.gripper_width(_named(content.name, content.position, station.gripper_joints, where).tolist())
        return np.array([width])
    if role == "objects":
        spec = station.interface.observation["objects"]
        return _named(content.name, content.position, spec.names, where)
    if station.contact is not None and role == station.contact.feature:
        if station.contact.type == WRENCH:
            f, m = content.wrench.force, content.wrench.torque
            return np.array([f.x, f.y, f.z, m.x, m.y, m.z])
        return _named(content.name, content.effort, station.joints, where)
    joints = station.command_joints if role == "command" else station.gripper_joints
    kind = station.topics[role].type
    if kind == POSE:
        p, o = content.pose.position, content.pose.orientation
        return np.array([p.x, p.y, p.z, o.w, o.x, o.y, o.z])
    if kind == TRAJECTORY:
        if not len(content.points):
            return None  # it takes the trajectory back
        values = _named(content.joint_names, content.points[-1].positions, joints, where)
    else:
        values = np.array(content.data, np.float64)
        expected = 1 if role == "gripper" and station.gripper_takes_opening else len(joints)
        if len(values) != expected:
            raise BadInput(where, got=f"{len(values)} numbers", expected=f"{expected}: {', '.join(joints)}")
    if role == "command":
        return values
    opening = station.gripper_takes_opening and kind == FLOATS
    return np.array([values[0] if opening else station.gripper_width(values.tolist())])


def _joints(content: Any, station: Contract, fingers: dict[str, float], where: str) -> Array | None:
    """The arm's joints and the newest opening, which may come in messages of its own; NaN: on a topic of its own."""
    names = list(content.name)
    positions = np.array(content.position, np.float64)
    if len(names) != len(positions) or len(set(names)) != len(names):
        raise BadInput(where, got=f"{len(names)} names and {len(positions)} positions", expected="one of each, once")
    for name in station.gripper_joints:
        if name in names:
            fingers[name] = float(positions[names.index(name)])
    if not any(name in names for name in station.joints):
        return None  # another device
    q = _named(names, positions, station.joints, where)
    if station.gripper_states is not None:
        return np.append(q, np.nan)
    if len(fingers) < len(station.gripper_joints):
        return None  # there is no observation before the first message of the gripper
    width = station.gripper_width([fingers[name] for name in station.gripper_joints]) if fingers else 0.0
    return np.append(q, width)


def _named(names: Sequence[str], values: Sequence[float] | Array, wanted: Sequence[str], where: str) -> Array:
    index = {name: i for i, name in enumerate(names)}
    missing = [name for name in wanted if name not in index]
    if missing:
        raise BadInput(where, got=f"no {missing[0]!r}", expected=", ".join(wanted), available=names)
    if len(values) != len(names):
        raise BadInput(where, got=f"{len(values)} values", expected=f"{len(names)}, one for each name")
    return np.array([values[index[name]] for name in wanted], np.float64)


def pose_of(values: Array) -> tuple[Array, Array]:
    """(n, 7) positions [m] and quaternions wxyz → (n, 3) and (n, 3, 3)."""
    quaternion = values[:, 3:] / np.linalg.norm(values[:, 3:], axis=1, keepdims=True)
    return values[:, :3], quat_to_matrix(quaternion)
