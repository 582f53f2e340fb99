"""Checks of ``meta/info.json``, which another tool may have written, or a hand edited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from robolearn.core import BadInput

VERSION = "v3.0"

# What may stand in the patterns of paths, by version.
V2 = ("episode_chunk", "episode_index", "video_key")
V3 = ("chunk_index", "file_index", "video_key")


def check_info(info: Mapping[str, Any], what: str) -> None:
    """Raise `BadInput`, with the key, where a value is of a kind that no reader understands. All keys are there."""
    for key in ("total_episodes", "total_frames", "total_tasks"):
        if not isinstance(info[key], int) or info[key] < 0:
            raise BadInput(f"{what}: {key}", got=info[key], expected="a number")
    fps, size = info["fps"], info.get("chunks_size")
    if not isinstance(fps, int | float) or not 0 < fps < math.inf:
        raise BadInput(f"{what}: fps", got=fps, expected="a positive number")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise BadInput(f"{what}: chunks_size", got=size, expected="a positive number")
    features = info["features"]
    if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
        raise BadInput(f"{what}: features", got=type(features).__name__, expected="a dict of dicts")
    for name, feature in features.items():
        _check_feature(name, feature, f"{what}: features: {name}")
    if _number(info)[:1] == [3]:
        check_patterns(info, what, V3)


def check_version(info: Mapping[str, Any], what: str) -> None:
    """Raise `BadInput` unless a set is of `VERSION`, which alone is read without an import."""
    if _number(info)[:2] != _number({"codebase_version": VERSION}):
        hint = "robolearn dataset import reads it" if _number(info)[:1] == [2] else ""
        raise BadInput(what, got=f"format {info['codebase_version']}", expected=VERSION, hint=hint)


def check_not_newer(info: Mapping[str, Any], what: str) -> None:
    """Raise `BadInput` where a set is of a version that came after `VERSION`: nothing else about it is known then."""
    if _number(info)[:2] > _number({"codebase_version": VERSION}):
        hint = f"This version of robolearn reads LeRobot's formats up to {VERSION}, which LeRobot 0.4 to 0.6 write"
        raise BadInput(what, got=f"format {info['codebase_version']}, a newer one", expected=VERSION, hint=hint)


def _number(info: Mapping[str, Any]) -> list[int]:
    """``"v3.0"`` → [3, 0]; what is no version → nothing."""
    parts = str(info.get("codebase_version", "")).removeprefix("v").split(".")
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []


def _check_feature(name: str, feature: Mapping[str, Any], what: str) -> None:
    if "/" in name or name in ("", ".", ".."):  # names become parts of paths
        raise BadInput(what, got="this name", expected="one without '/', as LeRobot has it")
    if not isinstance(feature.get("dtype"), str):
        raise BadInput(f"{what}: dtype", got=feature.get("dtype"), expected="a word")
    shape = feature.get("shape")
    if not isinstance(shape, list) or not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        raise BadInput(f"{what}: shape", got=shape, expected="a list of numbers")
    for key in ("info", "video_info"):
        if not isinstance(feature.get(key) or {}, dict):
            raise BadInput(f"{what}: {key}", got=type(feature[key]).__name__, expected="a dict")


def check_patterns(info: Mapping[str, Any], what: str, names: Sequence[str]) -> None:
    """Raise `BadInput` where the pattern of a path holds something else than `names`."""
    for key in ("data_path", "video_path"):
        try:
            str(info.get(key) or "").format(**{name: "x" if name == "video_key" else 0 for name in names})
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            raise BadInput(f"{what}: {key}", got=info[key], expected=f"a pattern of {', '.join(names)}") from None
