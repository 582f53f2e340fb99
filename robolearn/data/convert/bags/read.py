"""A bag → the episodes of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Episode
from robolearn.data.convert.bags.recording import EPISODE_EVENTS, Bag, Span, spans_of
from robolearn.data.convert.bags.series import (
    Times,
    TopicData,
    TopicSeries,
    check_age,
    grid,
    newest,
    newest_before,
    pose_of,
    read_topics,
)
from robolearn.data.convert.for_arm import led
from robolearn.data.convert.options import SKIPS, Account, ReadOptions, sound
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robolearn.data.lerobot.features import FRAME
from robots import make_control
from robots.ik import solve
from robots.spec import proprio
from robots.stations import POSE, Contract, Topic
from robots.stations.pictures import picture

COMMANDED = ("command", "gripper")  # roles of what is said to the arm; the others are measured


def read_bag(path: str | Path, station: Contract, options: ReadOptions = ReadOptions()) -> EpisodeSource:  # noqa: B008
    """The episodes of the bag at `path`.

    Args:
      station: what its topics mean.

    Raises:
      BadInput: a missing topic or one of another type, a gap longer than its `max_age_s`, a malformed message, a
        damaged file, or no episode; the topic, the episode and the frame are named.
    """
    recording, account, success = Bag(path), Account(), options.success
    topics = read_topics(station, recording, account)
    spans = _spans(topics, account)
    outcomes = success is not None or all(span.success is not None and span.ending.known for span in spans)
    if not outcomes:
        account.left_out.append("outcomes: the bag does not say how its episodes ended, so the set does not; "
                                "--outcome says it")  # fmt: skip
    chosen = range(len(spans)) if options.episodes is None else options.episodes(len(spans))
    if len(chosen) < len(spans):
        account.left_out.append(f"{len(spans) - len(chosen)} of {len(spans)} episodes, which --episodes does not name")
    parts = []
    for number, part in sound(lambda n: _frames(n, spans[n], topics), chosen, account.left_out, options):
        if part is None:
            account.left_out.append(f"episode {number} of the bag, which is shorter than a step")
        else:
            parts.append(part)
    if not parts:
        raise BadInput(f"bag {recording.path}", got="no episode of a step or more", expected="at least one")
    if topics.events is None:
        account.left_out += _unheard(parts[0], topics)
    actions, off = _actions(parts, topics)
    if off.any():
        share = f"{off.mean():.0%}" if off.mean() >= 0.01 else f"{int(off.sum())} frames"
        kind = station.interface.action_kind
        account.changed.append(f"{share} of the commands go where no {kind} action leads; the nearest is stored")
    for role, channel in station.topics.items():
        stamps = topics.series[role].stamps
        age, said = alignment(stamps, parts, role), f"{len(stamps)} messages"
        if age:
            account.age_s[role] = age
            p50, p99, worst = (f"{1e3 * age[name]:.0f} ms" for name in ("p50", "p99", "worst"))
            end = "the end of " * (role in COMMANDED)
            said += f", age at {end}a frame: p50 {p50}, p99 {p99}, at most {worst}"
        account.became(role, [channel.topic], said)
    stamps = (FRAME, *topics.sources)
    drafts = (_draft(part, action, topics, options.task, success) for part, action in zip(parts, actions, strict=True))
    return EpisodeSource(station.interface, drafts, len(parts), stamps, account, outcomes, skips=options.skip_bad)


@dataclass(frozen=True, eq=False)
class _Part:
    """One episode: begins and ends of its T frames [ns], and each role's message in each of them (−1: none yet)."""

    number: int
    span: Span
    times: Times
    ends: Times
    chosen: dict[str, NDArray[np.int64]]


def _spans(topics: TopicData, account: Account) -> list[Span]:
    recording = topics.recording
    where = f"bag {recording.path}: {EPISODE_EVENTS}"
    if topics.events is None:
        end = min(int(series.stamps[-1]) for role, series in topics.series.items() if role != "gripper")
        return [Span(recording.begin_ns, end, None)]
    spans, unfinished = spans_of(topics.events, where, recording.begin_ns)
    if unfinished:
        account.left_out.append(f"{unfinished} episode{'s' * (unfinished > 1)}, begun and never ended")
    if not spans:
        raise BadInput(where, got="no finished episode", expected="'start', then 'success' or 'failure'")
    return spans


def _unheard(part: _Part, topics: TopicData) -> list[str]:
    """Lines on the begin and the end of a bag without events where the only `part` has no frames, by topic."""
    recording, lines = topics.recording, []
    step_ns = 1e9 / topics.station.interface.control_hz
    first = {role: int(series.stamps[0]) for role, series in topics.series.items() if role != "gripper"}
    last = {role: int(series.stamps[-1]) for role, series in topics.series.items() if role != "gripper"}
    head, tail = part.times[0] - recording.begin_ns, recording.end_ns - part.ends[-1]
    late, early = max(first, key=first.__getitem__), min(last, key=last.__getitem__)
    if head > 2 * step_ns:
        lines.append(
            f"the first {1e-9 * head:.2f} s of the bag, until the first message of {topics.station.topics[late].topic}"
        )
    if tail > 2 * step_ns:
        lines.append(
            f"the last {1e-9 * tail:.2f} s of the bag, after the last message of {topics.station.topics[early].topic}"
        )
    return lines


def _frames(number: int, span: Span, topics: TopicData) -> _Part | None:
    station, recording, hz = topics.station, topics.recording, topics.station.interface.control_hz
    seen = {role: series for role, series in topics.series.items() if role not in COMMANDED}
    begin = span.begin_ns
    # A recording that begins with the episode, or without events, waits until everything has been heard once.
    first = max(int(series.stamps[0]) for series in seen.values())
    if begin < first <= span.end_ns and (span.success is None or first - begin < 1e9 / hz):
        begin = first
    times = grid(begin, span.end_ns, hz)
    if span.ending.frames_ns:
        times = span.begin_ns + np.array(span.ending.frames_ns, np.int64)
    if span.success is None:
        # Before the first command there is nothing to imitate yet.
        times = times[times + round(1e9 / hz) > topics.series["command"].stamps[0]]
    if not len(times):
        return None
    _check_forwards(
        topics.back, span.end_ns, begin, f"bag {recording.path}: time of recording: episode {number}", recording
    )
    chosen: dict[str, NDArray[np.int64]] = {}
    after = np.append(times[1:], times[-1] + round(1e9 / hz))
    for role, series in topics.series.items():
        channel: Topic = station.topics[role]
        where = f"bag {recording.path}: {channel.topic}: episode {number}"
        _check_forwards(series.back, span.end_ns, begin, where, recording)
        if role not in COMMANDED:
            chosen[role] = newest(series.stamps, times)
            check_age(series.stamps, chosen[role], times, channel.max_age_s, where, recording.begin_ns)
        else:
            chosen[role] = newest_before(series.stamps, after)
            if role == "command":  # a gripper keeps its last command; drivers repeat it rarely or never
                longest = max(channel.max_age_s, 1.0 / hz)
                check_age(series.stamps, chosen[role], after, longest, where, recording.begin_ns)
    return _Part(number, span, times, after, chosen)


def _check_forwards(back: Sequence[tuple[int, int]], end_ns: int, begin_ns: int, where: str, recording: Bag) -> None:
    """Raise `BadInput` where a clock went `back` within an episode, to the time of messages that were there already."""
    for earliest, latest in back:
        if earliest <= end_ns and latest >= begin_ns:
            at, by = 1e-9 * (earliest - recording.begin_ns), 1e-9 * (latest - earliest)
            got = f"a clock that steps back by {by:.3f} s, to {at:.3f} s into the bag"
            raise BadInput(where, got=got, expected="one that goes forwards", hint=SKIPS)


def alignment(stamps: Times, parts: list[_Part], role: str) -> dict[str, float]:
    """Age [s] of the message of `role`, which has these `stamps` (n,) [ns], in the frames of all `parts`; empty where
    no frame has one. A measurement is as old as it is when its frame begins, a command when it ends."""
    ages = []
    for part in parts:
        given = part.chosen[role] >= 0
        at = part.ends if role in COMMANDED else part.times
        ages.append((at - stamps[np.maximum(part.chosen[role], 0)])[given])
    age = 1e-9 * np.concatenate(ages)
    if not len(age):
        return {}
    p50, p99 = np.percentile(age, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "worst": float(age.max())}


def _actions(parts: list[_Part], topics: TopicData) -> tuple[list[NDArray[np.float32]], NDArray[np.bool_]]:
    """The actions (T, Da) of each part, and (N,) whether a command was out of their reach."""
    station = topics.station
    control = make_control(station.interface.action_kind, station.robot, station.control_hz)
    actions, off = [], []
    for part in parts:
        q, width = _measured(part, topics)
        commands = topics.series["command"].values[part.chosen["command"]]
        if station.command.type == POSE:
            commands = solve(station.robot.chain, q, *pose_of(commands), rest=np.asarray(station.robot.home))
        if station.gripper_in_command:  # the jaw's position is the last number
            width = np.array([station.gripper_width(row[len(station.joints) :].tolist()) for row in commands])
            commands = commands[:, : len(station.joints)]
        if station.gripper is not None:
            given = part.chosen["gripper"]
            width = np.where(given >= 0, topics.series["gripper"].values[np.maximum(given, 0), 0], width)
        found, missed = led(control, q, commands, width)
        actions.append(found)
        off.append(missed)
    return actions, np.concatenate(off)


def _measured(part: _Part, topics: TopicData) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(T, n) joint positions [rad] and (T,) openings [m], each as it was last heard."""
    rows = topics.series["joint_states"].values[part.chosen["joint_states"]]
    width = rows[:, -1]
    if "gripper_states" in topics.series:
        width = topics.series["gripper_states"].values[part.chosen["gripper_states"], 0]
    return np.ascontiguousarray(rows[:, :-1]), width


_ROLE = {"proprio": "joint_states", "action": "command"}


def _draft(
    part: _Part, action: NDArray[np.float32], topics: TopicData, task: str, success: bool | None
) -> EpisodeDraft:
    station, recording, length = topics.station, topics.recording, len(part.times)

    def rows(role: str) -> Any:
        return topics.series[role].values[part.chosen[role]]

    q, width = _measured(part, topics)
    observation: dict[str, NDArray] = {"proprio": proprio(q, width, *station.robot.chain.forward(q))}
    if "objects" in station.interface.observation:
        observation["objects"] = rows("objects").astype(np.float32)
    if station.contact is not None:
        observation[station.contact.feature] = rows(station.contact.feature).astype(np.float32)
    stamps = {FRAME: part.times / 1e9}
    for name in topics.sources:
        role = _ROLE.get(name, name)
        chosen, series = part.chosen[role], topics.series[role]
        # 0 where the gripper has not been commanded yet.
        stamps[name] = np.where(chosen >= 0, series.stamps[np.maximum(chosen, 0)] / 1e9, 0.0)
    images = {
        key: cast(Any, BagImages(recording, station, key, topics.series[key], part.chosen[key]))
        for key in station.interface.observation
        if key.startswith("images.")
    }
    ended, ending = part.span.success is not None, part.span.ending
    succeeded = bool(part.span.success if ended and ending.known else success)
    where = f"bag {recording.path}: episode {part.number}"
    rewards = ((length - 1, float(succeeded)),) if ending.rewards is None else ending.rewards
    reward = np.zeros(length, np.float32)
    reward[_within([frame for frame, _ in rewards], length, f"{where}: rewards")] = [value for _, value in rewards]
    intervention = np.zeros(length, bool)
    intervention[_within(ending.interventions, length, f"{where}: interventions")] = True
    ends = (succeeded, ending.terminated, ending.truncated) if ended else (succeeded, succeeded, not succeeded)
    episode = Episode(observation, action, reward, *ends, task or part.span.task, intervention, stamps)
    return EpisodeDraft(episode, images, where)


def _within(frames: Sequence[int], length: int, where: str) -> NDArray[np.int64]:
    if frames and frames[-1] >= length:
        raise BadInput(where, got=f"frame {frames[-1]}", expected=f"0 to {length - 1}")
    return np.array(frames, np.int64)


class BagImages:
    """The images of one camera in one episode, decoded one after the other while they are asked for."""

    def __init__(
        self, recording: Bag, station: Contract, key: str, series: TopicSeries, chosen: NDArray[np.int64]
    ) -> None:
        self._recording = recording
        self._channel = station.topics[key]
        self._camera = station.cameras[key.removeprefix("images.")]
        self._stamps = series.stamps[chosen]
        logged = series.logged[chosen]
        self._begin, self._end = int(logged.min()), int(logged.max()) + 1

    def __len__(self) -> int:
        return len(self._stamps)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        wanted = set(self._stamps.tolist())
        decoded: dict[int, NDArray[np.uint8]] = {}
        frame = 0
        for message in self._recording.messages([self._channel.topic], self._begin, self._end):
            stamp = message.stamp_ns
            if stamp not in wanted or stamp in decoded:
                continue
            try:
                decoded[stamp] = picture(message.content, self._camera)
            except BadInput as error:
                at = f"{1e-9 * (message.logged_ns - self._recording.begin_ns):.3f} s"
                raise BadInput(f"bag {self._recording.path}: {self._channel.topic} at {at}: {error}") from None
            while frame < len(self._stamps) and int(self._stamps[frame]) in decoded:
                yield decoded[int(self._stamps[frame])]
                frame += 1
            needed = int(self._stamps[frame - 1]) if frame else 0
            decoded = {kept: image for kept, image in decoded.items() if kept >= needed}
