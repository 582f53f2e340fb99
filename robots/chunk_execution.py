"""Execution of action chunks: what to do now with a chunk that was predicted then, for N worlds and for one arm.

Action i of a chunk belongs to the time [s + iΔt, s + (i+1)Δt), with s the time of its *observation*. While it was
computed, other actions were executed. Where actions are displacements a chunk is a path, and what was executed since s
is a place beside it. With times u in control steps after s, elapsed time d = (now − s)/Δt and H steps to execute,

    P(u) = Σ_{i<⌊u⌋} a_i + (u − ⌊u⌋) a_⌊u⌋,  0 ≤ u ≤ T         where the chunk leads
    E    = 1/Δt ∫_s^now a(t) dt                                 where the arm is by now
    u*   = argmin_{u ≤ U} |P(u) − E| + ε |u − d|                how far along the path it is; ε tells between places
                                                                at which the path stands still
    a'_j = clip(P(u* + j + 1) − X_j),  X_0 = E,  X_{j+1} = X_j + what is executed of a'_j           j = 0 … H − 1

So the arm comes back to the path instead of running beside it, and what was executed quicker or slower than predicted
is not done twice or left out. As UMI (Chi et al. 2024) drops what is past by then and executes places instead of
displacements, and Bidirectional Decoding (Liu et al. 2024) prefers samples that agree with what was begun.

N worlds take whole steps (u = 0, 1, 2, …) up to U = T − H, because each of their chunks has H steps to go; an arm's
control steps and its chunks are askew, so that u is a twentieth of a step there, up to the end of the path.

Distances are of translation; rotations are small here and added like it. A gripper's opening is no displacement: it is
that of step u* + j. Other actions (joint positions) say where to be, and are executed by time: u* = min(⌊d⌋, U).

Where a chunk replaces one that still has actions (real-time chunking, Black et al. 2025, without its inpainting: the
old chunk's prefix is followed rather than imposed on the sampler), k₀ = ⌊d⌋ steps have elapsed and are dropped, f are
frozen, and the others are blended over the latency of ⌈d⌉ steps,

    w_k = clip((k − k₀ − f + 1) / (⌈d⌉ + 1), 0, 1)
    a_k ← (1 − w_k) a_k^old + w_k a'_k

Grippers are not blended: half open is not between open and closed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ActionChunk, Interface, Observation
from robots.control import GRIPPER, TRANSLATION

Array = NDArray[np.float64]

ASKEW = 20  # places at which a step of an arm's path is looked at
KEPT = 512  # executed actions: more than a policy's inference can take
_EPSILON = 0.01  # ε, in units of actions per step
_EDGE = 1e-6  # of a step: steady times are sums of rounded numbers


@dataclass(frozen=True, eq=False)
class ActionParts:
    """The components of an action.

    Attributes:
      displaced: (Da,) true where a component is a displacement.
      along: (Da,) true where it is a displacement along an axis.
      opening: (Da,) true where it is a gripper's opening.
    """

    displaced: NDArray[np.bool_]
    along: NDArray[np.bool_]
    opening: NDArray[np.bool_]

    @classmethod
    def named(cls, names: Sequence[str], *, displacements: bool) -> ActionParts:
        """Of `names` (Da,), where all but grippers' are `displacements`; those of a pair begin with an arm's name."""
        kinds = [name.rpartition("_")[2] for name in names]
        opening = np.array([kind == GRIPPER for kind in kinds], np.bool_)
        along = np.array([kind in TRANSLATION for kind in kinds], np.bool_)
        return cls(~opening & displacements, along & displacements, opening)

    @classmethod
    def of(cls, interface: Interface) -> ActionParts:
        """Of the actions of `interface`."""
        names = interface.action.names or ("",) * interface.action.size
        return cls.named(names, displacements=interface.action_kind == "tcp_delta")


def continued(
    paths: NDArray,
    executed: NDArray,
    elapsed: NDArray,
    parts: ActionParts,
    *,
    steps: int,
    last: int,
    places: int = 1,
    old: NDArray | None = None,
    weight: NDArray | float = 1.0,
) -> tuple[Array, Array]:
    """Actions from now on of B chunks that were predicted then, and how far the arm is from each one's path.

    Args:
      paths: (B, T, Da) in [-1, 1].
      executed: (B, Da) E.
      elapsed: (B,) d.
      steps: H.
      last: U, the last step to begin at.
      places: at which each step of a path is looked at.
      old: (H, Da) what the chunk before has for these steps, where they are blended.
      weight: (H, Da) w of the new chunk.

    Returns:
      (B, H, Da) in [-1, 1], and (B,) the least |P(u) − E|, 0 of actions that are no displacements.
    """
    paths, executed = np.asarray(paths, np.float64), np.asarray(executed, np.float64)
    count, length, _ = paths.shape
    rows, ahead = np.arange(count), np.arange(steps)
    begin, distance = np.minimum(np.floor(elapsed), last), np.zeros(count)
    displaced = parts.displaced & parts.along.any()
    goals = np.zeros((count, steps, paths.shape[2]))
    if displaced.any():
        path = np.concatenate((np.zeros_like(paths[:, :1]), np.cumsum(paths, 1)), 1)
        grid = np.linspace(0.0, last, places * last + 1)
        beside = np.linalg.norm((_at(path, grid[None]) - executed[:, None])[..., parts.along], axis=-1)
        # u* = argmin_u |P(u) − E| + ε |u − d|
        nearest = (beside + _EPSILON * np.abs(grid - np.asarray(elapsed)[:, None])).argmin(1)
        begin, distance = grid[nearest], beside[rows, nearest]
        goals = _at(path, np.minimum(begin[:, None] + 1.0 + ahead, length))
    by_time = paths[rows[:, None], np.minimum(np.rint(begin).astype(int)[:, None] + ahead, length - 1)]
    out, place = np.empty_like(by_time), executed.copy()
    share = np.broadcast_to(weight, by_time.shape[1:])
    for j in range(steps):
        # a'_j = clip(P(u* + j + 1) − X_j)
        action = np.where(displaced, np.clip(goals[:, j] - place, -1.0, 1.0), by_time[:, j])
        out[:, j] = action if old is None else (1.0 - share[j]) * old[j] + share[j] * action
        place += out[:, j]
    return out, distance


def _at(path: Array, steps: Array) -> Array:
    """P (B, T + 1, Da) at `steps` (B or 1, M): (B, M, Da)."""
    before = np.floor(steps).astype(int)
    after = np.minimum(before + 1, path.shape[1] - 1)
    rows = np.arange(len(path))[:, None]
    start = path[rows, before]
    return (path[rows, after] - start) * (steps - before)[..., None] + start


# --- N worlds, whose control steps are all alike -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Delayed:
    """The start of a prediction that is executed `age` control steps later, for N worlds.

    Attributes:
      before: the observation of then, (N, …) each.
      age: (N,) control steps.
      executed: (N, Da) the sum of the actions since then.
    """

    before: Observation
    age: NDArray[np.int64]
    executed: NDArray[np.float32]

    def catch_up(self, paths: NDArray, interface: Interface, *, steps: int, keep: int = 1) -> NDArray[np.float32]:
        """Actions from now on of each of the M predictions (N, M, Tp, Da) that were begun then.

        Returns:
          (N, keep, `steps`, Da) in [-1, 1]; of predictions that are paths the nearest ones, the nearest first, of
          others the first ones.
        """
        worlds, count, horizon, size = paths.shape
        executed, age = np.repeat(self.executed, count, 0), np.repeat(self.age, count)
        flat, parts = paths.reshape(-1, horizon, size), ActionParts.of(interface)
        chunks, distance = continued(flat, executed, age, parts, steps=steps, last=horizon - steps)
        nearest = distance.reshape(worlds, count).argsort(1, kind="stable")[:, :keep]
        chunks = chunks.reshape(worlds, count, steps, size)
        return chunks[np.arange(worlds)[:, None], nearest].astype(np.float32)


class ExecutionHistory:
    """The last d observations and actions of N worlds that get their chunks together.

    Args:
      steps: d [control steps].
      interface: what is kept of observations, and the size of actions.
    """

    def __init__(self, steps: int, interface: Interface) -> None:
        self.steps, self._features, self._size = steps, tuple(interface.observation), interface.action.size
        self.clear()

    def clear(self) -> None:
        """Forget all of it."""
        self._observed: deque[dict[str, NDArray]] = deque(maxlen=self.steps + 1)
        self._executed: deque[NDArray[np.float32]] = deque(maxlen=self.steps)
        self._age = np.zeros(0, np.int64)  # (N,) observations of the running episode before the newest one, up to d
        self._fresh = np.zeros(0, np.bool_)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """New episodes begin in the worlds (N,) that are true."""
        self._fresh = worlds.copy() if len(self._fresh) != len(worlds) else self._fresh | worlds

    def observe(self, observation: Observation) -> None:
        """The observation of the next control step."""
        kept = {key: np.array(observation[key]) for key in self._features}  # a world may write over its own
        count = len(next(iter(kept.values())))
        self._observed.append(kept)
        if len(self._age) != count:
            self._age, self._fresh = np.zeros(count, np.int64), np.zeros(count, np.bool_)
            return
        fresh = self._fresh if len(self._fresh) == count else np.zeros(count, np.bool_)
        self._age = np.where(fresh, 0, np.minimum(self._age + 1, self.steps))
        self._fresh = np.zeros(count, np.bool_)

    def execute(self, chunk: ActionChunk) -> None:
        """The actions (N, k, Da) of the next k control steps."""
        self._executed.extend(np.moveaxis(np.clip(chunk, -1.0, 1.0), 1, 0))

    def delayed(self) -> Delayed:
        """The start of a prediction that is executed from now on."""
        worlds = range(len(self._age))
        before = {key: np.stack([self._observed[-1 - self._age[w]][key][w] for w in worlds]) for key in self._features}
        executed = np.zeros((len(self._age), self._size), np.float32)
        for back in range(1, 1 + len(self._executed)):
            executed += np.where((self._age >= back)[:, None], self._executed[-back], 0.0)
        return Delayed(before, self._age, executed)


# --- one arm, whose chunks come when they come ----------------------------------------------------------------------


class ExecutedActions:
    """The actions that were executed last, and when each began.

    Args:
      period: Δt, the time of an action, in the unit of all times.
      size: how many are kept.
    """

    def __init__(self, period: float, size: int = KEPT) -> None:
        self._period = period
        self._begun: deque[tuple[float, Array]] = deque(maxlen=size)

    def add(self, at: float, action: Array) -> None:
        """`action` (Da,) begins at `at`, and ends what is executed until then."""
        self._begun.append((at, action))

    def since(self, start: float, now: float, size: int) -> Array:
        """(Da,) E, in actions: one that was executed by half counts half."""
        place, end = np.zeros(size), now
        for at, action in reversed(self._begun):
            # E = 1/Δt ∫ a(t) dt; an action that none follows is over after Δt
            share = min(end, at + self._period) - max(at, start)
            place += max(share, 0.0) / self._period * action
            end = at
            if at <= start:
                break
        return place


@dataclass(frozen=True)
class ChunkStep:
    """The action of a moment.

    Attributes:
      index: of the action in its chunk.
      action: (Da,) in [-1, 1].
      fresh: it begins now.
      held: the chunk is over, and its last action is kept for a short while.
    """

    index: int
    action: Array
    fresh: bool = False
    held: bool = False


class ChunkExecutor:
    """The chunk that is being executed, replaced by each newer one. All times are of one steady clock of the caller's.

    Args:
      parts: of the actions.
      period: Δt: 1.0 where the clock counts control steps.
      grace: how long the last action is held when the next chunk is late.
      freeze: f, steps that follow the old chunk entirely.
      blend: blend a chunk with the one before.
      kept: executed actions that are remembered.

    Attributes:
      executed: the actions that were executed; those of an operator may be added.
    """

    def __init__(
        self, parts: ActionParts, period: float = 1.0, *, grace: float = 0.0, freeze: int = 0, blend: bool = False,
        kept: int = KEPT,
    ) -> None:  # fmt: skip
        self.executed = ExecutedActions(period, kept)
        self.parts = parts
        self._period, self._grace, self._freeze, self._blend = period, grace, freeze, blend
        self._start = 0.0  # s of the running chunk
        self._chunk: Array | None = None
        self._running: int | None = None  # the step of the chunk that was executed last

    @property
    def running(self) -> bool:
        """True while there is a chunk that has not run out."""
        return self._chunk is not None

    def clear(self) -> None:
        """Drop the chunk."""
        self._chunk = None

    def put(self, chunk: NDArray, start: float, now: float) -> None:
        """Execute `chunk` (T, Da) in [-1, 1] of the observation of `start`, from its first action on that has not
        elapsed. One of now is executed as it is."""
        self._chunk, self._start, self._running = self._continued(chunk, start, now), start, None

    def warm(self, now: float) -> None:
        """Compute for nothing what `put` will for the next chunk, which is quicker then."""
        if self._chunk is not None:
            self._continued(self._chunk, now - 0.1 * self._period, now)

    def _continued(self, chunk: NDArray, start: float, now: float) -> Array:
        first, out = self._index(now - start), np.array(chunk, np.float64)
        if now > start and first < len(out):
            elapsed = max((now - start) / self._period, first)
            old, weight = self._old(first, len(out), start, now)
            out[first:] = continued(
                out[None], self.executed.since(start, now, out.shape[1])[None], np.array([elapsed]), self.parts,
                steps=len(out) - first, last=len(out), places=ASKEW, old=old, weight=weight,
            )[0][0]  # fmt: skip
        return out

    def step(self, now: float) -> ChunkStep | None:
        """The action of `now`; None where there is no chunk, or where it has run out, which drops it."""
        if self._chunk is None:
            return None
        elapsed, length = now - self._start, len(self._chunk)
        index = self._index(elapsed)
        if index < length:
            action = self._chunk[index]
            fresh, self._running = self._running != index, index
            if fresh:
                self.executed.add(now, action)
            return ChunkStep(index, action, fresh)
        if elapsed <= length * self._period + self._grace:
            return ChunkStep(length - 1, self._chunk[-1], held=True)
        self._chunk = None
        return None

    def _index(self, elapsed: float) -> int:
        return max(0, math.floor(elapsed / self._period + _EDGE))

    def _old(self, first: int, length: int, start: float, now: float) -> tuple[Array | None, Array | float]:
        """(H, Da) what the running chunk has for the steps from `first` on, and the new chunk's weight."""
        if self._chunk is None or not self._blend:
            return None, 1.0
        latency = math.ceil((now - start) / self._period - _EDGE)
        k = np.arange(first, length)
        # The middle of the step decides which of the old actions it meets: the two grids may be askew.
        then = np.floor((start + (k + 0.5) * self._period - self._start) / self._period + _EDGE).astype(int)
        # w_k = clip((k − k₀ − f + 1) / (⌈d⌉ + 1), 0, 1)
        w = np.clip((k - first - self._freeze + 1) / (latency + 1), 0.0, 1.0)
        w = np.where(then < len(self._chunk), w, 1.0)[:, None]
        old = self._chunk[np.clip(then, 0, len(self._chunk) - 1)]
        return old, np.where(self.parts.opening, w > 0, w)


class SteppedChunks:
    """A policy's chunks in N worlds, one action after the other, each chunk to its end unless it is dropped.

    Args:
      predict: observation of all worlds → chunks (N, T, Da) that begin now; those of worlds that need none
        are not used.
      interface: whose actions.
      num_envs: N.
    """

    def __init__(self, predict: Callable[[Observation], NDArray], interface: Interface, num_envs: int) -> None:
        self._predict, self._now = predict, 0.0
        self._executors = [ChunkExecutor(ActionParts.of(interface), kept=1) for _ in range(num_envs)]

    def drop(self, worlds: NDArray[np.bool_]) -> None:
        """Drop the chunks of the worlds (N,) that are true: another source moves them, or an episode begins."""
        for w in np.flatnonzero(worlds):
            self._executors[w].clear()

    def step(self, observation: Observation, worlds: NDArray[np.bool_]) -> NDArray[np.float32]:
        """(N, Da) actions of the next control step in the worlds (N,) that are true; 0 in the others."""
        self._now += 1.0
        steps = {w: self._executors[w].step(self._now) for w in np.flatnonzero(worlds)}
        if empty := [w for w, step in steps.items() if step is None or step.held]:
            chunks = self._predict(observation)
            for w in empty:
                self._executors[w].put(chunks[w], self._now, self._now)
                steps[w] = self._executors[w].step(self._now)
        actions = np.zeros((len(worlds), self._executors[0].parts.opening.size), np.float32)
        for w, step in steps.items():
            assert step is not None
            actions[w] = step.action
        return actions
