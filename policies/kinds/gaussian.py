"""A policy that is one squashed Gaussian over chunks, from soft actor-critic. It acts by tanh μ(s).

    u ~ N(μ(s), σ(s)²),  a = tanh(u),  log π(a | s) = log N(u; μ, σ²) − Σ_i log(1 − tanh² u_i)

Haarnoja et al. 2018, appendix C. The last term is 2 (log 2 − u − softplus(−2u)), which does not underflow. With a
discrete gripper the Gaussian is over the motions alone, and a critic of the gripper chooses beside it:

    a = tanh μ(s) ⊕ argmax_g Q(s, g),   g of close, stay, open

    choice     command                                 it is a change where
    close      −1                                      the gripper is open
    stay       +1 where it is open, else −1            never: a grasp stays closed
    open       +1                                      the gripper is closed

Open is what is measured as nine tenths of the largest opening or more, as in HIL-SERL. A choice that the gripper
follows already is `stay`, so only two of the three are offered in a state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from policies.networks.ensemble import EnsembleMlp
from policies.networks.field import ResidualMlp
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy, FeaturePolicy, ProposerPolicy
from policies.settings import check_layers
from robolearn.core import BadInput, Interface
from robots import ROBOTS

CLOSE, STAY, OPEN = range(3)
OPENED = 0.9  # of the largest opening
MIDDLE = 1.0 / 3.0  # commands within ± this say neither
LOG_STD = (-5.0, 2.0)


@dataclass(frozen=True)
class ActorConfig:
    """Settings of a policy that acts by the mode of a squashed Gaussian."""

    name: ClassVar[str]
    takes_proposer: ClassVar[bool] = False

    execute: int = 4
    """Ta, actions in a chunk."""
    width: int = 128
    """Units of a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    magnitude: float = 1.0
    """The largest component."""

    def __post_init__(self) -> None:
        check_layers("execute, width, depth", execute=self.execute, width=self.width, depth=self.depth)
        if not 0.0 < self.magnitude <= 10.0:
            raise BadInput("magnitude", got=self.magnitude, expected="0 to 10")


@dataclass(frozen=True)
class GaussianConfig(ActorConfig):
    """Settings of `GaussianPolicy`, a Gaussian of chunks."""

    name: ClassVar[str] = "gaussian"

    discrete_gripper: bool = False
    """The gripper is not the Gaussian's: critics choose among close, stay and open."""

    def build(self, interface: Interface, proposer: ChunkPolicy | None = None) -> GaussianPolicy:
        return GaussianPolicy(Normalizer(interface), interface, self)


class SquashedGaussian(nn.Module):
    """(B, inputs) → actions (B, outputs) in (-1, 1). `std`: σ where nothing has been learned."""

    def __init__(self, inputs: int, outputs: int, *, width: int = 256, depth: int = 3, std: float = 1.0) -> None:
        super().__init__()
        self.net = ResidualMlp(inputs, 2 * outputs, width=width, depth=depth, activation="relu", norm=True)
        with torch.no_grad():
            self.net.last.weight.mul_(0.1)
            self.net.last.bias[outputs:] = math.log(std)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(μ, log σ), each (B, outputs), before the squashing."""
        mean, log_std = self.net(x).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    def sample(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(a, log π(a | s)): (B, outputs) and (B,), differentiable."""
        mean, log_std = self(x)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        u = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        return u.tanh(), (normal - 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))).sum(-1)

    def mode(self, x: Tensor) -> Tensor:
        """(B, outputs) tanh μ."""
        return self(x)[0].tanh()


class GripperChoices:
    """Place of the gripper in actions and observations of an interface. `execute`: H. Raises `BadInput`: the interface
    has no gripper."""

    def __init__(self, interface: Interface, execute: int) -> None:
        seen = interface.observation["proprio"].names if "proprio" in interface.observation else ()
        names, robot = interface.action.names or (), ROBOTS.get(interface.embodiment)
        if "gripper" not in names or "gripper_width" not in (seen or ()) or robot is None:
            raise BadInput(
                "--discrete-gripper", got=f"a world of {interface.embodiment!r} without a gripper that is measured",
                expected="the action 'gripper', and 'gripper_width' in 'proprio', of a robot of ours",
            )  # fmt: skip
        self._component, self._width = names.index("gripper"), (seen or ()).index("gripper_width")
        self._opened = OPENED * robot.gripper.max_width
        self._execute, self._components = execute, len(names)

    @property
    def motions(self) -> int:
        """Numbers of a chunk that are not the gripper's."""
        return self._execute * (self._components - 1)

    def is_open(self, observation: Mapping[str, Tensor]) -> Tensor:
        """(B,)."""
        return observation["proprio"][:, self._width] >= self._opened

    def choose(self, values: Tensor, is_open: Tensor) -> Tensor:
        """Values (B, 3) → (B,) the better one of the two that are offered."""
        values = values.clone()
        values[:, OPEN] = values[:, OPEN].masked_fill(is_open, -torch.inf)
        values[:, CLOSE] = values[:, CLOSE].masked_fill(~is_open, -torch.inf)
        return values.argmax(1)

    def made(self, chunk: Tensor, executed: Tensor, is_open: Tensor) -> Tensor:
        """The choice (B,) that a chunk (B, H, Da) was, by the mean command of its executed steps (B, H)."""
        commands = chunk[..., self._component] * executed
        mean = commands.sum(1) / executed.sum(1).clamp(min=1)
        choice = torch.full_like(mean, STAY, dtype=torch.int64)
        choice[(mean > MIDDLE) & ~is_open] = OPEN
        choice[(mean < -MIDDLE) & is_open] = CLOSE
        return choice

    def join(self, motions: Tensor, choice: Tensor, is_open: Tensor) -> Tensor:
        """Motions (B, H · (Da − 1)) and choices (B,) → chunks (B, H · Da) in [-1, 1]."""
        opens = (choice == OPEN) | ((choice == STAY) & is_open)
        command = torch.where(opens, 1.0, -1.0)[:, None, None].expand(-1, self._execute, 1)
        rest = motions.view(-1, self._execute, self._components - 1)
        at = self._component
        return torch.cat((rest[..., :at], command.to(rest), rest[..., at:]), -1).flatten(1)


class GaussianPolicy(FeaturePolicy):
    """Observations are normalised, actions are in the world's units.

    Attributes:
      motions: numbers that the Gaussian is over.
      gripper: Q(s, ·) of the choices, or None.

    Raises:
      BadInput: a discrete gripper in a world without one.
    """

    config: GaussianConfig

    def __init__(self, normalizer: Normalizer, interface: Interface, config: GaussianConfig) -> None:
        super().__init__(interface, config.execute)
        self.normalizer, self.config = normalizer, config
        self.choices = GripperChoices(interface, config.execute) if config.discrete_gripper else None
        self.motions = self.size if self.choices is None else self.choices.motions
        width, depth = config.width, config.depth
        self.actor = SquashedGaussian(self.feature_size, self.motions, width=width, depth=depth)
        self.gripper = None if self.choices is None else EnsembleMlp(1, self.feature_size, 3, width=width, depth=depth)

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """tanh μ(s), and the gripper's best choice."""
        features = self.encode(observation)
        return self.whole(observation, features, self.config.magnitude * self.actor.mode(features))

    def whole(self, observation: Mapping[str, Tensor], features: Tensor, motions: Tensor) -> Tensor:
        """Motions (B, ·) → chunks (B, H · Da), with the best choice of the gripper's critic."""
        if self.choices is None or self.gripper is None:
            return motions
        is_open = self.choices.is_open(observation)
        return self.choices.join(motions, self.choices.choose(self.gripper(features)[0].detach(), is_open), is_open)


class NoiseSteeredConfig(ActorConfig):
    """Settings of `NoiseSteeredPolicy`; `magnitude` is M."""

    name: ClassVar[str] = "noise_steered"
    takes_proposer: ClassVar[bool] = True

    def build(self, interface: Interface, proposer: ChunkPolicy) -> NoiseSteeredPolicy:
        return NoiseSteeredPolicy(proposer, self)


class NoiseSteeredPolicy(ProposerPolicy):
    """π, started from noise that an actor chooses: x_0 = M tanh μ(s),  a = π(s, x_0).

    Wagenmaker et al. 2025, "Steering your diffusion policy with latent space reinforcement learning" (DSRL).
    """

    def __init__(self, proposer: ChunkPolicy, config: NoiseSteeredConfig) -> None:
        super().__init__(proposer)
        self.config = config
        self.latent = proposer.net.noise_shape[0] * proposer.net.noise_shape[1]
        self.actor = SquashedGaussian(self.feature_size, self.latent, width=config.width, depth=config.depth)

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """π(s, M tanh μ(s))."""
        observation = self.encoded(observation)
        return self.chunk(observation, self.config.magnitude * self.actor.mode(self.encode(observation)))

    def chunk(self, observation: Mapping[str, Tensor], x0: Tensor) -> Tensor:
        """Noise (B, Tp · Da) → (B, H · Da) in [-1, 1]."""
        net, normalizer = self.proposer.net, self.proposer.normalizer
        chunks = net.sample(net.encode(normalizer.observation(observation)), x0.view(-1, *net.noise_shape))
        return normalizer.action_back(chunks[:, : self.execute_steps]).clamp(-1.0, 1.0).flatten(1)
