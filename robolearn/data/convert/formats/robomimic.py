"""robomimic's HDF5 (Mandlekar et al., *What Matters in Learning from Offline Human Demonstrations*, 2021).

    data                       attributes: env_args (JSON text), total (steps)
    data/demo_<i>              attributes: num_samples, model_file (not kept)
      actions  (T, Da)         in [-1, 1] as robosuite's
      dones, rewards  (T,)     the reward of robosuite's tasks is 1 once the task is solved
      obs/<feature>  (T, …)    low-dimensional features, and images "<camera>_image" (T, H, W, 3) uint8
    mask/<name>                demo names, optional: only read to be ignored

The features of the robot, ``robot0_…`` except ``…_image``, become ``proprio`` in the order of `PROPRIO`, and
``object`` becomes ``objects``. Quaternions stay in robosuite's order (xyzw): they are named so.

An HDF5 file may refer to others: external links, external storage (any file of the disk, read as raw numbers) and
virtual data sets. Importing a stranger's file would copy what they lead to into a set, so such files are refused.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from robolearn.core.installation import install_command
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
    check_new,
)
from robolearn.data.lerobot.features import stored_dtype
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.segments import frames
from robolearn.data.writing.uncommitted import part_of

PROPRIO = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
OBJECTS = "object"
MARGIN = 4 << 20  # bytes that HDF5 may need beside the arrays of an episode
_BYTES = {"uint8": 1}
CONTROL_HZ = 20.0  # robosuite's default
_INTERFACE = "robolearn_interface"  # an attribute of our own beside env_args, so that a set comes back as it was


def here(path: Path) -> bool:
    return path.is_file() and path.suffix in (".hdf5", ".h5")


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The demonstrations of the file `path`.

    Raises:
      BadInput: not HDF5, no demonstrations, or a feature of another length or shape; demo and feature are named.
    """
    if not path.is_file():
        raise BadInput(f"robomimic file {path}", got="no such file", expected="an HDF5 file")
    with _open(path) as file, _damage(path, "data"):
        check_own(file, path)
        names = _names(file, path)
        env = _env_args(file, path)
        demo = file["data"][names[0]]
        stored = file["data"].attrs.get(_INTERFACE)
        if stored is not None:
            interface = options.applied(Interface.from_json(json.loads(str(stored))))
            features = {key: (key,) for key in interface.observation}
        else:
            interface, features = _derive(path, names[0], demo, env, options)
        actions = ((name, _actions(path, file["data"][name], interface)) for name in names)
        scale = scale_for(actions, interface, options)
        stamps = tuple(demo.get("stamps", ()))
        # Where nothing is rewarded rewards were not recorded.
        rewarded = any(_tells_success(file["data"][name]) for name in names)

    given = None if rewarded else options.success

    def episodes() -> Iterator[EpisodeDraft]:
        with _open(path) as again:
            for name in names:
                with _damage(path, name):
                    demo = again["data"][name]
                    task = options.task or str(demo.attrs.get("task", _task(env, path)))
                    draft = _draft(path, name, demo, interface, features, task, given)
                yield draft

    outcomes = rewarded or given is not None
    return imported(interface, scale, episodes(), len(names), stamps=stamps, outcomes=outcomes)


def write(dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None:
    """Write `dataset` as the new file `out`; the features keep their names, ``env_args`` holds the interface."""
    h5py = _h5py()
    check_new(out)
    if out.is_dir():
        raise BadInput(f"--out {out}", got="a folder", expected="a file, such as demos.hdf5")
    interface, drafts = exported(dataset, progress)
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


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise BadInput("HDF5", got="no h5py", expected="it", hint=install_command("formats")) from None
    return h5py


def _open(path: Path) -> Any:
    try:
        return _h5py().File(path, "r")
    except OSError as error:
        raise BadInput(f"robomimic file {path}", got=f"no readable HDF5 ({error})") from None


@contextmanager
def _damage(path: Path, part: str) -> Iterator[None]:
    """Turn h5py's errors on a damaged file, and those that a strange one leads to, into `BadInput`."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"robomimic file {path}: {part}", got=f"unreadable ({error})") from None


def _names(file: Any, path: Path) -> list[str]:
    found = [name for name in file["data"] if re.fullmatch(r"demo_\d+", name)] if "data" in file else []
    if not found:
        raise BadInput(f"robomimic file {path}", got="no data/demo_0", expected="demonstrations", available=file)
    return sorted(found, key=lambda name: int(name.removeprefix("demo_")))


def _env_args(file: Any, path: Path) -> dict[str, Any]:
    text = file["data"].attrs.get("env_args", "{}")
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise BadInput(f"robomimic file {path}: env_args", got=f"unreadable JSON ({error})") from None


def _tells_success(demo: Any) -> bool:
    return "success" in demo.attrs or ("rewards" in demo and bool(demo["rewards"][()].any()))


def _task(env: dict[str, Any], path: Path) -> str:
    lang = (env.get("env_kwargs") or {}).get("lang")
    return str(lang or env.get("env_name") or path.stem)


def _derive(
    path: Path, name: str, demo: Any, env: dict[str, Any], options: ReadOptions
) -> tuple[Interface, dict[str, tuple[str, ...]]]:
    """The interface, and our feature → robomimic's, in order."""
    if "obs" not in demo or not len(demo["obs"]):
        hint = "robomimic's dataset_states_to_obs.py adds the observations to a file of states"
        raise BadInput(f"robomimic file {path}: {name}", got="no observations (obs)", expected="some", hint=hint)
    obs = {key: demo["obs"][key] for key in demo["obs"]}
    own = tuple(key for key in PROPRIO if key in obs)
    proprio = (
        options.proprio or own or tuple(key for key in sorted(obs) if key.startswith("robot0_") and obs[key].ndim <= 2)
    )
    for key in proprio:
        if key not in obs:
            raise BadInput("--proprio", got=key, available=obs)
    features: dict[str, tuple[str, ...]] = {}
    observation: dict[str, ArraySpec] = {}
    if proprio:
        features["proprio"] = proprio
        names = [component for key in proprio for component in _component_names(key, obs[key].shape[1:])]
        observation["proprio"] = ArraySpec((len(names),), names=tuple(names))
    if OBJECTS in obs:
        features["objects"] = (OBJECTS,)
        observation["objects"] = ArraySpec(obs[OBJECTS].shape[1:] or (1,))
    for key, values in obs.items():
        camera = key.removesuffix("_image")
        if key.endswith("_image") and values.ndim == 4 and values.dtype == np.uint8 and options.takes(camera):
            features[f"images.{camera}"] = (key,)
            observation[f"images.{camera}"] = ArraySpec(tuple(values.shape[1:]), "uint8")
    kwargs = env.get("env_kwargs") or {}
    robots = kwargs.get("robots")
    robot = robots[0] if isinstance(robots, list) and robots else robots
    interface = Interface(
        observation=observation,
        action=ArraySpec(tuple(demo["actions"].shape[1:])),
        control_hz=options.hz or float(kwargs.get("control_freq") or CONTROL_HZ),
        embodiment=options.embodiment or (str(robot).lower() if robot else "none"),
        action_kind=options.action_kind or "native",
    )
    return interface, features


def _component_names(key: str, shape: tuple[int, ...]) -> list[str]:
    size = int(np.prod(shape)) if shape else 1
    if key.endswith("_quat") and size == 4:
        return [f"{key}.{axis}" for axis in "xyzw"]
    if key.endswith("_pos") and size == 3:
        return [f"{key}.{axis}" for axis in "xyz"]
    return [f"{key}.{i}" for i in range(size)]


def _actions(path: Path, demo: Any, interface: Interface) -> NDArray[np.float32]:
    name = demo.name.rsplit("/", 1)[-1]
    if "actions" not in demo:
        raise BadInput(f"robomimic file {path}: {name}", got="no actions", expected="them", available=demo)
    action = np.asarray(demo["actions"][()], np.float32)
    if action.ndim != 2 or action.shape[1:] != interface.action.shape:
        raise BadInput(f"robomimic file {path}: {name}, actions", got=action.shape, expected=interface.action.shape)
    return action


def _draft(
    path: Path,
    name: str,
    demo: Any,
    interface: Interface,
    features: dict[str, tuple[str, ...]],
    task: str,
    given: bool | None,
) -> EpisodeDraft:
    action = _actions(path, demo, interface)
    length = len(action)

    def rows(key: str) -> NDArray:
        stored = key if key in demo["obs"] else f"{key.removeprefix('images.')}_image"
        if stored not in demo["obs"]:
            raise BadInput(f"robomimic file {path}: {name}", got=f"no obs/{key}", expected="it", available=demo["obs"])
        values = np.asarray(demo["obs"][stored][()])
        if len(values) != length:
            expected = f"{length} rows, as many as actions"
            raise BadInput(f"robomimic file {path}: {name}, obs/{stored}", got=f"{len(values)} rows", expected=expected)
        return values

    numbers, images = {}, {}
    for key, parts in features.items():
        if key.startswith("images."):
            images[key] = rows(parts[0])
        else:
            spec = interface.observation[key]
            columns = [rows(part).reshape(length, -1) for part in parts]
            numbers[key] = np.concatenate(columns, axis=1, dtype=stored_dtype(spec.dtype)).reshape(length, *spec.shape)
    reward = np.asarray(demo["rewards"][()], np.float32) if "rewards" in demo else None
    earned = reward is not None and (reward > 0).any()
    flags = {name: bool(demo.attrs[name]) for name in ("success", "terminated", "truncated") if name in demo.attrs}
    ends = (flags.get("success", bool(given or earned)), flags.get("terminated"), flags.get("truncated"))
    stamps = {key: np.asarray(demo["stamps"][key][()], np.float64) for key in demo.get("stamps", ())}
    words = tuple(demo["tasks"].asstr()[()]) if "tasks" in demo and task == demo.attrs.get("task") else ()
    helped = np.asarray(demo["interventions"][()], bool) if "interventions" in demo else None
    episode = stored_episode(numbers, action, reward, *ends, words or (task,), helped, stamps)
    return EpisodeDraft(episode, images, f"{path.name}: {name}")


def check_own(file: Any, path: Path) -> None:
    """Raise `BadInput` unless all that the open h5py `file` leads to lies in itself; `path` is for the message."""
    import h5py

    seen: set[Any] = set()
    groups = [file]
    while groups:
        group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            where = f"{group.name.rstrip('/')}/{name}"
            if isinstance(link, h5py.SoftLink):  # leads to another place of this file, which is looked at there
                continue
            if not isinstance(link, h5py.HardLink):
                raise _refusal(path, where, f"a link to {getattr(link, 'filename', 'something else')}")
            found = group[name]
            if isinstance(found, h5py.Group):
                address = h5py.h5o.get_info(found.id).addr  # pyright: ignore[reportAttributeAccessIssue]
                if address not in seen:  # a group may contain itself
                    seen.add(address)
                    groups.append(found)
            elif isinstance(found, h5py.Dataset):
                if found.external:
                    raise _refusal(path, where, f"numbers in {found.external[0][0]}")
                if found.is_virtual:
                    raise _refusal(path, where, f"a view of {found.virtual_sources()[0].file_name}")


def _refusal(path: Path, where: str, got: str) -> BadInput:
    return BadInput(f"HDF5 file {path}: {where}", got=got, expected="everything in the file itself")


FORMAT = FormatConfig("robomimic", "robomimic's HDF5", here, read, write, needs_extra="formats")
