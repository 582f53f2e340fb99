"""ReinFlow: online fine-tuning of denoising policies with PPO (Zhang et al., "ReinFlow", NeurIPS 2025).

One ratio per action chunk, of the joint likelihood of its noised denoising steps (`robolearn.rl.actors`):

    r = exp( (log π_θ(chain | o) − log π_old(chain | o)) / √(M D) )
    L_clip = −E[ min(r A, clip(r, 1 − ε, 1 + ε) A) ]
    L = L_clip(θ, φ) − α H(σ_φ) + β D(π_θ, π_BC),     and ½ E[(V_ψ − R)²] for the critic

What is exported is an exponential average of the weights over the iterations, with no noise but that of x_0.

D = Ta·Da, the components that are executed. Where this departs from the paper by default stands in the room's page;
`--config reinflow-paper` has its settings.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from robolearn.rl.actors import ChainStats
from robolearn.rl.algorithms.on_policy import ActorCritic
from robolearn.rl.returns import clipped_surrogate, standardise


class ReinFlow(ActorCritic):
    """See the module's docstring."""

    def surrogate(self, old: ChainStats, advantage: Tensor) -> Callable[[ChainStats, slice], Tensor]:
        """L_clip of a minibatch, its advantages standardised."""
        kind = self.config.exponent
        before, scaled = old.joint(kind), standardise(advantage)
        return lambda now, part: clipped_surrogate(now.joint(kind) - before[part], scaled[part], self.config.clip)
