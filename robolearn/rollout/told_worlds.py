"""Worlds that tell a policy in words what to do: the sentence of each is a feature of what it observes.

Worlds of several tasks may stand side by side in one batch. What is learned there is one policy of all of them, told
apart by the words alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Env, Observation, StepResult, check_compatible
from robolearn.core.specs import PROMPT
from robolearn.rollout.engine import ChunkOutcome, execute, step_once


class ToldWorlds:
    """A `ChunkEnv`: the worlds of `parts`, one after the other.

    Args:
      parts: worlds of a task each, which observe and command alike.
      embed: n sentences → (n, D).
      task: the name of them all.

    Raises:
      BadInput: parts that differ, a task without words, or words that cannot be embedded.
    """

    def __init__(self, parts: Sequence[Env], embed: Callable[[Sequence[str]], NDArray[np.float32]], task: str) -> None:
        first = parts[0]
        for part in parts:
            check_compatible(first.interface, part.interface, what=f"worlds of {first.task}, beside {part.task}")
            if not part.prompt:
                raise BadInput(f"worlds of {part.task}", got="no task in words", expected="some, for a policy of words")
        self._parts: Sequence[Env] = tuple(parts)
        counts = [part.num_envs for part in parts]
        self._rows = [slice(end - n, end) for n, end in zip(counts, np.cumsum(counts).tolist(), strict=True)]
        vectors = np.asarray(embed([part.prompt for part in parts]), np.float32)
        self._words = np.repeat(vectors, counts, axis=0)  # (N, D)
        self.num_envs, self.task = sum(counts), task
        seen = {**first.interface.observation, PROMPT: ArraySpec(vectors.shape[1:])}
        self.interface = replace(first.interface, observation=seen)
        self.prompt = first.prompt if len(parts) == 1 else ""
        limits = [part.max_episode_steps for part in parts]
        self.max_episode_steps = max(limits) if all(limits) else 0
        self.continuing = any(part.continuing for part in parts)
        self.steps_together = any(part.steps_together for part in parts)
        self._observation: list[Observation] = []
        self._solved = np.zeros(self.num_envs, np.bool_)  # of the running episodes
        self._counts = np.zeros((len(parts), 2), np.int64)  # of each task: solved, ended

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or len(self._parts) > 1:
            raise AttributeError(name)
        return getattr(self._parts[0], name)

    @property
    def reports_success(self) -> bool:
        return all(part.reports_success for part in self._parts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        ids = np.asarray((options or {}).get("start_ids", ()))
        if len(ids) and sum(len(np.unique(ids[rows])) for rows in self._rows) > len(np.unique(ids)):
            got = f"{self.num_envs} of {len(self._parts)} tasks, in groups that begin alike"
            raise BadInput("worlds", got=got, expected="as many of each task as whole groups have")
        self._solved[:], self._counts[:] = False, 0
        given = [options and {key: value[rows] for key, value in options.items()} for rows in self._rows]
        self._observation = [
            part.reset(seed=seed, options=own)[0] for part, own in zip(self._parts, given, strict=True)
        ]
        return self._told(self._observation), {}

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        if active is not None:
            return self.step_chunk(actions[:, None], active)
        parts = zip(self._parts, self._rows, self._observation, strict=True)
        return self._joined([step_once(part, actions[rows], seen) for part, rows, seen in parts])

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        going = np.ones(self.num_envs, np.bool_) if active is None else active
        parts = zip(self._parts, self._rows, self._observation, strict=True)
        return self._joined(
            [
                execute(part, chunks[rows], going[rows], seen, None)
                if going[rows].any()
                else _rests(part, chunks[rows], seen)
                for part, rows, seen in parts
            ]
        )

    def snapshot(self) -> dict[str, NDArray] | None:
        found = [part.snapshot() for part in self._parts]
        if any(one is None for one in found):
            return None
        parts = {f"{i}/{key}": value for i, one in enumerate(found) for key, value in (one or {}).items()}
        return {**parts, "solved": self._solved.copy()}

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        self._solved[:], self._counts[:] = snapshot["solved"], 0
        self._observation = []
        for i, part in enumerate(self._parts):
            own = {key.partition("/")[2]: value for key, value in snapshot.items() if key.startswith(f"{i}/")}
            self._observation.append(part.restore(own))
        return self._told(self._observation)

    def success_of_tasks(self) -> dict[str, float]:
        """``success/<task>`` → rate of the episodes that ended since the last call, NaN without one; nothing of one
        task alone, or where a task reports no success."""
        counts, self._counts = self._counts, np.zeros_like(self._counts)
        if len(self._parts) == 1 or not self.reports_success:
            return {}
        pairs = zip(self._parts, counts.tolist(), strict=True)
        return {f"success/{part.task}": solved / ended if ended else math.nan for part, (solved, ended) in pairs}

    def frame(self, world: int = 0) -> NDArray[np.uint8] | None:
        for part, rows in zip(self._parts, self._rows, strict=True):
            if world < rows.stop:
                return part.frame(world - rows.start)
        raise BadInput("world", got=world, expected=f"below {self.num_envs}")

    def close(self, **kwargs: Any) -> None:
        for part in self._parts:
            part.close(**kwargs)

    # ---------------------------------------------------------------------------------------------------------

    def _told(self, parts: Sequence[Observation]) -> Observation:
        """The observation of all worlds, with their words."""
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]} | {PROMPT: self._words}

    def _joined(self, outs: Sequence[ChunkOutcome]) -> StepResult:
        self._observation = [out.observation for out in outs]
        rewards, steps, terminated, truncated = (
            np.concatenate([getattr(out, name) for out in outs])
            for name in ("rewards", "steps", "terminated", "truncated")
        )
        ended, solved = terminated | truncated, [out.success for out in outs if out.success is not None]
        success = np.concatenate(solved) if len(solved) == len(outs) else None
        if success is not None:
            self._solved |= success
        for k, rows in enumerate(self._rows):
            self._counts[k] += (self._solved & ended)[rows].sum(), ended[rows].sum()
        self._solved &= ~ended
        final = self._told([out.final or out.observation for out in outs]) if ended.any() else {}
        seen = self._told(self._observation)
        return ChunkOutcome(seen, rewards, steps, terminated, truncated, success, final).as_result()


def _rests(part: Env, chunks: NDArray[np.float32], seen: Observation) -> ChunkOutcome:
    """The outcome where all worlds of `part` rest."""
    n, ta = chunks.shape[:2]
    no = np.zeros(n, np.bool_)
    solved = no if part.reports_success else None
    return ChunkOutcome(seen, np.zeros((n, ta), np.float32), np.zeros(n, np.int64), no, no, solved, {})


def success_of_tasks(env: Env) -> dict[str, float]:
    """See `ToldWorlds.success_of_tasks`; nothing of other worlds."""
    return env.success_of_tasks() if isinstance(env, ToldWorlds) else {}
