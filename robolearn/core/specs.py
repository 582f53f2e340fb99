"""Array specs: what a policy sees and commands, written down so that two sides can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robolearn.core.errors import BadInput

LARGEST = 100_000_000  # components of one array in a file, which may be a stranger's: a picture of 33 megapixels


@dataclass(frozen=True)
class ArraySpec:
    """Shape, dtype and component names of one array, without batch or time axes.

    Attributes:
      shape: e.g. ``(17,)`` for a vector, ``(96, 96, 3)`` for an HWC image.
      dtype: a numpy dtype name; images are ``"uint8"``, vectors ``"float32"``.
      names: one name per component of a vector, or empty.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of components."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n


def is_image(spec: ArraySpec) -> bool:
    """Whether a feature is an HWC picture rather than a vector."""
    return spec.dtype == "uint8" and len(spec.shape) == 3


@dataclass(frozen=True)
class Interface:
    """What passes between a world (or an arm) and a policy.

    Attributes:
      observation: feature name → spec. ``proprio`` is the robot's own vector, ``objects`` the task's
        privileged vector, ``images.<camera>`` an HWC uint8 image.
      action: spec of one action; every component lies in [-1, 1].
      control_hz: rate at which actions are executed [Hz].
      embodiment: name of the arm, e.g. ``"panda"``.
      action_kind: what an action means, e.g. ``"tcp_delta"``, ``"joint_position"``, ``"native"``.
    """

    observation: Mapping[str, ArraySpec]
    action: ArraySpec
    control_hz: float
    embodiment: str = "none"
    action_kind: str = "native"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``config.json`` files."""

        def spec(s: ArraySpec) -> dict[str, Any]:
            return {"shape": list(s.shape), "dtype": s.dtype, "names": list(s.names)}

        return {
            "observation": {key: spec(s) for key, s in self.observation.items()},
            "action": spec(self.action),
            "control_hz": float(self.control_hz),
            "embodiment": self.embodiment,
            "action_kind": self.action_kind,
            "extra": dict(self.extra),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Interface:
        """The inverse of `to_json`."""

        def spec(d: Mapping[str, Any]) -> ArraySpec:
            shape, names = d["shape"], d["names"]
            if not (isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)):
                raise BadInput("interface: shape", got=shape, expected="a list of whole numbers")
            if math.prod(shape) > LARGEST:
                raise BadInput("interface: shape", got=shape, expected=f"at most {LARGEST:,} components")
            if not (isinstance(d["dtype"], str) and isinstance(names, list) and all(isinstance(n, str) for n in names)):
                raise BadInput("interface: dtype, names", got=(d["dtype"], names), expected="text, a list of texts")
            return ArraySpec(tuple(shape), d["dtype"], tuple(names))

        control_hz = float(data["control_hz"])
        if not 0 < control_hz < math.inf:
            raise BadInput("interface: control rate", got=f"{control_hz:g} Hz", expected="a positive number")
        return Interface(
            observation={key: spec(d) for key, d in data["observation"].items()},
            action=spec(data["action"]),
            control_hz=control_hz,
            embodiment=data["embodiment"],
            action_kind=data["action_kind"],
            extra=dict(data.get("extra", {})),
        )


def check_compatible(needed: Interface, offered: Interface, *, what: str) -> None:
    """Raise `BadInput` unless a policy that needs `needed` can live in a world that offers `offered`.

    The world may offer more observations than the policy needs; actions must agree in shape and meaning.
    """
    if needed.embodiment != offered.embodiment:
        raise BadInput(f"{what}: embodiment", got=offered.embodiment, expected=needed.embodiment)
    if needed.action_kind != offered.action_kind:
        unsaid = "native" in (needed.action_kind, offered.action_kind)
        hint = "`robolearn dataset import --action-kind` writes a set that says what its actions mean" if unsaid else ""
        raise BadInput(f"{what}: action kind", got=offered.action_kind, expected=needed.action_kind, hint=hint)
    if needed.action.shape != offered.action.shape:
        raise BadInput(f"{what}: action shape", got=offered.action.shape, expected=needed.action.shape)
    if not abs(needed.control_hz - offered.control_hz) <= 1e-6:
        raise BadInput(f"{what}: control rate", got=f"{offered.control_hz} Hz", expected=f"{needed.control_hz} Hz")
    for key, spec in needed.observation.items():
        if key not in offered.observation:
            raise BadInput(f"{what}: observation", got=f"no {key!r}", expected=key, available=offered.observation)
        found = offered.observation[key]
        if found.shape != spec.shape or (found.names and spec.names and found.names != spec.names):
            raise BadInput(f"{what}: observation {key!r}", got=_describe(found), expected=_describe(spec))


def _describe(spec: ArraySpec) -> str:
    names = f" ({', '.join(spec.names)})" if spec.names else ""
    return f"{tuple(spec.shape)} {spec.dtype}{names}"
