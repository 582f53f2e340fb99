"""Choosing the exploration noise by measurement, not by hand per task.

Too little noise finds nothing new; too much destroys the demonstrations' skill, and with a sparse reward nothing
is left to learn from. In between, the noise that costs the pre-trained policy half of its success is used. That is
measured: the worlds play one episode each at every candidate σ, and where the success falls below `KEEP` of that
without noise, linear in between,

    success(σ*) = KEEP · success(0),

σ* (at least half the smallest candidate) becomes the geometric mean of the range, where the noise network begins. A
policy that never succeeds without noise leaves nothing to measure: it gets the smallest candidate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robolearn.core import Env, Observation
from robolearn.rl.noise import NoiseConfig

CANDIDATES = (0.08, 0.12, 0.18)
KEEP = 0.5


@dataclass(frozen=True)
class Calibration:
    """What was measured and chosen.

    Attributes:
      sigma: the candidates tried, 0 first.
      success: rate at each.
      noise: the range chosen.
      env_steps: control steps spent.
      reason: in words.
      simulation_s: seconds spent in the worlds.
    """

    sigma: tuple[float, ...]
    success: tuple[float, ...]
    noise: NoiseConfig
    env_steps: int
    reason: str
    simulation_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Calibration:
        """The inverse of `to_json`."""
        return Calibration(
            tuple(data["sigma"]),
            tuple(data["success"]),
            NoiseConfig(**data["noise"]),
            data["env_steps"],
            data["reason"],
            data["simulation_s"],
        )


Act = Callable[[Observation, float, torch.Generator], Tensor]
"""(observation, σ, generator) → (N, Tp, Da) actions in [-1, 1], with noise σ in every denoising step."""


def calibrate_noise(act: Act, execute: int, env: Env, noise: NoiseConfig, seed: int) -> Calibration:
    """Measure success against noise and choose the range.

    Args:
      act: the pre-trained policy with a fixed noise.
      execute: Ta.
      env: the worlds; they are reset.
      noise: what is given besides the range.
      seed: of starts and noise; the same starts for every candidate.
    """
    rates: list[float] = []
    steps, simulation_s = 0, 0.0
    for sigma in (0.0, *CANDIDATES):
        rate, used, seconds = _one_episode_each(act, execute, env, sigma, seed)
        rates.append(rate)
        steps += used
        simulation_s += seconds
        if rate < KEEP * rates[0] or rates[0] == 0:
            break  # more noise will not bring it back
    centre = CANDIDATES[0]
    if rates[0] > 0:
        centre = max(_crossing((0.0, *CANDIDATES), rates, KEEP * rates[0]), 0.5 * CANDIDATES[0])
    half = math.sqrt(noise.min_share)
    chosen = replace(noise, sigma_max=centre / half, sigma_min=centre * half)
    if rates[0] == 0:
        reason = f"no success without noise, so the smallest candidate, {centre:.2f}"
    else:
        reason = f"success {rates[0]:.0%} without noise, " + ", ".join(
            f"{rate:.0%} at {s:.2f}" for s, rate in zip(CANDIDATES, rates[1:], strict=False)
        )
    return Calibration((0.0, *CANDIDATES[: len(rates) - 1]), tuple(rates), chosen, steps, reason, simulation_s)


def _crossing(sigma: tuple[float, ...], rates: list[float], level: float) -> float:
    """σ at which `rates`, linear between the measurements, fall to `level`; the last σ if they do not."""
    for i in range(1, len(rates)):
        if rates[i] < level:
            share = (rates[i - 1] - level) / (rates[i - 1] - rates[i])
            return sigma[i - 1] + share * (sigma[i] - sigma[i - 1])
    return sigma[len(rates) - 1]


def _one_episode_each(act: Act, execute: int, env: Env, sigma: float, seed: int) -> tuple[float, int, float]:
    """Success rate, control steps, seconds of simulation."""
    generator = torch.Generator().manual_seed(seed)
    observation, _ = env.reset(seed=seed + 7919)
    active = np.ones(env.num_envs, dtype=bool)
    success = np.zeros(env.num_envs, dtype=bool)
    steps, simulation_s = 0, 0.0
    while active.any():
        chunk = act(observation, sigma, generator).numpy()[:, :execute]
        asked = time.perf_counter()
        observation, _, terminated, truncated, infos = env.step_chunk(chunk, active)
        simulation_s += time.perf_counter() - asked
        success |= active & infos["success"]
        steps += int(infos["steps"].sum())
        active &= ~(terminated | truncated)
    return float(success.mean()), steps, simulation_s
