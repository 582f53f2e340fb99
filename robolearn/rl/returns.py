"""The losses of proximal policy optimisation (Schulman et al., 2017) and its relatives; the scale of rewards;
generalised advantage estimation (Schulman et al., ICLR 2016) with time limits as they are.

    δ_t = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)
    A_t = δ_t + γ λ (1 − ended_t) A_{t+1}
    R_t = A_t + V(s_t)

s'_t is the observation that followed the action: of an episode that ended here its *final* observation, never the
first one of the next episode. A time limit ends the recursion but does not zero the bootstrap; only the world's
own end does (Pardo et al., "Time limits in reinforcement learning", ICML 2018).

Rewards are divided by the running standard deviation of the discounted return G (Engstrom et al., ICLR 2020), which
starts from 0 with every episode:

    G ← r + γ G,     r_scaled = clip(r / std[G], ±limit)
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of T decisions in N worlds.

    Args:
      reward: (T, N).
      value: (T, N) V(s_t).
      next_value: (T, N) V(s'_t), where s'_t is the final observation if the episode ended at t.
      terminated: (T, N) bool, the world ended the episode.
      ended: (T, N) bool, terminated or truncated.
      gamma: discount a decision.
      lam: λ.

    Returns:
      (T, N) advantages and (T, N) returns.
    """
    delta = reward + gamma * (~terminated) * next_value - value
    carry = gamma * lam * (~ended)
    advantage = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + carry[t] * running
        advantage[t] = running
    return advantage, advantage + value


def group_advantage(returns: Tensor, group: Tensor, divide_by_std: bool = False) -> Tensor:
    """Advantage of an episode over others from the same start (GRPO, Shao et al., 2024).

        A_i = R_i − mean_{j ∈ group(i)} R_j        [ / std_{j ∈ group(i)} R_j ]

    The division blows up groups that hardly differ, and the difficulty of a start with it; it is an option.

    Args:
      returns: (N,) discounted return of one episode in each world.
      group: (N,) int, from 0: worlds that began alike.
      divide_by_std: divide by the group's standard deviation, where that is above 1e-6.

    Returns:
      (N,) advantages; 0 in a group whose episodes went alike.
    """
    count = torch.bincount(group).to(returns.dtype)
    mean = torch.bincount(group, weights=returns) / count
    advantage = returns - mean[group].to(returns.dtype)
    if divide_by_std:
        var = torch.bincount(group, weights=advantage.square()) / count
        std = var.sqrt().to(returns.dtype)[group]
        advantage = torch.where(std > 1e-6, advantage / std.clamp_min(1e-6), torch.zeros_like(advantage))
    return advantage


class RewardScale:
    """Running statistics over all worlds; the scale is never below `floor`, so that rare rewards stay bounded."""

    def __init__(self, num_envs: int, gamma: float, *, limit: float = 10.0, floor: float = 0.1) -> None:
        self._gamma, self._limit, self._floor = gamma, limit, floor
        self._running = np.zeros(num_envs)
        self._count, self._mean, self._m2 = 1e-4, 0.0, 0.0

    @property
    def std(self) -> float:
        """The present divisor."""
        return max(float(np.sqrt(self._m2 / self._count)), self._floor)

    def __call__(
        self, reward: NDArray[np.float32], ended: NDArray[np.bool_], worlds: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """(N,) rewards of one decision → (N,) scaled rewards; only the rows of `worlds` (N,) matter."""
        counted = slice(None) if worlds is None or worlds.all() else worlds
        self._running[counted] = reward[counted] + self._gamma * self._running[counted]
        running = self._running[counted]
        if len(running) == 0:
            return np.zeros_like(reward)
        # Chan's parallel update of mean and variance.
        n, mean, m2 = len(running), float(running.mean()), float(running.var() * len(running))
        delta, total = mean - self._mean, self._count + n
        self._mean += delta * n / total
        self._m2 += m2 + delta * delta * self._count * n / total
        self._count = total
        self._running[ended] = 0.0
        return np.clip(reward / self.std, -self._limit, self._limit).astype(np.float32)

    def begin(self) -> None:
        """All worlds begin new episodes."""
        self._running[:] = 0.0

    def state(self) -> NDArray[np.float64]:
        """Everything, as one vector."""
        return np.concatenate([[self._count, self._mean, self._m2], self._running])

    def load(self, state: NDArray[np.float64]) -> None:
        """The inverse of `state`."""
        self._count, self._mean, self._m2 = (float(x) for x in state[:3])
        self._running = state[3:].copy()


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, clip: float | Tensor, dual_clip: float | None = None
) -> Tensor:
    """−E[min(r A, clip(r, 1 − ε, 1 + ε) A)], r = exp(log π − log π_old).

    With a dual clip c > 1 (Ye et al., AAAI 2020; RIFT), what a bad sample may cost is bounded, too:
    for A < 0, max(min(r A, clip(r) A), c A).

    Args:
      log_ratio: (B,) or (B, M).
      advantage: of the same shape, or one that broadcasts to it.
      clip: ε, one or one per column.
      dual_clip: c, or None.
    """
    ratio, like = log_ratio.exp(), torch.as_tensor(clip, dtype=log_ratio.dtype, device=log_ratio.device)
    clipped = torch.minimum(torch.maximum(ratio, 1 - like), 1 + like)
    gain = torch.min(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        gain = torch.where(advantage < 0, torch.max(gain, dual_clip * advantage), gain)
    return -gain.mean()


def clip_fraction(log_ratio: Tensor, clip: float) -> Tensor:
    """Share of samples whose ratio lies outside [1 − ε, 1 + ε]."""
    return ((log_ratio.exp() - 1).abs() > clip).float().mean()


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """½ E[(V − R)²]."""
    return 0.5 * (value - target).square().mean()


STD_FLOOR = 0.01


def standardise(advantage: Tensor, *, centre: bool = True) -> Tensor:
    """Zero mean (unless `centre` is false), unit standard deviation; the divisor is never below `STD_FLOOR`.

    Rewards are scaled so that the return's standard deviation is about 1 (see `reward_scale`). Advantages that vary
    by less than a hundredth of that hold no reward, only the critic's error, and are not to be blown up. A single one
    has no deviation: it is divided by 1.
    """
    shift = advantage.mean() if centre else 0.0
    spread = advantage.std() if advantage.numel() > 1 else torch.ones_like(advantage)
    return (advantage - shift) / spread.clamp_min(STD_FLOOR)


def explained_variance(value: Tensor, target: Tensor) -> Tensor:
    """1 − Var(R − V)/Var(R): 1 for a perfect critic, 0 for a constant one."""
    return 1 - (target - value).var() / (target.var() + 1e-8)
