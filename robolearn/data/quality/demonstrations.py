"""The input of the measures: the frames of a set as plain arrays, with the columns that have a meaning picked out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot import columns
from robolearn.data.reading.reader import Dataset
from robots import ROBOTS

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """E episodes of N frames in all, one after the other.

    Attributes:
      state: (N, D) the observed vectors side by side, in their own units.
      action: (N, Da) in [-1, 1].
      body: (N, M) what moves of the arm: its joints [rad] and its gripper [m] where they are named.
      lengths: (E,) frames of each episode, at least 1.
      control_hz: frames per second.
      path: (N, 2 or 3 …) positions whose smoothness is judged: of the tcp [m], or of the joints [rad].
      limits: (2, n) lower and upper joint limits [rad] of the first n columns of `body`, or None.
      reward: (N,) or None where none was recorded.
      success: (E,) or None where it was not recorded.
      stamps: source → (N,) the raw stamps [s] of what was observed.
    """

    state: Array
    action: Array
    body: Array
    lengths: NDArray[np.int64]
    control_hz: float
    path: Array
    limits: Array | None = None
    reward: Array | None = None
    success: NDArray[np.bool_] | None = None
    stamps: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = int(self.lengths.sum())
        for name in ("state", "action", "body", "path"):
            found = getattr(self, name)
            if found.ndim != 2 or len(found) != total:
                raise BadInput(f"demonstrations: {name}", got=f"shape {found.shape}", expected=f"{total} frames")

    @property
    def episodes(self) -> int:
        """E."""
        return len(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """(E,) the first frame of each episode."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def episode(self) -> NDArray[np.int64]:
        """(N,) the episode of each frame."""
        return np.repeat(np.arange(self.episodes), self.lengths)

    def frames(self, e: int) -> slice:
        """The frames of episode `e`."""
        return slice(int(self.starts[e]), int(self.starts[e] + self.lengths[e]))

    def mean(self, values: NDArray) -> Array:
        """(E,) mean over each episode of (N,) `values`, of its finite ones; NaN where there is none."""
        finite = np.isfinite(values)
        total = np.add.reduceat(np.where(finite, values, 0.0), self.starts)
        count = np.add.reduceat(finite.astype(np.float64), self.starts)
        return np.divide(total, count, out=np.full(self.episodes, np.nan), where=count > 0)

    @staticmethod
    def of(dataset: Dataset) -> Demonstrations:
        """The frames of `dataset`; pictures are left out. Raises `BadInput`: the set has no observed vector."""
        vectors = {
            key: np.asarray(array, np.float64).reshape(len(array), -1)
            for key, array in dataset.observation.items()
            if not key.startswith("images.")
        }
        if not vectors:
            raise BadInput(f"data set {dataset.path}", got="no observed vector", expected="one beside the pictures")
        proprio = vectors.get("proprio", next(iter(vectors.values())))
        spec = dataset.interface.observation.get("proprio")
        column = {name: i for i, name in enumerate(spec.names if spec else ())}
        robot = ROBOTS.get(dataset.interface.embodiment)
        body, limits = proprio, None
        if robot is not None and all(joint in column for joint in robot.joints):
            moving = [column[joint] for joint in robot.joints]
            moving += [column["gripper_width"]] if "gripper_width" in column else []
            body, limits = proprio[:, moving], np.stack([robot.lower, robot.upper])
        tcp = [column[f"tcp_{axis}"] for axis in "xyz" if f"tcp_{axis}" in column]
        features = dataset.info.get("features", {})
        return Demonstrations(
            state=np.concatenate(list(vectors.values()), axis=1),
            action=np.asarray(dataset.action, np.float64).reshape(len(dataset.action), -1),
            body=body,
            lengths=np.asarray(dataset.lengths, np.int64),
            control_hz=dataset.interface.control_hz,
            path=proprio[:, tcp] if len(tcp) == 3 else body,
            limits=limits,
            reward=np.asarray(dataset.reward, np.float64) if "next.reward" in features else None,
            success=dataset.success if dataset.outcomes else None,
            # A device or a gripper need not have a new message in every frame; what is observed must.
            stamps={
                name: stamp
                for name, stamp in dataset.stamps.items()
                if name in dataset.interface.observation or name.startswith("images.")
            },
        )


def scaled(values: Array, floor: float = 1e-6) -> Array:
    """(N, D) `values` with mean 0 and standard deviation 1; components that hardly vary become 0."""
    spread = values.std(axis=0)
    still = spread <= floor * np.maximum(1.0, np.abs(values).max(axis=0, initial=0.0))
    return np.where(still, 0.0, (values - values.mean(axis=0)) / np.where(still, 1.0, spread))


def runs(marked: NDArray[np.bool_], least: int) -> NDArray[np.bool_]:
    """(T,) the frames of `marked` that stand in a row of at least `least`."""
    out = np.zeros(len(marked), bool)
    for first, last in columns.runs(marked):
        out[first : last + 1] = last + 1 - first >= least
    return out
