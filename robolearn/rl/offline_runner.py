"""The offline runner: an off-policy algorithm learns from recorded episodes, and no world takes a step.

A trainer for `robolearn.runs.run_loop`, of `BLOCK` updates an iteration. `robolearn.rl.replay_runner` begins with the
same iterations where it has `updates`, and goes on in worlds with the same learner.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.storage.checkpoint import save_policy
from robolearn.core import BadInput, Env, RewardModel, bind_policy
from robolearn.core.machine import torch_threads
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.asking import WithheldCount
from robolearn.rewards.scoring import held, window_of, with_score
from robolearn.rl.adversary import AdversaryConfig
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.algorithms.uni_o4 import UniO4
from robolearn.rl.along import AlongConfig
from robolearn.rl.experience import Experience
from robolearn.rl.model_reward import check_seen
from robolearn.rl.off_policy_settings import OffPolicyConfig
from robolearn.rl.runner import Runner, iterations_apart
from robolearn.rl.student_settings import UniO4Config
from robolearn.runs.checkpoint import prefixed, unprefixed

BLOCK = 250  # updates


class OfflineRunner:
    """Fine-tunes `policy` from stored episodes.

    Args:
      policy: to begin with; its weights stay as they are.
      config: of the algorithm.
      updates: of the critics, from `episodes` alone.
      seed: of noise, weights and what is drawn.
      episodes: in the replay from the beginning; once there are others, the share `demo_share` of a batch.
      model: whose rewards, success and ends are learned from, in the place of those that came with an episode.
      task: in words, for `model`, of episodes that do not state theirs.

    Raises:
      BadInput: a policy that does not fit the algorithm, or updates without anything to learn from.
    """

    calibration = None  # nothing is chosen before the first iteration

    def __init__(
        self,
        policy: ChunkPolicy,
        config: OffPolicyConfig,
        updates: int,
        seed: int,
        episodes: Iterable[PlayedEpisode] = (),
        model: RewardModel | None = None,
        task: str = "",
    ) -> None:
        self.config, self.offline, self.seed = config, updates, seed
        self.algorithm: OffPolicy = config.build(policy, seed=seed)
        if model is not None:
            check_seen(model, policy.interface.observation)
        self._model, self._task = model, task
        self._withheld = WithheldCount()
        self.experience = Experience(self.algorithm, score=self._scored)
        self._episodes_to_show: Iterable[PlayedEpisode] | None = episodes
        if model is None:
            self.show()
        self._draws = torch.Generator().manual_seed(seed)
        self._done = 0

    def show(self) -> None:
        """Fill the replay with the episodes to begin with, where that has not been done. With a model, which takes its
        time for them, it is done by the first iteration, and a resumed run finds them in its state. Raises `BadInput`:
        updates without anything to learn from."""
        if self._episodes_to_show is None:
            return
        episodes, self._episodes_to_show = self._episodes_to_show, None
        self.experience.show(episodes)
        if self.offline and not len(self.experience):
            got, expected = "no window to learn from", f"episodes of more than {self.algorithm.chunk} steps"
            raise BadInput("--updates: --data", got=got, expected=expected)

    @property
    def env_steps(self) -> int:
        """Control steps so far."""
        return 0

    @property
    def iterations(self) -> int:
        """Those done, and those to come."""
        return self._done + math.ceil(self._due / BLOCK)

    @property
    def _allowed(self) -> int:
        """Updates that may be made by now."""
        return self.offline

    @property
    def _due(self) -> int:
        """Updates that may be made and are not yet."""
        return max(self._allowed - self.algorithm.updates, 0)

    # --- a trainer: see `robolearn.runs.loop.Trainer` ----------------------------------------------------------

    def iterate(self, i: int) -> dict[str, float]:
        """`BLOCK` updates, or what is left of them; returns the metrics."""
        self.show()
        began = time.perf_counter()
        sums: dict[str, Tensor] = {}
        before = self.algorithm.updates
        with torch_threads(1):
            self.learn(min(before + BLOCK, self._allowed), sums)
        self._done = i + 1
        return {
            "env_steps": float(self.env_steps),
            "wall_update_s": time.perf_counter() - began,
            **self.metrics(sums, before),
        }

    def learn(self, allowed: int, sums: dict[str, Tensor]) -> None:
        """Update until there were `allowed` updates; metrics are added to `sums`."""
        while self.algorithm.updates < allowed:
            for name, value in self.algorithm.update(self.experience.sample(self._draws)).items():
                sums[name] = sums.get(name, torch.zeros(())) + value.detach().cpu()

    def metrics(self, sums: dict[str, Tensor], before: int) -> dict[str, float]:
        """Of learning, since there were `before` updates."""
        made = self.algorithm.updates - before
        found = {"updates": float(self.algorithm.updates), "replay_mb": self.experience.bytes / 1e6}
        return found | {name: float(value) / max(made, 1) for name, value in sums.items()}

    def export(self, path: Path) -> None:
        """Write the policy to the checkpoint folder `path`."""
        save_policy(self.algorithm.policy, path)

    def _scored(self, episode: PlayedEpisode) -> PlayedEpisode | None:
        """By the model, or None where that withholds it; pictures take time, so it sees those of decisions alone."""
        if self._model is None:
            return episode
        every = self.algorithm.chunk if getattr(self._model, "reads", ()) else 1
        window, task = window_of(episode, every), episode.task or self._task
        (score,) = self._withheld.scores(self._model, [window], [task])
        return None if score is None else with_score(episode, held(episode, score, every), gamma=self.config.gamma)

    # --- exact resume ------------------------------------------------------------------------------------------

    def iterations_between_states(self, asked: int) -> int:
        """Number of iterations between two calls of `state`."""
        return asked

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iteration depends on."""
        tensors, algorithm = self.algorithm.state()
        stored, experience = self.experience.state()
        tensors |= prefixed("experience", stored) | {"draws": self._draws.get_state()}
        meta = {"algorithm": algorithm, "experience": experience, "env_steps": self.env_steps, "done": self._done}
        return tensors, meta

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self._episodes_to_show = None
        self.algorithm.load_state(tensors, meta["algorithm"])
        self.experience.load_state(unprefixed("experience", tensors), meta["experience"])
        self._draws.set_state(tensors["draws"])
        self._done = int(meta["done"])


class FreshRunner(OfflineRunner):
    """Fine-tunes `policy` from stored episodes, then in `env` from fresh rollouts alone.

        updates 1 … U     those of the offline runner
        afterwards        iterations of `robolearn.rl.runner`: its policy begins as what acted, its critic as V

    Nothing that was stored is looked at after the switch, so a state from then on has no replay.

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
        if self._rollouts is None and self._due:
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
