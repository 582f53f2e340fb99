"""A share of the worlds of a vector env, in a worker: a whole env of its own that answers requests.

A request and its answer are a kind and a payload: the arrays as safetensors, and what is no array as JSON in one of
them. The same bytes go over the pipes of a process and through Ray, so that nothing of ours is pickled, and what a
worker answers does not depend on where it runs.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import struct
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

import robolearn
from robolearn.core import BadInput, ChunkEnv, NonFinite
from sim.bridge.far.errors import describe, parts_of
from sim.bridge.process import WorldDied
from sim.registry import WorldConfig

OPEN, RESET, CHUNK, EXPERT, FRAME = b"o", b"r", b"c", b"x", b"f"  # requests
SNAPSHOT, RESTORE = b"s", b"t"
DONE, BAD_INPUT, NOT_FINITE, DIED, FAILED = b"d", b"i", b"n", b"g", b"e"  # answers
HEADER = struct.Struct("<cQ")
SAID = "json"
SEEN, FINAL = "seen/", "final/"  # before the names of features

Arrays = dict[str, NDArray[Any]]


def pack(arrays: Mapping[str, NDArray[Any]], said: Mapping[str, Any] | None = None) -> bytes:
    """A payload; `said` is what JSON holds."""
    found = {key: np.ascontiguousarray(value).reshape(value.shape) for key, value in arrays.items()}
    return save(found | {SAID: np.frombuffer(json.dumps(dict(said or {})).encode(), np.uint8)})


def unpack(payload: bytes) -> tuple[Arrays, dict[str, Any]]:
    """The inverse of `pack`."""
    arrays = load(payload)
    return arrays, json.loads(arrays.pop(SAID).tobytes().decode())


def write(stream: BinaryIO, kind: bytes, payload: bytes) -> None:
    """Write one message; OSError where the other side is gone."""
    stream.write(HEADER.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


def read(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Read one message (kind, payload); EOFError where the other side is gone."""
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        raise EOFError
    kind, length = HEADER.unpack(head)
    payload = stream.read(length)
    if len(payload) < length:
        raise EOFError
    return kind, payload


def to_json(config: WorldConfig) -> dict[str, Any]:
    """The fields of a config; a path is text."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(config).items()}


def from_json(data: Mapping[str, Any]) -> WorldConfig:
    """The inverse of `to_json`."""
    python = data["world_python"]
    paths = {"world_python": None if python is None else Path(python)}
    return WorldConfig(**{**data, "cameras": tuple(data["cameras"]), **paths})


class Share:
    """The worlds of one worker, once it has been asked to open them."""

    def __init__(self) -> None:
        self._env: Any = None
        self.notes = Notes()

    def answer(self, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Kind and payload of the answer; whatever goes wrong is an answer, too."""
        try:
            arrays, said = self._answer(kind, *unpack(payload))
            return DONE, pack(arrays, said | {"notes": self.notes.taken()})
        except BadInput as error:
            return BAD_INPUT, parts_of(error)
        except NonFinite as error:
            return NOT_FINITE, str(error).encode()
        except WorldDied as error:
            return DIED, str(error).encode()
        except (Exception, SystemExit) as error:
            return FAILED, describe(error).replace("\n", " ").encode()

    def _answer(self, kind: bytes, arrays: Arrays, said: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        if kind == OPEN:
            return {}, self._open(said)
        env = self._env
        if kind == RESET:
            observation, infos = env.reset(seed=said["seed"], options=arrays)
            return _seen(observation) | _success(infos), {}
        if kind == CHUNK:
            return self._chunk(arrays["chunks"], arrays["active"]), {}
        if kind == EXPERT:
            return {"actions": env.demonstrate(arrays["active"])}, {}
        if kind == FRAME:
            picture = env.frame(said["world"])
            return {} if picture is None else {"picture": picture}, {}
        if kind == SNAPSHOT:
            found = env.snapshot()
            return found or {}, {"readable": found is not None}
        return _seen(env.restore(arrays)), {}

    def _open(self, said: dict[str, Any]) -> dict[str, Any]:
        """Build the worlds; what their env says of itself."""
        if said["robolearn"] != robolearn.__version__:
            got = f"robolearn {robolearn.__version__}"
            raise BadInput("worker", got=got, expected=f"{said['robolearn']}, as in the command")
        if Path(said["folder"]).is_dir():
            os.chdir(said["folder"])  # where the paths of the command begin
        config = from_json(said["config"])
        self._env = env = config.build(said["count"])
        if env.steps_together or not isinstance(env, ChunkEnv):
            expected = "worlds that may rest, and take chunks"
            raise BadInput("--workers", got=f"task {config.task}", expected=expected)
        names = ("task", "prompt", "max_episode_steps", "reports_success", "continuing")
        facts = {name: getattr(env, name) for name in names}
        facts |= {"demonstrates": getattr(env, "demonstrates", False), "says": list(getattr(env, "says", ()))}
        return facts | {"interface": env.interface.to_json(), "node": platform.node(),
                        "auth": os.environ.get("RAY_AUTH_MODE", "")}  # fmt: skip

    def _chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_]) -> Arrays:
        """Of final observations there are those of the worlds whose episodes ended, in their order."""
        observation, _, terminated, truncated, infos = self._env.step_chunk(chunks, active)
        ended = active & (terminated | truncated)
        found = {"terminated": active & terminated, "truncated": active & truncated,
                 "rewards": infos["step_rewards"], "steps": infos["steps"] * active}  # fmt: skip
        if ended.any():
            found |= {FINAL + key: value[ended] for key, value in infos["final_obs"].items()}
        return found | _seen(observation) | _success(infos)

    def close(self) -> None:
        """Close the worlds."""
        if self._env is not None:
            self._env.close()


class OwnShare(Share):
    """The share of a process that has no other: its notes are all warnings of the process."""

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger().addHandler(self.notes)


def _seen(observation: Mapping[str, NDArray[Any]]) -> Arrays:
    return {SEEN + key: value for key, value in observation.items()}


def _success(infos: Mapping[str, Any]) -> Arrays:
    return {"success": np.asarray(infos["success"], np.bool_)} if "success" in infos else {}


class Notes(logging.Handler):
    """Warnings of the worlds, for the log of the command: a worker's own goes nowhere."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record.getMessage())

    def taken(self) -> list[str]:
        """Those since the last time."""
        found, self._found = self._found, []
        return found


def main() -> None:
    """A process that hosts a share: requests come on its standard input, answers go to its standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what worlds print is no answer
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    share = OwnShare()
    try:
        while True:
            write(answers, *share.answer(*read(requests)))
    except (EOFError, OSError):
        share.close()
