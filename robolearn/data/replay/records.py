"""One step, or the end of an episode, as bytes (safetensors, never pickle); the append-only log of them, and episodes.

The same bytes go over the wire and into the log. Every value is a tensor with a name; a record with another set of
names, another type or shape, or a number that is not finite is refused, whoever wrote it. The task in words stands in
the first step of an episode, where there are words.

    <folder>/<actor>.transitions        records with their length and checksum; see `robolearn.io.append_only`

Records are on disk before they are acknowledged. Frames are stored once, as uint8. A record that a kill cut short is
dropped when the log is opened again: it was never acknowledged. Where an actor's steps become episodes a gap, a
repetition or a mixture is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from robolearn.core import BadInput, Interface
from robolearn.io.append_only import Journal, cut_torn, records

OBSERVATION = "observation/"
TASK = "task"
TASK_BYTES = 1024  # most of the task in words
_OVERHEAD = 4096 + TASK_BYTES  # bytes of a record beyond its numbers: names, types, shapes and words


@dataclass(frozen=True, eq=False)
class ReplayStep:
    """One control step.

    Attributes:
      episode: number of the episode, unique for an actor and growing.
      index: of the step in its episode, from 0.
      observation: feature → array, *before* the action; pictures (H, W, 3) uint8.
      action: (Da,) in [-1, 1], what was *executed*, whoever commanded it.
      reward: of the step.
      intervention: an operator commanded it.
      task: of the episode in words, in its first step alone; may be empty.
    """

    episode: int
    index: int
    observation: Mapping[str, NDArray]
    action: NDArray[np.float32]
    reward: float
    intervention: bool
    task: str = ""


@dataclass(frozen=True, eq=False)
class End:
    """The end of an episode of `length` steps.

    Attributes:
      observation: the final one, never the next episode's first.
      terminated: the task ended the episode; nothing comes after it.
      truncated: the clock, a crash or a person ended it; more would have come.
      success: whether the task was solved.
    """

    episode: int
    length: int
    observation: Mapping[str, NDArray]
    terminated: bool
    truncated: bool
    success: bool


Record = ReplayStep | End


class RecordSchema:
    """Records of worlds with `interface` ↔ bytes.

    Attributes:
      limit: no record is longer [bytes].
    """

    def __init__(self, interface: Interface) -> None:
        self._features = {
            OBSERVATION + key: (np.dtype(spec.dtype), tuple(spec.shape)) for key, spec in interface.observation.items()
        }
        whole, flag = (np.dtype(np.int64), ()), (np.dtype(np.bool_), ())
        real = np.dtype(np.float32)
        self._step = self._features | {"episode": whole, "index": whole, "intervention": flag}
        self._step |= {"action": (real, tuple(interface.action.shape)), "reward": (real, ())}
        self._end = self._features | {"episode": whole, "length": whole}
        self._end |= dict.fromkeys(("terminated", "truncated", "success"), flag)
        sizes = (int(np.prod(shape, dtype=np.int64)) * kind.itemsize for kind, shape in self._step.values())
        self.limit = _OVERHEAD + 128 * len(self._step) + sum(sizes)

    def encode(self, record: Record) -> bytes:
        """Raises `BadInput` as `decode` does: what cannot be read is not written."""
        observation = {OBSERVATION + key: value for key, value in record.observation.items()}
        fields = {name: value for name, value in vars(record).items() if name not in ("observation", TASK)}
        values = observation | fields
        if words := getattr(record, TASK, ""):
            values[TASK] = np.frombuffer(words.encode(), np.uint8)
        wanted = self._step if isinstance(record, ReplayStep) else self._end
        tensors = {
            # One that is not known keeps its own type, and is refused by its name.
            name: np.ascontiguousarray(value, wanted[name][0] if name in wanted else None).reshape(np.shape(value))
            for name, value in values.items()
        }
        self._check(tensors)
        return save(tensors)

    def decode(self, content: bytes) -> Record:
        """The record in `content`. Raises `BadInput`: too long, no safetensors, another set of names, types or shapes,
        numbers that are not finite, an action beyond ±1, an index or length that no episode has, an end that is neither
        terminated nor truncated."""
        if len(content) > self.limit:
            raise BadInput("transition record", got=f"{len(content)} bytes", expected=f"at most {self.limit}")
        try:
            tensors = load(content)
        except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise BadInput("transition record", got=f"no safetensors ({error})", expected="a record") from None
        self._check(tensors)
        values: dict[str, Any] = {name: value.item() for name, value in tensors.items() if value.ndim == 0}
        values["observation"] = {key.removeprefix(OBSERVATION): tensors[key] for key in self._features}
        if TASK in tensors:
            values[TASK] = tensors[TASK].tobytes().decode()
        return ReplayStep(**values, action=tensors["action"]) if "action" in tensors else End(**values)

    def _check(self, tensors: Mapping[str, NDArray]) -> None:
        wanted = self._step if "action" in tensors else self._end
        if "action" in tensors and TASK in tensors:
            wanted = wanted | {TASK: (np.dtype(np.uint8), _words_shape(tensors[TASK]))}
        if tensors.keys() != wanted.keys():
            odd = sorted(tensors.keys() ^ wanted.keys())
            raise BadInput("transition record: names", got=f"{odd[0]!r} missing or unknown", available=wanted)
        for name, (kind, shape) in wanted.items():
            value = tensors[name]
            if value.dtype != kind or value.shape != shape:
                got = f"{value.dtype} {value.shape}"
                raise BadInput(f"transition record: {name}", got=got, expected=f"{kind} {shape}")
            if kind.kind == "f" and not np.isfinite(value).all():
                raise BadInput(f"transition record: {name}", got="NaN or infinity", expected="finite numbers")
        if "action" in tensors:
            if np.abs(tensors["action"]).max(initial=0.0) > 1.0:
                raise BadInput("transition record: action", got="beyond ±1", expected="within [-1, 1]")
            count = tensors["index"]
            if TASK in tensors and count > 0:
                raise BadInput("transition record: task", got=f"one in step {count}", expected="one in step 0")
        else:
            count = tensors["length"] - 1
            if tensors["terminated"] == tensors["truncated"]:
                raise BadInput("transition record: end", got="both or neither", expected="terminated or truncated")
        if count < 0 or tensors["episode"] < 0:
            raise BadInput("transition record: numbers", got="a negative one", expected="0 or more")


def _words_shape(words: NDArray) -> tuple[int, ...]:
    """The shape of the task's words; raises `BadInput` where they are too long or no UTF-8."""
    if not 0 < words.size <= TASK_BYTES:
        raise BadInput("transition record: task", got=f"{words.size} bytes", expected=f"1 to {TASK_BYTES}")
    try:
        words.tobytes().decode()
    except UnicodeDecodeError as error:
        raise BadInput("transition record: task", got=str(error), expected="words") from None
    return (words.size,)


SUFFIX = ".transitions"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_actor(name: str) -> None:
    """Raise `BadInput` where `name` is no file's."""
    if not NAME.fullmatch(name):
        raise BadInput("actor's name", got=repr(name[:80]), expected="letters, digits, - and _, at most 64")


class TransitionLog:
    """Appends the records of the actor called `actor`; goes on after what is there. Raises `BadInput`: a name that is
    no file's.
    """

    def __init__(self, folder: Path, actor: str, schema: RecordSchema) -> None:
        check_actor(actor)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{actor}{SUFFIX}"
        self._schema = schema
        if self.path.exists():
            cut_torn(self.path)
        self._journal = Journal(self.path, resume=True)

    def append(self, content: bytes) -> None:
        """Add a record as `RecordSchema.encode` made it; it survives a kill from here on.

        Raises `OSError` where the disk is full.
        """
        self._journal.append(content)

    def sync(self) -> None:
        """Make appended records survive a power cut."""
        self._journal.sync()

    def read(self) -> Iterator[Record]:
        """All records, oldest first."""
        return (self._schema.decode(content) for content in records(self.path))

    def close(self) -> None:
        """May be called twice."""
        self._journal.close()


def actors(folder: Path) -> list[str]:
    """The actors that have a log in `folder`."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


@dataclass(frozen=True, eq=False)
class PlayedEpisode:
    """T steps and what was seen after them.

    Attributes:
      observation: feature → (T + 1, …) with the final observation, or (T, …) where that is not known.
      action: (T, Da) executed, in [-1, 1].
      reward: (T,).
      intervention: (T,) an operator commanded the step.
      terminated: nothing comes after the last step; the value of what follows is 0. Otherwise more would have come.
      success: whether the task was solved.
      task: in words; may be empty.
    """

    observation: dict[str, NDArray]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    intervention: NDArray[np.bool_]
    terminated: bool
    success: bool
    task: str = ""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def merits(self) -> NDArray[np.bool_]:
        """(T,) steps that are worth imitating: an operator's, and a policy's own that led to success unaided.

        What a policy did before an operator took over is no merit of its own, however the episode ended: the label of
        success does not cross the boundary of an intervention.
        """
        helped = np.flatnonzero(self.intervention)
        unaided = np.arange(len(self)) > (helped[-1] if len(helped) else -1)
        return self.intervention | (unaided & self.success)


class Assembler:
    """Collects the records of one actor."""

    def __init__(self) -> None:
        self._steps: list[ReplayStep] = []
        self._last = -1  # the newest episode that has ended

    @property
    def expects(self) -> tuple[int, int]:
        """(episode, index): the oldest step that is not known yet."""
        return (self._steps[0].episode, len(self._steps)) if self._steps else (self._last + 1, 0)

    def add(self, record: Record) -> PlayedEpisode | None:
        """Take the next record; the episode that it ends, or None. Raises `BadInput`: it is not the next one."""
        if isinstance(record, ReplayStep):
            if record.index == 0 and record.episode > self._last and not self._steps:
                self._steps = [record]
                return None
            if not self._steps or record.episode != self._steps[0].episode or record.index != len(self._steps):
                got = f"step {record.index} of episode {record.episode}"
                raise BadInput("transition", got=got, expected=self._next())
            self._steps.append(record)
            return None
        if not self._steps or record.episode != self._steps[0].episode or record.length != len(self._steps):
            got = f"the end of episode {record.episode} after {record.length} steps"
            raise BadInput("transition", got=got, expected=self._next())
        return self._finish(record)

    def cut(self) -> PlayedEpisode | None:
        """The episode that its actor will never end, without its last step, whose outcome is not known."""
        steps = self._steps
        if len(steps) < 2:
            self._last = steps[0].episode if steps else self._last
            self._steps = []
            return None
        last = steps.pop()
        return self._finish(End(last.episode, last.index, last.observation, False, True, False))

    def _finish(self, end: End) -> PlayedEpisode:
        steps, self._steps, self._last = self._steps, [], end.episode
        seen = [step.observation for step in steps] + [end.observation]
        observation = {key: np.stack([one[key] for one in seen]) for key in end.observation}
        action, reward = np.stack([step.action for step in steps]), [step.reward for step in steps]
        helped = np.array([step.intervention for step in steps], np.bool_)
        ends = end.terminated, end.success, steps[0].task
        return PlayedEpisode(observation, action, np.array(reward, np.float32), helped, *ends)

    def _next(self) -> str:
        episode, index = self.expects
        return f"step {index} of episode {episode}{' or its end' if index else ''}"
