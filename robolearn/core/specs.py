"""Array specs: what a policy sees and commands, written down so that two sides can be compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from robolearn.core.errors import BadInput

OBJECTS = "objects"
"""The task's vector of a simulated world, privileged by its name."""
COUSIN = "cousin"
"""The shape of the thing and the height of the table in a simulated world whose scenes differ."""
DISTRACTOR = "distractor"
"""The pose of a thing that the words do not mean, in a simulated world that has one."""
PROMPT = "prompt"
"""The task in words, as the vector of a sentence."""
GOAL = "goal."
"""Begins the name of a feature that is a goal: ``goal.objects`` is what ``objects`` shall be in the end."""
ACTION_SCALE = "action_scale"
"""In `Interface.extra`, of actions that an import scaled: ``low`` and ``high``, what −1 and 1 stand for in the units of
the file, and ``unit`` where that is what the action kind says: the limits of the arm's joints."""
PREDICTED_ACTIONS = "predicted_actions"
"""In `Interface.extra`, of a set whose actions were never executed: ``from``, the set that the inverse dynamics learned
from, ``error`` and ``mean_action_error``, mean squares on episodes that were held out."""
DTYPES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
FASTEST_HZ = 1e6  # no control rate is higher
LARGEST = 100_000_000  # components of one array in a file, which may be a stranger's: a picture of 33 megapixels


@dataclass(frozen=True)
class ArraySpec:
    """Shape, dtype and component names of one array, without batch or time axes."""

    shape: tuple[int, ...]  # e.g. ``(17,)`` for a vector, ``(96, 96, 3)`` for an HWC image
    dtype: str = "float32"  # a numpy dtype name; images are ``"uint8"``, vectors ``"float32"``
    names: tuple[str, ...] = ()  # one name per component of a vector, or empty
    # the simulator's truth, which no real arm has: for teachers, critics and judges
    privileged: bool = field(default=False, compare=False)

    @property
    def size(self) -> int:
        """Number of components."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n


def is_image(spec: ArraySpec) -> bool:
    """True for an HWC picture, false for a vector."""
    return spec.dtype == "uint8" and len(spec.shape) == 3


def is_goal(key: str) -> bool:
    """True where the feature `key` is a goal."""
    return key.startswith(GOAL)


def is_instruction(key: str) -> bool:
    """True where the feature `key` is given to a policy instead of observed: words and goals."""
    return key == PROMPT or is_goal(key)


def of_goal(key: str) -> str:
    """The feature that the goal `key` is a later value of; any other feature is its own."""
    return key.removeprefix(GOAL)


@dataclass(frozen=True)
class Interface:
    """Observations and actions between a world (or an arm) and a policy."""

    # feature name → spec. ``proprio`` is the robot's own vector, ``objects`` the task's privileged vector,
    # ``images.<camera>`` an HWC uint8 image
    observation: Mapping[str, ArraySpec]
    action: ArraySpec  # spec of one action; every component lies in [-1, 1]
    control_hz: float  # rate at which actions are executed [Hz]
    embodiment: str = "none"  # name of the arm, e.g. ``"panda"``
    action_kind: str = "native"  # what an action means, e.g. ``"tcp_delta"``, ``"joint_position"``, ``"native"``
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def privileged(self) -> tuple[str, ...]:
        """The observation features that are the simulator's truth: those marked so, and `OBJECTS`."""
        return tuple(key for key, spec in self.observation.items() if spec.privileged or key == OBJECTS)

    def seeing(self, features: Sequence[str], *, what: str) -> Interface:
        """This interface with some of its observation features only; ``images`` stands for all cameras.

        Args:
          features: names; none for the usual: all features but `COUSIN` and `DISTRACTOR`, and where there are pictures
            nothing privileged.

        Raises:
          BadInput: a feature that there is not, or none left.
        """
        pictures = [key for key, spec in self.observation.items() if is_image(spec)]
        hidden = self.privileged if pictures else (COUSIN, DISTRACTOR)
        chosen = [key for key in self.observation if key not in hidden]
        if features:
            chosen = [key for name in features for key in (pictures if name == "images" and pictures else (name,))]
        for key in chosen:
            if key not in self.observation:
                seeks = not pictures and (key == "images" or key.startswith("images."))
                got = f"no {key!r}{', nor any other camera' if seeks else ''}"
                raise BadInput(f"observation of {what}", got=got, expected="what it has", available=self.observation)
        return replace(self, observation={key: spec for key, spec in self.observation.items() if key in chosen})

    def aiming(self, goals: Sequence[str], *, what: str) -> Interface:
        """This interface with a goal for each feature in `goals`; ``images`` stands for all cameras.

        A goal is given, not observed, so it is not privileged. Raises as `seeing`.
        """
        specs = self.seeing(goals, what=what).observation if goals else {}
        given = {GOAL + key: replace(spec, privileged=False) for key, spec in specs.items()}
        return replace(self, observation={**self.observation, **given})

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``config.json`` files."""

        def spec(key: str, s: ArraySpec) -> dict[str, Any]:
            mark = {"privileged": True} if key in self.privileged else {}
            return {"shape": list(s.shape), "dtype": s.dtype, "names": list(s.names)} | mark

        return {
            "observation": {key: spec(key, s) for key, s in self.observation.items()},
            "action": spec("action", self.action),
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
            if not DTYPES.fullmatch(d["dtype"]):
                raise BadInput("interface: dtype", got=d["dtype"], expected="a kind of number, such as float32")
            privileged = d.get("privileged", False)
            if not isinstance(privileged, bool):
                raise BadInput("interface: privileged", got=privileged, expected="true or false")
            return ArraySpec(tuple(shape), d["dtype"], tuple(names), privileged)

        for key in ("embodiment", "action_kind"):
            if not isinstance(data[key], str):
                raise BadInput(f"interface: {key}", got=data[key], expected="a word")
        control_hz = float(data["control_hz"])
        if not 0 < control_hz <= FASTEST_HZ:
            expected = f"a positive number, at most {FASTEST_HZ:g}"
            raise BadInput("interface: control rate", got=f"{control_hz:g} Hz", expected=expected)
        extra = dict(data.get("extra", {}))
        try:
            json.dumps(extra, allow_nan=False)
        except ValueError:
            raise BadInput("interface: extra", got=extra, expected="finite numbers") from None
        return Interface(
            observation={key: spec(d) for key, d in data["observation"].items()},
            action=spec(data["action"]),
            control_hz=control_hz,
            embodiment=data["embodiment"],
            action_kind=data["action_kind"],
            extra=extra,
        )


def check_compatible(needed: Interface, offered: Interface, *, what: str, subject: str = "it") -> None:
    """Raise `BadInput` unless a policy that needs `needed` can live in a world that offers `offered`.

    The world may offer more observations than the policy needs; actions must agree in shape and meaning. `subject`: the
    policy in words, where `what` is the name of what is offered.
    """
    if needed.embodiment != offered.embodiment:
        arms = f"{subject} was made for {needed.embodiment}, this is {offered.embodiment}"
        hint = f"`robolearn train` on data of {offered.embodiment} makes one for it"
        raise BadInput(f"{what}: {arms}: one arm, one policy", hint=hint)
    if needed.action_kind != offered.action_kind:
        unsaid = "native" in (needed.action_kind, offered.action_kind)
        hint = "`robolearn dataset import` writes a set that says what its actions mean (--action-kind, --robot)"
        hint = hint if unsaid else ""
        kinds = f"{subject} was made for actions of kind {needed.action_kind}, this has {offered.action_kind}"
        raise BadInput(f"{what}: action kind: {kinds}", hint=hint)
    if needed.action.shape != offered.action.shape:
        raise BadInput(f"{what}: action shape", got=offered.action.shape, expected=needed.action.shape)
    if moved := [
        n for i, n in enumerate(needed.action.names) if n in offered.action.names[:i] + offered.action.names[i + 1 :]
    ]:
        hint = f"{moved[0]!r} is another component there"
        got, expected = ", ".join(offered.action.names), ", ".join(needed.action.names)
        raise BadInput(f"{what}: order of the action's components", got=got, expected=expected, hint=hint)
    if (theirs := own_scale(offered)) != (own := own_scale(needed)):
        hint = (
            "One number means two motions there. `robolearn dataset import --unit` brings joint positions to one scale"
        )
        raise BadInput(f"{what}: scale of the actions", got=_spoken(theirs), expected=_spoken(own), hint=hint)
    said, told = action_scale(offered), action_scale(needed)
    if said and told and said[1:] == told[1:] and not _alike(said[0], told[0]):
        got, expected = (f"{unit}, {_ranges(one)}" for one, unit, _ in (said, told))
        raise BadInput(f"{what}: scale of the actions", got=got, expected=expected)
    if not abs(needed.control_hz - offered.control_hz) <= 1e-6:
        raise BadInput(f"{what}: control rate", got=f"{offered.control_hz} Hz", expected=f"{needed.control_hz} Hz")
    check_observed(needed.observation, offered, what=what)


def check_observed(needed: Mapping[str, ArraySpec], offered: Interface, *, what: str) -> None:
    """Raise `BadInput` unless `offered` observes what is `needed`: the same numbers in the same order."""
    for key, spec in needed.items():
        if key not in offered.observation:
            raise BadInput(f"{what}: observation", got=f"no {key!r}", expected=key, available=offered.observation)
        found = offered.observation[key]
        if found.shape != spec.shape or (found.names and spec.names and found.names != spec.names):
            got, expected, hint = _difference(found, spec)
            raise BadInput(f"{what}: observation {key!r}", got=got, expected=expected, hint=hint)


Scaled = tuple[tuple[float, ...], tuple[float, ...]]


def action_scale(interface: Interface) -> tuple[Scaled, str, str] | None:
    """((low, high), unit, unit of the gripper) that stand in `interface` under `ACTION_SCALE`, or None. Raises
    `BadInput`: what stands there is no scale."""
    stored = interface.extra.get(ACTION_SCALE)
    if stored is None:
        return None
    try:
        low, high = (tuple(float(number) for number in stored[name]) for name in ("low", "high"))
        if len(low) == len(high) == interface.action.size and all(map(math.isfinite, (*low, *high))):
            return (low, high), str(stored.get("unit", "")), str(stored.get("gripper", ""))
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise BadInput(
        f"interface: {ACTION_SCALE}", got=stored, expected=f"low, high: {interface.action.size} numbers each"
    )


def own_scale(interface: Interface) -> Scaled | None:
    """(low, high) that −1 and 1 stand for, or None where the action kind says it."""
    found = action_scale(interface)
    return None if found is None or found[1] else found[0]


def _alike(a: Scaled, b: Scaled) -> bool:
    return all(
        math.isclose(x, y, rel_tol=1e-3, abs_tol=1e-6) for x, y in zip((*a[0], *a[1]), (*b[0], *b[1]), strict=True)
    )


def _ranges(scale: Scaled) -> str:
    return ", ".join(f"{low:.4g}…{high:.4g}" for low, high in zip(*scale, strict=True))


def _spoken(scale: Scaled | None) -> str:
    return "that of the action kind" if scale is None else f"extremes of a set, {_ranges(scale)}"


def _difference(found: ArraySpec, needed: ArraySpec) -> tuple[str, str, str]:
    """(what is there, what is needed, what that means) in words."""
    if not (found.names and needed.names):
        return _describe(found), _describe(needed), ""
    new = [name for name in found.names if name not in needed.names]
    gone = [name for name in needed.names if name not in found.names]
    parts = [f"{_few(names)} {said}" for names, said in ((new, "unknown to it"), (gone, "not there")) if names]
    hint = "It was trained on another task, or by another robot"
    if not parts:
        return "the same numbers in another order", ", ".join(needed.names), hint
    return f"{len(found.names)} numbers ({'; '.join(parts)})", f"the {len(needed.names)} that it was trained on", hint


def _few(names: list[str]) -> str:
    """The first three of `names`, and how many there are besides."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _describe(spec: ArraySpec) -> str:
    names = f" ({', '.join(spec.names)})" if spec.names else ""
    return f"{tuple(spec.shape)} {spec.dtype}{names}"
