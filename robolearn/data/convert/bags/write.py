"""A data set → a bag: joint states, commands, images and episode events, under the stamps that they were measured at.

A message is written once for every stamp, however many frames saw it. Commands are what the stored actions mean where
the arm was, by the control that deployment uses. Sets without stamps get those of their frames, from 1 s on. Messages
are made without ROS, of the types that `rosbags` brings.
"""

from __future__ import annotations

import heapq
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput, Episode, check_compatible
from robolearn.core.se3 import matrix_to_quat
from robolearn.data.convert.bags.recording import EPISODE_EVENTS, Ending, rosbags
from robolearn.data.convert.bags.series import SLACK_NS, Times, refuse_raw_torques
from robolearn.data.convert.source import EpisodeDraft, Progress, check_new, drafts, interface_with_images, new_folder
from robolearn.data.lerobot.features import FRAME
from robolearn.data.reading.reader import Dataset
from robolearn.data.validate.opened import Tolerances
from robolearn.data.video.segments import frames
from robolearn.io.atomic import place_file
from robots import make_control
from robots.stations import COMPRESSED, FLOATS, IMAGE, JOINT_STATE, POSE, STRING, TRAJECTORY, WRENCH, Contract
from robots.stations.parts import Topic

log = logging.getLogger(__name__)

BETWEEN_NS = 1_000_000_000  # between episodes that have no time of their own
HELD_NS = 6_000_000_000  # messages are put in order within this; no source may be older when it is seen


def write_bag(dataset: Dataset, station: Contract, out: str | Path, progress: Progress | None = None) -> None:
    """Write `dataset` as a rosbag2 folder with one .mcap file, or as that file alone where `out` ends in .mcap.

    Args:
      station: what the topics are; its interface must be that of the set.

    Raises:
      BadInput: `out` is there already, the set is of another station, or stamps of an episode do not rise.
    """
    out = Path(out)
    what = f"data set {dataset.path} for contract {station.name}"
    check_compatible(station.interface, interface_with_images(dataset), what=what, subject="the contract")
    with _bag(out) as bag:
        messages = _EpisodeMessages(bag, station, dataset.outcomes)
        if lost := [name for name in dataset.stamps if name not in (FRAME, *messages.sources)]:
            log.warning("%s: no topic of contract %s has the timestamps of %s", out, station.name, ", ".join(lost))
        if changing := sum(bool(dataset.episode(index).frame_tasks) for index in range(dataset.episodes)):
            log.warning("%s: a bag has one task an episode: of %d the first alone is kept", out, changing)
        end = 0
        for index, draft in enumerate(drafts(dataset)):
            end = messages.episode(draft, end)
            if progress is not None:
                progress(index + 1, {})


@contextmanager
def _bag(out: Path) -> Iterator[Any]:
    """A writer of a bag that appears at `out` when it is whole."""
    rosbags()
    from rosbags.rosbag2 import StoragePlugin, Writer

    if out.suffix != ".mcap":
        with new_folder(out) as part:
            part.rmdir()  # the library makes the folder itself
            with Writer(part, version=8, storage_plugin=StoragePlugin.MCAP) as bag:
                yield bag
        return
    check_new(out)
    if out.is_dir():
        raise BadInput(f"--out {out}", got="a folder", expected="a file, such as demos.mcap")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as part:
        folder = Path(part) / out.stem
        with Writer(folder, version=8, storage_plugin=StoragePlugin.MCAP) as bag:
            yield bag
        check_new(out)
        place_file(folder / f"{out.stem}.mcap", out)


class _EpisodeMessages:
    """Writes episodes as messages on the topics of a station."""

    def __init__(self, bag: Any, station: Contract, outcomes: bool) -> None:
        refuse_raw_torques(station)
        self._station, self._messages, self._outcomes = station, Messages(), outcomes
        self.sources = _sources(station)
        self._control = make_control(station.interface.action_kind, station.robot, station.control_hz)
        self._bag = bag
        channels = {channel.topic: channel.type for channel in station.topics.values()} | {EPISODE_EVENTS: STRING}
        self._connections = {
            topic: bag.add_connection(topic, kind, typestore=self._messages.store) for topic, kind in channels.items()
        }
        self._types = channels
        self._waiting: list[tuple[int, int, str, Any]] = []
        self._count = 0

    def episode(self, draft: EpisodeDraft, after_ns: int) -> int:
        """Write one episode, not before `after_ns`; returns when it ends [ns]."""
        episode, hz = draft.episode, self._station.interface.control_hz
        step = round(1e9 / hz)
        times, stamps = _times(episode, self._station, step)
        stamps = _rising(draft.name, times, stamps)
        if times[0] <= after_ns:
            shift = after_ns + BETWEEN_NS - int(times[0])
            if episode.stamps:
                log.warning("%s: moved by %.3f s, because the episode before it is later", draft.name, 1e-9 * shift)
            times, stamps = times + shift, {name: np.where(at > 0, at + shift, at) for name, at in stamps.items()}
        begin, end = int(times[0]), max(int(times[0]) + len(episode) * step, int(times[-1]) + step)
        regular = bool(np.abs(times - begin - np.arange(len(times)) * step).max() <= SLACK_NS)
        self._say(begin, EPISODE_EVENTS, self._event("start", episode.task))
        makers = self._makers(draft)
        cameras = {key: iter(frames(images)) for key, images in draft.images.items()}
        last = dict.fromkeys(stamps, 0)
        for t in range(len(episode)):
            pictures = {key: next(camera) for key, camera in cameras.items()}
            for name, at in stamps.items():
                stamp = int(at[t])
                if stamp > 0 and stamp != last[name]:
                    last[name] = stamp
                    topic, make = makers[name]
                    self._say(stamp, topic, make(t, stamp, pictures))
            self._flush(int(times[t]) - HELD_NS)
        ending = _ending(episode, times - begin, regular, self._outcomes)
        kind = "success" if episode.success else "failure"
        self._say(end, EPISODE_EVENTS, self._event(kind, episode.task, ending.to_json()))
        self._flush(end + 1)
        return end

    def _makers(self, draft: EpisodeDraft) -> dict[str, tuple[str, Callable[[int, int, dict], Any]]]:
        """Stamp name → topic, and what makes a message of (frame, stamp, images)."""
        station, make, episode = self._station, self._messages, draft.episode
        count = len(station.joints)
        proprio = np.asarray(episode.observation["proprio"], np.float64)
        q, width = np.ascontiguousarray(proprio[:, :count]), proprio[:, count]
        goals, openings = self._control.targets(q, None, episode.action)

        def joints(t: int, stamp: int, _: dict) -> Any:
            if station.gripper_states is not None:
                return make.joint_state(station.joints, q[t], stamp)
            names = (*station.joints, *station.gripper_joints)
            return make.joint_state(names, [*q[t], *station.gripper_joint_positions(float(width[t]))], stamp)

        def fingers(t: int, stamp: int, _: dict) -> Any:
            at = station.gripper_joint_positions(float(width[t]))
            return make.joint_state(station.gripper_joints, at, stamp)

        def command(t: int, stamp: int, _: dict) -> Any:
            if station.command.type == POSE:
                pos, rot = station.robot.chain.forward(goals[t][None])
                return make.pose(pos[0], matrix_to_quat(rot)[0], stamp)
            vector = [*goals[t]]
            if station.gripper_in_command:
                vector += station.gripper_joint_positions(float(openings[t]))
            return self._set_point(station.command.type, station.joints, vector)

        def gripper(t: int, stamp: int, _: dict) -> Any:
            assert station.gripper is not None
            values = station.gripper_values(float(openings[t]))
            return self._set_point(station.gripper.type, station.gripper_joints, values)

        def objects(t: int, stamp: int, _: dict) -> Any:
            names = station.interface.observation["objects"].names
            return make.joint_state(names, episode.observation["objects"][t], stamp)

        def contact(t: int, stamp: int, _: dict) -> Any:
            assert station.contact is not None
            felt = episode.observation[station.contact.feature][t]
            is_wrench = station.contact.type == WRENCH
            return make.wrench(felt, stamp) if is_wrench else make.torques(station.joints, felt, stamp)

        def image(t: int, stamp: int, images: dict, key: str) -> Any:
            return make.image(station.topics[key].type, images[key], stamp)

        makers: dict[str, tuple[Topic | None, Callable[[int, int, dict], Any]]] = {
            "proprio": (station.joint_states, joints),
            "action": (station.command, command),
            "gripper_states": (station.gripper_states, fingers),
            "gripper": (station.gripper, gripper),
            "objects": (station.objects if "objects" in station.interface.observation else None, objects),
            **{key: (station.topics[key], partial(image, key=key)) for key in draft.images},
        }
        if station.contact is not None:
            makers[station.contact.feature] = (station.contact, contact)
        return {name: (channel.topic, say) for name, (channel, say) in makers.items() if channel is not None}

    def _set_point(self, kind: str, joints: tuple[str, ...], values: Any) -> Any:
        if kind == FLOATS:
            return self._messages.floats(values)
        assert kind == TRAJECTORY
        return self._messages.trajectory(joints, values, 1.0 / self._station.interface.control_hz)

    def _event(self, kind: str, task: str, more: Mapping[str, Any] | None = None) -> Any:
        return self._messages.text(json.dumps({"event": kind, "task": task, **(more or {})}, ensure_ascii=False))

    def _say(self, at: int, topic: str, message: Any) -> None:
        raw = self._messages.store.serialize_cdr(message, self._types[topic])
        heapq.heappush(self._waiting, (at, self._count, topic, bytes(raw)))
        self._count += 1

    def _flush(self, before: int) -> None:
        """Write what is waiting, in the order of its time."""
        while self._waiting and self._waiting[0][0] < before:
            at, _, topic, raw = heapq.heappop(self._waiting)
            self._bag.write(self._connections[topic], at, raw)


def _ending(episode: Episode, since_ns: NDArray[np.int64], regular: bool, known: bool) -> Ending:
    """The event at the end of `episode`, whose frames were `since_ns` (T,) its start."""
    interventions = () if episode.intervention is None else tuple(np.flatnonzero(episode.intervention).tolist())
    rewards = tuple((int(t), float(episode.reward[t])) for t in np.flatnonzero(episode.reward))
    usual = rewards == (((len(episode) - 1, 1.0),) if episode.success else ())
    # What belongs to single frames needs the very same frames.
    exact = not regular or bool(interventions) or not usual
    frames_ns, ends = tuple(since_ns.tolist()) if exact else (), (episode.terminated, episode.truncated)
    return Ending(frames_ns, *ends, interventions, rewards=None if usual else rewards, known=known)


def _rising(name: str, times: Times, stamps: Mapping[str, Times]) -> dict[str, Times]:
    """`stamps` that rise, as a bag needs that can be read again: a reader takes messages in the order of their stamps.

    One that is back by what `validate` allows for comes right after the one before it; anything else is refused.
    """
    allowed = round(1e9 * Tolerances.back_s)
    risen = {}
    for source, at in {FRAME: times, **stamps}.items():
        risen[source] = at.copy()
        before, moved = 0, 0
        for t in np.flatnonzero(at > 0):  # 0 stands for no message yet
            now = int(risen[source][before]) if at[t] == at[before] else int(at[t])
            back = int(risen[source][before]) - now
            if t and (back > allowed or (source == FRAME and back >= 0)):
                got = (
                    f"stamps of {source} that go back by {1e-9 * back:.3g} s" if back else f"two {source}s at one time"
                )
                hint = "Leave the episode out: robolearn dataset edit drop DATA --episodes N --out OTHER"
                raise BadInput(f"{name}, frame {t}", got=got, expected="stamps that rise", hint=hint)
            risen[source][t] = now if back <= 0 else now + back + 2 * SLACK_NS  # no longer at that one's frame
            before, moved = t, max(moved, back)
        if moved:
            log.warning("%s: %s moved by up to %.2g ms, so that they rise", name, source, 1e-6 * moved)
    return {source: risen[source] for source in stamps}


def _sources(station: Contract) -> list[str]:
    """Sources of the stamps."""
    commanded = ["gripper"] if station.gripper is not None else []
    measured = ["gripper_states"] if station.gripper_states is not None else []  # stamped as the arm is: one `proprio`
    return [*station.interface.observation, *measured, "action", *commanded]


def _times(episode: Episode, station: Contract, step: int) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """(T,) when each frame was [ns], and name → (T,) the stamps of what it holds [ns]."""
    stored = {name: np.round(np.asarray(at) * 1e9).astype(np.int64) for name, at in episode.stamps.items()}
    index = np.arange(len(episode), dtype=np.int64) * step
    seen = [stored[name] for name in station.interface.observation if name in stored]
    if FRAME in stored:
        times = stored[FRAME]
    elif seen:
        # A frame comes after all that it saw, and after the frame before it whatever it saw.
        apart = np.arange(len(episode)) * 10 * SLACK_NS
        times = np.maximum.accumulate(np.max(seen, axis=0) - apart) + apart
    else:
        times = BETWEEN_NS + index
    stored.setdefault("gripper_states", stored.get("proprio", times))
    return times, {name: stored.get(name, times) for name in _sources(station)}


class Messages:
    """Makes messages.

    Attributes:
      store: the types, and how they are serialized.
    """

    def __init__(self) -> None:
        _, typesys = rosbags()
        self.store = typesys.get_typestore(typesys.Stores.LATEST)

    def _new(self, kind: str, **given: Any) -> Any:
        """A message with the fields `given`, mappings for messages; the others are empty or 0."""

        def made(node: Any, detail: Any, value: Any) -> Any:
            if node.name == "NAME":
                return self._new(detail, **(value or {}))
            if node.name == "BASE":
                return value if value is not None else "" if detail[0] == "string" else 0
            inner, what = detail[0]
            if inner.name == "NAME" or what[0] == "string":
                return [made(inner, what, one) for one in value or ()]
            return np.array(() if value is None else value, what[0])

        fields = self.store.fielddefs[kind][1]
        values = {name: made(node, detail, given.get(name)) for name, (node, detail) in fields}
        return self.store.types[kind](**values)

    def text(self, words: str) -> Any:
        """A String."""
        return self._new(STRING, data=words)

    def joint_state(self, names: Sequence[str], positions: ArrayLike, stamp_ns: int) -> Any:
        """Names and positions as a JointState."""
        return self._new(JOINT_STATE, header=_header(stamp_ns), name=names, position=positions)

    def torques(self, names: Sequence[str], efforts: ArrayLike, stamp_ns: int) -> Any:
        """Names and external torques [Nm] as a JointState."""
        return self._new(JOINT_STATE, header=_header(stamp_ns), name=names, effort=efforts)

    def wrench(self, values: ArrayLike, stamp_ns: int, frame: str = "base") -> Any:
        """Force [N] and moment [Nm], (6,), as a WrenchStamped."""
        numbers = np.asarray(values, np.float64).tolist()
        parts = {"force": _xyz(numbers[:3]), "torque": _xyz(numbers[3:])}
        return self._new(WRENCH, header=_header(stamp_ns, frame), wrench=parts)

    def floats(self, values: ArrayLike) -> Any:
        """A Float64MultiArray."""
        return self._new(FLOATS, data=values)

    def trajectory(self, names: Sequence[str], positions: ArrayLike, reach_s: float) -> Any:
        """A trajectory of one point, to be reached in `reach_s` from now (its stamp is 0, which means now)."""
        point = {"positions": positions, "time_from_start": _time(round(reach_s * 1e9))}
        return self._new(TRAJECTORY, header=_header(0), joint_names=names, points=[point])

    def pose(self, position: NDArray, quaternion: NDArray, stamp_ns: int, frame: str = "base") -> Any:
        """A PoseStamped; `quaternion` is wxyz."""
        w, *vector = np.asarray(quaternion, np.float64).tolist()
        pose = {"position": _xyz(np.asarray(position, np.float64).tolist()), "orientation": {**_xyz(vector), "w": w}}
        return self._new(POSE, header=_header(stamp_ns, frame), pose=pose)

    def image(self, kind: str, picture: NDArray[np.uint8], stamp_ns: int) -> Any:
        """(H, W, 3) rgb as a raw Image, or as a CompressedImage without loss (PNG)."""
        import cv2

        header, (height, width) = _header(stamp_ns), picture.shape[:2]
        if kind == IMAGE:
            size = {"height": height, "width": width, "step": 3 * width}
            return self._new(IMAGE, header=header, encoding="rgb8", data=picture.reshape(-1), **size)
        done, data = cv2.imencode(".png", picture[..., ::-1])
        if not done:
            raise BadInput("picture", got=f"shape {picture.shape}", expected="(H, W, 3) uint8")
        return self._new(COMPRESSED, header=header, format="rgb8; png compressed bgr8", data=data.reshape(-1))


def _xyz(numbers: Sequence[float]) -> dict[str, float]:
    return dict(zip("xyz", numbers, strict=True))


def _time(ns: int) -> dict[str, int]:
    return {"sec": ns // 1_000_000_000, "nanosec": ns % 1_000_000_000}


def _header(stamp_ns: int, frame: str = "") -> dict[str, Any]:
    """A header; a stamp of 0 stands for none."""
    return {"stamp": _time(stamp_ns), "frame_id": frame}
