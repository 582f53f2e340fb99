"""V(o, h): expected discounted return of the policy from an observation, in what is left of the episode.

Where success counts within the time limit only, the time that remains belongs to the value (Pardo et al., "Time limits
in reinforcement learning", ICML 2018, section 3), with

    V(o, 0) = 0

exactly, by construction. A critic without the time calls the end of an episode that led nowhere as good as
its beginning: nothing pulls its value down but itself (V ← γ V), and failures teach the actor nothing. The policy
needs no clock: the critic is thrown away after fine-tuning.

It may see something else than the policy, in simulation even what no arm has, the state of the world beside a policy of
cameras (Pinto et al., "Asymmetric actor critic for image-based robot learning", RSS 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.networks.encoder import ObservationEncoder
from policies.normalize import Normalizer
from robolearn.core import Interface
from robolearn.rl.buffer import RolloutBatch
from robolearn.rl.policy_step import Loss, Means, MinibatchOptimizer, Normalise, Shards, rows
from robolearn.rl.returns import explained_variance, gae, value_loss
from robolearn.rl.settings import ActorCriticConfig


class Critic(nn.Module):
    """An encoder of its own and an MLP; the policy's features are not shared, so neither disturbs the other.

    Args:
      encoder: normalised features → (B, C).
      ends_with_the_time: V(o, 0) = 0. Otherwise a time limit is no end of the task: the time that remains is nothing
        to the value, which looks beyond it.
    """

    def __init__(
        self, encoder: ObservationEncoder, hidden: tuple[int, ...] = (256, 256, 256), *, ends_with_the_time: bool = True
    ) -> None:
        super().__init__()
        self.ends_with_the_time = ends_with_the_time
        self.encoder = encoder
        layers: list[nn.Module] = []
        width = encoder.size + 1
        for size in hidden:
            layers += [nn.Linear(width, size), nn.LayerNorm(size), nn.SiLU()]
            width = size
        head = nn.Linear(width, 1)
        # A critic that begins at zero does not mislead the first advantages.
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self.net = nn.Sequential(*layers, head)

    def forward(self, observation: dict[str, Tensor], time_remaining: Tensor) -> Tensor:
        """(B, To, …) features and (B,) the share of the time limit that remains, in [0, 1] → (B,) values."""
        if not self.ends_with_the_time:
            time_remaining = torch.ones_like(time_remaining)
        features = torch.cat([self.encoder(observation), 2.0 * time_remaining[:, None] - 1.0], -1)
        return self.net(features).squeeze(-1) * (time_remaining > 0)


class CriticInput:
    """Features as the worlds give them → what the critic's network takes.

    Its vectors are standardised by the first rollout: demonstrations need not hold them.
    """

    def __init__(self, sees: Interface, device: torch.device) -> None:
        self.sees = sees
        self.normalizer = Normalizer(sees).to(device)
        self.fitted = False

    def fit(self, observation: dict[str, Tensor]) -> None:
        """Take mean and deviation from the features (B, …) of the first rollout; nothing afterwards."""
        if not self.fitted:
            self.normalizer.standardise(observation)
        self.fitted = True

    def __call__(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.normalizer.observation(observation)


class Baseline:
    """The critic, its optimiser and the advantages that follow from it. `config`: γ, λ, epochs. `normalise`: features
    as the worlds give them → what the network takes."""

    def __init__(
        self, critic: Critic, optimizer: MinibatchOptimizer, config: ActorCriticConfig, shards: Shards,
        normalise: Normalise,
    ) -> None:  # fmt: skip
        self.critic, self.optimizer, self.config = critic, optimizer, config
        self._shards, self._normalise = shards, normalise

    def values(self, observation: dict[str, Tensor], remaining: Tensor) -> Tensor:
        """(B,) what the critic expects from observations as the worlds give them."""
        return self._shards.rows(
            lambda part: self.critic(self._normalise(rows(observation, part)), remaining[part]), len(remaining)
        )

    def advantages(self, batch: RolloutBatch) -> tuple[Tensor, Tensor, dict[str, float]]:
        """(B,) advantages, (B,) targets of the critic, and metrics."""
        value = self.values(batch.observation, batch.time_remaining)
        next_value = self.values(batch.next_observation, batch.next_time_remaining)
        # Where a world has no decision t, nothing is added to those before it.
        numbers = (batch.on_grid(column) for column in (batch.reward, value, next_value))
        flags = (batch.on_grid(column.float()) > 0 for column in (batch.terminated, batch.ended))
        advantage, target = gae(*numbers, *flags, gamma=self.config.gamma, lam=self.config.lam)
        target = batch.from_grid(target)
        metrics = {"explained_variance": explained_variance(value, target).item(), "return": target.mean().item()}
        return batch.from_grid(advantage), target, metrics

    def fit(self, batch: RolloutBatch, target: Tensor) -> dict[str, float]:
        """Several epochs towards `target` (B,)."""

        def loss(index: Tensor) -> Loss:
            seen = self._normalise(rows(batch.observation, index))
            remaining, wanted = batch.time_remaining[index], target[index]

            def share(part: slice) -> tuple[Tensor, Means]:
                value = value_loss(self.critic(rows(seen, part), remaining[part]), wanted[part])
                return value, {"value_loss": value.detach()}

            return share

        return self.optimizer.epochs(len(batch), self.config.critic_epochs, loss)
