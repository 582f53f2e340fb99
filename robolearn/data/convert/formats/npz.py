"""A folder with one ``.npz`` per episode, in the order of their names, and perhaps an ``interface.json``.

    action                 (T, Da)            the one array that must be there
    proprio, objects, …    (T, D)             any other array of numbers with T rows is an observation of that name;
                                              ``state`` is ``proprio``, ``environment_state`` is ``objects``
    images.<camera>        (T, H, W, 3) uint8, also without ``images.``
    reward                 (T,)               default 0
    success                bool, or (T,)      default what ``--outcome`` says, else rewards that are sparse
    terminated, truncated  bool, or (T,)      default terminated = success, truncated = not success
    task                   text, or (T,)      default the name of the folder
    intervention           (T,) bool
    stamp.<name>           (T,) [s]           raw timestamps
    text.<name>            (T,) text          a feature of text of the set that was written
    timestamp, timestamps  (T,) [s]           judged against the rate, and left out
    control_hz             number             of all episodes; or ``--hz``

``interface.json`` is `Interface.to_json`; without it one is derived from the arrays of the first file, in kinds of
numbers that hold those of all files. Nothing is unpickled. Pictures are read one by one.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.formats.arrays import ArrayMap, Head, assigned, check_clock, clocks, coloured
from robolearn.data.convert.formats.config import (
    ARRAYS,
    ForeignSet,
    FormatConfig,
    exported,
    imported,
    outcome,
    rewarded,
    stored_episode,
)
from robolearn.data.convert.options import Account, ReadOptions, sound
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, Progress, new_folder
from robolearn.data.lerobot.features import IMAGES, cast, is_image, truths
from robolearn.data.lerobot.texts import WORDS
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.segments import PictureStream, array
from robolearn.io.json_files import parse_json

INTERFACE = "interface.json"
_PLAIN = {"action", "reward", "success", "terminated", "truncated", "task", "intervention", "control_hz"}
_PREFIXED = ("stamp.", "text.")


def here(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.npz"))


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the folder `path`. Raises `BadInput`: no episodes, a file that cannot be read, or arrays that do
    not fit; file and array are named."""
    files = sorted(path.glob("*.npz")) if path.is_dir() else []
    if not files:
        raise BadInput(f"npz folder {path}", got="no .npz files", expected="one per episode")
    account = Account()
    heads = dict(sound(_heads, files, [], options))
    file = next(iter(heads), None)
    if file is None:
        raise BadInput(f"npz folder {path}", got="no .npz file that can be read", expected="one per episode")
    interface, arrays, clock = _interface(path, file, heads, options, account)
    stamps = tuple(sorted(key.removeprefix("stamp.") for key in heads[file] if key.startswith("stamp.")))
    texts = tuple(sorted(key.removeprefix("text.") for key in heads[file] if key.startswith("text.")))
    solved = rewarded(values for one in heads for values in _load(one, ("reward",)).values())
    shown = {key for key, spec in interface.observation.items() if is_image(spec)}
    pictures = {name for key in shown for name in arrays.parts[key]}
    pictures -= {name for key, names in arrays.parts.items() if key not in shown for name in names}

    def draft(number: int) -> EpisodeDraft:
        data = _load(files[number], but=pictures)
        for name in clock:
            if name in data:
                check_clock(data[name], interface.control_hz, f"npz file {files[number]}: {name}", options, account)
        shapes = {name: head.shape for name, head in heads[files[number]].items()}
        return _draft(files[number], data, shapes, interface, arrays, stamps, texts, solved, options)

    def action(number: int) -> NDArray[np.float32]:
        return _action(files[number], _load(files[number], arrays.parts["action"]), interface, arrays)

    outcomes = options.success is not None or solved is not None or any("success" in keys for keys in heads.values())
    names = [one.name for one in files]
    return imported(ForeignSet(interface, names, action, draft, stamps, outcomes, account, texts), options)


def write(dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None:
    """Write `dataset` into the new folder `out`, actions in the units that they were imported in."""
    interface, drafts = exported(dataset, progress)
    texts = dataset.texts.held(WORDS)[0]
    with new_folder(out) as part:
        (part / INTERFACE).write_text(json.dumps(interface.to_json(), indent=2) + "\n")
        for index, draft in enumerate(drafts):
            episode = draft.episode
            arrays: dict[str, Any] = {key: np.asarray(values) for key, values in episode.observation.items()}
            arrays |= {key: array(images) for key, images in draft.images.items()}
            arrays |= {f"stamp.{name}": values for name, values in episode.stamps.items()}
            arrays |= {f"text.{name}": episode.texts[name].astype(str) for name in texts}
            if episode.intervention is not None:
                arrays["intervention"] = episode.intervention
            arrays |= {
                "action": episode.action,
                "reward": episode.reward,
                **({"success": np.array(episode.success)} if dataset.outcomes else {}),
                "terminated": np.array(episode.terminated),
                "truncated": np.array(episode.truncated),
                "task": np.array(episode.frame_tasks or episode.task),
                "control_hz": np.array(interface.control_hz),
            }
            np.savez_compressed(part / f"episode_{index:06d}.npz", **arrays)


_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        expected = "arrays without pickled objects"
        raise BadInput(f"npz file {file}", got=f"unreadable ({error})", expected=expected) from None


def _load(file: Path, keys: Collection[str] | None = None, but: Collection[str] = ()) -> dict[str, NDArray]:
    with _damage(file), np.load(file, allow_pickle=False) as data:
        return {key: data[key] for key in data.files if (keys is None or key in keys) and key not in but}


def _head(member: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it lies in the order of Fortran, and kind of numbers of the array that the open file `member`
    holds, read up to its numbers. Raises `ValueError` for objects, `KeyError` for a version that is not known."""
    known = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(member)
    shape, fortran, dtype = known[version](member)
    if dtype.hasobject:
        raise ValueError("objects")
    return shape, fortran, dtype


def _heads(file: Path) -> dict[str, Head]:
    """Array → its head, without reading its numbers; the length of the episode is not part of it."""
    heads: dict[str, Head] = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    shape, _, dtype = _head(member)
                    heads[name.removesuffix(".npy")] = Head(shape, dtype)
    except (KeyError, *_UNREADABLE):
        _load(file)  # raises, or numpy can what this cannot
    return heads


def _pictures(file: Path, name: str, kind: str, shape: tuple[int, ...]) -> Iterator[NDArray]:
    """The frames of array `name`, (H, W, 3) each, one at a time in memory."""
    with _damage(file), zipfile.ZipFile(file) as archive:
        member = archive.open(name if name in archive.namelist() else f"{name}.npy")
        stored, fortran, dtype = _head(member)
        size = int(np.prod(stored[1:])) * dtype.itemsize
        if fortran:  # the last axis goes slowest: a frame lies all over the file
            frames = iter(_load(file, (name,))[name])
        else:
            frames = (np.frombuffer(member.read(size), dtype).reshape(stored[1:]) for _ in range(stored[0]))
        for t, frame in enumerate(frames):
            _check_whole(f"npz file {file}: {name}", frame[None], kind, t)
            yield coloured(frame[None])[0].reshape(shape)


def _fact(file: Path, data: dict[str, NDArray], name: str, length: int) -> bool | None:
    """A fact about an episode, or about each of its steps, of which one is enough; None where it is absent."""
    if name not in data:
        return None
    if data[name].shape not in ((), (length,)) or data[name].dtype.kind not in "biuf":
        got = f"{data[name].shape} {data[name].dtype}"
        raise BadInput(f"npz file {file}: {name}", got=got, expected="a bool, or one for each step")
    return bool(truths(data[name], f"npz file {file}: {name}").any())


def _action(file: Path, data: dict[str, NDArray], interface: Interface, arrays: ArrayMap) -> NDArray[np.float32]:
    for name in arrays.parts["action"]:
        if name not in data:
            raise BadInput(f"npz file {file}", got=f"no array {name!r}", expected="one", available=data)
        if data[name].ndim not in (1, 2) or data[name].dtype.kind not in "fiu":
            got = f"{data[name].shape} {data[name].dtype}"
            raise BadInput(f"npz file {file}: {name}", got=got, expected=f"(T, {interface.action.size}) numbers")
    action = np.column_stack([data[name] for name in arrays.parts["action"]])
    if action.shape[1:] != interface.action.shape:
        expected = f"(T, {interface.action.size}) numbers"
        got = f"{action.shape} {action.dtype}"
        raise BadInput(f"npz file {file}: {arrays.parts['action'][0]}", got=got, expected=expected)
    return action.astype(np.float32)


def _interface(
    path: Path, file: Path, heads: Mapping[Path, Mapping[str, Head]], options: ReadOptions, account: Account
) -> tuple[Interface, ArrayMap, tuple[str, ...]]:
    """The interface, the arrays of its features, and those that are clocks, from those of `file`, the first."""
    first = heads[file]
    if (path / INTERFACE).exists():
        try:
            interface = options.applied(Interface.from_json(parse_json(path / INTERFACE)))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path / INTERFACE}", got=f"no valid interface ({error!r})") from None
        parts = {key: (key,) for key in (*interface.observation, "action")}
        for key in parts:
            account.became(key, parts[key])
        others = {key: Head(head.shape[1:], head.dtype) for key, head in first.items() if key not in parts}
        return interface, ArrayMap(dict(interface.observation), parts), clocks(others, options, account)[0]
    if "action" not in dict(options.named).values() and ("action" not in first or len(first["action"].shape) != 2):
        raise BadInput(f"npz file {file}", got="no array 'action' (T, Da)", expected="one", available=first)
    length = first[next((name for name, key in options.named if key == "action"), "action")].shape[:1]
    found: dict[str, Head] = {}
    for key, head in first.items():
        kind = np.result_type(*(keys[key].dtype for keys in heads.values() if key in keys))
        if key in _PLAIN - {"action"} or key.startswith(_PREFIXED):
            continue
        if head.shape[:1] != length or kind.kind not in "fiub":
            account.left_out.append(f"{key} ({head.shape} {kind}): no {length[0] if length else 0} rows of numbers")
            continue
        found[key] = Head(head.shape[1:], kind)
    extra = {key for keys in heads.values() for key in keys} - first.keys() - _PLAIN
    account.left_out += [f"{key}: not in {file.name}" for key in sorted(extra) if not key.startswith(_PREFIXED)]
    clock, found = clocks(found, options, account)
    usual = {key: _usual(key, head) for key, head in found.items() if key != "action"}
    arrays = assigned(found, usual, "action", options, account)
    hz = options.hz or (float(_load(file, ("control_hz",))["control_hz"]) if "control_hz" in first else None)
    if hz is None:
        raise BadInput(f"npz folder {path}", got="no control_hz", expected="it", hint="Say --hz")
    action = arrays.specs.pop("action")
    kind = options.action_kind or "native"
    return Interface(arrays.specs, action, hz, options.embodiment or "none", kind), arrays, clock


def _usual(key: str, head: Head) -> str:
    if head.is_picture:
        return IMAGES + key.removeprefix(IMAGES)
    return {"state": "proprio", "environment_state": "objects"}.get(key, key)


def _draft(
    file: Path,
    data: dict[str, NDArray],
    shapes: Mapping[str, tuple[int, ...]],
    interface: Interface,
    arrays: ArrayMap,
    stamps: tuple[str, ...],
    texts: tuple[str, ...],
    solved: float | None,
    options: ReadOptions,
) -> EpisodeDraft:
    action = _action(file, data, interface, arrays)
    length = len(action)

    def rows(kind: str, key: str) -> NDArray:
        if key not in data:
            raise BadInput(f"npz file {file}", got=f"no array {key!r}", expected="it", available=data)
        if data[key].shape[:1] != (length,):
            raise BadInput(f"npz file {file}: {key}", got=data[key].shape, expected=f"{length} rows")
        _check_whole(f"npz file {file}: {key}", data[key], kind)
        return data[key]

    vectors: dict[str, NDArray] = {}
    images: dict[str, PictureStream] = {}
    for key, spec in interface.observation.items():
        name, expected = arrays.parts[key][0], (length, *spec.shape)
        if is_image(spec):
            if name not in shapes:
                raise BadInput(f"npz file {file}", got=f"no array {name!r}", expected="it", available=shapes)
            if shapes[name] != expected and shapes[name] not in (expected[:-1], (*expected[:-1], 1)):
                raise BadInput(f"npz file {file}: {name}", got=shapes[name], expected=expected)
            images[key] = PictureStream(length, partial(_pictures, file, name, spec.dtype, spec.shape))
            continue
        try:
            vectors[key] = arrays.vector(key, partial(rows, spec.dtype), length)
        except ValueError:
            raise BadInput(f"npz file {file}: {name}", got=data[name].shape, expected=expected) from None
    for name in stamps:
        if data.get(f"stamp.{name}", np.zeros(0)).shape != (length,):
            raise BadInput(f"npz file {file}: stamp.{name}", got="none, or another length", expected=f"({length},)")
    for name in texts:
        if data.get(f"text.{name}", np.zeros(0)).dtype.kind != "U":
            raise BadInput(f"npz file {file}: text.{name}", got="none, or other values", expected="text")
    reward = np.asarray(data.get("reward", np.zeros(length)), np.float32)
    if reward.shape != (length,):
        raise BadInput(f"npz file {file}: reward", got=reward.shape, expected=(length,))
    success = outcome(_fact(file, data, "success", length), options, data.get("reward"), solved)
    words = tuple(str(word) for word in np.ravel(data["task"])) if "task" in data and not options.task else ()
    if len(words) not in (0, 1, length):
        raise BadInput(f"npz file {file}: task", got=f"{len(words)} texts", expected=f"one, or {length}")
    ends = (success, _fact(file, data, "terminated", length), _fact(file, data, "truncated", length))
    helped = truths(data["intervention"], f"npz file {file}: intervention") if "intervention" in data else None
    times = {name: np.asarray(data[f"stamp.{name}"], np.float64) for name in stamps}
    task = options.task or file.parent.name
    episode = stored_episode(vectors, action, reward, *ends, words or (task,), helped, times)
    spoken = {name: data[f"text.{name}"].astype(object) for name in texts}
    return EpisodeDraft(replace(episode, texts=spoken), images, file.name)


def _check_whole(what: str, values: NDArray, kind: str, first: int = 0) -> None:
    """Raise `BadInput` where whole numbers are rounded when `kind` of number stores them; `first`: the first frame."""
    if values.dtype.kind not in "iu":
        return
    if len(wrong := np.argwhere(cast(values, kind)[1])):
        hint = "Floats in another file, or in the interface, make floats of whole numbers"
        where = f"{what} at frame {first + wrong[0][0]}"
        raise BadInput(where, got=values[tuple(wrong[0])], expected=f"a number that {kind} holds", hint=hint)


FORMAT = FormatConfig("npz", "a folder with one .npz per episode", here, read, write, options=ARRAYS, texts=WORDS)
