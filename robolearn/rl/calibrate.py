"""Choosing the noise by measurement, not by hand per task: where paths begin, and how much is explored.

A flow begins at x_0 ~ N(0, s²). Imitation trains it at s = 1, where it is as varied as its demonstrations, mistakes
included; with less it keeps to the middle of them. The worlds play one episode each at every s in `STARTS`, and the
smallest s is taken whose success is within one standard error of the best, √(p (1 − p)/N): what x_0 decides is in every
return, and no gradient. Fine-tuning begins there, and so does the policy that it exports.

Then the exploration. Too little noise finds nothing new; too much destroys the demonstrations' skill, and with a
sparse reward nothing is left to learn from. In between, the noise that costs the pre-trained policy half of its success
is used. That is measured: the worlds play one episode each at every candidate σ, and where the success falls below
`KEEP` of that without noise, linear in between,

    success(σ*) = KEEP · success(0),

σ* (at least half the smallest candidate) becomes the geometric mean of the range, where the noise network begins. A
policy that fails more often than not without noise hides behind its other failures what noise costs, and what it will
cost once they are gone: σ* is then at most the middle candidate. One that never succeeds leaves nothing to measure: it
begins where imitation did, with the smallest.
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

STARTS = (1.0, 0.5, 0.0)
CANDIDATES = (0.08, 0.12, 0.18)
KEEP = 0.5


@dataclass(frozen=True)
class Calibration:
    """What was measured and chosen.

    Attributes:
      starts: the standard deviations of x_0 tried; the chosen one stands in `noise`.
      start_success: rate at each, without exploration.
      sigma: the candidates tried, 0 first, with the chosen start.
      success: rate at each.
      noise: the range chosen.
      env_steps: control steps spent.
      reason: in words.
      simulation_s: seconds spent in the worlds.
    """

    starts: tuple[float, ...]
    start_success: tuple[float, ...]
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
            tuple(data["starts"]),
            tuple(data["start_success"]),
            tuple(data["sigma"]),
            tuple(data["success"]),
            NoiseConfig(**data["noise"]),
            data["env_steps"],
            data["reason"],
            data["simulation_s"],
        )


Act = Callable[[Observation, float, float, torch.Generator], Tensor]
"""(observation, s, σ, generator) → (N, Tp, Da) actions in [-1, 1], from x_0 of s with noise σ in the noised steps."""


def calibrate_noise(act: Act, execute: int, env: Env, noise: NoiseConfig, seed: int) -> Calibration:
    """Measure success against noise, and choose where to begin and the range.

    Args:
      act: the pre-trained policy with a fixed noise.
      execute: Ta.
      env: the worlds; they are reset.
      noise: what is given besides the range; a `start` that is given is not chosen.
      seed: of starts and noise; the same starts for every candidate.
    """
    steps, simulation_s = 0, 0.0

    def measured(start: float, sigma: float) -> float:
        nonlocal steps, simulation_s
        rate, used, seconds = _one_episode_each(act, execute, env, start, sigma, seed)
        steps += used
        simulation_s += seconds
        return rate

    starts = STARTS if noise.start is None else (noise.start,)
    start_rates = [measured(start, 0.0) for start in starts]
    best = max(start_rates)
    enough = best - math.sqrt(best * (1.0 - best) / env.num_envs)
    good = [(s, rate) for s, rate in zip(starts, start_rates, strict=True) if rate >= enough]
    start, rate = min(good) if best > 0 else good[0]
    rates = [rate]
    for sigma in CANDIDATES if rates[0] > 0 else ():
        rates.append(measured(start, sigma))
        if rates[-1] < KEEP * rates[0]:
            break  # more noise will not bring it back
    centre = CANDIDATES[0]
    if rates[0] > 0:
        centre = max(_crossing((0.0, *CANDIDATES), rates, KEEP * rates[0]), 0.5 * CANDIDATES[0])
        if rates[0] < 0.5:
            centre = min(centre, CANDIDATES[len(CANDIDATES) // 2])
    half = math.sqrt(noise.min_share)
    chosen = replace(noise, sigma_max=centre / half, sigma_min=centre * half, start=start)
    if rates[0] == 0:
        reason = f"no success without noise, so the smallest candidate, {centre:.2f}"
    else:
        tried = ", ".join(f"{rate:.0%} at {s:g}" for s, rate in zip(starts, start_rates, strict=True))
        reason = f"success by start {tried}; by noise " + ", ".join(
            f"{rate:.0%} at {s:.2f}" for s, rate in zip(CANDIDATES, rates[1:], strict=False)
        )
    sigmas = (0.0, *CANDIDATES[: len(rates) - 1])
    return Calibration(starts, tuple(start_rates), sigmas, tuple(rates), chosen, steps, reason, simulation_s)


def _crossing(sigma: tuple[float, ...], rates: list[float], level: float) -> float:
    """σ at which `rates`, linear between the measurements, fall to `level`; the last σ if they do not."""
    for i in range(1, len(rates)):
        if rates[i] < level:
            share = (rates[i - 1] - level) / (rates[i - 1] - rates[i])
            return sigma[i - 1] + share * (sigma[i] - sigma[i - 1])
    return sigma[len(rates) - 1]


def _one_episode_each(
    act: Act, execute: int, env: Env, start: float, sigma: float, seed: int
) -> tuple[float, int, float]:
    """Success rate, control steps, seconds of simulation."""
    generator = torch.Generator().manual_seed(seed)
    asked = time.perf_counter()
    observation, _ = env.reset(seed=seed + 7919)
    steps, simulation_s = 0, time.perf_counter() - asked
    active = np.ones(env.num_envs, dtype=bool)
    success = np.zeros(env.num_envs, dtype=bool)
    while active.any():
        chunk = act(observation, start, sigma, generator).numpy()[:, :execute]
        asked = time.perf_counter()
        observation, _, terminated, truncated, infos = env.step_chunk(chunk, active)
        simulation_s += time.perf_counter() - asked
        success |= active & infos["success"]
        steps += int(infos["steps"].sum())
        active &= ~(terminated | truncated)
    return float(success.mean()), steps, simulation_s
