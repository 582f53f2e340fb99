"""An adversary that pushes, as hard and as cleverly as the policy bears.

    π(a) = (1 − u) exp(−λ V(a) / T) / Σ_b exp(−λ V(b) / T)      u: share of episodes without a push
    F = λ F_max                                                 λ in [0, 1]

V(a) is the success of late under push a, λ the curriculum: after each iteration it rises by `RISE` where at least
`RISES_AT` of the pushed episodes were solved, and falls by as much where fewer than `FALLS_AT` were. At λ = 0 the force
is 0 and the choice random; at 1 it is the quantal response at temperature T, with the whole force.

    V(a) = (Σ γ^j s_j(a) + m V) / (Σ γ^j n_j(a) + m)            n_j(a), s_j(a): episodes under a, and those solved, j
                                                                iterations ago;  V: the same over all pushes

After QARL (Reddi et al., "Robust Adversarial Reinforcement Learning via Bounded Rationality Curricula", ICLR 2024),
where an entropy's temperature makes an agent that acts in every step a boundedly rational one. Departures: this
adversary chooses among K pushes before an episode and does not see it (a bandit without context, whose quantal response
is in closed form, so that nothing is trained by gradients), and strength rises with rationality. `random` has V = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.rl.along import Starts

if TYPE_CHECKING:
    from robolearn.rollout import Turn

RISE, RISES_AT, FALLS_AT = 0.05, 0.6, 0.3
SPARED = 0.25  # u
FORGETTING, PRIOR = 0.9, 2.0  # γ and m


@dataclass(frozen=True)
class AdversaryConfig:
    """Settings of the adversary."""

    adversary: Literal["none", "random", "quantal"] = "none"
    """Pushes in three of four training episodes of our tasks, once each: random ones, or those under which the policy
    has failed of late, the more surely the more it bears (after QARL). They do not count in the success that is shown,
    and no evaluation is pushed but by evaluate --push."""
    adversary_force: float = 40.0
    """The largest force of a push [N], for 0.2 s; the force begins at 0 and rises with success under pushes."""
    adversary_on: Literal["arm", "thing"] = "arm"
    """What is pushed: the arm at its hand, or the task's thing, which a newton moves."""
    adversary_temperature: float = 0.2
    """Temperature of quantal at the whole force, in units of success; the lower, the more rational."""

    def __post_init__(self) -> None:
        for name in ("adversary_force", "adversary_temperature"):
            if not 0.0 < getattr(self, name) < float("inf"):
                flag = f"--{name.replace('_', '-')}"
                raise BadInput(flag, got=getattr(self, name), expected="a number above 0")

    def build(self, env: Any) -> Adversary:
        """The adversary in the worlds `env`, which have `pushes` to choose from."""
        return Adversary(env, self)


class Adversary(Starts):
    """See the module; of `env` it uses `pushes`, `strongest`, `push` and `ended_push` (`sim.embedded.pushes`).

    Raises:
      BadInput: a force beyond the strongest that the worlds take.

    Attributes:
      strength: λ.
    """

    altered = "pushed"

    def __init__(self, env: Any, config: AdversaryConfig) -> None:
        if config.adversary_force > env.strongest:
            expected = f"at most {env.strongest:g} N"
            raise BadInput("--adversary-force", got=f"{config.adversary_force:g}", expected=expected)
        self.config, self.strength = config, 0.0
        self._worlds = env
        self._tried, self._solved = np.zeros((2, env.pushes))  # Σ γ^j n_j and Σ γ^j s_j
        self._now = np.zeros((2, env.pushes))  # episodes and those solved since `schedule`

    def probabilities(self) -> NDArray[np.float64]:
        """(K,) of each push; their sum is 1 − u."""
        value = np.zeros_like(self._tried)
        if self.config.adversary == "quantal":
            whole = self._solved.sum() / max(self._tried.sum(), 1e-9)
            value = (self._solved + PRIOR * whole) / (self._tried + PRIOR)
        score = -self.strength * value / self.config.adversary_temperature
        weight = np.exp(score - score.max())
        return (1.0 - SPARED) * weight / weight.sum()

    def schedule(self, progress: float) -> None:
        """Learn from the episodes since the last call, and set what comes next; `progress` plays no part."""
        if tried := self._now[0].sum():
            rate = self._now[1].sum() / tried
            self.strength += RISE * (float(rate >= RISES_AT) - float(rate < FALLS_AT))
            self.strength = min(max(self.strength, 0.0), 1.0)
            self._tried, self._solved = FORGETTING * np.stack([self._tried, self._solved]) + self._now
            self._now[:] = 0.0
        self._worlds.push(self.probabilities(), self.strength * self.config.adversary_force)

    def own(self, turn: Turn) -> NDArray[np.bool_]:
        """(N,) the episodes that end with `turn` had no push; what became of the others is kept."""
        push = np.asarray(self._worlds.ended_push)
        for w in np.flatnonzero(turn.worlds & turn.ended & (push >= 0)):
            self._now[:, push[w]] += 1.0, float(turn.solved[w])
        return push < 0

    def metrics(self, others: int) -> dict[str, float]:
        """Also the success under pushes, and their force [N]."""
        found = super().metrics(others) | {"push_force": self.strength * self.config.adversary_force}
        return found | ({"pushed_success": self._now[1].sum() / others} if others else {})

    def state(self) -> dict[str, NDArray[np.float64]]:
        """All that it has learned."""
        kept = {"tried": self._tried, "solved": self._solved, "now": self._now, "strength": np.array(self.strength)}
        return {key: value.copy() for key, value in kept.items()}

    def load_state(self, state: dict[str, NDArray[np.float64]]) -> None:
        """The inverse of `state`."""
        self._tried, self._solved, self._now = (state[key].copy() for key in ("tried", "solved", "now"))
        self.strength = float(state["strength"])
