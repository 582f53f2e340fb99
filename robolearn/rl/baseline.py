"""V(o, h) and how it is fitted: what the actor's advantages are measured against."""

from __future__ import annotations

from torch import Tensor

from robolearn.rl.buffer import Batch
from robolearn.rl.critic import Critic
from robolearn.rl.losses import explained_variance, value_loss
from robolearn.rl.policy_step import Loss, MinibatchOptimizer
from robolearn.rl.returns import gae
from robolearn.rl.settings import ActorCriticConfig
from robolearn.rl.shards import Means, Shards
from robolearn.rl.tensors import Normalise, rows


class Baseline:
    """The critic, its optimiser and the advantages that follow from it.

    Args:
      critic: the network.
      optimizer: over it.
      config: γ, λ, epochs.
      shards: shares side by side.
      normalise: features as the worlds give them → what the network takes.
    """

    def __init__(
        self,
        critic: Critic,
        optimizer: MinibatchOptimizer,
        config: ActorCriticConfig,
        shards: Shards,
        normalise: Normalise,
    ) -> None:
        self.critic, self.optimizer, self.config = critic, optimizer, config
        self._shards, self._normalise = shards, normalise

    def values(self, observation: dict[str, Tensor], remaining: Tensor) -> Tensor:
        """(B,) what the critic expects from observations as the worlds give them."""
        return self._shards.rows(
            lambda part: self.critic(self._normalise(rows(observation, part)), remaining[part]), len(remaining)
        )

    def advantages(self, batch: Batch) -> tuple[Tensor, Tensor, dict[str, float]]:
        """(B,) advantages, (B,) targets of the critic, and metrics."""
        value = self.values(batch.observation, batch.time_remaining)
        next_value = self.values(batch.next_observation, batch.next_time_remaining)
        # Where a world has no decision t, nothing is added to those before it.
        ended = batch.on_grid(batch.ended.float()) > 0
        advantage, target = gae(
            batch.on_grid(batch.reward),
            batch.on_grid(value),
            batch.on_grid(next_value),
            batch.on_grid(batch.terminated.float()) > 0,
            ended,
            self.config.gamma,
            self.config.lam,
        )
        target = batch.from_grid(target)
        metrics = {
            "explained_variance": explained_variance(value, target).item(),
            "return": target.mean().item(),
        }
        return batch.from_grid(advantage), target, metrics

    def fit(self, batch: Batch, target: Tensor) -> dict[str, float]:
        """Several epochs towards `target` (B,)."""

        def loss(index: Tensor) -> Loss:
            seen = self._normalise(rows(batch.observation, index))
            remaining, wanted = batch.time_remaining[index], target[index]

            def share(part: slice) -> tuple[Tensor, Means]:
                value = value_loss(self.critic(rows(seen, part), remaining[part]), wanted[part])
                return value, {"value_loss": value.detach()}

            return share

        return self.optimizer.epochs(len(batch), self.config.critic_epochs, loss)
