"""What the off-policy algorithms share: the frozen base, features, the order of updates, resuming.

An algorithm's own page says what it does in a state, `act`, what a state is worth, `next_value`, and how its actor
learns, `improve`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.policy import ChunkPolicy
from robolearn.core import Observation
from robolearn.data.replay import WindowBatch
from robolearn.rl.actors.squashed import SquashedGaussian
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.off_policy_settings import OffPolicyConfig
from robolearn.runs.checkpoint import prefixed, unprefixed
from robolearn.runs.optimizer_state import pack_optimizer, unpack_optimizer


class OffPolicy:
    """An actor and critics that learn from replayed windows, around a `base` whose weights stay as they are.

    Chunks have H = Ta steps of the base's, in the world's units [-1, 1] throughout: what is executed, stored and judged
    is one thing. Observations are normalised by the base's statistics.

    Args:
      base: a trained policy for the world.
      seed: of weights and noise.

    Attributes:
      actor: what learns beside the critics.
      chunk: H; size: H · Da.
      updates: of the critics, so far.
    """

    actor: SquashedGaussian
    proposals = 0  # what `annotate` draws for each row
    acts_by: tuple[str, ...] = ("actor",)  # the modules that `act` needs

    def __init__(self, base: ChunkPolicy, config: OffPolicyConfig, *, seed: int) -> None:
        self.base, self.config, self.device = base.eval(), config, base.device
        self.chunk, self.components = base.execute_steps, base.interface.action.size
        self.size = self.chunk * self.components
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.order = torch.Generator().manual_seed(seed)
        self.features = sum(spec.size for spec in base.interface.observation.values())
        torch.manual_seed(seed)
        self.critic = EnsembleCritic(self.features + self.size, config, self.device)
        self.updates = 0

    # --- what an algorithm says -----------------------------------------------------------------------------------

    def act(self, observation: Observation, *, explore: bool) -> np.ndarray:
        """(N, H, Da) chunks in [-1, 1] for the N worlds of `observation`."""
        raise NotImplementedError

    def next_value(self, features: Tensor, proposals: Tensor) -> Tensor:
        """(B,) V(s') of states (B, F) with the base's proposals for them."""
        raise NotImplementedError

    def improve(self, features: Tensor, batch: WindowBatch) -> dict[str, Tensor]:
        """One gradient step of the actor."""
        raise NotImplementedError

    # --- the rest -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def annotate(self, observation: dict[str, Tensor], generator: torch.Generator | None = None) -> Tensor:
        """(n, P, H · Da) chunks that the base proposes, drawn once for each row: its weights never change.

        Args:
          generator: on the algorithm's device; by default the algorithm's own.
        """
        generator = self.generator if generator is None else generator
        count = len(next(iter(observation.values())))
        if not self.proposals:
            return torch.zeros(count, 0, self.size)
        repeated = {key: value.repeat_interleave(self.proposals, 0) for key, value in observation.items()}
        net = self.base.net
        x0 = torch.randn(count * self.proposals, *net.noise_shape, generator=generator, device=self.device)
        chunks = net.sample(net.encode(self.base.normalizer.observation(repeated)), x0 * net.initial_noise_std)
        actions = self.base.normalizer.action_back(chunks[:, : self.chunk]).clamp(-1.0, 1.0)
        return actions.reshape(count, self.proposals, self.size)

    def update(self, batch: WindowBatch) -> dict[str, Tensor]:
        """One update of the critics, and now and then one of the actor; named scalars."""
        features, actions = self.see(batch.observation), batch.action.flatten(1)
        with torch.no_grad():
            value = self.next_value(self.see(batch.next_observation), batch.next_note)
            # y = R + d · V(s')
            target = batch.reward + batch.discount * value
        metrics = self.critic.fit(features, actions, target)
        self.updates += 1
        if self.updates % self.config.actor_every == 0:
            metrics |= self.improve(features, batch)
        return metrics

    def see(self, observation: dict[str, Tensor]) -> Tensor:
        """Stored features → (B, F), normalised."""
        normal = self.base.normalizer.observation(observation)
        return torch.cat([normal[key].flatten(1) for key in sorted(normal)], 1)

    def tensors_of(self, observation: Observation) -> dict[str, Tensor]:
        """The features that the base needs, on its device."""
        return {key: torch.tensor(observation[key], device=self.device) for key in self.base.interface.observation}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """All optimisers by name."""
        raise NotImplementedError

    def modules(self) -> dict[str, nn.Module]:
        """All that learns, and what follows it, by name."""
        return {"actor": self.actor, "critic": self.critic.net, "target": self.critic.target}

    def acting(self) -> dict[str, Tensor]:
        """What `act` needs beside the base, by name: what goes from a learner to its actors."""
        parts = self.modules()
        found: dict[str, Tensor] = {}
        for name in self.acts_by:
            found |= prefixed(name, parts[name].state_dict())
        return {key: value.detach() for key, value in found.items()}

    def load_acting(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `acting`."""
        parts = self.modules()
        for name in self.acts_by:
            parts[name].load_state_dict(unprefixed(name, tensors))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next update depends on, the replay apart."""
        tensors = {"generator": self.generator.get_state(), "order": self.order.get_state()}
        meta: dict[str, Any] = {"updates": self.updates}
        for name, module in self.modules().items():
            tensors |= prefixed(name, module.state_dict())
        for name, optimizer in self.optimizers().items():
            packed, meta[name] = pack_optimizer(optimizer)
            tensors |= prefixed(f"{name}_opt", packed)
        return {key: value.detach().clone() for key, value in tensors.items()}, meta

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        for name, module in self.modules().items():
            module.load_state_dict(unprefixed(name, tensors))
        for name, optimizer in self.optimizers().items():
            unpack_optimizer(optimizer, unprefixed(f"{name}_opt", tensors), meta[name])
        self.generator.set_state(tensors["generator"])
        self.order.set_state(tensors["order"])
        self.updates = int(meta["updates"])
