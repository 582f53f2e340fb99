"""HDF5 files of strangers: how one is opened, and the makers and the names that they give to the arrays of an episode.

    robomimic     data/demo_<i>: actions, rewards, dones, obs/robot0_… and obs/object; also robosuite, robocasa
    libero        the same with obs/ee_pos …, obs/agentview_rgb; the task is in the attribute problem_info
    isaaclab      data/demo_<i>: actions, obs/eef_pos …; the outcome is the attribute success
    maniskill     traj_<i>: actions, success, terminated, truncated, and T + 1 observations, obs/agent/… and the like

Every colour picture is a camera, whatever it is called. Vectors that are not listed here are left out and named: the
user takes them by ``--map``. Anything else that has episodes called so is a file of unknown make, which needs it.

An HDF5 file may refer to others: external links, external storage (any file of the disk, read as raw numbers) and
virtual data sets. Importing a stranger's file would copy what they lead to into a set, so such files are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.core import BadInput
from robolearn.core.installation import install_command
from robolearn.data.convert.for_arm import GRIPPER, JOINTS
from robolearn.data.convert.formats.arrays import Head
from robolearn.data.lerobot.features import IMAGES, text_names


def library() -> Any:
    """`h5py`; raises `BadInput` where it is not installed."""
    try:
        import h5py
    except ImportError:
        raise BadInput("HDF5", got="no h5py", expected="it", hint=install_command("formats")) from None
    return h5py


def open_file(path: Path) -> Any:
    """The file at `path`, for reading; raises `BadInput` where it is no HDF5."""
    try:
        return library().File(path, "r")
    except OSError as error:
        raise BadInput(f"HDF5 file {path}", got=f"no readable HDF5 ({error})") from None


@contextmanager
def damage(path: Path, part: str) -> Iterator[None]:
    """Turn h5py's errors on a damaged file, and those that a strange one leads to, into `BadInput`."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"HDF5 file {path}: {part}", got=f"unreadable ({error})") from None


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


def arrays_in(group: Any, own: Collection[str] = (), single: bool = False) -> dict[str, Head]:
    """Every array in the h5py `group` by its path there, without the axis of time, but those below `own`; or every
    `single` value."""
    import h5py

    found: dict[str, Head] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and bool(item.ndim) != single and name.split("/")[0] not in own:
            found[name] = Head(tuple(item.shape[1:]), item.dtype)

    group.visititems(visit)
    return found


def texts_in(file: Any, names: Sequence[str], heads: Mapping[str, Head]) -> dict[str, str]:
    """Feature of text → its array, of those of `heads` that are a string per step in ``obs`` of every episode."""
    import h5py

    found = {
        name.removeprefix("obs/").replace("/", "_"): name
        for name, head in heads.items()
        if name.startswith("obs/") and not head.shape and h5py.check_string_dtype(head.dtype) is not None
    }
    features = {key: {"dtype": "string", "shape": [1]} for key in found}
    return {key: found[key] for key in text_names(features) if all(found[key] in file[name] for name in names)}


def elsewhere(
    file: Any, path: Path, names: Sequence[str], heads: Mapping[str, Head], own: Collection[str]
) -> list[str]:
    """A line on each of what no feature is made of in the episodes `names`: arrays that the first of them, which has
    `heads`, lacks; single values; attributes."""
    arrays, single, attributes = dict[str, Head](), set[str](), set[str]()
    for name in names:
        with suppress(BadInput), damage(path, name):  # named where it is read
            demo = file[name]
            arrays |= {key: head for key, head in arrays_in(demo, own).items() if key not in heads}
            single.update(arrays_in(demo, own, single=True))
            attributes.update(demo.attrs)
    lines = [f"{key} ({arrays[key]}): not in {names[0]}" for key in sorted(arrays)]
    lines += [f"{key} (one value an episode)" for key in sorted(single)]
    if others := sorted(attributes - _READ):
        lines.append(f"attributes of the episodes: {', '.join(others)}")
    return lines


_READ = {"num_samples", "success", "terminated", "truncated", "task", "ep_meta"}
_ARM = ("eef_pos", "eef_quat", "gripper_qpos")


@dataclass(frozen=True)
class Layout:
    """One maker's names.

    Attributes:
      proprio: vectors of the robot, in order.
      objects: vectors of the task, which only a simulation knows.
      quaternion: the order of its quaternions.
      final: observations have one row more than actions: what the last action led to.
      arm: where the joints and the fingers are, for a set that another arm acts by.
    """

    name: str
    proprio: tuple[str, ...]
    objects: tuple[str, ...] = ()
    quaternion: str = "xyzw"
    final: bool = False
    arm: tuple[str, ...] = ()

    def usual(self, found: Mapping[str, Head], for_arm: bool = False) -> dict[str, str]:
        """Array → feature, of those of `found` that have a place; `for_arm`: joints and fingers instead."""
        vectors = {**dict.fromkeys(self.proprio, "proprio"), **dict.fromkeys(self.objects, "objects")}
        if for_arm:
            vectors = dict(zip(self.arm, (JOINTS, GRIPPER), strict=False))
        pictures = {name: IMAGES + camera_of(name) for name, head in found.items()
                    if head.is_picture and name.startswith("obs/")}  # fmt: skip
        return {name: feature for name, feature in vectors.items() if name in found} | pictures

    def components(self, name: str, shape: tuple[int, ...]) -> list[str]:
        """A name for each component of the vector `name`."""
        key, size = name.removeprefix("obs/"), int(np.prod(shape)) if shape else 1
        letters = self.quaternion if key.endswith("quat") and size == 4 else "xyz" if key.endswith("pos") else ""
        return [f"{key}.{one}" for one in (letters if len(letters) == size else range(size))]


LAYOUTS = (
    Layout("robomimic", tuple(f"obs/robot{i}_{part}" for i in (0, 1) for part in _ARM), ("obs/object",),
           arm=("obs/robot0_joint_pos", "obs/robot0_gripper_qpos")),
    Layout("libero", ("obs/ee_pos", "obs/ee_ori", "obs/gripper_states"),
           arm=("obs/joint_states", "obs/gripper_states")),
    Layout("isaaclab", ("obs/eef_pos", "obs/eef_quat", "obs/gripper_pos"), ("obs/object",), quaternion="wxyz"),
    Layout("maniskill", ("obs/agent/qpos", "obs/agent/qvel"), ("obs",), final=True, arm=("obs/agent/qpos",)),
)  # fmt: skip
UNKNOWN = Layout("unknown", ())


def layout_of(found: Mapping[str, Head], trajectories: bool) -> Layout:
    """The layout of an episode with the arrays `found`; `trajectories`: it is called traj_<i>."""
    if trajectories:
        return LAYOUTS[-1]
    return next((one for one in LAYOUTS[:-1] if found.keys() & set(one.proprio)), UNKNOWN)


def camera_of(name: str) -> str:
    """``obs/agentview_image``, ``obs/agentview_rgb`` → ``agentview``; ``obs/sensor_data/hand/rgb`` → ``hand``."""
    plain = name.removeprefix("obs/").removeprefix("sensor_data/")
    return re.sub(r"[_/](image|rgb)$", "", plain).replace("/", "_")


@dataclass(frozen=True)
class FileFacts:
    """Facts in a file about all its episodes; empty or None where it does not have them.

    Attributes:
      task: in words.
      embodiment: its only robot.
      robots: names of all of them.
      upside_down: its pictures begin with the lowest row.
    """

    task: str = ""
    hz: float | None = None
    embodiment: str = ""
    robots: tuple[str, ...] = ()
    upside_down: bool = False


def facts_of(attributes: Mapping[str, Any], path: Path) -> FileFacts:
    """The facts in the `attributes` of ``data``, or in the JSON beside a file of ManiSkill's."""
    env = _json(attributes.get("env_args", "{}"), f"{path}: env_args")
    kwargs = env.get("env_kwargs") or {}
    problem = _json(attributes.get("problem_info", "{}"), f"{path}: problem_info")
    beside = path.with_suffix(".json")
    if not attributes and beside.is_file():
        try:
            info = _json(beside.read_text(), str(beside)).get("env_info") or {}
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{beside}", got=f"unreadable ({error})") from None
        env = {"env_name": info.get("env_id")}
        kwargs = info.get("env_kwargs") or {}
    robots = kwargs.get("robots") or kwargs.get("robot_uids")
    robots = tuple(str(robot) for robot in (robots if isinstance(robots, list) else [robots]) if robot)
    words = problem.get("language_instruction") or kwargs.get("lang") or env.get("env_name") or ""
    words = " ".join(words) if isinstance(words, list) else str(words)
    hz = kwargs.get("control_freq")
    return FileFacts(
        words.strip().strip('"'),
        float(hz) if isinstance(hz, int | float) and hz > 0 else None,
        robots[0].lower() if len(robots) == 1 else "",
        robots,
        # robosuite's own convention: the rows of a picture as OpenGL renders them, the lowest first.
        attributes.get("macros_image_convention") == "opengl",
    )


def _json(text: Any, what: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise BadInput(what, got=f"unreadable JSON ({error})", expected="an object") from None
