"""Demonstrations that fail on purpose, each in a way that has a name: what a reward model has to learn to tell.

    missed        the gripper closes beside the thing, and goes on without it
    dropped       the gripper opens on the way
    wrong_place   the thing is brought to another place than the task's
    nearly        all but the last part of the way
    pushed_away   the closed gripper pushes the thing aside
    frozen        the arm stops, and stays where it is
    distractor    all is done with another thing than the one that is meant; in worlds that have one

A failure wraps a task's script: it changes waypoints, and how far it goes is drawn once an episode. Whether the episode
failed is still the world's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.specs import DISTRACTOR
from sim.experts.waypoints import Array, Script, View, Waypoint

SLOW = 0.4  # of a full deflection, where a few centimetres decide
BESIDE = (0.045, 0.075)  # a missed grasp, from the thing's centre along the pads [m]


@dataclass(frozen=True)
class FailureFacts:
    """A script's knowledge for its failures.

    Attributes:
      grasp: the phase in which the gripper closes; None where the thing is held from the start.
      carry: the first phase in which the thing is on its way.
      drop: shortest and longest way in that phase before it is dropped [m].
      aside: shortest and longest way beside the right place [m]; empty where the task has none: the thing is dragged.
      short: how much the last phase lacks, upwards, where it nearly succeeds [m]; empty: `near` aside.
      near: how far beside the right place is nearly there [m].
      kinds: the failures that make sense, whatever lies about.
      thing: the body that is meant, where another one may be grasped in its place; or none.
    """

    carry: int
    drop: tuple[float, float]
    kinds: tuple[str, ...]
    grasp: int | None = None
    aside: tuple[float, float] | tuple[()] = ()
    short: tuple[float, float] | tuple[()] = ()
    near: tuple[float, float] = (0.0, 0.0)
    thing: str = ""


@runtime_checkable
class FailingScriptFacts(Script, Protocol):
    """A `Script` whose demonstrator can be made to fail."""

    failures: FailureFacts


class FailingScript:
    """A `Script` that fails: the bias of an episode is the number of its kind, and how far it goes in [0, 1).

    Args:
      script: of the task.
      kinds: of failure, see the module.

    Raises:
      BadInput: kinds that the task has not.
    """

    def __init__(self, script: Script, kinds: Sequence[str]) -> None:
        if not isinstance(script, FailingScriptFacts):
            raise BadInput("quality", got=", ".join(kinds), expected="another one: this task's script cannot fail so")
        able = (*script.failures.kinds, *((DISTRACTOR,) if script.failures.thing else ()))
        if unknown := [kind for kind in kinds if kind not in able]:
            raise BadInput("quality: failure", got=unknown[0], available=able)
        self._script, self._facts, self.kinds = script, script.failures, tuple(kinds)
        self.phases, self.strategies = script.phases, script.strategies

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        """See `Script`."""
        number = np.clip(bias.astype(np.int64), 0, len(self.kinds) - 1)
        moment = _Moment(self._script, self._facts, phase, view, strategy, memory, np.clip(bias - number, 0.0, 1.0))
        plain = moment.plain(phase)
        out = [np.array(_rows(value, len(bias))) for value in (plain.pos, plain.rot, plain.opening, plain.speed)]
        for k, kind in enumerate(self.kinds):
            rows = number == k
            if rows.any():
                failed = _KINDS[kind](moment, plain)
                for mine, theirs in zip(out, (failed.pos, failed.rot, failed.opening, failed.speed), strict=True):
                    mine[rows] = _rows(theirs, len(bias))[rows]
        pos, rot, opening, speed = out
        return replace(plain, pos=pos, rot=rot, opening=opening, speed=speed)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Script`."""
        return self._script.resume(view, strategy)


@dataclass(frozen=True)
class _Moment:
    """A phase of N worlds, and how far (N,) in [0, 1] each fails."""

    script: Script
    facts: FailureFacts
    phase: int
    view: View
    strategy: NDArray[np.int64]
    memory: Array
    u: Array

    def plain(self, phase: int) -> Waypoint:
        """The waypoint of one who makes no errors, by the first strategy: from above."""
        return self.script.plan(phase, self.view, np.zeros_like(self.strategy), np.zeros_like(self.u), self.memory)

    def between(self, ends: tuple[float, float]) -> Array:
        """(N,) from the first to the second of `ends`."""
        return ends[0] + (ends[1] - ends[0]) * self.u

    @property
    def sideways(self) -> Array:
        """(N, 3) of length 1, horizontal, all directions among the episodes."""
        angle = 2 * np.pi * (7.0 * self.u % 1.0)
        return np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], -1)

    @property
    def travelled(self) -> Array:
        """(N,) from where the phase began [m]."""
        return np.linalg.norm(self.view.tcp_pos - self.memory, axis=-1)


def _missed(m: _Moment, plain: Waypoint) -> Waypoint:
    assert m.facts.grasp is not None
    if m.phase > m.facts.grasp:
        return plain
    rot = np.asarray(plain.rot)
    return replace(plain, pos=plain.pos + rot[:, :, 0] * m.between(BESIDE)[:, None])


def _dropped(m: _Moment, plain: Waypoint) -> Waypoint:
    if m.phase < m.facts.carry:
        return plain
    opened = (m.travelled > m.between(m.facts.drop)) | (m.phase > m.facts.carry)
    return replace(plain, opening=np.where(opened, 1.0, plain.opening), speed=np.minimum(plain.speed, SLOW))


def _wrong_place(m: _Moment, plain: Waypoint) -> Waypoint:
    if m.phase < m.facts.carry:
        return plain
    if not m.facts.aside:  # no place of its own: dragged over the table
        return replace(plain, pos=m.memory + 0.12 * m.sideways + np.array([0.0, 0.0, 0.01]), speed=SLOW)
    return _aside(m, plain, m.between(m.facts.aside))


def _nearly(m: _Moment, plain: Waypoint) -> Waypoint:
    if not m.facts.short:
        return _aside(m, plain, m.between(m.facts.near)) if m.phase >= m.facts.carry else plain
    if m.phase < m.script.phases - 1:
        return plain
    lacking = np.zeros_like(m.memory)
    lacking[:, 2] = m.between(m.facts.short)
    return replace(plain, pos=plain.pos + lacking, speed=np.minimum(plain.speed, SLOW))


def _aside(m: _Moment, plain: Waypoint, way: Array) -> Waypoint:
    """Beside the right place; the retreat from there is the plain one, which begins where the arm is."""
    if m.phase == m.script.phases - 1 and m.facts.grasp is not None:
        return plain
    return replace(plain, pos=plain.pos + way[:, None] * m.sideways)


def _pushed_away(m: _Moment, plain: Waypoint) -> Waypoint:
    grasp = m.facts.grasp
    assert grasp is not None
    if m.phase > grasp:
        return replace(plain, opening=-1.0)
    at = m.plain(grasp - 1)
    along = np.asarray(m.view.tcp_rot)[:, :, 0]
    if m.phase == grasp:  # straight through where the thing lies
        return replace(at, pos=m.memory - along * m.between((0.13, 0.18))[:, None], opening=-1.0, speed=0.7)
    height = np.array([0.0, 0.0, 0.05 if m.phase < grasp - 1 else 0.005])
    return replace(at, pos=at.pos + along * 0.075 + height, opening=-1.0)


def _frozen(m: _Moment, plain: Waypoint) -> Waypoint:
    last = m.script.phases - 1
    stage = m.u * m.script.phases
    stops = np.minimum(stage.astype(np.int64), last)
    share = np.minimum(stage - stops, 1.0) * np.where(stops == last, 0.2, 1.0)
    before = np.stack([np.broadcast_to(m.plain(max(p - 1, 0)).opening, stops.shape) for p in range(last + 1)])
    held = before[stops, np.arange(len(stops))]  # neither grasps nor lets go any more
    way = np.where(m.phase == stops, share, np.where(m.phase > stops, 0.0, 1.0))[:, None]
    stopped = m.phase >= stops
    return replace(
        plain,
        pos=np.where(stopped[:, None], m.memory + way * (plain.pos - m.memory), plain.pos),
        rot=np.where((m.phase > stops)[:, None, None], m.view.tcp_rot, plain.rot),
        opening=np.where(stopped, held, plain.opening),
    )


def _distractor(m: _Moment, plain: Waypoint) -> Waypoint:
    seen, thing = dict(m.view.objects), m.facts.thing
    seen |= {name.replace(DISTRACTOR, thing): value for name, value in seen.items() if DISTRACTOR in name}
    return replace(m, view=replace(m.view, objects=seen)).plain(m.phase)


_KINDS: Mapping[str, Callable[[_Moment, Waypoint], Waypoint]] = {
    "missed": _missed,
    "dropped": _dropped,
    "wrong_place": _wrong_place,
    "nearly": _nearly,
    "pushed_away": _pushed_away,
    "frozen": _frozen,
    DISTRACTOR: _distractor,
}
KINDS = tuple(kind for kind in _KINDS if kind != DISTRACTOR)
"""Names of the failures that need nothing else on the table."""


def _rows(value: Array | float, count: int) -> Array:
    """(N, …) of a waypoint's field, which may be one number for all."""
    array = np.asarray(value, np.float64)
    return np.broadcast_to(array, (count,)) if array.ndim == 0 else array
