"""The mapping between an `Interface` and the features of a LeRobotDataset v3.0.

    proprio           -> observation.state                  fixed_size_list<float>[D]
    objects           -> observation.environment_state
    images.<camera>   -> observation.images.<camera>        an mp4 per episode, no column
    <other>           -> observation.<other>                in the kind of number that `stored_dtype` gives
    action            -> action
    Episode.reward    -> next.reward
    its last frame    -> next.done (terminated or truncated), next.terminated, next.truncated, and next.success unless
                         success was not recorded
    Episode.intervention -> is_intervention
    Episode.failure   -> failure, the number of its kind in `FAILURES` at every step; sets that label failures have it
    Episode.stamps    -> stamp.<name>                       float64 [s]; images.<camera> -> stamp.camera.<camera>
    Episode.texts     -> the same name                      string, of other makers' sets

A vector of one component is a plain column, as LeRobot expects for shape (1,); a matrix is stored row by row.

The interface itself stands in ``meta/info.json`` under the key `INTERFACE_KEY`, which marks a set that we wrote, and
once more in the ``info`` of the feature ``action``: LeRobot's own delete, split and merge keep the features, but no key
beside those that they know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.core.specs import ACTION_SCALE, is_image

INTERFACE_KEY = "robolearn_interface"

_COLUMN = {"proprio": "observation.state", "objects": "observation.environment_state"}
_KEY = {column: key for key, column in _COLUMN.items()}


def scalar(dtype: str) -> dict[str, Any]:
    """The feature of a plain column."""
    return {"dtype": dtype, "shape": [1], "names": None}


SUCCESS = "next.success"
OUTCOME = {"next.reward": scalar("float32")}
OUTCOME |= {name: scalar("bool") for name in ("next.done", "next.terminated", "next.truncated", SUCCESS)}
INDEX = {"timestamp": scalar("float32")}
INDEX |= {name: scalar("int64") for name in ("frame_index", "episode_index", "index", "task_index")}
INTERVENTION = "is_intervention"
FAILURE = "failure"
FAILURES = ("", "missed", "dropped", "wrong_place", "nearly", "pushed_away", "frozen", "other", "distractor")
"""Kinds of failure by their numbers in the column `FAILURE`; 0: none, or not known. New ones come last."""
STAMP = "stamp."
FRAME = "frame"
"""The stamp of the grid point itself, so that an exported bag falls into the same frames again."""

NUMBERS = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
"""The kinds of number that a feature may have."""

LONGEST = 200  # bytes of an observation's name; those of files, which have a prefix and an end, are up to 255
IMAGES = "images."
_CAMERA, _MASKED = "camera.", "imag-e"  # in the columns of stamps


def image_keys(interface: Interface) -> list[str]:
    """The observation features that are pictures."""
    return [key for key, spec in interface.observation.items() if is_image(spec)]


def camera_name(key: str) -> str:
    """``images.front`` → ``front``."""
    return key.removeprefix(IMAGES)


TAKEN = "its name is taken by a file"
"""Why a stranger's camera gets another name."""


def is_reserved(camera: str) -> bool:
    """True for names of other files of a recording, which a camera cannot have."""
    return camera == "rows" or camera.endswith(".tmp")


def check_camera(key: str, what: str) -> None:
    """Raise `BadInput` where somebody gives a camera, that of feature `key`, a name that is taken."""
    if is_reserved(camera_name(key)):
        expected = "another name: `rows` and what ends with .tmp are files of a recording"
        raise BadInput(what, got=f"a camera called {camera_name(key)!r}", expected=expected)


def free_name(key: str) -> str:
    """`key` of a stranger's camera, which nobody here named, with an underscore where its name is taken."""
    return key + "_" if is_reserved(camera_name(key)) else key


def column(key: str) -> str:
    """The LeRobot name of observation feature `key`."""
    return _COLUMN.get(key, f"observation.{key}")


def key_of(column: str) -> str:
    """The inverse of `column`."""
    return _KEY.get(column, column.removeprefix("observation."))


def failure_number(kind: str) -> int:
    """The number of a kind of failure; raises `BadInput` for one that is not in `FAILURES`."""
    if kind not in FAILURES:
        raise BadInput("failure", got=kind, available=FAILURES[1:])
    return FAILURES.index(kind)


def failure_kind(number: int) -> str:
    """The kind of failure of this number; ``other`` for one of a later version."""
    return FAILURES[number] if 0 <= number < len(FAILURES) else "other"


def stamp_column(name: str) -> str:
    """The column of stamp `name`: ``images.front`` → ``stamp.camera.front``.

    Without the word "image" in it, because LeRobot takes every feature that has it for pictures when it merges sets.
    Raises `BadInput`: a name that could not be read back.
    """
    if "/" in name or name.startswith(_CAMERA) or _MASKED in name:
        raise BadInput("stamps", got=name, expected=f"names without '/' and {_MASKED!r}, not beginning with {_CAMERA}")
    name = _CAMERA + camera_name(name) if name.startswith(IMAGES) else name
    return STAMP + name.replace("image", _MASKED)


def stamp_name(column: str) -> str | None:
    """The inverse of `stamp_column`; None for a column that is no stamp."""
    if not column.startswith(STAMP):
        return None
    name = column.removeprefix(STAMP).replace(_MASKED, "image")
    return IMAGES + name.removeprefix(_CAMERA) if name.startswith(_CAMERA) else name


def features_of(
    interface: Interface,
    stamps: Sequence[str] = (),
    video_info: Mapping[str, Mapping[str, Any]] | None = None,
    outcomes: bool = True,
    failures: bool = False,
    texts: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """LeRobot's feature dictionary for episodes of `interface`.

    Args:
      stamps: names of the time stamps that every step brings.
      video_info: picture feature → what a reader needs of its video.
      outcomes: whether success is recorded; otherwise there is no feature `SUCCESS`.
      failures: whether kinds of failure are recorded, in the feature `FAILURE`.
      texts: names of the features of text, as `text_names` has them.

    Raises:
      BadInput: a feature that cannot be stored: an empty vector, or two with one LeRobot name.
    """
    features: dict[str, dict[str, Any]] = {}
    for key, spec in interface.observation.items():
        name = column(key)
        if name in features or "/" in key:
            raise BadInput(f"observation {key!r}", got=f"column {name!r}", expected="a name of its own without '/'")
        if not camera_name(key) or "\0" in key or len(key.encode()) > LONGEST:
            got = f"a name of {len(key.encode())} bytes"
            raise BadInput(f"observation {key[:40]!r}", got=got, expected=f"1 to {LONGEST} that may name a file")
        if is_image(spec):
            check_camera(key, f"observation {key!r}")
        back = picture_key(name) if is_image(spec) else key_of(name)
        if back != key:
            raise BadInput(f"observation {key!r}", got="a name that no reader gives back", expected=back)
        if is_image(spec):
            if spec.shape[2] != 3:
                raise BadInput(f"observation {key!r}", got=f"shape {spec.shape}", expected="(height, width, 3)")
            feature = {"dtype": "video", "shape": list(spec.shape), "names": ["height", "width", "channels"]}
            features[name] = feature | {"info": dict((video_info or {}).get(key, {}))}
        else:
            features[name] = _vector(f"observation {key!r}", spec)
    features["action"] = action_feature(interface) | {"info": {INTERFACE_KEY: interface.to_json()}}
    features |= {**OUTCOME, INTERVENTION: scalar("bool")}
    if not outcomes:
        del features[SUCCESS]
    if failures:
        features[FAILURE] = scalar("int64")
    for name in stamps:
        if stamps.count(name) > 1:
            raise BadInput("stamps", got=name, expected="each name once")
        features[stamp_column(name)] = scalar("float64")
    for name in texts:
        if name in features or text_names({name: scalar("string")}) != (name,):
            raise BadInput("texts", got=name, expected="names of their own", available=texts)
        features[name] = scalar("string")
    return features | INDEX


def action_feature(interface: Interface) -> dict[str, Any]:
    """The feature ``action`` of LeRobot's dictionary."""
    return _vector("action", interface.action)


def _vector(what: str, spec: ArraySpec) -> dict[str, Any]:
    if spec.size < 1:
        raise BadInput(what, got=f"shape {spec.shape}", expected="at least one component")
    names = list(spec.names) if len(spec.names) == spec.size else None
    return {"dtype": stored_dtype(spec.dtype), "shape": [spec.size], "names": names}


def stored_dtype(dtype: str) -> str:
    """The kind of number in which an observation of `dtype` is stored: one that keeps all its digits. Raises
    `BadInput`: no kind that the format has does."""
    held = {"b": ("bool",), "f": ("float32", "float64"), "i": ("int64",), "u": ("int64",)}
    for kind in held.get(np.dtype(dtype).kind, ()):
        if np.can_cast(dtype, kind):
            return kind
    raise BadInput("numbers", got=dtype, expected="bool, float32, float64 or int64, or what fits into them")


def cast(given: NDArray, dtype: DTypeLike) -> tuple[NDArray, NDArray[np.bool_]]:
    """A copy of `given` as `dtype`, and where a number became another one: a truth value that was 7, a whole number
    that was 1.7, NaN or beyond float's digits. Floats may lose digits, as whoever stores them expects."""
    with np.errstate(invalid="ignore"):
        kept = np.array(given, dtype)
        if given.dtype.kind == kept.dtype.kind == "f":
            return kept, np.zeros(given.shape, bool)
        return kept, kept.astype(given.dtype) != given


def truths(values: Any, what: str) -> NDArray[np.bool_]:
    """A copy of `values` as truth values. Raises `BadInput`, with `what`: one is neither 0 nor 1, or no number."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise BadInput(what, got=f"{given.dtype}", expected="truth values")
    kept, wrong = cast(given, bool)
    if wrong.any():
        raise BadInput(what, got=f"{given[wrong][0]}", expected="truth values, 0 or 1")
    return kept


def schema_of(features: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """The Arrow schema of the frames: plain columns for shape (1,), fixed_size_list otherwise."""
    fields = []
    kinds = {"float32": pa.float32(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}
    kinds["string"] = pa.string()
    for name, feature in features.items():
        if feature["dtype"] == "video":
            continue
        if feature["dtype"] not in kinds or not feature["shape"]:
            got = (feature["dtype"], feature["shape"])
            raise BadInput(f"feature {name!r}: dtype, shape", got=got, available=kinds)
        kind = kinds[feature["dtype"]]
        size = feature["shape"][0]
        fields.append(pa.field(name, kind if size == 1 else pa.list_(kind, size)))
    return pa.schema(fields)


def interface_of(info: Mapping[str, Any], *, what: str) -> Interface:
    """The interface of the set with this ``meta/info.json``, of any maker.

    Its observations are those of `observed`. The rest is what stands in it of our interface, also after an edit by
    LeRobot's own tools; where nothing does, `action_kind` is ``"native"``. Raises `BadInput`: there is no feature
    ``action``.
    """
    features = info["features"]
    if "action" not in features:
        raise BadInput(what, got="no feature 'action'", expected="one", available=features)
    found = {key: spec for key, (_, spec) in observed(features)[0].items()}
    if (own := stored_interface(info, what=what)) is not None:
        lacking = [column(key) for key in own.observation if key not in found]
        if lacking and INTERFACE_KEY in info:
            raise BadInput(f"{what}: features", got=f"no {lacking[0]!r}", expected="it", available=features)
        kept = {key: spec for key, spec in own.observation.items() if key in found}
        return replace(own, observation=kept | {key: spec for key, spec in found.items() if key not in kept})
    return Interface(
        observation=found,
        action=replace(vector_spec(features["action"]), dtype="float32"),
        control_hz=float(info["fps"]),
        embodiment=str(info.get("robot_type") or "none"),
    )


Column = tuple[str, ArraySpec]


def observed(features: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Column], tuple[str, ...]]:
    """The features of a set that are observations: the one answer for opening, editing, importing and exporting it.

    Returns:
      Our feature → (LeRobot's name, what it is): colour pictures, and all numbers under ``observation.``, each in the
      kind of `stored_dtype`. And what is left out, a line each; text is kept, but no observation.
    """
    found: dict[str, Column] = {}
    left_out: list[str] = []
    texts = text_names(features)
    for name, feature in features.items():
        kind = str(feature["dtype"])
        if _is_known(name) or name in texts:
            continue
        if kind in ("video", "image"):
            shape = picture_shape(feature)
            if shape is None:
                left_out.append(f"{name}: not an RGB image ({feature['shape']})")
                continue
            key, spec = picture_key(name), ArraySpec(shape, "uint8")
        elif name.startswith("observation.") and kind in NUMBERS and 0 not in feature["shape"]:
            key, spec = key_of(name), vector_spec(feature)
        else:
            left_out.append(f"{name} ({kind})")
            continue
        if key in found:
            left_out.append(f"{name}: it would be {key}, as {found[key][0]} is")
        else:
            found[key] = name, spec
    return found, tuple(left_out)


def _is_known(name: str) -> bool:
    """True for columns that every reader knows, which are no observations."""
    own = name in OUTCOME or name in INDEX or name in ("action", INTERVENTION, FAILURE)
    return own or stamp_name(name) is not None


def text_names(features: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The features that are text, one string per frame: they are kept, and no observations. ``task`` is none of them:
    LeRobot gives the words of the task by that name; nor is what has the name that a camera gets here."""
    taken = {column(picture_key(name)) for name, feature in features.items() if feature["dtype"] in ("video", "image")}
    return tuple(
        name
        for name, feature in features.items()
        if feature["dtype"] == "string" and list(feature["shape"]) in ([], [1])
        if not _is_known(name) and name not in taken and name != "task"
    )


def names_of(info: Mapping[str, Any]) -> dict[str, str]:
    """Our feature → LeRobot's name, of the observations in the set with this ``meta/info.json``."""
    return {key: name for key, (name, _) in observed(info["features"])[0].items()}


def picture_key(name: str) -> str:
    """Our name for the picture feature `name`, which other makers need not call ``observation.images.<camera>``, nor
    keep from names that are taken here."""
    camera = key_of(name).removeprefix(IMAGES).replace("/", "_")
    return free_name(IMAGES + camera)


def stored_interface(info: Mapping[str, Any], *, what: str) -> Interface | None:
    """The interface that stands in `info`, or None; raises `BadInput` where what stands there is none."""
    stored = info.get(INTERFACE_KEY)
    if stored is None:
        stored = (info["features"].get("action", {}).get("info") or {}).get(INTERFACE_KEY)
    if stored is None:
        return None
    try:
        interface = Interface.from_json(stored)
    except BadInput as error:
        raise BadInput(f"{what}: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{what}: {INTERFACE_KEY}", got=f"no valid interface ({error!r})") from None
    if ACTION_SCALE in interface.extra:
        from robots.stated_scale import check_stated_scale  # late: arms take half a second to import

        check_stated_scale(interface, what=what)
    return interface


def picture_shape(feature: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """(H, W, 3) of a video or image feature, whatever the order of its axes; None where it is not in colour."""
    shape, names = tuple(int(extent) for extent in feature["shape"]), feature.get("names")
    if len(shape) != 3:
        return None
    first = names[0] in ("channel", "channels") if isinstance(names, list) and names else shape[0] == 3 != shape[2]
    height, width, channels = (*shape[1:], shape[0]) if first else shape
    info = feature.get("info") or feature.get("video_info") or {}
    depth = info.get("is_depth_map") or info.get("video.is_depth_map")  # LeRobot's name since 0.6, and before
    return (height, width, 3) if channels == 3 and not depth else None


def vector_spec(feature: Mapping[str, Any]) -> ArraySpec:
    """The shape and names of a feature of `meta/info.json` that is no picture."""
    names = feature.get("names")
    if isinstance(names, Mapping):  # older sets nest them under the name of an axis
        names = next(iter(names.values()), None)
    shape = tuple(int(extent) for extent in feature["shape"])
    flat = isinstance(names, list) and len(shape) == 1 and len(names) == shape[0]
    return ArraySpec(shape, stored_dtype(str(feature["dtype"])), tuple(str(n) for n in names) if flat and names else ())


def in_short(value: Any) -> str:
    """A part of an interface in a line: of features their names, sizes and first numbers."""
    if value is None:
        return "nothing"
    if not isinstance(value, dict) or not all(isinstance(spec, dict) for spec in value.values()):
        return str(value)
    parts = []
    for name, spec in value.items():
        first = f": {spec['names'][0]}, …" if spec.get("names") else ""
        parts.append(f"{name} ({'×'.join(map(str, spec.get('shape', ())))}{first})")
    return ", ".join(parts)
