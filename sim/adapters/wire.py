"""The messages between a vector env and its workers: a fixed header, then raw bytes.

Header, both ways: kind (1 byte), world (uint32), length of the payload (uint32). Arrays travel as their bytes in
the order of the interface's features; texts as UTF-8 or JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, Interface
from sim.adapters.facts import Features
from sim.adapters.world import StepOutcome

_HEADER = struct.Struct("<cII")
_OUTCOME = struct.Struct("<I??b?")  # executed steps, terminated, truncated, success (-1: not reported), ended
_START = struct.Struct("<QQ")  # seed, start id

BUILD, RESET, NEXT, CHUNK, FRAME = b"b", b"r", b"n", b"c", b"f"  # requests
READY, OBSERVATION, OUTCOME, PICTURE = b"y", b"o", b"u", b"p"  # replies
WARNING, BAD_INPUT, ERROR = b"w", b"i", b"e"


def send(stream: BinaryIO, kind: bytes, world: int, payload: bytes = b"") -> None:
    """Write one message; OSError when the other side is gone."""
    stream.write(_HEADER.pack(kind, world, len(payload)) + payload)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, int, bytes]:
    """Read one message (kind, world, payload); EOFError when the other side is gone."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    kind, world, length = _HEADER.unpack(header)
    payload = stream.read(length) if length else b""
    if len(payload) < length:
        raise EOFError
    return kind, world, payload


def pack_features(features: Features, specs: Mapping[str, ArraySpec]) -> bytes:
    """The arrays' bytes in the order of `specs`."""
    return b"".join(np.ascontiguousarray(features[key], dtype=spec.dtype).tobytes() for key, spec in specs.items())


def unpack_features(data: bytes, specs: Mapping[str, ArraySpec]) -> Features:
    """The inverse of `pack_features`."""
    features, offset = {}, 0
    for key, spec in specs.items():
        array = np.frombuffer(data, dtype=spec.dtype, count=spec.size, offset=offset).reshape(spec.shape)
        features[key] = array
        offset += array.nbytes
    return features


def pack_outcome(outcome: StepOutcome, interface: Interface) -> bytes:
    """Numbers, the observation, and the final one where the episode ended. The warning travels apart."""
    numbers = _OUTCOME.pack(
        len(outcome.rewards),
        outcome.terminated,
        outcome.truncated,
        -1 if outcome.success is None else outcome.success,
        outcome.final is not None,
    )
    final = b"" if outcome.final is None else pack_features(outcome.final, interface.observation)
    rewards = np.array(outcome.rewards, np.float64).tobytes()
    return numbers + rewards + pack_features(outcome.observation, interface.observation) + final


def unpack_outcome(data: bytes, interface: Interface) -> StepOutcome:
    """The inverse of `pack_outcome`."""
    specs = interface.observation
    steps, terminated, truncated, success, ended = _OUTCOME.unpack_from(data)
    rewards = np.frombuffer(data, np.float64, count=steps, offset=_OUTCOME.size)
    body = data[_OUTCOME.size + rewards.nbytes :]
    observation = unpack_features(body, specs)
    rest = body[sum(array.nbytes for array in observation.values()) :]
    final = unpack_features(rest, specs) if ended else None
    solved = None if success < 0 else bool(success)
    return StepOutcome(observation, final, tuple(rewards.tolist()), terminated, truncated, solved)


def pack_picture(picture: NDArray[np.uint8] | None) -> bytes:
    """Height and width, then the pixels; nothing for None."""
    return b"" if picture is None else struct.pack("<II", *picture.shape[:2]) + picture.tobytes()


def unpack_picture(data: bytes) -> NDArray[np.uint8] | None:
    """The inverse of `pack_picture`."""
    if not data:
        return None
    height, width = struct.unpack_from("<II", data)
    return np.frombuffer(data, np.uint8, offset=8).reshape(height, width, 3)


def pack_start(seed: int, start_id: int) -> bytes:
    """The seed and the start id of a world."""
    return _START.pack(seed, start_id)


def unpack_start(data: bytes) -> tuple[int, int]:
    """The inverse of `pack_start`."""
    return _START.unpack(data)
