"""One step, or the end of an episode, as bytes (safetensors, never pickle), and the append-only log of them.

The same bytes go over the wire and into the log. Every value is a tensor with a name; a record with another set of
names, another type or shape, or a number that is not finite is refused, whoever wrote it.

    <folder>/<actor>.transitions        records with their length and checksum; see `robolearn.io.append_only`

Records are on disk before they are acknowledged. Frames are stored once, as uint8. A record that a kill cut short is
dropped when the log is opened again: it was never acknowledged.
"""

from __future__ import annotations

import os
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
from robolearn.io.append_only import Journal, records, whole_length

OBSERVATION = "observation/"
_OVERHEAD = 4096  # bytes of a record beyond its numbers: names, types and shapes


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
    """

    episode: int
    index: int
    observation: Mapping[str, NDArray]
    action: NDArray[np.float32]
    reward: float
    intervention: bool


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
        self._step = self._features | {
            "episode": whole,
            "index": whole,
            "action": (np.dtype(np.float32), tuple(interface.action.shape)),
            "reward": (np.dtype(np.float32), ()),
            "intervention": flag,
        }
        self._end = self._features | {
            "episode": whole,
            "length": whole,
            "terminated": flag,
            "truncated": flag,
            "success": flag,
        }
        sizes = (int(np.prod(shape, dtype=np.int64)) * kind.itemsize for kind, shape in self._step.values())
        self.limit = _OVERHEAD + 128 * len(self._step) + sum(sizes)

    def encode(self, record: Record) -> bytes:
        """Raises `BadInput` as `decode` does: what cannot be read is not written."""
        observation = {OBSERVATION + key: value for key, value in record.observation.items()}
        fields = {name: value for name, value in vars(record).items() if name != "observation"}
        values = observation | fields
        wanted = self._step if isinstance(record, ReplayStep) else self._end
        tensors = {
            # One that is not known keeps its own type, and is refused by its name.
            name: np.ascontiguousarray(value, dtype=wanted[name][0] if name in wanted else None).reshape(
                np.shape(value)
            )
            for name, value in values.items()
        }
        self._check(tensors)
        return save(tensors)

    def decode(self, content: bytes) -> Record:
        """The record in `content`.

        Raises:
          BadInput: too long, no safetensors, another set of names, types or shapes, numbers that are not finite, an
            action beyond ±1, an index or length that no episode has, an end that is neither terminated nor truncated.
        """
        if len(content) > self.limit:
            raise BadInput("transition record", got=f"{len(content)} bytes", expected=f"at most {self.limit}")
        try:
            tensors = load(content)
        except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise BadInput("transition record", got=f"no safetensors ({error})", expected="a record") from None
        self._check(tensors)
        values: dict[str, Any] = {name: value.item() for name, value in tensors.items() if value.ndim == 0}
        values["observation"] = {key.removeprefix(OBSERVATION): tensors[key] for key in self._features}
        return ReplayStep(**values, action=tensors["action"]) if "action" in tensors else End(**values)

    def _check(self, tensors: Mapping[str, NDArray]) -> None:
        wanted = self._step if "action" in tensors else self._end
        if tensors.keys() != wanted.keys():
            odd = sorted(tensors.keys() ^ wanted.keys())
            raise BadInput("transition record: names", got=f"{odd[0]!r} missing or unknown", available=wanted)
        for name, (kind, shape) in wanted.items():
            value = tensors[name]
            if value.dtype != kind or value.shape != shape:
                raise BadInput(
                    f"transition record: {name}", got=f"{value.dtype} {value.shape}", expected=f"{kind} {shape}"
                )
            if kind.kind == "f" and not np.isfinite(value).all():
                raise BadInput(f"transition record: {name}", got="NaN or infinity", expected="finite numbers")
        if "action" in tensors:
            if np.abs(tensors["action"]).max(initial=0.0) > 1.0:
                raise BadInput("transition record: action", got="beyond ±1", expected="within [-1, 1]")
            count = tensors["index"]
        else:
            count = tensors["length"] - 1
            if tensors["terminated"] == tensors["truncated"]:
                raise BadInput("transition record: end", got="both or neither", expected="terminated or truncated")
        if count < 0 or tensors["episode"] < 0:
            raise BadInput("transition record: numbers", got="a negative one", expected="0 or more")


SUFFIX = ".transitions"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class TransitionLog:
    """Appends the records of the actor called `actor`; goes on after what is there.

    Raises:
      BadInput: a name that is no file's.
    """

    def __init__(self, folder: Path, actor: str, schema: RecordSchema) -> None:
        if not NAME.fullmatch(actor):
            raise BadInput("actor's name", got=repr(actor[:80]), expected="letters, digits, - and _, at most 64")
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{actor}{SUFFIX}"
        self._schema = schema
        if self.path.exists():
            os.truncate(self.path, whole_length(self.path))
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
