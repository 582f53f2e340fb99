"""Worlds that nobody resets, in which critics say when a turn is over: each of them for one of the two policies.

    over_t   done_t and confidence_t ≥ 0.5 by the critic of the turn, at every k-th step of it

That a world calls its task solved ends nothing here, and is reported as before: it is shown, and not learned from. What
the world calls a failure, and the clock, end an episode all the same. A critic that withholds its score ends none.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Observation, RewardModel, RewardWithheld, Window
from robolearn.rewards.done import FIRST_SURE
from robolearn.rewards.scoring import scores_of

log = logging.getLogger(__name__)


class JudgedTurns:
    """See the module; everything else is as `env` has it.

    Args:
      env: `sim.embedded.two_way.TwoWayWorlds`, or alike: `back`, `prompts`, `judge_outside` and `hand_over`.
      models: the critics of the way there and of the way back.
      every: k, the steps of an episode between two verdicts, as the episodes are scored afterwards.
    """

    def __init__(self, env: Any, models: tuple[RewardModel, RewardModel], every: int) -> None:
        self._env, self._models, self._every = env, models, every
        env.judge_outside()
        # feature → (T + 1, …) of the running episode of each world: its first observation, and every k-th one
        self._seen: list[list[dict[str, NDArray]]] = [[] for _ in range(env.num_envs)]
        self._steps = np.zeros(env.num_envs, np.int64)
        self._silent = False

    def __getattr__(self, name: str) -> Any:
        if name == "step_chunk":  # verdicts come between steps
            raise AttributeError(name)
        return getattr(self._env, name)

    def reset(self, **options: Any) -> tuple[Observation, dict[str, Any]]:
        """See `robolearn.core.Env`."""
        observation, infos = self._env.reset(**options)
        self._begin(np.arange(len(self._steps)), observation)
        return observation, infos

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> tuple[Any, ...]:
        """See `robolearn.core.Env`; a turn that its critic calls done is terminated."""
        back = self._env.back
        observation, reward, terminated, truncated, infos = self._env.step(actions, active)
        self._steps += 1 if active is None else active
        due = (self._steps % self._every == 0) & ~(terminated | truncated)
        over = np.zeros(len(due), np.bool_)
        for turn in (False, True):
            over |= self._called(np.flatnonzero(due & (back == turn)), infos["final_obs"], turn)
        if over.any():
            observation, terminated = self._env.hand_over(np.flatnonzero(over)), terminated | over
        ended = terminated | truncated
        self._begin(np.flatnonzero(ended), observation)
        return observation, reward, terminated, truncated, infos | {"_final_obs": ended}

    def _begin(self, worlds: NDArray[np.int64], observation: Observation) -> None:
        self._steps[worlds] = 0
        for world in worlds:
            self._seen[world] = [self._frame(observation, int(world))]

    def _called(self, worlds: NDArray[np.int64], observation: Observation, back: bool) -> NDArray[np.bool_]:
        """(N,) the critic of the way there, or `back`, calls the running episode done; of `worlds` (M,) alone."""
        found, windows = np.zeros(len(self._steps), np.bool_), list[Window]()
        model = self._models[int(back)]
        for world in worlds:
            seen = self._seen[world]
            seen.append(self._frame(observation, int(world)))
            looked = [seen[0], seen[-1]] if getattr(model, "frame_by_frame", False) else seen
            actions = np.zeros((len(looked) - 1, *self._env.interface.action.shape), np.float32)
            windows.append(Window({key: np.stack([one[key] for one in looked]) for key in looked[0]}, actions))
        try:
            scores = scores_of(model, windows, [self._env.prompts[int(back)]] * len(windows)) if windows else []
        except RewardWithheld as why:
            if not self._silent:
                log.warning("the critic of a turn withholds its score, and ends no turn then: %s", why)
            self._silent, scores = True, []
        for world, score in zip(worlds, scores, strict=bool(scores)):
            found[world] = FIRST_SURE.sure(score)[-1]
        return found

    def _frame(self, observation: Observation, world: int) -> dict[str, NDArray]:
        reads = {key for model in self._models for key in getattr(model, "reads", ())} or observation.keys()
        return {key: np.array(observation[key][world]) for key in sorted(reads)}

    def snapshot(self) -> dict[str, NDArray] | None:
        """See `robolearn.core.Env`."""
        found = self._env.snapshot()
        if found is None or not self._seen[0]:
            return found
        flat = [frame for seen in self._seen for frame in seen]
        own = {f"turns/{key}": np.stack([frame[key] for frame in flat]) for key in flat[0]}
        return found | own | {"turn_steps": self._steps.copy(), "turn_frames": np.array([len(s) for s in self._seen])}

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        """See `robolearn.core.Env`."""
        rest = dict(snapshot)
        own = {key: rest.pop(key) for key in snapshot if key.startswith("turns/")}
        self._steps, frames = rest.pop("turn_steps").copy(), rest.pop("turn_frames")
        ends = np.cumsum(frames)
        self._seen = [
            [{key.partition("/")[2]: value[i] for key, value in own.items()} for i in range(end - count, end)]
            for end, count in zip(ends.tolist(), frames.tolist(), strict=True)
        ]
        return self._env.restore(rest)
