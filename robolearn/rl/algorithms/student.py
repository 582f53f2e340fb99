"""A policy in training: a copy of the base goes on imitating, and its moving average proposes what critics judge.

    L_π = Σ_b w_b Σ_t m_bt e_bt / Σ_b w_b Σ_t m_bt

e_bt is the error of flow matching or denoising of action t of window b, m_bt says that its author commanded it, and w_b
is worth 1 unless an algorithm weighs windows.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from policies.kinds.chunk_net import DenoisingNet, weighted_mean
from policies.policy import ChunkPolicy
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from robolearn.core import BadInput
from robolearn.data.replay import ReplayBatch
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.actors.denoising import explore
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.off_policy_settings import ProposalsConfig
from robolearn.rl.student_settings import StudentConfig

log = logging.getLogger(__name__)

ImitatingConfig = StudentConfig | ProposalsConfig


def best_of(base: ChunkPolicy, config: ImitatingConfig, tempo: float) -> BestOfNPolicy:
    """A policy whose critics choose among the chunks of a copy of `base`, and twins of up to `tempo`; of `base` itself
    where that does not learn. Raises `BadInput`: a base that imitates padding."""
    if base.config.learns and not base.config.mask_padding:
        raise BadInput("base policy", got="one that imitates padding", expected="one trained with --mask-padding")
    size = {"critics": config.critics, "width": config.width, "depth": config.depth, "batch_norm": config.cross_q}
    settings = BestOfNConfig(**size, proposals=config.proposals, tempo=tempo, caution=config.caution)
    own = ChunkPolicy(copy.deepcopy(base.net), base.normalizer, base.interface) if base.config.learns else base
    return BestOfNPolicy(own, settings).to(base.device).eval()


def check_varied(base: ChunkPolicy, config: StudentConfig) -> None:
    """Raise `BadInput` where critics would choose among chunks that are all one; warn where nothing is explored."""
    if base.net.config.initial_noise_std:
        return
    if config.proposals > 1:
        got, expected = f"0, so that all {config.proposals} proposals are one", "more, such as 1; or --proposals 1"
        raise BadInput("--initial-noise", got=got, expected=expected)
    if not config.explores_by_itself:
        log.warning("the policy's initial noise is 0, so nothing is explored: --initial-noise 1 gives it some")


class Student:
    """The network that learns, and its optimiser.

    Args:
      proposer: its network becomes the moving average of what learns.
      average: decay of that.
      generator: of noise and times, on the policy's device.
    """

    def __init__(self, proposer: ChunkPolicy, lr: float, average: float, generator: Generator) -> None:
        self.proposer, self.net, self._generator = proposer, copy.deepcopy(proposer.net), generator
        self._follow = get_ema_multi_avg_fn(average)
        learned = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        self.adam = torch.optim.AdamW(learned, lr=lr, weight_decay=1e-6, fused=True)

    def imitate(self, batch: ReplayBatch, rows: Tensor, weight: Tensor | None = None) -> Tensor:
        """One gradient step on the windows `rows` (M,), with `weight` (M,); returns the loss."""
        return self.step(self.loss(batch, rows, weight))

    def loss(
        self, batch: ReplayBatch, rows: Tensor, weight: Tensor | None = None, given: Mapping[str, Tensor] = {}
    ) -> Tensor:
        """L_π of the windows `rows` (M,), with `weight` (M,) and what else the network is `given`, each (M,)."""
        normal = self.proposer.normalizer
        seen = normal.observation({key: value[rows] for key, value in batch.observation.items()})
        ahead = self.net.config.horizon
        action = normal.action(batch.plan[rows, :ahead]).clamp(-1.0, 1.0)
        draws = self.net.draw(action, self._generator) | given
        # What lies beyond the author's last step in a row nobody commanded: it has no weight.
        counts = self.net.weight(action, ~batch.planned[rows, :ahead])
        # L_π = Σ w m e / Σ w m
        counts = counts if weight is None else counts * weight[:, None]
        return weighted_mean(self.net.errors(seen, action, draws, None), counts)

    def step(self, loss: Tensor) -> Tensor:
        """One gradient step, after which the average follows; returns the loss."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.adam.step()
        with torch.no_grad():
            self._follow(list(self.proposer.net.parameters()), list(self.net.parameters()), 0)
        return loss.detach()


class Unchanged(Student):
    """In the place of the network that learns, where the base is another maker's and stays as it is."""

    def __init__(self, proposer: ChunkPolicy) -> None:
        self.proposer, self.net = proposer, proposer.net

    def imitate(self, batch: ReplayBatch, rows: Tensor, weight: Tensor | None = None) -> Tensor:
        return torch.zeros(())


class Imitating(OffPolicy):
    """An off-policy algorithm whose student goes on imitating, and whose critics choose among its chunks.

    Args:
      tempo: of the twins of what is proposed; 0 for none.
      trusted: critics choose from the beginning.
      initial_noise: of what is proposed; None: as the base has it.

    Raises:
      BadInput: a base that imitates padding, or critics that choose among proposals that are all one.
    """

    policy: BestOfNPolicy

    def __init__(
        self, base: ChunkPolicy, config: ImitatingConfig, *, seed: int, tempo: float = 0.0, trusted: bool = True,
        initial_noise: float | None = None,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        own = base if initial_noise is None else base.with_initial_noise(initial_noise)
        if isinstance(config, StudentConfig):
            check_varied(own, config)
        policy = best_of(own, config, tempo)
        policy.trusted.fill_(float(trusted))
        super().__init__(base, policy, policy.critics, config, seed=seed)
        self.student: Student = Unchanged(policy.proposer)
        if base.config.learns:
            self.student = Student(policy.proposer, config.imitate_lr, config.imitate_average, self.generator)

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        count = len(next(iter(observation.values())))
        return self.policy.decide(observation, self.draw(count, *self.policy.noise.shape))

    def sampled(self, net: DenoisingNet, cond: Tensor, noise: Tensor) -> Tensor:
        """(B, H · Da) of `net` from the condition (B, C) and standard normal noise, in the world's units."""
        chunk = net.sample(cond, noise * net.initial_noise_std)
        return self.policy.proposer.normalizer.action_back(chunk).clamp(-1.0, 1.0)[:, : self.chunk].flatten(1)

    def executed(self, chunk: Tensor) -> Tensor:
        """(B, Tp, Da) normalised → (B, H · Da) in the world's units."""
        return self.policy.proposer.normalizer.action_back(chunk.clamp(-1.0, 1.0))[:, : self.chunk].flatten(1)

    def explored(self, observation: dict[str, Tensor], sigma: NoiseConfig) -> Tensor:
        """Noised chunks (B, H · Da) of what acts, which actors of a learner have, too."""
        net, seen = self.policy.proposer.net, self.policy.proposer.normalizer.observation(observation)
        return self.executed(explore(net, sigma, seen, net.initial_noise_std, sigma.sigma_max, self.generator))

    def groups(
        self, actor: DenoisingActor, observation: dict[str, Tensor], states: Tensor, group: int
    ) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        """`group` = G fresh chunks of `actor` in each of the `states` (S,): what is seen (S · G, …), the chains, their
        log-likelihoods (S · G,), and what is executed of them (S · G, H · Da)."""
        normal = self.policy.proposer.normalizer
        seen = normal.observation({key: value[states] for key, value in observation.items()})
        seen = {key: value.repeat_interleave(group, 0) for key, value in seen.items()}
        with torch.no_grad():
            chain = actor.sample(seen, self.generator)
            likely = actor.evaluate(seen, chain).joint()
            return seen, chain, likely, self.executed(chain[:, -1].unflatten(1, self.student.net.noise_shape))

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | ({"student": self.student.adam} if self.base.config.learns else {})

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | {"student": self.student.net}
