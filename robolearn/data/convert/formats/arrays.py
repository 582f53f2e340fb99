"""Arrays of a file by their names → the features of an episode: by the user's ``--map``, and else by what is usual.

The arrays of one feature are put side by side in the order in which they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput
from robolearn.data.convert.options import Account, ReadOptions
from robolearn.data.lerobot.columns import GRID_S, clock_faults
from robolearn.data.lerobot.features import IMAGES, camera_name, stored_dtype


@dataclass(frozen=True)
class Head:
    """Shape of the array of one frame, and kind of its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def is_picture(self) -> bool:
        """True for (H, W, 3) uint8."""
        return self.dtype == np.uint8 and len(self.shape) == 3 and self.shape[2] == 3

    @property
    def is_grey(self) -> bool:
        """True for (H, W) and (H, W, 1) uint8, which may be a picture without colours."""
        return self.dtype == np.uint8 and len(self.shape) > 1 and self.shape[2:] in ((), (1,)) and min(self.shape) > 0

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.shape)) or '1'} {self.dtype}"


@dataclass(frozen=True)
class ArrayMap:
    """Feature → its spec, and feature → the arrays that it is made of, ``action`` among them."""

    specs: dict[str, ArraySpec]
    parts: dict[str, tuple[str, ...]]

    def vector(self, feature: str, read: Callable[[str], NDArray], length: int) -> NDArray:
        """(T, …) of `feature`, whose arrays (T, …) `read` gives."""
        arrays = [read(name) for name in self.parts[feature]]
        shape = self.specs[feature].shape
        if feature.startswith(IMAGES):
            return coloured(arrays[0]).reshape(length, *shape)
        if len(arrays) == 1:
            return arrays[0].reshape(length, *shape)
        return np.concatenate([array.reshape(length, -1) for array in arrays], axis=1).reshape(length, *shape)


def assigned(
    found: Mapping[str, Head],
    usual: Mapping[str, str],
    action: str,
    options: ReadOptions,
    account: Account,
    names_of: Callable[[str, tuple[int, ...]], Sequence[str]] | None = None,
) -> ArrayMap:
    """The features that the arrays `found` become; what becomes of each stands in `account`.

    Args:
      usual: array → feature, in order; the others are left out.
      action: the array that is usually the action.
      names_of: (array, its shape) → a name for each component of ``proprio``.

    Raises:
      BadInput: the user names an array that is not there, or a picture that is none.
    """
    parts: dict[str, tuple[str, ...]] = {}
    for name, feature in options.named:
        if name not in found:
            raise BadInput("--map", got=name, available=found)
        parts[feature] = (*parts.get(feature, ()), name)
    by_user = {*parts, *dict(options.named)}  # features and arrays
    for name, feature in {**usual, action: "action"}.items():
        if name in found and not {name, feature} & by_user and (feature == "action" or _wanted(feature, options)):
            parts[feature] = (*parts.get(feature, ()), name)
    if "action" not in parts:
        raise BadInput("actions", got=f"no {action!r}", expected="it, or --map NAME=action", available=found)
    taken = {name for names in parts.values() for name in names}
    for name in found.keys() - taken:
        why = "" if usual.get(name) is None else ": not asked for"
        account.left_out.append(f"{name} ({found[name]}){why}")
    account.left_out.sort()
    specs: dict[str, ArraySpec] = {}
    for feature, names in parts.items():
        heads = [found[name] for name in names]
        shape = heads[0].shape or (1,)
        if feature.startswith(IMAGES):
            if len(heads) > 1 or not (heads[0].is_picture or heads[0].is_grey):
                expected = "(T, H, W, 3) uint8, or (T, H, W) where it is grey"
                raise BadInput(f"--map {names[0]}={feature}", got=str(heads[0]), expected=expected)
            if heads[0].is_grey:
                shape = (*shape[:2], 3)
                account.changed.append(f"{names[0]}, which is grey, is stored as three equal colours")
            specs[feature] = ArraySpec(shape, "uint8")
        else:
            alone = len(heads) == 1 and feature != "action"
            shape = shape if alone else (sum(int(np.prod(head.shape)) for head in heads),)
            kind = stored_dtype(np.result_type(*(head.dtype for head in heads)).name)
            named = names_of if feature == "proprio" or not alone else None
            components = [one for name in names for one in named(name, found[name].shape)] if named else []
            usual_kind = "float32" if feature == "action" else kind
            specs[feature] = ArraySpec(shape, usual_kind, tuple(components) if feature != "action" else ())
        account.became(feature, names, "×".join(map(str, specs[feature].shape)))
    return ArrayMap(specs, parts)


def coloured(pictures: NDArray) -> NDArray:
    """(T, H, W, 3) of `pictures`, which may be grey: (T, H, W) or (T, H, W, 1)."""
    if pictures.ndim == 4 and pictures.shape[3] == 3:
        return pictures
    return np.repeat(pictures.reshape(*pictures.shape[:3], 1), 3, axis=3)


def _wanted(feature: str, options: ReadOptions) -> bool:
    return not feature.startswith(IMAGES) or options.takes(camera_name(feature))


CLOCKS = ("timestamp", "timestamps")


def clocks(
    found: Mapping[str, Head], options: ReadOptions, account: Account
) -> tuple[tuple[str, ...], dict[str, Head]]:
    """The arrays of `found` that are clocks to be judged, and those that are none; `account` names the clocks.

    Arrays called `CLOCKS` are the clock of an episode, and never an observation. They are judged as LeRobot's column is
    (`clock_faults`), counted from the first frame on, and then left out: frame / hz stands for them. Whole numbers are
    in a unit that nothing says, and are left out unjudged. An array that the user maps is what the user says.
    """
    judged, others = [], {}
    for name, head in found.items():
        word = name.rsplit("/", 1)[-1]
        alone = head.shape in ((), (1,)) and head.dtype.kind in "fiu"
        if not alone or word not in CLOCKS or {name, word} & dict(options.named).keys():
            others[name] = head
        elif head.dtype.kind == "f":
            judged.append(name)
            account.left_out.append(f"{name} ({head}): a clock, for which frame / hz stands")
        else:
            account.left_out.append(f"{name} ({head}): a clock in a unit that nothing says")
    return tuple(judged), others


def check_clock(stamps: NDArray, hz: float, where: str, options: ReadOptions, account: Account) -> None:
    """Raise `BadInput` where `stamps` (T,) or (T, 1) [s] of the episode `where` are off the grid of `hz`; note in
    `account` where they are put onto it."""
    stamps = np.asarray(stamps, np.float64).reshape(-1)
    stamps = stamps - stamps[:1]
    for fault in clock_faults(stamps, hz, options.tolerance_s):
        hint = (
            "--skip-bad leaves such episodes out, --tolerance-s SECONDS puts its frames onto the grid, "
            "--hz says another rate"
        )
        got, expected = f"{fault.check} ({fault.what})", f"frame / {hz:g} Hz"
        raise BadInput(f"{where}, frame {fault.first}", got=got, expected=expected, hint=hint)
    off = np.abs(stamps - np.arange(len(stamps)) / hz).max(initial=0.0)
    if off > max(GRID_S, 1e-6 * len(stamps) / hz):
        account.changed.append(f"{where}: its timestamps, up to {off:.3g} s off, are put onto the grid")
