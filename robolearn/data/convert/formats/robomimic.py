"""HDF5 of robomimic (Mandlekar et al., *What Matters in Learning from Offline Human Demonstrations*, 2021) and others.

    data                       attributes: env_args (JSON text), total (steps)
    data/demo_<i>              attributes: num_samples, success, task, …
      actions  (T, Da)
      dones, rewards  (T,)     sparse rewards say which episodes succeeded, dense ones do not
      obs/<feature>  (T, …)    vectors, and pictures (T, H, W, 3) uint8
    mask/<name>                demo names: ``--filter NAME``

Which arrays become what, by maker: `hdf5`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface, RobolearnError
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
from robolearn.data.convert.formats.hdf5 import (
    UNKNOWN,
    FileFacts,
    Layout,
    arrays_in,
    check_own,
    damage,
    elsewhere,
    facts_of,
    layout_of,
    library,
    open_file,
    texts_in,
)
from robolearn.data.convert.options import Account, ReadOptions
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, Progress, check_new
from robolearn.data.lerobot.features import IMAGES, is_image, truths
from robolearn.data.lerobot.texts import WORDS
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.segments import Images, PictureStream, frames
from robolearn.data.writing.uncommitted import part_of

MARGIN = 4 << 20  # bytes that HDF5 may need beside the arrays of an episode
_BYTES = {"uint8": 1}
CONTROL_HZ = 20.0  # robosuite's default
BLOCK = 32  # pictures that are in memory together
_INTERFACE = "robolearn_interface"  # an attribute of our own beside env_args, so that a set comes back as it was


def here(path: Path) -> bool:
    return path.is_file() and path.suffix in (".hdf5", ".h5")


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The demonstrations of the file `path`. Raises `BadInput`: not HDF5, no demonstrations, no observation that is
    known, or a feature of another length or shape; demo and feature are named."""
    if not path.is_file():
        raise BadInput(f"HDF5 file {path}", got="no such file", expected="demonstrations")
    account = Account()
    with open_file(path) as file, damage(path, "data"):
        check_own(file, path)
        names = _names(file, path, options.filter, account)
        data = file.get("data", file)
        facts = facts_of(data.attrs, path)
        demo = file[names[0]]
        stored = data.attrs.get(_INTERFACE)
        heads = arrays_in(demo, _OWN)
        own = {name: f"texts/{name}" for name in demo.get("texts", ())}
        texts = own if stored is not None else texts_in(file, names, heads)
        clock, found = clocks(heads, options, account)
        account.left_out += elsewhere(file, path, names, heads, _OWN)
        if stored is not None:
            interface = options.applied(Interface.from_json(json.loads(str(stored))))
            parts = {key: (_stored_name(key, found),) for key in interface.observation}
            arrays, layout = ArrayMap(dict(interface.observation), {**parts, "action": ("actions",)}), UNKNOWN
            for key, name in arrays.parts.items():
                account.became(key, name)
        else:
            layout = layout_of(found, names[0].startswith("traj_"))
            numbers = {key: head for key, head in found.items() if key not in texts.values()}
            interface, arrays = _derive(path, names[0], numbers, layout, facts, options, account)
            _note_outcomes(file, names, account)
            for key, name in texts.items():
                account.became(key, [name], "text")
        stamps = tuple(demo.get("stamps", ()))
        stated = any("success" in held for name in names for held in (file[name], file[name].attrs))
        solved = rewarded(file[name]["rewards"][()] for name in names if "rewards" in file[name])
    task = options.task or facts.task or path.stem
    if facts.upside_down and any(key.startswith(IMAGES) for key in interface.observation):
        account.changed.append("pictures, whose lowest row is the first in the file, are turned upright")

    def action(number: int) -> NDArray[np.float32]:
        with open_file(path) as file, damage(path, names[number]):
            return _action(path, file[names[number]], interface, arrays)

    def draft(number: int) -> EpisodeDraft:
        with open_file(path) as file, damage(path, names[number]):
            for name in clock:
                if name in file[names[number]]:
                    stamps, where = file[names[number]][name][()], f"HDF5 file {path}: {names[number]}, {name}"
                    check_clock(stamps, interface.control_hz, where, options, account)
            reading = _Demo(path, names[number], layout, facts.upside_down, texts)
            return reading.draft(file[names[number]], interface, arrays, task, solved, options)

    outcomes = stated or options.success is not None or solved is not None
    return imported(ForeignSet(interface, names, action, draft, stamps, outcomes, account, tuple(texts)), options)


def write(dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None:
    """Write `dataset` as the new file `out`; the features keep their names, ``env_args`` holds the interface."""
    h5py = library()
    check_new(out)
    if out.is_dir():
        raise BadInput(f"--out {out}", got="a folder", expected="a file, such as demos.hdf5")
    interface, drafts = exported(dataset, progress)
    texts = dataset.texts.held(WORDS)[0]
    part = part_of(out)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        with h5py.File(part, "w") as file:
            data = file.create_group("data")
            total = 0
            frame_bytes = sum(spec.size * _BYTES.get(spec.dtype, 4) for spec in interface.observation.values())
            for index, draft in enumerate(drafts):
                episode, length = draft.episode, len(draft)
                _check_room(part, length * frame_bytes)
                demo = data.create_group(f"demo_{index}")
                demo.attrs["num_samples"] = length
                if dataset.outcomes:
                    demo.attrs["success"] = episode.success
                demo.attrs["terminated"], demo.attrs["truncated"] = episode.terminated, episode.truncated
                demo.attrs["task"] = episode.task
                if episode.frame_tasks:
                    demo.create_dataset("tasks", data=list(episode.frame_tasks), dtype=h5py.string_dtype())
                demo["actions"] = episode.action
                demo["rewards"] = episode.reward
                demo["dones"] = (np.arange(length) == length - 1).astype(np.int64)
                if episode.intervention is not None:
                    demo["interventions"] = episode.intervention
                for name, values in episode.stamps.items():
                    demo[f"stamps/{name}"] = values
                for name in texts:
                    demo.create_dataset(f"texts/{name}", data=list(episode.texts[name]), dtype=h5py.string_dtype())
                for key, values in episode.observation.items():
                    demo[f"obs/{key}"] = values
                for key, images in draft.images.items():
                    shape = interface.observation[key].shape
                    pixels = demo.create_dataset(
                        f"obs/{key.removeprefix('images.')}_image", (length, *shape), "u1", chunks=(1, *shape),
                        compression="gzip", compression_opts=1,
                    )  # fmt: skip
                    for t, image in enumerate(frames(images)):
                        pixels[t] = image
                total += length
                file.flush()
            data.attrs["total"] = total
            kwargs = {"control_freq": interface.control_hz, "robots": [interface.embodiment]}
            env = {"env_name": dataset.tasks[0] if dataset.tasks else "", "type": 1, "env_kwargs": kwargs}
            data.attrs["env_args"] = json.dumps(env)
            data.attrs[_INTERFACE] = json.dumps(interface.to_json())
        check_new(out)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _check_room(path: Path, size: int) -> None:
    """Raise `RobolearnError` where the disk has no room for `size` bytes more: HDF5 itself may crash there."""
    free = shutil.disk_usage(path.parent).free
    if free < size + MARGIN:
        needed = (size + MARGIN) / 1e6
        raise RobolearnError(f"{path.parent} has no room: {free / 1e6:.0f} MB are free, {needed:.0f} MB may be needed")


def _names(file: Any, path: Path, key: str, account: Account) -> list[str]:
    """The episodes, by their number; of those that the list ``mask/<key>`` names."""
    data = file.get("data", {})
    found = [f"data/{name}" for name in data if re.fullmatch(r"demo_\d+", name)]
    found = found or [name for name in file if re.fullmatch(r"traj_\d+", name)]
    if not found:
        expected = "data/demo_<i> or traj_<i>"
        raise BadInput(f"HDF5 file {path}", got="no demonstrations", expected=expected, available=file)
    masks = {name: {one.decode() for one in file["mask"][name][()]} for name in file.get("mask", ())}
    if key and key not in masks:
        raise BadInput("--filter", got=key, available=masks, expected="a list of episodes in the file (mask)")
    if masks and not key:
        lists = ", ".join(f"{name} ({len(demos)})" for name, demos in masks.items())
        account.left_out.append(f"mask: {lists}; --filter takes the episodes of one of them")
    total = len(found)
    found = [name for name in found if not key or name.removeprefix("data/") in masks[key]]
    if not found:
        raise BadInput("--filter", got=f"{key}, which names none of {total} episodes", available=masks)
    if len(found) < total:
        account.left_out.append(f"{total - len(found)} of {total} episodes, which --filter {key} does not name")
    return sorted(found, key=lambda name: int(name.rsplit("_", 1)[1]))


def _note_outcomes(file: Any, names: list[str], account: Account) -> None:
    """Note in `account` what the episodes `names` say of rewards and outcomes, and what of it does not come."""
    own = {key for name in names for key in _OWN if key in file[name] or key in file[name].attrs}
    for key, feature in {"rewards": "reward", "success": "success", "terminated": "terminated",
                         "truncated": "truncated"}.items():  # fmt: skip
        if key in own:
            account.became(feature, [key])
    account.left_out += [f"{key}: no part of an episode here" for key in ("dones", "fail") if key in own]


_OWN = ("rewards", "dones", "success", "terminated", "truncated", "fail", "stamps", "tasks", "interventions")


def _flag(demo: Any, name: str, where: str) -> bool | None:
    """A fact about `demo`, or about one of its steps; None where the file does not have it."""
    held = demo.attrs if name in demo.attrs else demo
    if name not in held:
        return None
    return bool(truths(held[name][()] if held is demo else held[name], f"{where}, {name}").any())


def _stored_name(key: str, found: Mapping[str, Head]) -> str:
    return f"obs/{key}" if f"obs/{key}" in found else f"obs/{key.removeprefix(IMAGES)}_image"


def _derive(
    path: Path, name: str, found: dict[str, Head], layout: Layout, facts: FileFacts, options: ReadOptions,
    account: Account,
) -> tuple[Interface, ArrayMap]:  # fmt: skip
    """The interface, and the arrays of its features."""
    if not any(key == "obs" or key.startswith("obs/") for key in found):
        hint = "robomimic's dataset_states_to_obs.py adds the observations to a file of states"
        raise BadInput(f"HDF5 file {path}: {name}", got="no observations (obs)", expected="some", hint=hint)
    if options.robot and (len(facts.robots) > 1 or any(key.startswith("obs/robot1_") for key in found)):
        got = f"more than one robot{': ' * bool(facts.robots)}{', '.join(facts.robots)}"
        raise BadInput(f"--robot {options.robot}: HDF5 file {path}", got=got, expected="one arm")
    named = tuple(
        (f"obs/{one}" if one not in found and f"obs/{one}" in found else one, feature) for one, feature in options.named
    )
    wanted = {
        *layout.usual(found, bool(options.robot)),
        "actions",
        *(key for key in found if key.startswith("obs/")),
        *dict(named),
    }
    numbers = {
        key: Head(head.shape, np.dtype(np.float32) if head.dtype.kind == "f" else head.dtype)
        for key, head in found.items() if key in wanted and head.dtype.kind in "fiub"
    }  # fmt: skip
    strange = sorted(key for key in found.keys() - numbers.keys() if key in wanted)
    account.left_out += [f"{key} ({found[key]}): no numbers" for key in strange]
    others = Counter(key.split("/")[0] for key in found.keys() - wanted)
    account.left_out += [f"{key} ({count} array{'s' * (count > 1)})" for key, count in others.items()]
    given = replace(options, named=named)
    arrays = assigned(numbers, layout.usual(numbers, bool(options.robot)), "actions", given, account, layout.components)
    action = arrays.specs.pop("action")
    if not arrays.specs:
        vectors = [key for key in numbers if key.startswith("obs/")]
        hint = "--map NAME=proprio takes an array as the robot's own vector"
        raise BadInput(f"HDF5 file {path}: {name}", got="no observation that is known", available=vectors, hint=hint)
    if wide := [name for names in arrays.parts.values() for name in names if found[name].dtype == np.float64]:
        account.changed.append(f"float64 is stored as float32: {', '.join(wide)}")
    assumed = []
    if not (options.hz or facts.hz):
        assumed.append(f"{CONTROL_HZ:g} Hz; --hz changes it")
    if not (options.embodiment or facts.embodiment):
        several = f" for {len(facts.robots)} robots ({', '.join(facts.robots)})" * (len(facts.robots) > 1)
        assumed.append(f"no arm{several}, which --embodiment names")
    if assumed:
        account.changed.append(f"what the file does not say is assumed: {'; '.join(assumed)}")
    return Interface(
        observation=arrays.specs,
        action=action,
        control_hz=options.hz or facts.hz or CONTROL_HZ,
        embodiment=options.embodiment or facts.embodiment or "none",
        action_kind=options.action_kind or "native",
    ), arrays


def _action(path: Path, demo: Any, interface: Interface, arrays: ArrayMap) -> NDArray[np.float32]:
    parts = []
    for name in arrays.parts["action"]:
        if name not in demo:
            raise BadInput(f"HDF5 file {path}: {demo.name}", got=f"no {name}", expected="it", available=demo)
        parts.append(np.asarray(demo[name][()], np.float32).reshape(len(demo[name]), -1))
    action = np.concatenate(parts, axis=1)
    if action.shape[1:] != interface.action.shape:
        where = f"HDF5 file {path}: {demo.name}, {arrays.parts['action'][0]}"
        raise BadInput(where, got=action.shape, expected=f"(T, {interface.action.size})")
    return action


@dataclass(frozen=True)
class _Demo:
    """Reads one episode."""

    path: Path
    name: str
    layout: Layout
    upside_down: bool
    texts: Mapping[str, str]

    def draft(
        self, demo: Any, interface: Interface, arrays: ArrayMap, task: str, solved: float | None, options: ReadOptions
    ) -> EpisodeDraft:
        action = _action(self.path, demo, interface, arrays)
        length, where = len(action), f"HDF5 file {self.path}: {self.name}"
        extra = 1 if self.layout.final else 0

        def array(name: str) -> Any:
            if name not in demo:
                there = list(demo["obs"]) if "obs" in demo else demo
                raise BadInput(where, got=f"no {name}", expected="it", available=there)
            if len(demo[name]) != length + extra:
                expected = f"{length + extra} rows, {'one more than' if extra else 'as many as'} actions"
                raise BadInput(f"{where}, {name}", got=f"{len(demo[name])} rows", expected=expected)
            return demo[name]

        numbers: dict[str, NDArray] = {}
        images: dict[str, Images] = {}
        final: dict[str, NDArray] = {}
        for key, spec in interface.observation.items():
            if is_image(spec):
                rows = array(arrays.parts[key][0])
                images[key] = PictureStream(length, partial(self._pictures, rows.name, length))
                final |= {key: self._upright(rows[length:])[0]} if extra else {}
            else:
                values = arrays.vector(key, lambda name: np.asarray(array(name)[()]), length + extra)
                numbers[key] = values[:length]
                final |= {key: values[length]} if extra else {}
        reward = np.asarray(demo["rewards"][()], np.float32) if "rewards" in demo else None
        success = outcome(_flag(demo, "success", where), options, reward, solved)
        ends = (success, _flag(demo, "terminated", where), _flag(demo, "truncated", where))
        stamps = {key: np.asarray(demo["stamps"][key][()], np.float64) for key in demo.get("stamps", ())}
        own = str(demo.attrs.get("task") or _words(demo.attrs.get("ep_meta")))
        words = tuple(demo["tasks"].asstr()[()]) if "tasks" in demo and not options.task else ()
        helped = truths(demo["interventions"][()], f"{where}, interventions") if "interventions" in demo else None
        told = words or (options.task or own or task,)
        episode = stored_episode(numbers, action, reward, *ends, told, helped, stamps)
        texts = {key: np.asarray(array(name).asstr()[()], object)[:length] for key, name in self.texts.items()}
        return EpisodeDraft(replace(episode, final=final, texts=texts), images, f"{self.path.name}: {self.name}")

    def _pictures(self, name: str, length: int) -> Iterator[NDArray[np.uint8]]:
        with open_file(self.path) as file, damage(self.path, name):
            for begin in range(0, length, BLOCK):
                yield from self._upright(file[name][begin : min(begin + BLOCK, length)])

    def _upright(self, pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
        pictures = coloured(pictures)
        return np.ascontiguousarray(pictures[:, ::-1]) if self.upside_down else pictures


def _words(meta: Any) -> str:
    """The task of an episode of robocasa's, in the JSON of its attribute."""
    try:
        return str(json.loads(meta)["lang"])
    except (TypeError, ValueError, KeyError):
        return ""


FORMAT = FormatConfig(
    "robomimic", "HDF5 of robomimic, robosuite, LIBERO, Isaac Lab or ManiSkill", here, read, write,
    needs_extra="formats", options=(*ARRAYS, "filter"), texts=WORDS,
)  # fmt: skip
