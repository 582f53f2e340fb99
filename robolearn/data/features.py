"""The mapping between an `Interface` and the features of a LeRobotDataset v3.0.

    proprio           -> observation.state                  fixed_size_list<float>[D]
    objects           -> observation.environment_state
    <other>           -> observation.<other>
    action            -> action
    Episode.reward    -> next.reward
    its last frame    -> next.done (terminated or truncated), next.terminated, next.truncated, next.success

A vector of one component is a plain column, as LeRobot expects for shape (1,). The interface itself stands in
``meta/info.json`` under the key `INTERFACE_KEY`, which LeRobot does not read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from robolearn.core import ArraySpec, BadInput, Interface

log = logging.getLogger(__name__)

INTERFACE_KEY = "robolearn_interface"

_COLUMN = {"proprio": "observation.state", "objects": "observation.environment_state"}
_KEY = {column: key for key, column in _COLUMN.items()}


def _scalar(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1], "names": None}


OUTCOME = {
    "next.reward": _scalar("float32"),
    "next.done": _scalar("bool"),
    "next.terminated": _scalar("bool"),
    "next.truncated": _scalar("bool"),
    "next.success": _scalar("bool"),
}
INDEX = {
    "timestamp": _scalar("float32"),
    "frame_index": _scalar("int64"),
    "episode_index": _scalar("int64"),
    "index": _scalar("int64"),
    "task_index": _scalar("int64"),
}


def column(key: str) -> str:
    """The LeRobot name of observation feature `key`."""
    return _COLUMN.get(key, f"observation.{key}")


def key_of(column: str) -> str:
    """The inverse of `column`."""
    return _KEY.get(column, column.removeprefix("observation."))


def features_of(interface: Interface) -> dict[str, dict[str, Any]]:
    """LeRobot's feature dictionary for episodes of `interface`.

    Raises:
      BadInput: a feature that cannot be stored: an image, an empty vector, or two with one LeRobot name.
    """
    features: dict[str, dict[str, Any]] = {}
    for key, spec in interface.observation.items():
        name = column(key)
        if name in features or "/" in key:
            raise BadInput(f"observation {key!r}", got=f"column {name!r}", expected="a name of its own without '/'")
        features[name] = _vector(f"observation {key!r}", spec)
    features["action"] = _vector("action", interface.action)
    return {**features, **OUTCOME, **INDEX}


def _vector(what: str, spec: ArraySpec) -> dict[str, Any]:
    if spec.dtype == "uint8" and len(spec.shape) == 3:
        raise BadInput(what, got="an image", expected="a float vector", hint="Leave it out of the interface to store")
    if spec.size < 1:
        raise BadInput(what, got=f"shape {spec.shape}", expected="at least one component")
    names = list(spec.names) if len(spec.names) == spec.size else None
    return {"dtype": "float32", "shape": [spec.size], "names": names}


def schema_of(features: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """The Arrow schema of the frames: plain columns for shape (1,), fixed_size_list otherwise."""
    fields = []
    for name, feature in features.items():
        kind = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}[feature["dtype"]]
        size = feature["shape"][0]
        fields.append(pa.field(name, kind if size == 1 else pa.list_(kind, size)))
    return pa.schema(fields)


def interface_of(info: Mapping[str, Any], *, what: str) -> Interface:
    """The interface that `info` (``meta/info.json``) holds, or one derived from its features.

    A derived one has `action_kind` ``"native"`` and only the float vectors among the observations.
    """
    if INTERFACE_KEY in info:
        try:
            return Interface.from_json(info[INTERFACE_KEY])
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{what}: {INTERFACE_KEY}", got=f"no valid interface ({error!r})") from None
    features = info["features"]
    if "action" not in features:
        raise BadInput(what, got="no feature 'action'", expected="one", available=features)
    observation = {}
    for name, feature in features.items():
        if not name.startswith("observation."):
            continue
        if not feature["dtype"].startswith("float"):
            log.info("%s: %s (%s) is left out", what, name, feature["dtype"])
            continue
        observation[key_of(name)] = _spec(feature)
    return Interface(
        observation=observation,
        action=_spec(features["action"]),
        control_hz=float(info["fps"]),
        embodiment=str(info.get("robot_type") or "none"),
    )


def _spec(feature: Mapping[str, Any]) -> ArraySpec:
    names = feature.get("names")
    if isinstance(names, Mapping):  # older sets nest them under the name of an axis
        names = next(iter(names.values()), None)
    shape = tuple(int(extent) for extent in feature["shape"])
    flat = isinstance(names, list) and len(shape) == 1 and len(names) == shape[0]
    return ArraySpec(shape, "float32", tuple(str(name) for name in names) if flat and names else ())
