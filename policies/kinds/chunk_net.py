"""Networks from an observation to an action chunk, and their losses as sums over rows.

    L = Σ_i w_i e_i / Σ_i w_i = Σ_parts [Σ_{i in part} w_i e_i] / W,   W = Σ_i w_i of the whole batch

The gradient of the parts' sum is that of the whole: pieces of a batch, or its shares in several processes. The random
draws of a batch are made for all of it and then divided, so that the division changes only the order of the sums.
Everything here is normalised: see `policies.normalize`.

Kinds that go from noise to actions in K steps guide each step without a classifier (Ho and Salimans 2022):

    training    g ← ∅ with probability p
    sampling    v = v(x, τ, o, ∅) + w (v(x, τ, o, g) − v(x, τ, o, ∅))

for the velocity of a flow, and alike for what a diffusion policy predicts: noise, sample and velocity of one x are
affine in each other. w = 1 is the conditional prediction itself, 0 the one without a goal; more than 1 keeps to the
goal more than the demonstrations did. As in BESO (Reuss et al. 2023) the goal is a state or a picture of later in the
demonstration. ∅ is learned. An indicator (`policies.kinds.indicator`) is dropped and guided as a goal is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn

from policies.kinds.indicator import INDICATOR, indicator_of
from policies.networks.encoder import ObservationEncoder
from policies.networks.field import FourierEmbedding, build_field
from policies.settings import DenoisingConfig, PolicyConfig
from robolearn.core import BadInput, Interface

Tensors = Mapping[str, Tensor]
Loss = tuple[Tensor, dict[str, Tensor]]


class ChunkNet(nn.Module):
    """Base of the kinds that imitation trains: condition → chunk.

    Attributes:
      config: the settings, a `PolicyConfig`.
      action_dim: Da.
      cond_dim: C, length of the condition.
      tokens: (steps, size) of each feature in it.
      noise_shape: shape of one sample's noise.
      initial_noise_std: standard deviation of that noise when the policy acts.
      loss_has_parts: the loss is one over rows; such a kind has `draw`, `weight`, `errors` and `parts` of
        `policies.kinds.chunk_net.DenoisingNet`.
    """

    noise_shape: tuple[int, ...] = ()
    loss_has_parts = False
    config: Any

    def __init__(self, config: PolicyConfig, interface: Interface) -> None:
        super().__init__()
        self.config, self.action_dim = config, interface.action.size
        net, seen = config.network, interface.observation
        self.encoder = ObservationEncoder(
            seen, observe=config.observe, image_features=net.image_features, encoder=net.encoder
        )
        self.cond_dim, self.tokens = self.encoder.size, self.encoder.tokens

    @property
    def name(self) -> str:
        """Of the kind."""
        return self.config.name

    @property
    def initial_noise_std(self) -> float:
        return 0.0

    def add_field(self, embeddings: int = 1) -> None:
        """Make `time`, an embedding, and `field`, the network over (chunk, `embeddings` of them, condition)."""
        net = self.config.network
        self.time = FourierEmbedding(net.embedding)
        self.embedding_dim = net.embedding * embeddings
        self.field = build_field(
            net,
            horizon=self.config.horizon,
            action_dim=self.action_dim,
            embedding=self.embedding_dim,
            tokens=self.tokens,
        )

    def encode(self, observation: Tensors) -> Tensor:
        """Normalised {feature: (B, [To,] …)} → condition (B, C)."""
        return self.encoder(observation)

    def weight(self, action: Tensor, is_pad: Tensor | None) -> Tensor:
        """(B, Tp) weight of each action in the loss: 0 where `is_pad` says padding and the settings mask it."""
        if is_pad is None or not self.config.mask_padding:
            return torch.ones(action.shape[:2], device=action.device, dtype=action.dtype)
        return (~is_pad).to(action.dtype)

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        """Condition (B, C) and noise (B, *noise_shape) → actions (B, Tp, Da) in [-1, 1], deterministically."""
        raise NotImplementedError

    def loss(
        self, observation: Tensors, action: Tensor, is_pad: Tensor | None, generator: Generator, target: Any = None
    ) -> Loss:
        """The training loss of a batch and its named parts (detached scalars).

        Args:
          action: (B, Tp, Da) normalised.
          is_pad: (B, Tp) true where the chunk reaches over the end of its episode, or None.
          generator: source of all randomness, on the device of the policy.
          target: the network that makes targets of self-consistency, e.g. the moving average; the policy itself if
            None. Never differentiated; kinds without such targets ignore it.
        """
        raise NotImplementedError


def weighted_mean(error: Tensor, weight: Tensor) -> Tensor:
    """Σ w e / Σ w of errors and weights of one shape; 0 where nothing counts."""
    return (error * weight).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


Field = Callable[[Tensor, Tensor, Tensor], Tensor]
"""field(x (B, Tp, Da), embedding (B, E), cond (B, C)) → (B, Tp, Da)"""


class DenoisingNet(ChunkNet):
    """Base of flow and diffusion: RL fine-tunes it by `time_grid` and `denoise`.

    Attributes:
      embedding_dim: E, length of the embedding that `field` takes.
      indicator: encoded observations → a number beside them in the condition, or None.
      goal: the part of the condition that is of goals, or of the indicator, or None.
    """

    loss_has_parts = True

    def __init__(self, config: DenoisingConfig, interface: Interface, embeddings: int = 1) -> None:
        super().__init__(config, interface)
        self.indicator = indicator_of(interface, self.encoder.size)
        if self.indicator is not None:
            self.cond_dim, self.tokens = self.cond_dim + 1, (*self.tokens, (1, 1))
        self.add_field(embeddings)
        has_goal = self.encoder.has_goals or self.indicator is not None
        check_guidance(has_goal, config)
        self.goal = GoalCondition(self.encoder, self.cond_dim) if has_goal else None
        self.prepare_sampler()

    @property
    def initial_noise_std(self) -> float:
        """Standard deviation of x_0 when the policy acts; training always has 1."""
        return self.config.initial_noise_std

    def prepare_sampler(self) -> None:
        """Set up what depends on the sampler's settings."""
        self.noise_shape = (self.config.horizon, self.action_dim)

    def with_config(self, config: DenoisingConfig) -> Self:
        """The same weights, sampled with other settings."""
        check_guidance(self.goal is not None, config)
        net = copy.copy(self)
        net.config = config
        net.prepare_sampler()
        return net

    def encode(self, observation: Tensors) -> Tensor:
        return self.condition_of(super().encode(observation))

    def condition_of(self, seen: Tensor) -> Tensor:
        """The encoded observation → condition (B, C)."""
        return seen if self.indicator is None else torch.cat((seen, self.indicator(seen)), 1)

    def time_grid(self) -> Tensor:
        """(K+1,) flow times τ_0 = 0 … τ_K = 1 of the denoising steps, on the policy's device."""
        raise NotImplementedError

    def denoise(self, x: Tensor, k: int, cond: Tensor) -> Tensor:
        """μ_k for (B, Tp, Da) states: step k of `sample`, not clipped, and guided as it is."""
        raise NotImplementedError

    def guided(self, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
        """The prediction of `field` with the guidance of the settings, (B, Tp, Da)."""
        return guided(self.field, self.goal, self.config.guidance, x, embedding, cond)

    def loss(
        self, observation: Tensors, action: Tensor, is_pad: Tensor | None, generator: Generator, target: Any = None
    ) -> Loss:
        draws, weight = self.draw(action, generator), self.weight(action, is_pad)
        error = self.errors(observation, action, draws, target)
        return weighted_mean(error, weight), self.parts(error.detach(), weight, draws)

    def draw(self, action: Tensor, generator: Generator) -> dict[str, Tensor]:
        """The random draws in the loss of a batch like `action` (B, Tp, Da), each (B, …): `noises`, and where goals are
        dropped."""
        draws = self.noises(action, generator)
        if self.goal is not None:
            like = {"device": action.device, "dtype": action.dtype}
            draws["dropped"] = torch.rand(len(action), generator=generator, **like) < self.config.goal_dropout
        return draws

    def noises(self, action: Tensor, generator: Generator) -> dict[str, Tensor]:
        """Noise and times of a batch like `action` (B, Tp, Da), each (B, …)."""
        raise NotImplementedError

    def errors(self, observation: Tensors, action: Tensor, draws: Tensors, target: Any) -> Tensor:
        """(B, Tp) squared errors, whose `weighted_mean` is the loss: rows do not depend on each other."""
        raise NotImplementedError

    def parts(self, error: Tensor, weight: Tensor, draws: Tensors) -> dict[str, Tensor]:
        """The loss and its named parts, from the `errors`."""
        return {"loss": weighted_mean(error, weight)}

    def condition(self, observation: Tensors, draws: Tensors) -> Tensor:
        """As `encode`, in training: with the indicator (B,) of the draws, if it is there, and some of the goals are
        dropped."""
        seen, given = super().encode(observation), draws.get(INDICATOR)
        cond = self.condition_of(seen) if given is None else torch.cat((seen, given[:, None]), 1)
        return cond if self.goal is None else self.goal.drop(cond, draws["dropped"])


class GoalCondition(nn.Module):
    """The part of the condition (B, C) that is of goals or the indicator, and its value ∅ without them."""

    mask: Tensor

    def __init__(self, encoder: ObservationEncoder, size: int) -> None:
        super().__init__()
        # What comes after the observation is the indicator.
        mask = torch.cat((encoder.of_goals(), torch.ones(size - encoder.size, dtype=torch.bool)))
        self.register_buffer("mask", mask, persistent=False)
        # Standard normal, where no condition is: normalised goals are near 0.
        self.nothing = nn.Parameter(torch.randn(size))

    def drop(self, cond: Tensor, dropped: Tensor) -> Tensor:
        """`cond` (B, C) with ∅ for the goals of the rows that are `dropped` (B,)."""
        return torch.where(self.mask & dropped[:, None], self.nothing, cond)

    def without(self, cond: Tensor) -> Tensor:
        """`cond` (B, C) with ∅ for all goals."""
        return torch.where(self.mask, self.nothing, cond)


def check_guidance(has_goal: bool, config: DenoisingConfig) -> None:
    """Raise `BadInput` unless a policy with these settings, with a goal or not, can be sampled with its guidance."""
    if config.guidance == 1.0:
        return
    if not has_goal:
        hint = "`robolearn train --goal …` makes one with a goal"
        raise BadInput("--guidance", got=f"{config.guidance:g} of a policy without a goal", expected="1", hint=hint)
    if config.goal_dropout == 0.0:
        got = f"{config.guidance:g} of a policy that never went without its goal"
        raise BadInput("--guidance", got=got, expected="1, or training with --goal-dropout above 0")
    if not config.guidable:
        raise BadInput("--guidance", got=f"{config.guidance:g} of a shortcut model", expected="1, or --flow rectified")


def guided(field: Field, goal: GoalCondition | None, w: float, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
    """The prediction of `field` with the guidance `w`, (B, Tp, Da)."""
    if goal is None or w == 1.0:
        return field(x, embedding, cond)
    twice = torch.cat((x, x)), torch.cat((embedding, embedding)), torch.cat((goal.without(cond), cond))
    both = field(*twice)
    free, conditional = both[: x.shape[0]], both[x.shape[0] :]
    # v = v_∅ + w (v_g − v_∅)
    return free + w * (conditional - free)
