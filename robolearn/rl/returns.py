"""Advantages. Generalised advantage estimation (Schulman et al., ICLR 2016), with time limits treated as what they are.

    δ_t = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)
    A_t = δ_t + γ λ (1 − ended_t) A_{t+1}
    R_t = A_t + V(s_t)

s'_t is the observation that followed the action: of an episode that ended here its *final* observation, never the
first one of the next episode. A time limit ends the recursion but does not zero the bootstrap; only the world's
own end does (Pardo et al., "Time limits in reinforcement learning", ICML 2018).
"""

from __future__ import annotations

import torch
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
    """How much better an episode was than others from the same start (GRPO, Shao et al., 2024).

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
