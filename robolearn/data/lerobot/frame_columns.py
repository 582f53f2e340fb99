"""The frames of an episode as the columns of its table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Episode, Interface
from robolearn.data.lerobot.features import INTERVENTION, column, image_keys, stamp_column


def frame_columns(
    episode: Episode, interface: Interface, stamps: Sequence[str], index: int, first: int, tasks: Sequence[str]
) -> dict[str, NDArray]:
    """Column → (T, D) or (T,), images apart.

    Args:
      stamps: the names of the raw timestamps.
      index: of the episode.
      first: of its first frame, counted over the data set.
      tasks: all tasks of the data set, by index, its own among them.
    """
    length = len(episode)
    place = {task: index for index, task in enumerate(tasks)}
    frame = np.arange(length, dtype=np.int64)
    last = frame == length - 1
    pictures = set(image_keys(interface))
    vectors = {key: array for key, array in episode.observation.items() if key not in pictures}
    intervention = np.zeros(length, bool) if episode.intervention is None else episode.intervention
    return {
        **{column(key): array.reshape(length, -1) for key, array in vectors.items()},
        "action": episode.action.reshape(length, -1),
        "next.reward": episode.reward,
        "next.done": last & bool(episode.terminated or episode.truncated),
        "next.terminated": last & bool(episode.terminated),
        "next.truncated": last & bool(episode.truncated),
        "next.success": last & bool(episode.success),
        INTERVENTION: intervention,
        **{stamp_column(name): episode.stamps[name] for name in stamps},
        "timestamp": (frame / interface.control_hz).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.full(length, index, np.int64),
        "index": first + frame,
        "task_index": np.array([place[task] for task in episode.frame_tasks or (episode.task,) * length], np.int64),
    }
