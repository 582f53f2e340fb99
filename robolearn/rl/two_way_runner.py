"""Forward and backward: two policies take turns in worlds that nobody resets, and both learn from what they did.

    forward   the task              its episodes go to its replay, its updates are paid for by its steps
    backward  the way back          the same, with a base, data, rewards and an algorithm of its own

After Eysenbach et al., "Leave no Trace" (ICLR 2018), and as SERL (Luo et al., 2024) trains on real arms. Departures:
the turn changes with the end of every episode, solved or not; a world that has a way back says whose it is
(`sim.embedded.two_way`), and a person helps where nothing else does. With critics each says when its own policy's turn
is over (`robolearn.rl.judged_turns`), and its rewards are learned from.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.storage.checkpoint import save_policy
from robolearn.core import BadInput, Observation, RewardModel, bind_policy
from robolearn.data.replay import PlayedEpisode
from robolearn.rl.audit import counts
from robolearn.rl.judged_turns import JudgedTurns
from robolearn.rl.off_policy_settings import OffPolicyConfig
from robolearn.rl.offline_runner import OfflineRunner
from robolearn.rl.replay_runner import Explorer, ReplayRunner
from robolearn.rl.settings import BACKWARD
from robolearn.rollout import Agent, Decision, Turn
from robolearn.runs.checkpoint import prefixed, unprefixed


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
