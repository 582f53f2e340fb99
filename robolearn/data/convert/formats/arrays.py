"""Named arrays of a file → the features of an episode, by the user's ``--map``, and else by what is usual; and whole
episodes of such arrays: the way of formats that are read and not written.

A format says which arrays an episode has and reads them. The arrays of one feature are put side by side in the order in
which they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.convert.formats.config import ForeignSet, imported, outcome, rewarded, stored_episode
from robolearn.data.convert.options import SKIPS, Account, ReadOptions, sound
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robolearn.data.lerobot.columns import GRID_S, clock_faults
from robolearn.data.lerobot.features import IMAGES, TAKEN, camera_name, check_camera, free_name, is_image, stored_dtype
from robolearn.data.video.readers import picture_in
from robolearn.data.video.segments import Images, PictureStream


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
      BadInput: the user names an array that is not there, or a picture that is none, or gives a camera a name that is
        taken.
    """
    parts: dict[str, tuple[str, ...]] = {}
    for name, feature in options.named:
        if name not in found:
            raise BadInput("--map", got=name, available=found)
        if feature.startswith(IMAGES):
            check_camera(feature, f"--map {name}={feature}")
        parts[feature] = (*parts.get(feature, ()), name)
    by_user = {*parts, *dict(options.named)}  # features and arrays
    for name, feature in {**usual, action: "action"}.items():
        if name in found and not {name, feature} & by_user and (feature == "action" or _wanted(feature, options)):
            key = free_name(feature) if feature.startswith(IMAGES) else feature
            if key != feature:
                account.changed.append(f"the camera of {name} is called {camera_name(key)}: {TAKEN}")
            parts[key] = (*parts.get(key, ()), name)
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
        hint = f"{SKIPS}, --tolerance-s SECONDS puts its frames onto the grid, --hz says another rate"
        got, expected = f"{fault.check} ({fault.what})", f"frame / {hz:g} Hz"
        raise BadInput(f"{where}, frame {fault.first}", got=got, expected=expected, hint=hint)
    off = np.abs(stamps - np.arange(len(stamps)) / hz).max(initial=0.0)
    if off > max(GRID_S, 1e-6 * len(stamps) / hz):
        account.changed.append(f"{where}: its timestamps, up to {off:.3g} s off, are put onto the grid")


Pictures = Iterator[NDArray[np.uint8]]


@dataclass(frozen=True)
class NamedArrays:
    """Episodes as named arrays.

    Attributes:
      what: the file or folder in words, for messages.
      episodes: their names.
      heads: array → one frame of it; a picture as it is when decoded.
      read: (number of an episode, array) → (T, …).
      pictures: (number of an episode, array) → its pictures, (H, W, 3) RGB, or grey ones as `coloured` takes them.
      usual, action, components: as for `assigned`.
      task: number of an episode → words, one for all frames or one for each, empty where nothing says it.
      hz, embodiment: None or empty where nothing says it.
      reward: the array of rewards, or nothing.
      texts: feature of text → its array.
      strings: (number of an episode, array of text) → (T,) text.
      ends: number of an episode → whether it succeeded and whether it terminated, None where nothing says it.
    """

    what: str
    episodes: Sequence[str]
    heads: Mapping[str, Head]
    read: Callable[[int, str], NDArray]
    pictures: Callable[[int, str], Pictures]
    usual: Mapping[str, str]
    action: str
    task: Callable[[int], Sequence[str]]
    hz: float | None = None
    embodiment: str = ""
    components: Callable[[str, tuple[int, ...]], Sequence[str]] | None = None
    reward: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    strings: Callable[[int, str], Sequence[str]] = field(default=lambda number, name: ())
    ends: Callable[[int], tuple[bool | None, bool | None]] = field(default=lambda number: (None, None))


def episodes_of(found: NamedArrays, options: ReadOptions, account: Account) -> EpisodeSource:
    """The episodes of `found`, of whose arrays `account` says what became of them. Raises `BadInput`: no rate, no
    observation that is known, or an array of another length or shape; episode and array are named."""
    clock, heads = clocks(found.heads, options, account)
    numbers = {name: head for name, head in heads.items() if head.dtype.kind in "fiub"}
    others = {name: head for name, head in heads.items() if name not in {*numbers, *found.texts.values()}}
    account.left_out += [f"{name} ({head})" for name, head in others.items()]
    for key, name in found.texts.items():
        account.became(key, [name], "text")
    wide = [name for name, head in numbers.items() if head.dtype == np.float64]
    numbers |= {name: Head(numbers[name].shape, np.dtype(np.float32)) for name in wide}
    arrays = assigned(numbers, found.usual, found.action, options, account, found.components)
    action_spec = arrays.specs.pop("action")
    if not arrays.specs:
        hint = "--map NAME=proprio takes an array as the robot's own vector"
        raise BadInput(found.what, got="no observation that is known", available=numbers, hint=hint)
    taken = {name for names in arrays.parts.values() for name in names}
    if wide := [name for name in wide if name in taken]:
        account.changed.append(f"float64 is stored as float32: {', '.join(wide)}")
    if (hz := options.hz or found.hz) is None:
        raise BadInput(found.what, got="no control rate", expected="frames per second", hint="Say --hz")
    if not (options.embodiment or found.embodiment):
        account.changed.append("what the file does not say is assumed: no arm, which --embodiment names")
    arm, kind = options.embodiment or found.embodiment or "none", options.action_kind or "native"
    interface = Interface(arrays.specs, action_spec, hz, arm, kind)

    def rows(number: int, length: int | None, name: str) -> NDArray:
        values = found.read(number, name)
        head = found.heads[name]
        if values.shape[1:] != head.shape or (length is not None and len(values) != length):
            expected = ("T" if length is None else length, *head.shape)
            raise BadInput(f"{found.episodes[number]}: {name}", got=values.shape, expected=expected)
        return values

    def action(number: int) -> NDArray[np.float32]:
        length = len(rows(number, None, arrays.parts["action"][0]))
        parts = [rows(number, length, name).reshape(length, -1) for name in arrays.parts["action"]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    @cache
    def ending(number: int) -> tuple[NDArray[np.float32] | None, bool | None, bool | None]:
        reward = np.asarray(found.read(number, found.reward), np.float32).reshape(-1) if found.reward else None
        return reward, *found.ends(number)

    endings = dict(sound(ending, range(len(found.episodes)), [], options))  # a draft names those that are not
    solved = rewarded(reward for reward, *_ in endings.values() if reward is not None)

    def draft(number: int) -> EpisodeDraft:
        actions = action(number)
        length = len(actions)
        for name in clock:
            check_clock(found.read(number, name), hz, f"{found.episodes[number]}: {name}", options, account)
        vectors: dict[str, NDArray] = {}
        images: dict[str, Images] = {}
        for key, spec in interface.observation.items():
            if is_image(spec):
                name = arrays.parts[key][0]
                images[key] = PictureStream(length, partial(_counted, found, number, name, length, spec.shape))
            else:
                values = arrays.vector(key, partial(rows, number, length), length)
                vectors[key] = values.astype(spec.dtype, copy=False)
        reward, success, terminated = ending(number)
        success = outcome(success, options, reward, solved)
        words = (options.task,) if options.task else tuple(found.task(number))
        episode = stored_episode(vectors, actions, reward, success, terminated, None, words, None, {})
        texts = {key: np.array(list(found.strings(number, name)), object) for key, name in found.texts.items()}
        return EpisodeDraft(replace(episode, texts=texts), images, found.episodes[number])

    stated = any(success is not None for _, success, _ in endings.values())
    outcomes = options.success is not None or solved is not None or stated
    return imported(ForeignSet(interface, found.episodes, action, draft, (), outcomes, account, found.texts), options)


def _counted(found: NamedArrays, number: int, name: str, length: int, shape: tuple[int, ...]) -> Pictures:
    count = 0
    for count, stored in enumerate(found.pictures(number, name), 1):
        picture = coloured(stored[None])[0]
        if picture.shape != shape:
            where = f"{found.episodes[number]}: {name} at frame {count - 1}"
            raise BadInput(where, got=picture.shape, expected=shape)
        yield picture
    if count != length:
        raise BadInput(f"{found.episodes[number]}: {name}", got=f"{count} pictures", expected=f"{length}, as actions")


def decoded(content: bytes, where: str) -> NDArray[np.uint8]:
    """The picture (H, W, 3), RGB, in `content`, a file of JPEG or PNG; `where` is for the message."""
    picture = picture_in(content)
    if picture is None:
        raise BadInput(where, got=f"{len(content)} bytes that are no picture", expected="JPEG or PNG")
    return picture
