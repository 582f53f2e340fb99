"""Choosing the noise by measurement, not by hand per task: where denoising begins, and how much is explored.

Denoising begins at x_0 ~ N(0, s²). Imitation trains it at s = 1, where it is as varied as its demonstrations, mistakes
included; with less it keeps to the middle of them. The worlds play one episode each at every s in `INITIAL`, and the
smallest s is taken whose result is within one standard error of the best: what x_0 decides is in every return, and no
gradient. Fine-tuning begins there, and so does the policy that it exports.

Then the exploration. Too little noise finds nothing new; too much leaves a sparse reward with nothing to learn from. In
between, as much is used as leaves the pre-trained policy the share `KEEP` of its success: fine-tuning on `lift` ended
higher with more noise up to there, although it began lower. That is measured: the worlds play one episode each at
every candidate σ, and where the success falls below, linear in between,

    success(σ*) = KEEP · success(0),

σ* (at least half the smallest candidate) becomes the geometric mean of the range, where the noise network begins. A
policy that never succeeds leaves nothing to measure: it begins where imitation did, with the smallest.

Where a world reports no success, the same is done with returns R in its own units: the standard error is that of
their mean, and σ* is where R falls to R(0) − (1 − KEEP) |R(0)|.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import Observation
from robolearn.rl.settings import NoiseConfig
from robolearn.rollout import Agent, Decision, Engine, Episodes

INITIAL = (1.0, 0.5, 0.0)
CANDIDATES = (0.08, 0.16, 0.26)
KEEP = 1 / 3
SEEDS_APART = 7919  # the starts of calibration are not those of training


@dataclass(frozen=True)
class NoiseCalibration:
    """Measurements, and the choice by them."""

    starts: tuple[float, ...]  # the standard deviations of x_0 tried; the chosen one stands in `noise`
    start_success: tuple[float, ...]  # result at each, without exploration
    sigma: tuple[float, ...]  # the candidates tried, 0 first, with the chosen standard deviation of x_0
    success: tuple[float, ...]  # result at each
    noise: NoiseConfig
    env_steps: int
    reason: str  # in words
    metric: str = "success"  # what the results are: rates of ``"success"``, or mean ``"return"``
    # simulation_s, wall_s: seconds spent in the worlds, and in all
    simulation_s: float = 0.0
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> NoiseCalibration:
        """The inverse of `to_json`."""
        tuples = {key: tuple(data[key]) for key in ("starts", "start_success", "sigma", "success")}
        return NoiseCalibration(**{**data, **tuples, "noise": NoiseConfig(**data["noise"])})


Act = Callable[[Observation, float, float, torch.Generator], Tensor]
"""(observation, s, σ, generator) → (N, Tp, Da) actions in [-1, 1], from x_0 of s with noise σ in the noised steps."""


def calibrate_noise(
    act: Act, execute: int, engine: Engine, noise: NoiseConfig, seed: int, device: str | torch.device = "cpu",
    most: float = math.inf,
) -> NoiseCalibration:  # fmt: skip
    """Measure success against noise, and choose where to begin and the range.

    Args:
      act: the pre-trained policy with a fixed noise.
      execute: Ta.
      engine: the worlds; they are reset.
      noise: what is given besides the range; an `initial` that is given is not chosen.
      seed: of starts and noise; the same starts for every candidate.
      most: control steps to spend; what would take more, by what the last measurement took, is not tried.
    """
    begun = engine.env_steps, engine.simulation_s, time.perf_counter()

    last = 0

    def affordable() -> bool:
        return engine.env_steps - begun[0] + last <= most

    def measured(initial: float, sigma: float) -> NDArray[np.float64]:
        nonlocal last
        before = engine.env_steps
        result = _one_episode_each(_Exploring(act, execute, initial, sigma, seed, device), engine, seed)
        last = engine.env_steps - before
        return result

    starts = INITIAL if noise.initial is None else (noise.initial,)
    results = [measured(starts[0], 0.0)]
    while len(results) < len(starts) and affordable():
        results.append(measured(starts[len(results)], 0.0))
    starts = starts[: len(results)]
    start_rates = [float(result.mean()) for result in results]
    best = int(np.argmax(start_rates))
    metric = "success" if engine.success_reported else "return"
    error = float(results[best].std()) / math.sqrt(len(results[best]))
    good = [(s, rate) for s, rate in zip(starts, start_rates, strict=True) if rate >= start_rates[best] - error]
    fails = metric == "success" and start_rates[best] == 0
    initial, rate = good[0] if fails else min(good)
    level = rate - (1.0 - KEEP) * abs(rate)
    rates = [rate]
    for sigma in () if fails else CANDIDATES:
        if not affordable():
            break
        rates.append(float(measured(initial, sigma).mean()))
        if rates[-1] < level:
            break  # more noise will not bring it back
    centre = CANDIDATES[0]
    if not fails:
        centre = max(_crossing((0.0, *CANDIDATES), rates, level), 0.5 * CANDIDATES[0])
    half = math.sqrt(noise.min_share)
    chosen = replace(noise, sigma_max=centre / half, sigma_min=centre * half, initial=initial)
    if fails:
        reason = f"no success without noise, so the smallest candidate, {centre:.2f}"
    else:
        form = "{:.0%}" if metric == "success" else "{:.4g}"
        tried = ", ".join(f"{form.format(rate)} at {s:g}" for s, rate in zip(starts, start_rates, strict=True))
        explored = ", ".join(f"{form.format(rate)} at {s:.2f}" for s, rate in zip(CANDIDATES, rates[1:], strict=False))
        reason = f"{metric} by initial noise {tried}; by noise {explored or 'not measured, the budget is short'}"
    return NoiseCalibration(
        starts=starts,
        start_success=tuple(start_rates),
        sigma=(0.0, *CANDIDATES[: len(rates) - 1]),
        success=tuple(rates),
        noise=chosen,
        env_steps=engine.env_steps - begun[0],
        reason=reason,
        metric=metric,
        simulation_s=engine.simulation_s - begun[1],
        wall_s=time.perf_counter() - begun[2],
    )


def _crossing(sigma: tuple[float, ...], rates: list[float], level: float) -> float:
    """σ at which `rates`, linear between the measurements, fall to `level`; the last σ if they do not."""
    for i in range(1, len(rates)):
        if rates[i] < level:
            share = (rates[i - 1] - level) / (rates[i - 1] - rates[i])
            return sigma[i - 1] + share * (sigma[i] - sigma[i - 1])
    return sigma[len(rates) - 1]


def _one_episode_each(agent: _Exploring, engine: Engine, seed: int) -> NDArray[np.float64]:
    """(N,) success (0 or 1) of an episode of every world, or its return where success is not reported."""
    n = engine.env.num_envs
    engine.reset(seed + SEEDS_APART)
    success, returns = np.zeros((2, n))
    for turn in engine.turns(agent, Episodes(np.ones(n, np.int64))):
        success[turn.worlds & turn.solved] = 1.0
        returns += np.where(turn.worlds, turn.rewards.sum(axis=1), 0.0)
    return success if engine.success_reported else returns


class _Exploring(Agent):
    """The policy with a fixed noise."""

    def __init__(
        self, act: Act, execute: int, initial: float, sigma: float, seed: int, device: str | torch.device
    ) -> None:
        self._act, self._execute, self._initial, self._sigma = act, execute, initial, sigma
        self._generator = torch.Generator(device).manual_seed(seed)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        chunk = self._act(observation, self._initial, self._sigma, self._generator)
        return Decision(chunk.numpy()[:, : self._execute])
