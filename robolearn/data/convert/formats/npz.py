"""A folder with one ``.npz`` per episode, in the order of their names, and perhaps an ``interface.json``.

    action                 (T, Da)            the one array that must be there
    proprio, objects, …    (T, D)             any other float array of T rows is an observation of that name
    images.<camera>        (T, H, W, 3) uint8
    reward                 (T,)               default 0
    success                bool, or (T,)      default whether the last reward is positive, or what ``--outcome`` says
                                              where no episode of the folder has a reward
    terminated, truncated  bool, or (T,)      default terminated = success, truncated = not success
    task                   text, or (T,)      default the name of the folder
    intervention           (T,) bool
    stamp.<name>           (T,) [s]           raw timestamps
    control_hz             number             of all episodes; or ``--hz``

``interface.json`` is `Interface.to_json`; without it one is derived. Nothing is unpickled.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.convert.formats.config import (
    FormatConfig,
    ReadOptions,
    exported,
    imported,
    scale_for,
    stored_episode,
)
from robolearn.data.convert.source import (
    EpisodeDraft,
    EpisodeSource,
    Progress,
    new_folder,
)
from robolearn.data.lerobot.features import stored_dtype
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.segments import array
from robolearn.io.json_files import parse_json

INTERFACE = "interface.json"
_PLAIN = {"action", "reward", "success", "terminated", "truncated", "task", "intervention", "control_hz"}


def here(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.npz"))


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the folder `path`.

    Raises:
      BadInput: no episodes, a file that cannot be read, or arrays that do not fit; file and array are named.
    """
    files = sorted(path.glob("*.npz")) if path.is_dir() else []
    if not files:
        raise BadInput(f"npz folder {path}", got="no .npz files", expected="one per episode")
    first = _load(files[0])
    interface = _interface(path, files[0], first, options)
    # The actions of a set are read twice: their extremes must be known before the first is stored.
    actions = ((file.name, _action(file, _load(file, ("action",)), interface)) for file in files)
    scale = scale_for(actions, interface, options)
    stamps = tuple(sorted(key.removeprefix("stamp.") for key in first if key.startswith("stamp.")))
    # Where nothing is rewarded rewards were not recorded.
    rewarded = any(values.any() for file in files for values in _load(file, ("reward",)).values())

    def episodes() -> Iterator[EpisodeDraft]:
        for file in files:
            data = _load(file)
            yield _draft(file, data, interface, _action(file, data, interface), stamps, rewarded, options)

    outcomes = options.success is not None or rewarded or any(_load(file, ("success",)) for file in files)
    return imported(interface, scale, episodes(), len(files), stamps=stamps, outcomes=outcomes)


def write(dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None:
    """Write `dataset` into the new folder `out`, actions in the units that they were imported in."""
    interface, drafts = exported(dataset, progress)
    with new_folder(out) as part:
        (part / INTERFACE).write_text(json.dumps(interface.to_json(), indent=2) + "\n")
        for index, draft in enumerate(drafts):
            episode = draft.episode
            arrays: dict[str, Any] = {key: np.asarray(values) for key, values in episode.observation.items()}
            arrays |= {key: array(images) for key, images in draft.images.items()}
            arrays |= {f"stamp.{name}": values for name, values in episode.stamps.items()}
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


def _load(file: Path, keys: tuple[str, ...] | None = None) -> dict[str, NDArray]:
    try:
        with np.load(file, allow_pickle=False) as data:
            return {key: data[key] for key in data.files if keys is None or key in keys}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        expected = "arrays without pickled objects"
        raise BadInput(f"npz file {file}", got=f"unreadable ({error})", expected=expected) from None


def _fact(file: Path, data: dict[str, NDArray], name: str) -> bool | None:
    """A fact about an episode, or about each of its steps, of which one is enough; None where it is absent."""
    if name not in data:
        return None
    if data[name].shape not in ((), (len(data["action"]),)) or data[name].dtype.kind not in "biuf":
        got = f"{data[name].shape} {data[name].dtype}"
        raise BadInput(f"npz file {file}: {name}", got=got, expected="a bool, or one for each step")
    return bool(data[name].any())


def _action(file: Path, data: dict[str, NDArray], interface: Interface) -> NDArray[np.float32]:
    if "action" not in data:
        raise BadInput(f"npz file {file}", got="no array 'action'", expected="one", available=data)
    action = np.asarray(data["action"])
    if action.ndim != 2 or action.shape[1:] != interface.action.shape or action.dtype.kind not in "fiu":
        expected = f"(T, {interface.action.size}) numbers"
        raise BadInput(f"npz file {file}: action", got=f"{action.shape} {action.dtype}", expected=expected)
    return action.astype(np.float32)


def _interface(path: Path, file: Path, data: dict[str, NDArray], options: ReadOptions) -> Interface:
    if (path / INTERFACE).exists():
        try:
            return options.applied(Interface.from_json(parse_json(path / INTERFACE)))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path / INTERFACE}", got=f"no valid interface ({error!r})") from None
    if "action" not in data or data["action"].ndim != 2:
        raise BadInput(f"npz file {file}", got="no array 'action' (T, Da)", expected="one", available=data)
    hz = options.hz or (float(data["control_hz"]) if "control_hz" in data else None)
    if hz is None:
        raise BadInput(f"npz folder {path}", got="no control_hz", expected="it", hint="Say --hz")
    observation = {}
    for key, values in data.items():
        if key in _PLAIN or key.startswith("stamp."):
            continue
        if key.startswith("images."):
            if values.ndim != 4 or values.shape[3] != 3 or values.dtype != np.uint8:
                shape = f"{values.shape} {values.dtype}"
                raise BadInput(f"npz file {file}: {key}", got=shape, expected="(T, H, W, 3) uint8")
            if options.takes(key.removeprefix("images.")):
                observation[key] = ArraySpec(values.shape[1:], "uint8")
        elif values.ndim >= 1 and len(values) == len(data["action"]) and values.dtype.kind in "fiub":
            observation[key] = ArraySpec(values.shape[1:] or (1,), stored_dtype(values.dtype.name))
        else:
            expected = f"{len(data['action'])} rows of numbers"
            raise BadInput(f"npz file {file}: {key}", got=f"{values.shape} {values.dtype}", expected=expected)
    action = ArraySpec(data["action"].shape[1:])
    return Interface(observation, action, hz, options.embodiment or "none", options.action_kind or "native")


def _draft(
    file: Path,
    data: dict[str, NDArray],
    interface: Interface,
    action: NDArray[np.float32],
    stamps: tuple[str, ...],
    rewarded: bool,
    options: ReadOptions,
) -> EpisodeDraft:
    length = len(action)
    arrays: dict[str, NDArray] = {}
    for key, spec in interface.observation.items():
        if key not in data:
            raise BadInput(f"npz file {file}", got=f"no array {key!r}", expected="it", available=data)
        values = data[key].reshape(length, 1) if data[key].shape == (length,) and spec.shape == (1,) else data[key]
        if values.shape != (length, *spec.shape):
            raise BadInput(f"npz file {file}: {key}", got=values.shape, expected=(length, *spec.shape))
        arrays[key] = values
    for name in stamps:
        if data.get(f"stamp.{name}", np.zeros(0)).shape != (length,):
            raise BadInput(f"npz file {file}: stamp.{name}", got="none, or another length", expected=f"({length},)")
    reward = np.asarray(data.get("reward", np.zeros(length)), np.float32)
    if reward.shape != (length,):
        raise BadInput(f"npz file {file}: reward", got=reward.shape, expected=(length,))
    success = _fact(file, data, "success")
    if success is None:
        rewards = rewarded and "reward" in data
        success = bool((reward[-1:] > 0).any()) if rewards else bool(options.success)
    words = tuple(str(word) for word in np.ravel(data["task"])) if "task" in data and not options.task else ()
    if len(words) not in (0, 1, length):
        raise BadInput(f"npz file {file}: task", got=f"{len(words)} texts", expected=f"one, or {length}")
    ends = (success, _fact(file, data, "terminated"), _fact(file, data, "truncated"))
    helped = np.asarray(data["intervention"], bool) if "intervention" in data else None
    times = {name: np.asarray(data[f"stamp.{name}"], np.float64) for name in stamps}
    task = options.task or file.parent.name
    images = {key: values for key, values in arrays.items() if key.startswith("images.")}
    numbers = {key: values for key, values in arrays.items() if key not in images}
    episode = stored_episode(numbers, action, reward, *ends, words or (task,), helped, times)
    return EpisodeDraft(episode, images, file.name)


FORMAT = FormatConfig("npz", "a folder with one .npz per episode", here, read, write)
