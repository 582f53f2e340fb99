"""The steps of the episode at hand: checked, in memory, and in a journal that outlives the process.

A record of the journal is one step, fixed in size: all vectors as they will be stored, the action and the reward as
float32, the stamps as float64, and the intervention flag. The first record describes the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.core.types import RATE_NOTED, RATE_REFUSED
from robolearn.data.lerobot.columns import stamped_rate_fault
from robolearn.data.lerobot.features import cast, is_image, stored_dtype
from robolearn.data.lerobot.texts import Strings, encodes
from robolearn.data.video.encoder import VideoConfig
from robolearn.io.append_only import Journal, records

ACTION_TOLERANCE = 1e-6
ACTION = "action"  # the stamp of the moment at which an action was executed


def present(observation: Mapping[str, Any], key: str) -> Any:
    """Feature `key` of `observation`."""
    if key not in observation:
        raise BadInput("observation", got=f"no {key!r}", expected=key, available=observation)
    return observation[key]


def checked(array: NDArray, spec: ArraySpec, lead: tuple[int, ...], what: str, step: int) -> NDArray:
    """`array` as (*lead, *spec.shape), finite; the first axis is counted from `step` in messages."""
    expected = (*lead, *spec.shape)
    if not lead and array.shape == (1, *spec.shape):
        array = array[0]
    if array.shape != expected:
        at = "" if lead else f" at step {step}"
        raise BadInput(f"{what}{at}", got=f"shape {array.shape}", expected=f"shape {expected}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        step, where = (step + int(where[0]), where[1:]) if lead else (step, where)
        component = f", component {_component(spec, where)}" if len(where) else ""
        value = array[(*([step] if lead else []), *where)]
        raise BadInput(f"{what} at step {step}{component}", got=value, expected="a finite number")
    return array


def vector(value: ArrayLike, spec: ArraySpec, lead: tuple[int, ...], what: str, step: int) -> NDArray:
    """`value` as (*lead, *spec.shape) of the dtype in which it is stored, finite; messages as of `checked`.

    Whole numbers and truth values are checked before the cast, which would round 1.7 and make any number of NaN.
    """
    kind = np.dtype(stored_dtype(spec.dtype))
    if kind.kind == "f":
        return checked(np.asarray(value, kind), spec, lead, what, step)
    given = checked(np.asarray(value), spec, lead, what, step)
    kept, changed = cast(given, kind)
    if changed.any():
        first = np.argwhere(changed)[0]
        at, where = (step + int(first[0]), first[1:]) if lead else (step, first)
        component = f", component {_component(spec, where)}" if len(where) else ""
        expected = "0 or 1" if kind.kind == "b" else f"a whole number ({kind})"
        raise BadInput(f"{what} at step {at}{component}", got=given[tuple(first)], expected=expected)
    return kept


def picture(array: NDArray, spec: ArraySpec, lead: tuple[int, ...], what: str, at: str = "") -> NDArray[np.uint8]:
    """`array` as (*lead, H, W, 3) uint8."""
    if not lead and array.shape == (1, *spec.shape):
        array = array[0]
    if array.shape != (*lead, *spec.shape) or array.dtype != np.uint8:
        expected = f"shape {(*lead, *spec.shape)} uint8"
        raise BadInput(f"{what}{at}", got=f"shape {array.shape} {array.dtype}", expected=expected)
    return array


def bounded(action: NDArray, step: int) -> NDArray:
    """`action` (…, Da) clipped to [-1, 1], which it must keep to 1e-6."""
    if np.abs(action).max() > 1.0 + ACTION_TOLERANCE:
        where = np.unravel_index(int(np.abs(action).argmax()), action.shape)
        at = step if action.ndim == 1 else int(where[0])
        raise BadInput(f"action at step {at}", got=f"{action[where]:.6g}", expected="components in [-1, 1]")
    return np.clip(action, -1.0, 1.0)


def stamps_of(
    stamps: Mapping[str, ArrayLike], wanted: Sequence[str], lead: tuple[int, ...], step: int
) -> dict[str, NDArray[np.float64]]:
    """One time, or (T,) times, for each name of `wanted`; others are refused."""
    for name in stamps:
        if name not in wanted:
            raise BadInput("stamp", got=name, expected="one that the writer was made with", available=wanted)
    times = {}
    for name in wanted:
        if name not in stamps:
            at = "" if lead else f" at step {step}"
            raise BadInput(f"stamps{at}", got=f"no {name!r}", expected="a time for each name", available=wanted)
        array = np.asarray(stamps[name], np.float64)
        times[name] = checked(array, ArraySpec((), "float64"), lead, f"stamp {name!r}", step)
    return times


def texts_of(
    texts: Mapping[str, Sequence[str | None] | Strings], wanted: Sequence[str], length: int
) -> dict[str, Strings]:
    """(T,) strings, T = `length`, for each name of `wanted`; others are refused."""
    if texts.keys() != set(wanted):
        got, expected = sorted(texts) or "nothing", "those that the writer was made with"
        raise BadInput("texts", got=got, expected=expected, available=wanted)
    found: dict[str, Strings] = {}
    for name in wanted:
        values = np.array(list(texts[name]), object)
        strange = [value for value in values if not (value is None or (isinstance(value, str) and encodes(value)))]
        if values.shape != (length,) or strange:
            got = f"{strange[0]!r:.40}" if strange else f"{len(values)} of them"
            raise BadInput(f"text {name!r}", got=got, expected=f"{length} strings of whole characters")
        found[name] = values
    return found


def _component(spec: ArraySpec, where: NDArray) -> str:
    flat = int(np.ravel_multi_index(tuple(int(i) for i in where), spec.shape))
    return f"{flat} ({spec.names[flat]})" if flat < len(spec.names) else str(flat)


ROWS_JOURNAL = "rows.journal"  # in layout.RUNNING_PATH


@dataclass(frozen=True)
class RecordedStep:
    """One step, checked; images are with their encoders."""

    row: Mapping[str, NDArray]
    action: NDArray[np.float32]
    reward: float
    intervention: bool
    stamps: Mapping[str, NDArray[np.float64]]


def rate_note(steps: Sequence[RecordedStep], hz: float, episode: int) -> str:
    """A note on `steps` that were made a little more slowly or faster than they will be played, or nothing. Raises
    `BadInput`: much more slowly or faster."""
    stamps = np.array([step.stamps[ACTION] for step in steps], np.float64)
    if fault := stamped_rate_fault(stamps, hz, RATE_REFUSED):
        hint = "A quicker loop, fewer or smaller pictures, or a control_hz that it keeps; discard() forgets the steps"
        raise BadInput(f"episode {episode}: {fault}", hint=hint)
    fault = stamped_rate_fault(stamps, hz, RATE_NOTED)
    return fault and f"episode {episode}: {fault}"


def episode_of(
    steps: Sequence[RecordedStep], interface: Interface, *, success: bool, terminated: bool, truncated: bool, task: str
) -> Episode:
    """The episode that `steps` make; its observation has no images."""
    observation = {key: np.stack([step.row[key] for step in steps]) for key in _vectors(interface)}
    action, reward = np.stack([step.action for step in steps]), np.asarray([step.reward for step in steps], np.float32)
    helped = np.asarray([step.intervention for step in steps], bool)
    stamps = {name: np.asarray([step.stamps[name] for step in steps], np.float64) for name in steps[0].stamps}
    return Episode(observation, action, reward, success, terminated, truncated, task, helped, stamps)


class StepJournal:
    """The journal of episode number `episode`, in the folder `folder`."""

    def __init__(
        self, folder: Path, interface: Interface, stamps: Sequence[str], video: VideoConfig, episode: int, task: str
    ) -> None:
        self._stamps = list(stamps)
        kinds = {key: stored_dtype(interface.observation[key].dtype) for key in _vectors(interface)}
        self._record = _record(interface, kinds, self._stamps)
        self._journal = Journal(folder / ROWS_JOURNAL)
        header: dict[str, Any] = {
            "episode": episode,
            "task": task,
            "interface": interface.to_json(),
            "stamps": self._stamps,
            "video": asdict(video) | {"codec": video.encoder()},
        }
        if others := {key: kind for key, kind in kinds.items() if kind != "float32"}:
            header["dtypes"] = others
        self._journal.append(json.dumps(header).encode())

    def append(self, step: RecordedStep) -> None:
        """Raises `OSError` where the disk is full."""
        record = np.zeros((), self._record)
        for key, values in step.row.items():
            record["row"][key] = values
        record["action"], record["reward"], record["intervention"] = step.action, step.reward, step.intervention
        record["stamps"] = [step.stamps[name] for name in self._stamps]
        self._journal.append(record.tobytes())

    def close(self) -> None:
        self._journal.close()


@dataclass(frozen=True)
class RecoveredEpisode:
    """Content of the journal of a killed recording."""

    episode: int
    task: str
    interface: Interface
    stamps: list[str]
    video: VideoConfig
    steps: list[RecordedStep]


def read_journal(folder: Path) -> RecoveredEpisode | None:
    """The journal in `folder`, up to where it is whole; None without one."""
    journal = records(folder / ROWS_JOURNAL)
    first = next(journal, None)
    if first is None:
        return None
    header: dict[str, Any] = json.loads(first)
    interface, stamps = Interface.from_json(header["interface"]), list(header["stamps"])
    kinds = dict.fromkeys(_vectors(interface), "float32") | header.get("dtypes", {})
    layout = _record(interface, kinds, stamps)
    steps = []
    for record in journal:
        found = np.frombuffer(record, layout)[0]
        row = {key: found["row"][key] for key in kinds}
        times = dict(zip(stamps, found["stamps"], strict=True))
        steps.append(RecordedStep(row, found["action"], float(found["reward"]), bool(found["intervention"]), times))
    return RecoveredEpisode(header["episode"], header["task"], interface, stamps, VideoConfig(**header["video"]), steps)


def unfinished_steps(folder: Path, episodes: int) -> int:
    """Number of steps in a `layout.RUNNING_PATH` folder of an episode that is not among the set's `episodes`."""
    journal = records(folder / ROWS_JOURNAL)
    header = next(journal, None)
    if header is None or json.loads(header)["episode"] < episodes:
        return 0
    return sum(1 for _ in journal)


def _record(interface: Interface, kinds: Mapping[str, str], stamps: Sequence[str]) -> np.dtype:
    """The bytes of one step; `kinds` is the kind of number of each vector."""
    return np.dtype(
        [
            ("row", [(key, kind, interface.observation[key].shape) for key, kind in kinds.items()]),
            ("action", "float32", interface.action.shape),
            ("reward", "float32"),
            ("stamps", "float64", (len(stamps),)),
            ("intervention", "bool"),
        ]
    )


def _vectors(interface: Interface) -> list[str]:
    return [key for key, spec in interface.observation.items() if not is_image(spec)]
