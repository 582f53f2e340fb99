"""Config of the replay runners: an off-policy algorithm, and where its episodes come from. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from robolearn.core import BadInput
from robolearn.rl.off_policy_settings import OffPolicyConfig, ProposalsConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.policy import ChunkPolicy
    from robolearn.core import Env, RewardModel
    from robolearn.data.replay import PlayedEpisode
    from robolearn.rl.adversary import AdversaryConfig
    from robolearn.rl.along import AlongConfig


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """An off-policy algorithm on stored episodes, and in simulated worlds side by side, whose episodes all go into its
    replay."""

    num_envs: Annotated[int, tyro.conf.arg(name="worlds")] = 16
    """Worlds side by side."""
    updates: int = 0
    """Updates offline: from --data alone, before the first control step. Its episodes then count as they were recorded,
    with their rewards, ends and successes, and failures are learned from; at 0 they are demonstrations, failures left
    out."""
    algorithm: OffPolicyConfig = field(default_factory=ProposalsConfig)

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise BadInput("--worlds", got=self.num_envs, expected="at least 1")
        if self.updates < 0:
            raise BadInput("--updates", got=self.updates, expected="0 or more")

    @property
    def title(self) -> str:
        """Name of the algorithm, as people write it."""
        return self.algorithm.title

    @property
    def samples_base(self) -> bool:
        """As of the algorithm."""
        return self.algorithm.samples_base

    takes_demonstrations: ClassVar[bool] = True
    sigma_max = None  # actions are explored otherwise

    def stored(self) -> dict[str, Any]:
        """For a run's config.json."""
        offline = {"updates": self.updates} if self.updates else {}
        return {"num_envs": self.num_envs, **offline, **self.algorithm.stored()}

    def runner(
        self,
        policy: ChunkPolicy,
        env: Env | None,
        env_steps: int,
        seed: int,
        name: str,
        demonstrations: Iterable[PlayedEpisode] = (),
        model: RewardModel | None = None,
        backward: ChunkPolicy | None = None,
        shown: Iterable[PlayedEpisode] = (),
        back_model: RewardModel | None = None,
        judges: tuple[RewardModel, RewardModel] | None = None,
        altered: AlongConfig | AdversaryConfig | None = None,
    ) -> Any:
        """A trainer that fine-tunes `policy`, in `env` or without worlds, and `backward` with it where nobody resets;
        see `robolearn.rl.replay_runner.ReplayRunner`, `robolearn.rl.two_way_runner.TwoWayRunner`,
        `robolearn.rl.fresh_runner.FreshRunner` and `robolearn.rl.offline_runner.OfflineRunner`."""
        if env is None:
            made = resolve_name("robolearn.rl.offline_runner:OfflineRunner")
            return made(policy, self.algorithm, self.updates, seed, demonstrations, model)
        if backward is not None:
            made = resolve_name("robolearn.rl.two_way_runner:TwoWayRunner")
            both = demonstrations, model, name, backward, shown, back_model, judges
            return made(policy, env, self.algorithm, env_steps, seed, *both)
        fresh = self.algorithm.online(self.num_envs, policy.execute_steps) is not None
        made = resolve_name(f"robolearn.rl.{'fresh_runner:Fresh' if fresh else 'replay_runner:Replay'}Runner")
        return made(policy, env, self.algorithm, env_steps, seed, demonstrations, model, name, self.updates, altered)

    def check_budget(self, max_episode_steps: int, execute: int, env_steps: int) -> None:
        """Raise `BadInput` unless `env_steps` pay for an iteration."""
        if (online := self.algorithm.online(self.num_envs, execute)) is not None:
            online.check_budget(max_episode_steps, execute, env_steps)
            return
        resolve_name("robolearn.rl.replay_runner:check_budget")(self.num_envs, execute, env_steps)

    def step_discount(self, execute: int) -> float:
        """Discount of one control step."""
        return self.algorithm.gamma
