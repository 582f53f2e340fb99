"""Forward and backward: two policies take turns in worlds that nobody resets, and both learn from what they did.

    forward   the task              its episodes go to its replay, its updates are paid for by its steps
    backward  the way back          the same, with a base, data, rewards and an algorithm of its own

After Eysenbach et al., "Leave no Trace" (ICLR 2018), and as SERL (Luo et al., 2024) trains on real arms. Departures:
the turn changes with the end of every episode, solved or not; a world that has a way back says whose it is
(`sim.embedded.two_way`), and a person helps where nothing else does. With critics each says when its own policy's turn
is over, and its rewards are learned from:

    over_t   done_t and confidence_t ≥ 0.5 by the critic of the turn, at every k-th step of it
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.storage.checkpoint import save_policy
from robolearn.core import BadInput, Observation, RewardModel, RewardWithheld, Window, bind_policy
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.done import FIRST_SURE
from robolearn.rewards.scoring import scores_of
from robolearn.rl.audit import counts
from robolearn.rl.off_policy_settings import OffPolicyConfig
from robolearn.rl.offline_runner import OfflineRunner
from robolearn.rl.replay_runner import Explorer, ReplayRunner
from robolearn.rl.settings import BACKWARD
from robolearn.rollout import Agent, Decision, Turn
from robolearn.runs.checkpoint import prefixed, unprefixed

log = logging.getLogger(__name__)


class JudgedTurns:
    """Worlds in which the critics say when a turn is over; everything else is as `env` has it.

    That a world calls its task solved ends nothing here, and is reported as before. What it calls a failure, and the
    clock, end an episode all the same. A critic that withholds its score ends none.

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


class TwoWayRunner(ReplayRunner):
    """Fine-tunes `policy`, the forward one, and `backward` in `env`.

    Args:
      policy, env, config, env_steps, seed, demonstrations, model, name: see `ReplayRunner`; the budget is that of both,
        and `env` has `back` (N,), the worlds in which it is the backward policy's turn, `prompts` of both and `helped`.
      backward: to begin with; its weights stay as they are.
      shown: episodes of the way back, in its replay from the beginning.
      back_model: as `model`, of the way back.
      judges: the critics that end the turns, there and back; without them the world's success does.

    Raises:
      BadInput: a policy that does not fit, or two that execute chunks of other lengths.
    """

    def __init__(
        self,
        policy: ChunkPolicy,
        env: Any,
        config: OffPolicyConfig,
        env_steps: int,
        seed: int,
        demonstrations: Iterable[PlayedEpisode],
        model: RewardModel | None,
        name: str,
        backward: ChunkPolicy,
        shown: Iterable[PlayedEpisode],
        back_model: RewardModel | None = None,
        judges: tuple[RewardModel, RewardModel] | None = None,
    ) -> None:
        if judges is not None:
            seen = any(getattr(judge, "reads", ()) for judge in judges)
            env = JudgedTurns(env, judges, policy.execute_steps if seen else 1)
        super().__init__(policy, env, config, env_steps, seed, demonstrations, model, name)
        bind_policy(backward, env.interface, what=f"--back-policy in {env.task}")
        if backward.execute_steps != policy.execute_steps:
            got, expected = backward.execute_steps, f"{policy.execute_steps}, as the other policy"
            raise BadInput("--back-policy: steps that are executed of a chunk", got=got, expected=expected)
        self._worlds, self._back_model = env, back_model
        self.backward = OfflineRunner(backward, config, 0, seed + 1, shown, back_model, env.prompts[1])
        self._agent = _InTurn(self._agent, Explorer(self.backward.algorithm, env), env)

    @property
    def helped(self) -> int:
        """Resets by a person so far."""
        return self._worlds.helped

    def iterate(self, i: int) -> dict[str, float]:
        """Act and learn; returns the metrics: those of `ReplayRunner` for the forward policy, with ``back_`` those of
        the backward one, and ``helped``, the resets by a person so far."""
        self._back: list[PlayedEpisode] = []
        self._back_verdicts: list[tuple[bool, bool]] = []  # called done by its model, solved
        self._sums: dict[str, Tensor] = {}
        self._update_s = 0.0
        self.backward.show()
        before = self.backward.algorithm.updates
        row = super().iterate(i)
        found = self.backward.metrics(self._sums, before)
        if self._back:
            found["success"] = sum(episode.success for episode in self._back) / len(self._back)
        if self._back_verdicts:
            found |= counts(self._back_verdicts) | {"withheld": float(len(self._back) - len(self._back_verdicts))}
        found["episodes"] = float(len(self._back))
        row |= {f"{BACKWARD}_{key}": value for key, value in found.items()}
        row["wall_update_s"] += self._update_s
        return row | {"helped": float(self.helped)}

    def _ended(self, turn: Turn) -> list[PlayedEpisode]:
        """Those of the forward policy; the others go to the backward one's replay, which learns from them."""
        closed = self._episodes.add(turn)
        backward = turn.decision.aux[BACKWARD][turn.worlds & turn.ended]
        forward: list[PlayedEpisode] = []
        for episode, back in zip(closed, backward, strict=True):
            (self._back if back else forward).append(episode)
            if back:
                scored = self.backward.experience.add(episode)
                if self._back_model is not None and scored is not None:
                    self._back_verdicts.append((scored.success, episode.success))
        allowed = self.config.updates_paid(self.backward.experience.env_steps) if len(self.backward.experience) else 0
        began = time.perf_counter()
        self.backward.learn(allowed, self._sums)
        self._update_s += time.perf_counter() - began
        return forward

    def export(self, path: Any) -> None:
        """Write the forward policy to the checkpoint folder `path`, and the backward one to `BACKWARD` in it."""
        super().export(path)
        save_policy(self.backward.algorithm.policy, path / BACKWARD)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iteration depends on."""
        tensors, meta = super().state()
        own, known = self.backward.state()
        return tensors | prefixed("backward", own), meta | {"backward": known}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        super().load_state(tensors, meta)
        self.backward.load_state(unprefixed("backward", tensors), meta["backward"])


class _InTurn(Agent):
    """Two explorers, each in the worlds where it is its turn."""

    def __init__(self, forward: Explorer, backward: Explorer, env: Any) -> None:
        self._two, self._env = (forward, backward), env

    def drop(self) -> None:
        """Forget what is left of all chunks."""
        for one in self._two:
            one.drop()

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        for one in self._two:
            one.begin(worlds)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """`aux` has the ``observation`` that the action answers, and `BACKWARD` (N,), where it is the other one's."""
        back = self._env.back
        forward, backward = (
            one.decide(observation, worlds & own) for one, own in zip(self._two, (~back, back), strict=True)
        )
        seen = forward.aux["observation"] | backward.aux["observation"]
        chunk = np.where(back[:, None, None], backward.chunk, forward.chunk)
        return Decision(chunk, {"observation": seen, BACKWARD: back})
