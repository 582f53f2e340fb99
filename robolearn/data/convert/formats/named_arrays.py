"""From the named arrays of a file to episodes: the way of formats that are read and not written.

A format says which arrays an episode has and reads them; `arrays` says which features they become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.formats.arrays import Head, assigned, check_clock, clocks, coloured
from robolearn.data.convert.formats.config import ForeignSet, imported, outcome, rewarded, stored_episode
from robolearn.data.convert.options import Account, ReadOptions, sound
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robolearn.data.lerobot.features import is_image
from robolearn.data.video.readers import picture_in
from robolearn.data.video.segments import Images, PictureStream

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
      task: number of an episode → words, empty where nothing says it.
      hz, embodiment: None or empty where nothing says it.
      reward: the array of rewards, or nothing.
      ends: number of an episode → whether it succeeded and whether it terminated, None where nothing says it.
    """

    what: str
    episodes: Sequence[str]
    heads: Mapping[str, Head]
    read: Callable[[int, str], NDArray]
    pictures: Callable[[int, str], Pictures]
    usual: Mapping[str, str]
    action: str
    task: Callable[[int], str]
    hz: float | None = None
    embodiment: str = ""
    components: Callable[[str, tuple[int, ...]], Sequence[str]] | None = None
    reward: str = ""
    ends: Callable[[int], tuple[bool | None, bool | None]] = field(default=lambda number: (None, None))


def episodes_of(found: NamedArrays, options: ReadOptions, account: Account) -> EpisodeSource:
    """The episodes of `found`, of whose arrays `account` says what became of them.

    Raises:
      BadInput: no rate, no observation that is known, or an array of another length or shape; episode and array are
        named.
    """
    clock, heads = clocks(found.heads, options, account)
    numbers = {name: head for name, head in heads.items() if head.dtype.kind in "fiub"}
    account.left_out += [f"{name} ({head})" for name, head in heads.items() if name not in numbers]
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
        words = options.task or found.task(number)
        episode = stored_episode(vectors, actions, reward, success, terminated, None, (words,), None, {})
        return EpisodeDraft(episode, images, found.episodes[number])

    stated = any(success is not None for _, success, _ in endings.values())
    outcomes = options.success is not None or solved is not None or stated
    return imported(ForeignSet(interface, found.episodes, action, draft, (), outcomes, account), options)


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
