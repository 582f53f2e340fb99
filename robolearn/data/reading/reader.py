"""Read a LeRobotDataset v3.0 into contiguous arrays, and refuse one that does not add up.

Sets that LeRobot itself wrote are read too: without our interface one is derived from their features. Vectors are
read when the set is opened; images on first access, from the frame cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.core.specs import PREDICTED_ACTIONS, PROMPT, is_goal, of_goal
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import (
    FAILURE,
    IMAGES,
    INTERVENTION,
    SUCCESS,
    action_feature,
    camera_name,
    column,
    failure_kind,
    interface_of,
    names_of,
    stamp_name,
)
from robolearn.data.lerobot.layout import check_version
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.lerobot.statistics import Stats, describe_many
from robolearn.data.lerobot.tables import final_content, has_final, numbered_tasks, read_final, tasks_of
from robolearn.data.lerobot.texts import Texts
from robolearn.data.reading.cache import LazyObservation, OnDemand, Progress, cache_folder, cached_frames, place_of
from robolearn.data.reading.loading import (
    check_frames,
    episodes_of,
    frames_of,
    read_weights,
    readers_of,
    stats_of,
    vectors,
)
from robolearn.data.video.readers import FrameReader
from robolearn.io.hashes import sha256
from robolearn.io.paths import no_such_folder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dataset:
    """E episodes of N frames in all: vectors in memory, images through the frame cache.

    Attributes:
      path: the folder, or its address on a server.
      info: ``meta/info.json``.
      interface: what an observation and an action are.
      tasks: the tasks in words, by task index.
      stats: ``meta/stats.json``, or computed where that is missing or was not brought up to date by a writer
        that was killed: feature → statistic → (D,). Quantiles of pictures, and of a set whose writer was killed, are
        bounds and q50 is a mean (`lerobot.statistics.aggregate`); `statistics` has the exact ones, of vectors.
      lengths: (E,) steps per episode; `starts` (E,) their first frames.
      observation: feature → (N, …) as it is stored, float32 or a kind that has more digits, vectors only; for
        pictures see `images`.
      action: (N, Da) float32; reward: (N,) float32.
      task_index: (N,) int64.
      success, terminated, truncated: (E,) bool. Where a set does not record it, an episode is not a success, and
        has been truncated.
      intervention: (N,) bool, true where a teleoperator overrode the policy.
      failure: of each of the E episodes the kind of failure (`features.FAILURES`), empty where none is recorded.
      stamps: name → (N,) float64 [s], when a value was measured or sent.
      readers: picture feature → where its frames lie.
      cache: the folder of the frame cache, or None where images are decoded on demand.
    """

    path: Path | RemotePath
    info: Mapping[str, Any]
    interface: Interface
    tasks: list[str]
    stats: dict[str, Stats]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    observation: dict[str, NDArray]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    task_index: NDArray[np.int64]
    success: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    intervention: NDArray[np.bool_]
    failure: tuple[str, ...] = ()
    stamps: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    readers: dict[str, FrameReader] = field(default_factory=dict)
    cache: Path | None = None
    _frames: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _rows: pa.Table | None = field(default=None, repr=False, compare=False)  # of meta/episodes

    @staticmethod
    def open(
        path: str | Path, *, images: bool = True, cache: str | Path | bool | None = None,
        acting: Interface | None = None,
    ) -> Dataset:  # fmt: skip
        """Read and check the data set in the folder `path`, or at the address ``http(s)://…`` (see `remote`).

        Args:
          images: False leaves the pictures out, of the interface too.
          cache: where decoded frames are kept: see `robolearn.data.reading.cache.cache_folder`. No image is decoded
            before the first access.
          acting: of a set that may have no actions: what an action is, where it has none. They are NaN then.

        Raises:
          BadInput: not a data set, no episodes, a missing or corrupt file, counts that do not add up, or a
            number that is not finite; the message names the file, or the episode and the frame.
        """
        root = place_of(path, cache)
        what = f"data set {root}"
        if isinstance(root, Path) and not root.is_dir():
            raise BadInput(f"{what}: {no_such_folder(root)}", hint=layout.A_SET)
        info = layout.read_info(root)
        if isinstance(root, RemotePath):
            root.check_ranges(layout.INFO_PATH)
        check_version(info, what)
        acted = acting is None or "action" in info["features"]
        if acting is not None and not acted:
            info = {**info, "features": {**info["features"], "action": action_feature(acting)}}
        interface = interface_of(info, what=what)
        if (mark := interface.extra.get(PREDICTED_ACTIONS)) is not None:
            log.warning("%s: its actions are predicted, not executed: %s", what, mark)
        if not images:
            interface = replace(interface, observation=vectors(interface))
        if not info["total_episodes"]:
            raise BadInput(what, got="no episodes", expected="at least one")
        episodes = episodes_of(root, info, interface)
        frames = frames_of(root, info, episodes, interface, acted)

        lengths = episodes["length"].to_numpy().astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        names = names_of(info)
        numbers = [*(names[key] for key in vectors(interface)), *["action"] * acted]
        check_frames(root, frames, lengths, starts, numbers, float(info["fps"]))
        spoken, words = layout.read_parquet(root, layout.TASKS_PATH), f"{what}: {layout.TASKS_PATH}"
        tasks, known = tasks_of(spoken, what=words), numbered_tasks(spoken, what=words)
        task_index = frames["task_index"]
        if unknown := [index for index in np.unique(task_index).tolist() if index not in known]:
            hint = "`robolearn dataset import --task WORDS` gives all episodes one"
            raise BadInput(f"{what}: task_index", got=unknown[0], available=known, hint=hint)

        def flagged(name: str, otherwise: NDArray[np.bool_]) -> NDArray[np.bool_]:
            return np.logical_or.reduceat(frames[name], starts) if name in frames else otherwise

        terminated = flagged("next.terminated", np.zeros(len(lengths), bool))
        folder = cache_folder(root, cache)
        return Dataset(
            path=root,
            info=info,
            interface=interface,
            tasks=tasks,
            stats=stats_of(root, numbers, frames),
            lengths=lengths,
            starts=starts,
            observation={key: frames[names[key]] for key in vectors(interface)},
            action=frames["action"] if acted else np.full((len(task_index), interface.action.size), np.nan, np.float32),
            reward=frames.get("next.reward", np.zeros(len(task_index), np.float32)),
            task_index=task_index,
            success=flagged(SUCCESS, np.zeros(len(lengths), bool)),
            terminated=terminated,
            truncated=flagged("next.truncated", ~terminated),
            intervention=frames.get(INTERVENTION, np.zeros(len(task_index), bool)),
            failure=_failures(frames.get(FAILURE), starts),
            stamps={stamp: times for name, times in frames.items() if (stamp := stamp_name(name)) is not None},
            readers=readers_of(root, info, episodes, interface, folder),
            cache=folder,
            _rows=episodes,
        )

    def seeing(self, features: Sequence[str] = ()) -> Dataset:
        """This set with some of its observation features only, by default without what is privileged where it has
        pictures: see `robolearn.core.Interface.seeing`. Raises `BadInput`: a feature that it has not."""
        interface = self.interface.seeing(features, what=f"data set {self.path}")
        return self._holding(interface, interface.observation)

    def _holding(self, interface: Interface, kept: Collection[str]) -> Dataset:
        observation = {key: array for key, array in self.observation.items() if key in kept}
        readers = {key: reader for key, reader in self.readers.items() if key in kept}
        return replace(self, interface=interface, observation=observation, readers=readers)

    def aiming(self, goals: Sequence[str], features: Sequence[str] = ()) -> Dataset:
        """This set as `seeing` makes it of `features`, and with `goals`: features whose later values are goals.

        What goals are of is there too, though the interface may not have it; goals themselves are taken from it when
        windows are gathered (`robolearn.data.windows`). Raises `BadInput`: a feature that it has not.
        """
        seen, aimed = self.seeing(features), self.interface.aiming(goals, what=f"data set {self.path}").observation
        needed = {of_goal(key) for key in aimed if is_goal(key)} | seen.interface.observation.keys()
        goal = {key: spec for key, spec in aimed.items() if is_goal(key)}
        interface = replace(seen.interface, observation={**seen.interface.observation, **goal})
        return self._holding(interface, needed)

    def with_words(self, embed: Callable[[Sequence[str]], NDArray[np.float32]]) -> Dataset:
        """This set with the sentence of each frame's task as the observation feature `PROMPT`.

        The sentences and their vectors stand in the interface's ``extra["words"]``, so that a policy has them with it.
        `embed`: n sentences → (n, D). Raises `BadInput`: frames whose task has no words.
        """
        wordless = ~np.array([bool(task.strip()) for task in self.tasks])[self.task_index]
        if wordless.any():
            hint = "robolearn dataset edit rename-task gives it some"
            got = f"a task without words in {wordless.sum()} of {len(wordless)} frames"
            raise BadInput(f"data set {self.path}: {PROMPT}", got=got, expected="a sentence", hint=hint)
        table = embed(self.tasks)
        words = {task: vector.tolist() for task, vector in zip(self.tasks, table, strict=True)}
        interface = replace(
            self.interface,
            observation={**self.interface.observation, PROMPT: ArraySpec(table.shape[1:])},
            extra={**self.interface.extra, "words": words},
        )
        return replace(self, interface=interface, observation={**self.observation, PROMPT: table[self.task_index]})

    def noting(self, extra: Mapping[str, Any]) -> Dataset:
        """This set whose interface has `extra`, too, e.g. the sentences of sets that are learned from beside it."""
        return replace(self, interface=replace(self.interface, extra={**self.interface.extra, **extra}))

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """LeRobot's feature dictionary."""
        return self.info["features"]

    @cached_property
    def texts(self) -> Texts:
        """The features of text, which no observation has."""
        assert self._rows is not None
        return Texts(self.path, self.info, self._rows)

    @property
    def outcomes(self) -> bool:
        """True where the set records which episodes succeeded."""
        return SUCCESS in self.features

    @property
    def labels_failures(self) -> bool:
        """True where the set records kinds of failure."""
        return FAILURE in self.features

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.action)

    @property
    def cameras(self) -> list[str]:
        """The names of the cameras."""
        return [camera_name(key) for key in self.readers]

    def __len__(self) -> int:
        return self.episodes

    @property
    def weights(self) -> list[float] | None:
        """(E,) how often a frame of each episode is to be drawn relative to others; None where the set has no weights.
        Raises `BadInput`: the file does not fit; the set may have grown since it was made."""
        return read_weights(self.path, self.episodes)

    def images(self, camera: str, progress: Progress | None = None) -> Any:
        """All frames of `camera` (or picture feature) as (N, H, W, 3) uint8, in memory.

        The first call decodes what the frame cache does not have; `progress` is called with (frames done, in all).
        Where the cache is off, or memory has no room for all of them, the result only looks like an array, and decodes
        on every access: `cache.OnDemand`.

        Raises:
          BadInput: no such camera, or a video that is damaged or short.
          RobolearnError: no room for the cache.
        """
        key = camera if camera in self.readers else IMAGES + camera
        if key not in self.readers:
            raise BadInput(f"camera of {self.path}", got=camera, available=self.cameras, expected="one it has")
        if key not in self._frames:
            reader = self.readers[key]
            self._frames[key] = OnDemand(reader) if self.cache is None else cached_frames(reader, self.cache, progress)
        return self._frames[key]

    def build_cache(self, progress: Progress | None = None) -> None:
        """Decode the images of all cameras now; `progress` is called with (frames done, in all) over all of them."""
        total = self.frames * len(self.readers)
        for done, key in enumerate(self.readers):

            def report(count: int, _: int, done: int = done) -> None:
                if progress is not None:
                    progress(done * self.frames + count, total)

            self.images(key, report)

    def content(self, frames: str = "") -> str:
        """A digest of all that is learned from: `frames`, rewards, outcomes and ends, tasks in words, interventions,
        and the observations after the last actions. `frames`: `frames_content`, where it is known."""
        words = (text.encode() + b"\0" for text in (*self.tasks, *self.failure))
        ends = (self.success, self.terminated, self.truncated)
        finals = (final_content(self.path, e) for e in range(self.episodes))
        rest = (self.reward, *ends, self.task_index, self.intervention, *words, *finals)
        return sha256(frames or self.frames_content(), *rest)

    def frames_content(self) -> str:
        """A digest of all vectors, where episodes begin and end, and what images are decoded from: that by which stored
        scores belong to a set. Runs of earlier versions have no other."""
        vectors = (self.observation[key] for key in sorted(self.observation))
        images = (self.readers[key].identity(e) for key in sorted(self.readers) for e in range(self.episodes))
        return sha256(self.action, self.lengths, *vectors, *images)

    def episode(self, index: int) -> Episode:
        """Episode `index`; its arrays are views of the data set's. Images are decoded when they are looked at."""
        self.check_episodes([index])
        start = int(self.starts[index])
        rows = slice(start, start + int(self.lengths[index]))
        observation: Mapping[str, NDArray] = {key: array[rows] for key, array in self.observation.items()}
        if self.readers:
            made = {key: self._maker(key, index, rows) for key in self.readers}
            observation = LazyObservation(observation, made)
        tasks = [self.tasks[index] for index in self.task_index[rows]]
        ends = bool(self.success[index]), bool(self.terminated[index]), bool(self.truncated[index])
        stamps = {name: times[rows] for name, times in self.stamps.items()}
        rest = (tasks[0], self.intervention[rows], stamps, tuple(tasks) if len(set(tasks)) > 1 else ())
        failure = self.failure[index] if self.failure else ""
        texts = {name: partial(self.texts.strings, name, index) for name in self.texts.names}
        final = self.final(index, observation, self.readers)
        words = LazyObservation({}, texts)
        return Episode(observation, self.action[rows], self.reward[rows], *ends, *rest, failure, final, words)

    def has_final(self, index: int) -> bool:
        """True where the observation after the last action of episode `index` is stored."""
        return has_final(self.path, index)

    def final(self, index: int, steps: Mapping[str, NDArray], images: Iterable[str]) -> Mapping[str, NDArray]:
        """The observation after the last action of episode `index`, read when it is looked at; empty without one.
        Features that are no part of the set, as its words, are those of the last of `steps`; `images` are its cameras,
        which may be those of a set that was opened without them."""
        root = self.path
        if not isinstance(root, Path) or not self.has_final(index):
            return {}
        shapes = {key: array.shape[1:] for key, array in self.observation.items() if column(key) in self.features}
        shapes |= {key: tuple(self.features[column(key)]["shape"]) for key in images}
        read = partial(read_final, root, index, int(self.lengths[index]))
        made = {key: lambda key=key: read({key: shapes[key]})[key] for key in shapes}
        return LazyObservation({key: steps[key][-1] for key in steps if key not in shapes}, made)

    def _maker(self, key: str, episode: int, rows: slice) -> Callable[[], NDArray]:
        frames = self._frames.get(key)
        if isinstance(frames, np.ndarray):
            return lambda: frames[rows]
        return lambda: self.readers[key].decode(episode)

    def check_episodes(self, episodes: Sequence[int]) -> list[int]:
        """`episodes` as a list; raises `BadInput` where the set has not all of them."""
        for index in episodes:
            if not 0 <= index < self.episodes:
                raise BadInput(f"episode of {self.path}", got=index, expected=f"0 to {self.episodes - 1}")
        return [int(index) for index in episodes]

    def frames_of(self, episodes: Sequence[int] | None = None) -> NDArray[np.int64]:
        """The frame numbers of `episodes` (default all), in order."""
        if episodes is None:
            return np.arange(self.frames)
        chosen = self.check_episodes(episodes)
        ranges = [np.arange(self.starts[e], self.starts[e] + self.lengths[e]) for e in chosen]
        return np.concatenate(ranges) if ranges else np.zeros(0, np.int64)

    def statistics(self, episodes: Sequence[int] | None = None) -> dict[str, Stats]:
        """Exact statistics over the frames of `episodes` (default all): observation key or ``action`` → stats.

        They have the shapes of the features, ``count`` apart.
        """
        rows = self.frames_of(episodes)
        arrays = {**{key: a[rows] for key, a in self.observation.items()}, "action": self.action[rows]}
        shapes = {key: array.shape[1:] for key, array in arrays.items()}
        return {
            key: {name: value if name == "count" else value.reshape(shapes[key]) for name, value in stats.items()}
            for key, stats in describe_many(arrays).items()
        }


def _failures(numbers: NDArray[np.int64] | None, starts: NDArray[np.int64]) -> tuple[str, ...]:
    """The kind of each episode, from its first frame."""
    return ("",) * len(starts) if numbers is None else tuple(failure_kind(int(n)) for n in numbers[starts])
