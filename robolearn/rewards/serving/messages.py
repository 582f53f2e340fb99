"""Messages between a reward server and its callers: protocol buffers, arrays as safetensors inside. Never pickle.

    Describe   an interface                      →  identity of the model, the features that it reads, what it needs
    Score      windows, their tasks in words     →  scores, or why they are withheld, or why they are refused

A window's arrays are called ``<i>/action`` and ``<i>/observation/<feature>``, a score's ``<i>/progress`` and so on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from robolearn.core import BadInput, Score, Window
from robolearn.io.tensors import arrays_in
from robolearn.io.wire.protocol import make_methods
from robolearn.rewards.scoring import SCORE_TYPES, checked

PROTOCOL = 1
DESCRIPTION_LIMIT = 1_000_000  # bytes, with an interface or the names of its features
SCORE_LIMIT = 512_000_000  # bytes of windows: 1000 steps of two cameras of 256 x 256 px are 393 MB
OBSERVATION = "observation/"

DESCRIBE, SCORE = make_methods(
    "robolearn.Reward",
    {
        "DescribeRequest": {"protocol": "int64", "interface": "string"},
        "DescribeReply": {
            "identity": "string", "model": "string", "features": "repeated string", "sees_images": "bool",
            "needs_prompt": "bool", "is_privileged": "bool", "frame_by_frame": "bool",
        },
        "ScoreRequest": {
            "identity": "string", "wait_s": "double", "prompts": "repeated string", "windows": "bytes",
        },
        "ScoreReply": {"scores": "bytes", "withheld": "string", "refused": "string"},
    },
)  # fmt: skip


def pack_windows(windows: Sequence[Window], features: Collection[str]) -> bytes:
    """The windows with their actions and those `features` that they have; all of them where none is named."""
    arrays = {}
    for i, window in enumerate(windows):
        arrays[f"{i}/action"] = np.ascontiguousarray(window.action)
        for key, value in window.observation.items():
            if not features or key in features:
                arrays[f"{i}/{OBSERVATION}{key}"] = np.ascontiguousarray(value)
    return save(arrays)


def unpack_windows(content: bytes, count: int) -> list[Window]:
    """The inverse of `pack_windows` for `count` windows. Raises `BadInput`: no safetensors, windows of another number,
    a feature of another length than its steps, or one more."""
    parts = _numbered(content, count, "windows")
    windows = []
    for i, arrays in enumerate(parts):
        action = arrays.pop("action", None)
        observation = {key.removeprefix(OBSERVATION): value for key, value in arrays.items()}
        if action is None or action.ndim != 2 or not len(action):
            raise BadInput(f"window {i}", got="no actions", expected="(T, Da) of at least a step")
        for key, value in observation.items():
            if not value.ndim or len(value) not in (len(action), len(action) + 1):
                raise BadInput(f"window {i}: {key}", got=value.shape, expected=f"{len(action)} rows, or one more")
        windows.append(Window(observation, action))
    return windows


def pack_scores(scores: Sequence[Score]) -> bytes:
    """Scores that were checked."""
    return save(
        {f"{i}/{name}": np.ascontiguousarray(getattr(s, name)) for i, s in enumerate(scores) for name in SCORE_TYPES}
    )


def unpack_scores(content: bytes, windows: Sequence[Window]) -> list[Score]:
    """The inverse of `pack_scores` for these windows. Raises `BadInput`: no safetensors, other numbers, names, lengths
    or types, or numbers that are not finite."""
    scores = []
    for arrays in _numbered(content, len(windows), "scores"):
        wrong = [name for name, kind in SCORE_TYPES.items() if name not in arrays or arrays[name].dtype != kind]
        if wrong or len(arrays) != len(SCORE_TYPES):
            raise BadInput("scores", got=f"{sorted(arrays)}", expected=list(SCORE_TYPES))
        scores.append(Score(**arrays))
    return checked(scores, windows)


def _numbered(content: bytes, count: int, what: str) -> list[dict[str, NDArray]]:
    """The arrays of each number before the first slash of their names, from 0."""
    parts: dict[str, dict[str, NDArray]] = defaultdict(dict)
    for name, value in arrays_in(content, what=what).items():
        number, _, rest = name.partition("/")
        parts[number][rest] = value
    if parts.keys() != {str(i) for i in range(count)}:
        raise BadInput(what, got=f"the numbers {sorted(parts)[:8]}", expected=f"0 to {count - 1}")
    return [parts[str(i)] for i in range(count)]
