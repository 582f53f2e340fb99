"""A format of demonstrations as one config, the user's facts about files that lack them, and the scale of actions.

Actions of other systems are in their own units, robolearn's in [-1, 1]. Per component, with the extremes low and high
over the whole set,

    a = 2 (x − low) / (high − low) − 1        x = low + (a + 1) (high − low) / 2

A component that never changes becomes 0. Joint positions come to the limits of the arm's joints instead, the same for
all sets of that arm (`joint_units`). The scale stands in the interface's ``extra["action_scale"]``: exports give back
the units of the import, a policy of LeRobot's is scaled by it, and sets, policies and arms of different scales are
refused together (`robolearn.core.specs.check_compatible`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.core.specs import ACTION_SCALE, action_scale
from robolearn.core.types import Episode
from robolearn.data.convert.joint_units import TOLERANCE, Scale, joint_scale
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, Progress, drafts, interface_with_images
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.container import TOLERANCE_S


@dataclass(frozen=True)
class ReadOptions:
    """Facts that the user gives; each is None or empty where the file is to be believed.

    Attributes:
      task: the task in words.
      hz: frames per second.
      embodiment: name of the arm.
      action_kind: what an action means, e.g. ``"tcp_delta"``.
      unit, gripper_unit: of joint positions, of `joint_units.UNITS` and `joint_units.GRIPPER_UNITS`.
      proprio: the features that make up ``proprio``, in order.
      cameras: the cameras to take; None takes all, an empty tuple none.
      success: whether episodes succeeded whose success is not recorded.
      tolerance_s: how far from its frame a picture of a video may be shown [s].
      robot: the robot contract that says what the topics of a bag mean, by name or as a file.
    """

    task: str = ""
    hz: float | None = None
    embodiment: str = ""
    action_kind: str = ""
    unit: str = ""
    gripper_unit: str = ""
    proprio: tuple[str, ...] = ()
    cameras: tuple[str, ...] | None = None
    success: bool | None = None
    tolerance_s: float = TOLERANCE_S
    robot: str = ""

    def takes(self, camera: str) -> bool:
        """True where the images of `camera` are wanted."""
        return self.cameras is None or camera in self.cameras

    def applied(self, interface: Interface) -> Interface:
        """`interface`, which files brought along, with what the user gives in place of what it has."""
        wanted = {
            key: spec
            for key, spec in interface.observation.items()
            if not key.startswith("images.") or self.takes(key.removeprefix("images."))
        }
        return replace(
            interface,
            observation=wanted,
            control_hz=self.hz or interface.control_hz,
            embodiment=self.embodiment or interface.embodiment,
            action_kind=self.action_kind or interface.action_kind,
        )


FormatReader = Callable[[Path, ReadOptions], EpisodeSource]
"""A path → its episodes."""


class FormatWriter(Protocol):
    """Writes a data set as a new file or folder, whole or not at all; `robot` as in `ReadOptions`."""

    def __call__(self, dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None: ...


@dataclass(frozen=True)
class FormatConfig:
    """One format.

    Attributes:
      name: the word for ``--format``.
      summary: half a line of description.
      here: true where a path looks like it.
      read, write: None where the format is not read or not written.
      needs_extra: the extra of this distribution that brings its library, or nothing.
    """

    name: str
    summary: str
    here: Callable[[Path], bool]
    read: FormatReader | None = None
    write: FormatWriter | None = None
    needs_extra: str = ""

    @property
    def title(self) -> str:
        """For help: the name, and the extra to be installed."""
        return f"{self.name} [{self.needs_extra}]" if self.needs_extra else self.name


FILE_UNIT = "action_unit"
"""In the `Interface.extra` of an exported file: the units of its joint positions."""


def scale_for(actions: Iterable[tuple[str, NDArray]], interface: Interface, options: ReadOptions) -> Scale | None:
    """The scale for the `actions` (T, Da) of named episodes, or None where all are in [-1, 1] already.

    Raises:
      BadInput: a number that is not finite, the episode and the frame are named; joint positions whose unit nothing
        says, or that are not in it.
    """
    extremes: list[tuple[NDArray, NDArray]] = []
    for name, action in actions:
        if not np.isfinite(action).all():
            frame, component = (int(i) for i in np.argwhere(~np.isfinite(action))[0])
            where = f"{name}: action at frame {frame}, component {component}"
            raise BadInput(where, got=action[frame, component], expected="a finite number")
        if len(action):
            extremes.append((action.min(axis=0).astype(np.float64), action.max(axis=0).astype(np.float64)))
    size = interface.action.size
    low = np.min([least for least, _ in extremes], axis=0) if extremes else np.zeros(size)
    high = np.max([most for _, most in extremes], axis=0) if extremes else np.zeros(size)
    if interface.action_kind == "joint_position":
        stated = interface.extra.get(FILE_UNIT)
        stated = stated if isinstance(stated, dict) else {}
        # What has an interface of ours and no unit is in [-1, 1] over the limits.
        unit = options.unit or stated.get("joints") or ("" if options.action_kind else "normalised")
        if unit and ACTION_SCALE in interface.extra and (options.unit or options.action_kind):
            got = "actions that an import has scaled"
            raise BadInput("--unit", got=got, expected="the set before that", hint="Import the original, or export it")
        return joint_scale(interface, unit, options.gripper_unit or stated.get("gripper", ""), low, high)
    if options.unit or options.gripper_unit:
        got = f"{options.unit or options.gripper_unit} of actions of kind {interface.action_kind!r}"
        raise BadInput("--unit", got=got, expected="--action-kind joint_position")
    return None if low.min() >= -1 - TOLERANCE and high.max() <= 1 + TOLERANCE else Scale(low, high)


def scale_of(interface: Interface) -> Scale | None:
    """The scale that is written into `interface`, if any."""
    if (found := action_scale(interface)) is None:
        return None
    (low, high), unit, gripper = found
    return Scale(np.asarray(low), np.asarray(high), unit, gripper)


def stored_episode(
    observation: dict[str, NDArray],
    action: NDArray[np.float32],
    reward: NDArray[np.float32] | None,
    success: bool,
    terminated: bool | None,
    truncated: bool | None,
    words: Sequence[str],
    intervention: NDArray[np.bool_] | None,
    stamps: dict[str, NDArray[np.float64]],
) -> Episode:
    """An episode of a file. What is None there is by default: no reward, terminated = success, truncated = not
    terminated. `words` is the task, one for all frames or one for each."""
    reward = np.zeros(len(action), np.float32) if reward is None else reward
    terminated = success if terminated is None else terminated
    truncated = not terminated if truncated is None else truncated
    tasks = tuple(words) if len(set(words)) > 1 else ()
    return Episode(observation, action, reward, success, terminated, truncated, words[0], intervention, stamps, tasks)


def imported(
    interface: Interface,
    scale: Scale | None,
    drafts: Iterable[EpisodeDraft],
    count: int,
    *,
    stamps: Iterable[str],
    outcomes: bool,
    notes: Iterable[str] = (),
) -> EpisodeSource:
    """The source of `count` drafts whose actions are in a file's units: `scale` is applied to them, and written into
    their interface; `notes` grow by what the user should know of both, and of outcomes that are not recorded."""
    notes = [*notes]
    if not outcomes:
        notes.append("nothing says which episodes succeeded: none is marked as a success, nor as a failure; "
                     "--outcome says it")  # fmt: skip
    if scale is not None:
        extra = {key: value for key, value in interface.extra.items() if key != FILE_UNIT}
        interface = replace(interface, extra={**extra, ACTION_SCALE: scale.to_json()})
        drafts = (_with_action(draft, scale.apply(draft.episode.action)) for draft in drafts)
        notes += scale.notes or [
            f"the actions were not in [-1, 1] ({scale.low.min():.4g} to {scale.high.max():.4g}): each component is "
            f"scaled by its own extremes, which stand in the interface's extra['{ACTION_SCALE}']; export gives the "
            "original units back"
        ]
    return EpisodeSource(interface, drafts, count, tuple(stamps), tuple(notes), outcomes)


def exported(dataset: Dataset, progress: Progress | None) -> tuple[Interface, Iterator[EpisodeDraft]]:
    """The interface and the drafts of `dataset` with actions in the units that they were imported in; `progress` is
    called after each."""
    scale, interface = scale_of(dataset.interface), interface_with_images(dataset)

    def unscaled() -> Iterator[EpisodeDraft]:
        for index, draft in enumerate(drafts(dataset)):
            yield _with_action(draft, scale.invert(draft.episode.action)) if scale else draft
            if progress is not None:
                progress(index + 1, {})

    extra = {key: value for key, value in interface.extra.items() if key != ACTION_SCALE}
    if scale and interface.action_kind == "joint_position":
        extra[FILE_UNIT] = {"joints": scale.unit or "unknown", "gripper": scale.gripper}
    return replace(interface, extra=extra), unscaled()


def _with_action(draft: EpisodeDraft, action: NDArray[np.float32]) -> EpisodeDraft:
    return replace(draft, episode=replace(draft.episode, action=action))
