"""What actor and learner say to each other.

    Connect   an actor's name, what it can do  →  a session, how many records of its are known, what is to be learned
    Append    records, in order                →  how many records of this actor are on the learner's disk
    Beat      which weights the actor has      →  which there are, how much was learned from, whether it is over
    Weights   –                                →  the newest weights that `act` needs, with their version

A record is one step or the end of an episode, see `robolearn.data.replay.records`; the n-th of an actor has the number
n, from 0, for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from robolearn.core import BadInput, Interface
from robolearn.hil.wire.schema import FLAG, NUMBER, WHOLE, Field, Schema, parse, text
from robolearn.io.hashes import sha256

PROTOCOL = 1
SERVICE = "robolearn.Hil"
CONNECT, APPEND, BEAT, WEIGHTS = "Connect", "Append", "Beat", "Weights"
MOST_RECORDS = 256  # in one message
MOST_BYTES = 2_000_000  # of several records in one message; a single one may be longer, up to its own limit
VERSION, ACTING = "version", "acting/"
UNKNOWN = -1e9  # stands for a number that is not known

HELLO = Schema(
    "connect",
    {"protocol": WHOLE, "actor": text(64), "interface": text(64), "policy": text(64), "spooled": WHOLE},
)
WELCOME = Schema("welcome", {"session": WHOLE, "run": text(64), "expects": WHOLE, "task": text(100_000)})
ACKNOWLEDGED = Schema("acknowledged", {"records": WHOLE})
BEAT_ASKED = Schema(
    "beat",
    {"session": WHOLE, "wait_for": WHOLE, "period_p50_ms": NUMBER, "period_p99_ms": NUMBER, "periods": WHOLE},
)
BEAT_ANSWERED = Schema(
    "beat answered",
    {
        "version": WHOLE,
        "processed": WHOLE,
        "finished": FLAG,
        "env_steps": WHOLE,
        "updates": WHOLE,
        "success": NUMBER,
        "intervention_rate": NUMBER,
        "q": NUMBER,
    },
)
WEIGHTS_ASKED = Schema("weights", {"session": WHOLE})


def append_schema(limit: int) -> Schema:
    """Of records that are no longer than `limit` bytes each."""
    return Schema(
        "append",
        {
            "session": WHOLE,
            "first": WHOLE,
            "lengths": Field("int64", (None,), MOST_RECORDS),
            "records": Field("uint8", (None,), max(MOST_BYTES, limit)),
        },
    )


def pack_records(schema: Schema, session: int, first: int, records: Sequence[bytes]) -> bytes:
    """Records, the first of which has the number `first`, as a message."""
    return schema.pack(
        session=session,
        first=first,
        lengths=[len(record) for record in records],
        records=np.frombuffer(b"".join(records), np.uint8),
    )


def unpack_records(message: Mapping[str, Any]) -> list[bytes]:
    """The records of a message that `schema` has unpacked.

    Raises:
      BadInput: lengths that do not add up.
    """
    lengths, content = message["lengths"], message["records"].tobytes()
    if (lengths <= 0).any() or int(lengths.astype(object).sum() if len(lengths) else 0) != len(content):
        raise BadInput("message append: lengths", got="others", expected=f"positive, {len(content)} in all")
    ends = np.cumsum(lengths)
    return [content[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def pack_weights(version: int, tensors: Mapping[str, NDArray]) -> bytes:
    """Weights of version `version`."""
    return save({VERSION: np.array(version, np.int64)} | {ACTING + key: value for key, value in tensors.items()})


def unpack_weights(content: bytes, like: Mapping[str, NDArray]) -> tuple[int, dict[str, NDArray]]:
    """(version, tensors) with the names, types and shapes of `like`.

    Raises:
      BadInput: others, or numbers that are not finite.
    """
    if len(content) > weights_limit(like):
        raise BadInput("weights", got=f"{len(content)} bytes", expected=f"at most {weights_limit(like)}")
    tensors = parse(content, "weights")
    version = tensors.pop(VERSION, np.zeros(1))
    found = {key.removeprefix(ACTING): value for key, value in tensors.items() if key.startswith(ACTING)}
    if version.dtype != np.int64 or version.shape != () or len(found) != len(tensors) or found.keys() != like.keys():
        raise BadInput("weights: names", got="others", expected=f"{VERSION} and those of this algorithm")
    for key, wanted in like.items():
        value = found[key]
        if value.dtype != wanted.dtype or value.shape != wanted.shape:
            raise BadInput(f"weights: {key}", got=f"{value.dtype} {value.shape}", expected=wanted.shape)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise BadInput(f"weights: {key}", got="NaN or infinity", expected="finite numbers")
    return version.item(), found


def weights_limit(like: Mapping[str, NDArray]) -> int:
    """No message with such weights is longer [bytes]."""
    return 4096 + sum(value.nbytes + len(key) + 256 for key, value in like.items())


def interface_hash(interface: Interface) -> str:
    """Of everything that records depend on."""
    return sha256(json.dumps(interface.to_json(), sort_keys=True))
