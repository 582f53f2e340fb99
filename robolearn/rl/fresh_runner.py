"""Offline, then on-policy: an algorithm learns from stored episodes, and from there on from fresh rollouts alone.

    updates 1 … U     those of `robolearn.rl.offline_runner`
    afterwards        iterations of `robolearn.rl.runner`: its policy begins as what acted at the end, its critic as V

A trainer for `robolearn.runs.run_loop`. Nothing that was stored is looked at after the switch, so a state from then on
has no replay.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Env, RewardModel, bind_policy
from robolearn.data.replay import PlayedEpisode
from robolearn.rl.adversary import AdversaryConfig
from robolearn.rl.algorithms.uni_o4 import UniO4
from robolearn.rl.along import AlongConfig
from robolearn.rl.offline_runner import OfflineRunner
from robolearn.rl.runner import Runner, iterations_apart
from robolearn.rl.uni_o4_settings import UniO4Config


class FreshRunner(OfflineRunner):
    """Fine-tunes `policy` from stored episodes, then in `env`.

    Args:
      policy, config, updates, seed, episodes, model: see `OfflineRunner`.
      env: the worlds, not yet reset.
      env_steps: budget of control steps.
      name: of the policy, for messages.
      altered: see `robolearn.rl.runner.Runner`.

    Raises:
      BadInput: no updates, a policy that does not fit the world, or a budget too small for one iteration.
    """

    algorithm: UniO4

    def __init__(
        self, policy: ChunkPolicy, env: Env, config: UniO4Config, env_steps: int, seed: int,
        episodes: Iterable[PlayedEpisode], model: RewardModel | None, name: str, updates: int,
        altered: AlongConfig | AdversaryConfig | None = None,
    ) -> None:  # fmt: skip
        if not updates:
            raise BadInput("--updates", got=0, expected=f"some, with --data: {config.title} goes online from offline")
        bind_policy(policy, env.interface, what=f"{f'policy {name}' if name else 'policy'} in {env.task}")
        self.env, self.budget, self.altered = env, env_steps, altered
        self.online = config.online(env.num_envs, policy.execute_steps)
        self.online.check_budget(env.max_episode_steps, policy.execute_steps, env_steps)
        self._each = self.online.iteration_cost(env.max_episode_steps, policy.execute_steps)
        self._rollouts: Runner | None = None  # from the switch on
        super().__init__(policy, config, updates, seed, episodes, model, env.prompt)

    @property
    def env_steps(self) -> int:
        return 0 if self._rollouts is None else self._rollouts.env_steps

    @property
    def iterations(self) -> int:
        if self._rollouts is not None:
            return self._done + self._rollouts.iterations
        return super().iterations + self.budget // self._each

    def iterate(self, i: int) -> dict[str, float]:
        """As the offline runner, then as the on-policy one."""
        if self._rollouts is None and self.offline_left:
            return super().iterate(i)
        if self._rollouts is None:
            self._rollouts = self.switched()
            learner: Any = self._rollouts.algorithm
            learner.value = self.algorithm.next_value
        return {"updates": float(self.offline), **self._rollouts.iterate(i - self._done)}

    def switched(self) -> Runner:
        """The on-policy runner, whose policy is a copy of what acts."""
        acts = copy.deepcopy(self.algorithm.policy.proposer)
        return Runner(acts, self.env, self.online, self.budget, self.seed, model=self._model, altered=self.altered)

    def export(self, path: Path) -> None:
        if self._rollouts is None:
            super().export(path)
        else:
            self._rollouts.export(path)

    def iterations_between_states(self, asked: int) -> int:
        """See `robolearn.rl.runner.iterations_apart`."""
        return iterations_apart(self.env, self._each, asked)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if self._rollouts is None:
            return super().state()
        tensors, meta = self._rollouts.state()
        return tensors, {"online": meta, "done": self._done}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        if "online" not in meta:
            super().load_state(tensors, meta)
            return
        self._episodes_to_show, self._done = None, int(meta["done"])
        self._rollouts = self.switched()
        self._rollouts.load_state(tensors, meta["online"])
