"""Write episodes as a LeRobotDataset v3.0, whole or not at all, images included.

After every `end` or `write` the data set on disk is complete and valid, for LeRobot too; a process that is
killed loses at most the episode at hand, and of that one `repair` saves what the journal and the growing videos in
``.running/`` hold: all steps but those of the last second. An episode that the disk has no room for stays there, too,
unless `discard` forgets it. `robolearn.data.writing.locked_dataset` describes how episodes are committed.

Images are encoded while the episode is recorded, so `end` has little left to do.

``meta/stats.json`` alone may lag by a tenth of the frames until `close`. When `end` or `write` returns the episode is
on the disk, names and all: a power cut spares it. One commit costs some ten milliseconds, most of them for the disk;
`write_all` stores many episodes for the price of one.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import ArraySpec, BadInput, Episode, Interface, RobolearnError
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import (
    FAILURE,
    INTERVENTION,
    camera_name,
    column,
    failure_number,
    image_keys,
    is_image,
    truths,
)  # fmt: skip
from robolearn.data.video.encoder import EpisodeVideo, VideoConfig, VideoEncoder
from robolearn.data.writing.locked_dataset import CheckedEpisode, LockedDataset
from robolearn.data.writing.steps import (
    ACTION,
    RecordedStep,
    StepJournal,
    bounded,
    checked,
    episode_of,
    picture,
    present,
    rate_note,
    stamps_of,
    texts_of,
    vector,
)

log = logging.getLogger(__name__)


class EpisodeWriter:
    """Write episodes of `interface` into the folder `path`.

        with EpisodeWriter("data/lift", env.interface) as writer:
            writer.add(observation, action, reward)      # each step: the observation before the action
            writer.end(success=True, terminated=True, task="lift the cube")

    Args:
      path: a folder that is new or empty, or with `resume` one that a writer of the same interface made.
      interface: what an observation and an action are.
      resume: continue an existing data set.
      stamps: names of the time stamps that every step brings.
      video: how images are stored.
      task: the task in words where `end` is not given it, and of an episode that `repair` saves.
      outcomes: False where success is not recorded: the set has no column for it then.
      failures: True where kinds of failure are recorded (`Episode.failure`).
      texts: names of `Episode.texts`, of whole episodes: steps have none.
      durable: False for a set that is worthless if this process dies, as one that is renamed when it is whole: nothing
        is synced then.
      real_time: True where steps are added as they happen. Each gets the stamp ``action``, the time of day [s], unless
        it brings one, and `end` refuses an episode whose steps came a fifth more slowly or faster than they will be
        played; a twentieth is logged, once. By default so where `stamps` name ``action``; False judges no rate.

    Raises:
      BadInput: `path` holds something else, another interface or other stamps, or has a writer at work; or
        images of this size cannot be encoded.
    """

    def __init__(
        self,
        path: str | Path,
        interface: Interface,
        *,
        resume: bool = False,
        stamps: Sequence[str] = (),
        video: VideoConfig | None = None,
        task: str = "",
        outcomes: bool = True,
        failures: bool = False,
        texts: Sequence[str] = (),
        durable: bool = True,
        real_time: bool | None = None,
    ) -> None:
        self.path = Path(path)
        self.interface = interface
        self._video = video or VideoConfig()
        self._task = task
        self._pictures = image_keys(interface)
        self._real_time = ACTION in stamps if real_time is None else real_time
        if self._real_time and ACTION not in stamps:
            stamps = (*stamps, ACTION)
        self.locked = LockedDataset(
            self.path, interface, resume=resume, stamps=stamps, video=self._video, outcomes=outcomes, failures=failures,
            texts=texts, durable=durable,
        )  # fmt: skip
        self._steps: list[RecordedStep] = []
        self.journal: StepJournal | None = None
        self.encoders: dict[str, VideoEncoder] = {}
        self._videos: dict[str, EpisodeVideo] = {}  # of an episode whose encoders have finished
        self._broken: RobolearnError | None = None  # why the episode at hand cannot be stored
        self._refused = False  # the disk has not taken all of the episode at hand
        self._slow = False  # it was logged that steps do not come at the rate of the set

    @property
    def episodes(self) -> int:
        """Number of episodes in the data set, those of earlier writers included."""
        return self.locked.episodes

    @property
    def frames(self) -> int:
        """Number of frames in the data set."""
        return self.locked.frames

    def add(
        self,
        observation: Mapping[str, ArrayLike],
        action: ArrayLike,
        reward: float = 0.0,
        *,
        intervention: bool = False,
        stamps: Mapping[str, float] | None = None,
    ) -> None:
        """One step: the observation *before* `action`, and the reward for it.

        Arrays have the shapes of the interface, with or without a leading axis of one world. Features that
        the interface does not name are ignored. Images are copied and encoded in the background; only where the
        encoder has fallen `VideoConfig.queue` frames behind does this wait for it.

        Args:
          intervention: a teleoperator overrode the policy.
          stamps: one time [s] for every name that the writer was made with.

        Raises:
          BadInput: a missing feature, a wrong shape, NaN or infinity, an action outside [-1, 1]; the step is
            not added then.
          RobolearnError: the disk is full; the data set is as it was, and `close` leaves the steps before this one
            to `repair`.
        """
        self._check_open()
        if self.locked.texts:
            raise BadInput(f"data set {self.path}", got="a step", expected="whole episodes (write): it has texts")
        number = len(self._steps)
        if self._real_time:
            stamps = {ACTION: time.time(), **(stamps or {})}
        row, images = {}, {}
        for key, spec in self.interface.observation.items():
            value = present(observation, key)
            if is_image(spec):
                images[key] = picture(np.asarray(value), spec, (), f"observation {key!r}", f" at step {number}")
            else:
                row[key] = vector(value, spec, (), f"observation {key!r}", number)
        executed = checked(np.asarray(action, np.float32), self.interface.action, (), "action", number)
        value = float(reward)
        if not np.isfinite(value):
            raise BadInput(f"reward at step {number}", got=value, expected="a finite number")
        times = stamps_of(stamps or {}, self.locked.stamps, (), number)
        step = RecordedStep(row, bounded(executed, number), value, self._intervention(intervention), times)
        self._record(step, images)

    def _record(self, step: RecordedStep, images: Mapping[str, NDArray[np.uint8]]) -> None:
        try:
            if self.journal is None:
                self._begin()
            assert self.journal is not None
            self.journal.append(step)
            for key, image in images.items():
                self.encoders[key].put(image.copy())
        except OSError as error:
            self._broken = RobolearnError(f"data set {self.path} cannot be written ({error.strerror})")
            self._refused = True
            raise self._broken from error
        except RobolearnError as error:
            self._broken, self._refused = error, True
            raise
        self._steps.append(step)

    def _begin(self) -> None:
        """The journal and the encoders of a new episode."""
        running = self.locked.running
        shutil.rmtree(running, ignore_errors=True)
        stamps = self.locked.stamps
        self.journal = StepJournal(running, self.interface, stamps, self._video, self.episodes, self._task)
        for key in self._pictures:
            name = camera_name(key)
            path, index = running / f"{name}.mp4", running / f"{name}.journal"
            self.encoders[key] = self._encoder(path, key, index)

    def _encoder(self, path: Path, key: str, index: Path | None = None) -> VideoEncoder:
        spec, hz = self.interface.observation[key], self.interface.control_hz
        return VideoEncoder(path, key, spec, hz, self._video, index=index)

    def end(
        self, *, success: bool, terminated: bool = False, truncated: bool = False, task: str = "",
        final: Mapping[str, ArrayLike] | None = None,
    ) -> int:  # fmt: skip
        """Store the steps added since the last `end`, durably; returns the episode's index.

        Args:
          success: whether the task was solved.
          terminated: the world ended the episode; `truncated`: the clock did.
          task: the task in words.
          final: the observation after the last action, where it is known.

        Raises:
          BadInput: a `final` that lacks a feature, or of another shape, or steps that did not come at the rate of the
            set, which `real_time` says; the steps are still there, and `discard` forgets them.
          RobolearnError: the disk is full; where the message has it the steps are still there, and `end` may be tried
            again. `close` leaves them to `repair`.
        """
        self._check_open()
        if not self._steps:
            raise BadInput("episode", got="no steps", expected="at least one before end()")
        last = self._checked_final(final or {}, len(self._steps))
        if self._real_time and (note := rate_note(self._steps, self.interface.control_hz, self.episodes)):
            log.log(logging.DEBUG if self._slow else logging.WARNING, "%s: %s", self.path, note)
            self._slow = True
        try:
            for key, encoder in self.encoders.items():
                if key not in self._videos:
                    self._videos[key] = encoder.finish()
        except RobolearnError as error:
            self._broken, self._refused = error, True
            raise
        episode = episode_of(
            self._steps, self.interface, success=success, terminated=terminated, truncated=truncated,
            task=task or self._task,
        )  # fmt: skip
        try:
            self.locked.commit([CheckedEpisode(replace(episode, final=last), dict(self._videos))])
        except (OSError, RobolearnError):
            self._refused = True
            raise
        self._forget()
        return self.episodes - 1

    def discard(self) -> None:
        """Forget the steps added since the last `end`."""
        self._forget()

    def _forget(self, *, keep: bool = False) -> None:
        """No episode at hand, and nothing of it on the disk, but with `keep` what `repair` needs of it."""
        for encoder in self.encoders.values():
            if keep:
                encoder.stop()
            else:
                encoder.abort()
        if self.journal is not None:
            self.journal.close()
        if not keep and not self.locked.closed:
            shutil.rmtree(self.locked.running, ignore_errors=True)
        self._steps, self.journal, self.encoders, self._videos = [], None, {}, {}
        self._broken, self._refused = None, False

    def write(self, episode: Episode) -> int:
        """Store a whole episode, durably; returns its index. Raises as `add` does."""
        self.write_all([episode])
        return self.episodes - 1

    def take(self, episode: Episode, videos: Mapping[str, EpisodeVideo]) -> int:
        """Store an episode whose images are finished mp4 files, one per camera, as they are; returns its index.

        The files stay where they are, or move into the set where the file system has no hard links.
        """
        if self._steps:
            raise BadInput("episode", got=f"{len(self._steps)} steps begun by add()", expected="end() or discard()")
        for key in self._pictures:
            got = videos[key].frames if key in videos else "no video"
            if got != len(episode):
                raise BadInput(f"observation {key!r}", got=got, expected=f"{len(episode)} frames")
        self.locked.commit([CheckedEpisode(self._checked_episode(episode, pictures=False), dict(videos))])
        return self.episodes - 1

    def write_all(self, episodes: Iterable[Episode]) -> None:
        """Store whole episodes in one commit: all of them or, if one is refused, none."""
        if self._steps:
            raise BadInput("episode", got=f"{len(self._steps)} steps begun by add()", expected="end() or discard()")
        checked = [CheckedEpisode(self._checked_episode(episode)) for episode in episodes]
        if not checked:
            return
        encoders: list[VideoEncoder] = []
        try:
            if self._pictures:
                self._check_open()
                checked = [
                    replace(one, videos=self._encode(one.episode, self.episodes + i, encoders))
                    for i, one in enumerate(checked)
                ]
            self.locked.commit(checked)
        finally:
            for encoder in encoders:
                encoder.abort()

    def _encode(self, episode: Episode, number: int, encoders: list[VideoEncoder]) -> dict[str, EpisodeVideo]:
        """The videos of a whole episode, where the commit will look for them."""
        own = {}
        for key in self._pictures:
            path = self.path / layout.video_path(column(key), number)
            own[key] = self._encoder(path.with_name(path.name + ".tmp"), key)
        encoders.extend(own.values())
        for t in range(len(episode)):
            for key, encoder in own.items():
                encoder.put(episode.observation[key][t])
        return {key: encoder.finish() for key, encoder in own.items()}

    def _checked_episode(self, episode: Episode, pictures: bool = True) -> Episode:
        length = (len(episode),)
        if not length[0]:
            raise BadInput("episode", got="no steps", expected="at least one")
        observation: dict[str, Any] = {}
        for key, spec in self.interface.observation.items():
            if is_image(spec) and not pictures:
                continue
            value = present(episode.observation, key)
            if is_image(spec):
                observation[key] = picture(np.asarray(value), spec, length, f"observation {key!r}")
            else:
                observation[key] = vector(value, spec, length, f"observation {key!r}", 0)
        action = checked(np.asarray(episode.action, np.float32), self.interface.action, length, "action", 0)
        reward = checked(np.asarray(episode.reward, np.float32), ArraySpec(()), length, "reward", 0)
        if len(episode.frame_tasks) not in (0, *length):
            raise BadInput("frame_tasks", got=f"{len(episode.frame_tasks)} tasks", expected=f"{length[0]}, or none")
        if failure_number(episode.failure) and FAILURE not in self.locked.features:
            hint, got = "Record into a new set", f"the failure {episode.failure}"
            raise BadInput(f"data set {self.path}", got=got, expected="a set that labels failures", hint=hint)
        intervention = episode.intervention
        if intervention is not None:
            intervention = truths(intervention, "intervention")
            if intervention.shape != length:
                raise BadInput("intervention", got=f"shape {intervention.shape}", expected=f"shape {length}")
            self._intervention(bool(intervention.any()))
        times, action = stamps_of(episode.stamps, self.locked.stamps, length, 0), bounded(action, 0)
        numbers = {"observation": observation, "action": action, "reward": reward}
        numbers["final"] = self._checked_final(episode.final, length[0])
        numbers["texts"] = texts_of(episode.texts, self.locked.texts, length[0])
        return replace(episode, **numbers, intervention=intervention, stamps=times)

    def _checked_final(self, final: Mapping[str, Any], steps: int) -> dict[str, NDArray]:
        """The observation after the last of so many steps, as it will be stored; empty where it is not known."""
        checked: dict[str, NDArray] = {}
        for key, spec in self.interface.observation.items() if final else ():
            value, what = np.asarray(present(final, key)), f"final observation {key!r}"
            checked[key] = picture(value, spec, (), what) if is_image(spec) else vector(value, spec, (), what, steps)
        return checked

    def _intervention(self, value: bool) -> bool:
        if value and INTERVENTION not in self.locked.features:
            hint = "An older version began it; record into a new set"
            raise BadInput(f"data set {self.path}", got="an intervention", expected="a set that can say so", hint=hint)
        return bool(value)

    def _check_open(self) -> None:
        if self.locked.closed:
            raise RobolearnError(f"data set {self.path}: the writer is closed")
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Let go of the data set. Steps without an `end` are forgotten; those that the disk refused stay for `repair`.
        Raises `RobolearnError`: the disk is full; only ``meta/stats.json`` is not up to date then."""
        keep = self._refused and bool(self._steps)
        if keep:
            what = "%s: the episode at hand is not stored; `robolearn dataset repair` saves it once there is room"
            log.warning(what, self.path)
        elif self._steps:
            log.warning("%s: %d steps without end() are not stored", self.path, len(self._steps))
        self._forget(keep=keep)
        self.locked.close()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RobolearnError as last:
            if error is None:
                raise
            log.warning("%s", last)  # it must not hide what went wrong first
