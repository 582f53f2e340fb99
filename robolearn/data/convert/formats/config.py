"""A format of demonstrations as one config, the one way from a foreign set to episodes, and the scale of actions.

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
from robolearn.data.convert.options import Account, ReadOptions, sound
from robolearn.data.convert.seen import SeenVectors
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, Progress, drafts, interface_with_images
from robolearn.data.lerobot.texts import NOTHING
from robolearn.data.reading.reader import Dataset

_FACTS = ("task", "hz", "embodiment", "action_kind", "unit", "gripper_unit", "scale", "success")
COMMON = (*_FACTS, "cameras", "episodes", "skip_bad")
"""The fields of `ReadOptions` that most formats have a use for."""
ARRAYS = (*COMMON, "named", "robot", "tolerance_s")
"""Those of formats of named arrays."""


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
      options: the fields of `ReadOptions` that its reader has a use for.
      texts: what of text it holds where it is written: `EVERYTHING`, `WORDS` or `NOTHING` of `lerobot.texts`.
    """

    name: str
    summary: str
    here: Callable[[Path], bool]
    read: FormatReader | None = None
    write: FormatWriter | None = None
    needs_extra: str = ""
    options: tuple[str, ...] = COMMON
    texts: str = NOTHING

    def check(self, options: ReadOptions) -> None:
        """Raise `BadInput` where `options` hold what the reader has no use for."""
        for name in options.given():
            if name not in self.options:
                flags = {one: "--" + _FLAGS.get(one, one).replace("_", "-") for one in (name, *self.options)}
                what, got = f"{flags.pop(name)} with {self.name}", getattr(options, name)
                if name == "named":
                    got = " ".join("=".join(pair) for pair in got)
                raise BadInput(what, got=got, expected="none", available=flags.values())

    @property
    def title(self) -> str:
        """For help: the name, and the extra to be installed."""
        return f"{self.name} [{self.needs_extra}]" if self.needs_extra else self.name


_FLAGS = {"success": "outcome", "named": "map"}

FILE_UNIT = "action_unit"
"""In the `Interface.extra` of an exported file: the units of its joint positions."""


def _scale_for(actions: NDArray, interface: Interface, options: ReadOptions) -> Scale | None:
    """The scale of all `actions` (N, Da) of a set, None where they are in [-1, 1] already. Raises `BadInput`: joint
    positions whose unit nothing says, or that are not in it."""
    size = interface.action.size
    low, high = np.zeros(size), np.zeros(size)
    if len(actions):
        low, high = actions.min(axis=0).astype(np.float64), actions.max(axis=0).astype(np.float64)
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
    if low.min() >= -1 - TOLERANCE and high.max() <= 1 + TOLERANCE:
        return None
    if options.scale == "quantiles":
        q01, q99 = np.quantile(actions.astype(np.float64), (0.01, 0.99), axis=0)
        moves = q99 > q01  # otherwise only the ends say how far it goes
        low, high = np.where(moves, q01, low), np.where(moves, q99, high)
        cut = ((actions < low) | (actions > high)).any(axis=1).sum()
        note = (
            f"the actions were not in [-1, 1] ({actions.min():.4g} to {actions.max():.4g}): each component is scaled "
            f"by its quantiles q01 and q99; {cut} of {len(actions)} reach further and are cut"
        )
        return Scale(low, high, notes=[note])
    return Scale(low, high)


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


@dataclass(frozen=True)
class ForeignSet:
    """Episodes of another format by their numbers, nothing of them read yet.

    Attributes:
      interface: with cameras; actions as in the file.
      names: what the episodes are called there, for messages.
      action: number → (T, Da) in the units of the file.
      draft: number → the whole episode, with such actions.
      stamps: the names of the raw timestamps that every episode has.
      outcomes: whether it is known which episodes succeeded.
      account: what is read, left out and changed.
      texts: the names of the features of text that every episode has.
    """

    interface: Interface
    names: Sequence[str]
    action: Callable[[int], NDArray]
    draft: Callable[[int], EpisodeDraft]
    stamps: Iterable[str]
    outcomes: bool
    account: Account
    texts: Iterable[str] = ()


def imported(found: ForeignSet, options: ReadOptions) -> EpisodeSource:
    """The episodes of `found` that `options` takes, with actions in [-1, 1], where `found.account` says what became of
    them: an episode that cannot be read is refused, or with `ReadOptions.skip_bad` left out. Raises `BadInput`: an
    action that is not finite, episode and frame are named; or as `_scale_for`."""
    account, total = found.account, len(found.names)
    chosen = range(total) if options.episodes is None else options.episodes(total)
    if len(chosen) < total:
        account.left_out.append(f"{total - len(chosen)} of {total} episodes, which --episodes does not name")
    if not found.outcomes:
        account.left_out.append("outcomes: nothing says which episodes succeeded: none is marked as a success, nor as "
                                "a failure; --outcome says it")  # fmt: skip

    def action(index: int) -> NDArray:
        values, name = found.action(index), found.names[index]
        if not len(values):
            raise BadInput(name, got="no frames", expected="at least one")
        if not np.isfinite(values).all():
            frame, component = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
            where = f"{name}: action at frame {frame}, component {component}"
            raise BadInput(where, got=values[frame, component], expected="a finite number")
        return values

    taken = dict(sound(action, chosen, account.left_out, options))
    actions = np.concatenate([*taken.values(), np.zeros((0, found.interface.action.size), np.float32)])
    interface, scale = found.interface, _scale_for(actions, found.interface, options)
    if scale is not None:
        extra = {key: value for key, value in interface.extra.items() if key != FILE_UNIT}
        interface = replace(interface, extra={**extra, ACTION_SCALE: scale.to_json()})
        account.changed += scale.notes or [
            f"the actions were not in [-1, 1] ({scale.low.min():.4g} to {scale.high.max():.4g}): each component is "
            f"scaled by its own extremes, which stand in the interface's extra['{ACTION_SCALE}']; export gives the "
            "original units back"
        ]

    sets = "it sets the scale, by which --scale quantiles does not go" if scale and not scale.notes else ""
    acted = SeenVectors()
    for number, values in taken.items():
        acted.add(found.names[number], values)
    account.changed += acted.remarks("action", interface.action.names, sets)
    taken = dict.fromkeys(taken)

    def drafts() -> Iterator[EpisodeDraft]:
        seen: dict[str, SeenVectors] = {}
        for number, draft in sound(found.draft, taken, account.left_out, options):
            yield _with_action(draft, scale.apply(draft.episode.action)) if scale else draft
            for key, values in draft.episode.observation.items():
                seen.setdefault(key, SeenVectors()).add(found.names[number], values)
        for key, vectors in seen.items():
            account.changed += vectors.remarks(key, interface.observation[key].names)

    return EpisodeSource(
        interface, drafts(), len(taken), tuple(found.stamps), account, found.outcomes, skips=options.skip_bad,
        texts=tuple(found.texts),
    )  # fmt: skip


def rewarded(rewards: Iterable[NDArray]) -> float | None:
    """The reward that a solved episode has, of the rewards (T,) of all episodes; None where they do not say it.

    Sparse rewards are 0 and one positive number, which is that of a success, or 0 and one negative number, where 0 is.
    All others are dense, or none.
    """
    values: set[float] = set()
    for reward in rewards:
        values |= set(np.unique(reward).tolist())
        if len(values) > 2:
            return None
    return max(values) if len(values) == 2 and 0 in values else None


def outcome(stated: bool | None, options: ReadOptions, reward: NDArray | None, solved: float | None) -> bool:
    """True for a success: by what the file states of the episode, else the user, else its rewards (`rewarded`)."""
    if stated is not None:
        return stated
    if options.success is not None or solved is None or reward is None:
        return bool(options.success)
    return bool((reward >= solved).any())


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
