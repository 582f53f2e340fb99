"""Messages between actor and learner: protocol buffers, with weights as safetensors inside. Never pickle.

    Connect     an actor's name, its task, hashes →  a session, how many of its records are known, the learner's config
    Append      records, in order                →  how many records of this actor are on the learner's disk
    Heartbeat   version of the actor's weights   →  the newest version, how much was learned from, whether it is over
    Weights     –                                →  the newest weights that `act` needs, with their version

A record is one step or the end of an episode, see `robolearn.data.replay.records`; the n-th of an actor has the number
n, from 0, for ever.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from robolearn.core import BadInput, Interface
from robolearn.io.hashes import sha256
from robolearn.io.wire.protocol import SHORT, make_methods

PROTOCOL = 3
MOST_RECORDS = 256  # in one message
MOST_BYTES = 2_000_000  # of several records in one message; a single one may be longer, up to its own limit
CONNECT_REPLY_LIMIT = 100_000 + SHORT  # bytes, with the config

# Message → field → type. Fields are numbered in their order: add new ones at the end.
FIELDS = {
    "ConnectRequest": {
        "protocol": "int64", "actor": "string", "interface": "string", "policy": "string", "stored": "int64",
        "task": "optional string",
    },
    "ConnectReply": {"session": "int64", "run": "string", "expects": "int64", "config": "string"},
    "AppendRequest": {"session": "int64", "first": "int64", "records": "repeated bytes"},
    "AppendReply": {"records": "int64"},
    "HeartbeatRequest": {
        "session": "int64", "wait_for": "int64", "period_p50_ms": "double", "period_p99_ms": "double",
        "periods": "int64",
    },
    "HeartbeatReply": {
        "version": "int64", "processed": "int64", "finished": "bool", "env_steps": "int64", "updates": "int64",
        "success": "optional double", "intervention_rate": "optional double", "q": "optional double",
    },
    "WeightsRequest": {"session": "int64"},
    "WeightsReply": {"version": "int64", "tensors": "bytes"},
}  # fmt: skip


CONNECT, APPEND, HEARTBEAT, WEIGHTS = make_methods("robolearn.Hil", FIELDS)


def append_limit(record_limit: int) -> int:
    """Most bytes of an AppendRequest with records of at most `record_limit` bytes."""
    return max(MOST_BYTES, record_limit) + 16 * MOST_RECORDS + SHORT


def pack_weights(version: int, tensors: Mapping[str, NDArray]) -> Any:
    """A WeightsReply."""
    return WEIGHTS.reply(version=version, tensors=save(dict(tensors)))


def unpack_weights(message: Any, like: Mapping[str, NDArray]) -> tuple[int, dict[str, NDArray]]:
    """(version, tensors) of a WeightsReply, with the names, types and shapes of `like`.

    Raises:
      BadInput: others, or numbers that are not finite.
    """
    try:
        tensors = load(message.tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise BadInput("weights", got=f"no safetensors ({error})", expected="safetensors") from None
    if tensors.keys() != like.keys():
        raise BadInput("weights: names", got="others", expected="those of this algorithm")
    for key, wanted in like.items():
        value = tensors[key]
        if value.dtype != wanted.dtype or value.shape != wanted.shape:
            raise BadInput(f"weights: {key}", got=f"{value.dtype} {value.shape}", expected=wanted.shape)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise BadInput(f"weights: {key}", got="NaN or infinity", expected="finite numbers")
    return message.version, tensors


def weights_limit(like: Mapping[str, NDArray]) -> int:
    """Most bytes of a WeightsReply with such weights."""
    return SHORT + sum(value.nbytes + len(key) + 256 for key, value in like.items())


def interface_hash(interface: Interface) -> str:
    """Hash of everything that records depend on."""
    return sha256(json.dumps(interface.to_json(), sort_keys=True))


@dataclass(frozen=True)
class LearnerProgress:
    """Progress of a learner; NaN where unknown.

    Attributes:
      env_steps: control steps that are learned from.
      updates: of the critics.
      success: share of the last intervention-free episodes that solved the task.
      intervention_rate: share of the steps of the last episodes that an operator commanded.
      q: mean value of the executed actions.
    """

    env_steps: int = 0
    updates: int = 0
    success: float = math.nan
    intervention_rate: float = math.nan
    q: float = math.nan

    def fields(self) -> dict[str, float]:
        """Fields of a HeartbeatReply."""
        return {key: value for key, value in vars(self).items() if math.isfinite(value)}

    @staticmethod
    def of(reply: Any) -> LearnerProgress:
        """The inverse of `fields`."""
        return LearnerProgress(**{key: getattr(reply, key) for key in vars(LearnerProgress()) if reply.HasField(key)})


@dataclass(frozen=True)
class Period:
    """Regularity of an actor's control steps.

    Attributes:
      p50, p99: time between two control steps [ms].
      count: number of such times.
    """

    p50: float = 0.0
    p99: float = 0.0
    count: int = 0
