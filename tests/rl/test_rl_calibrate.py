"""The rule that chooses the noise, and where denoising begins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import robolearn.rl.calibrate as module
from robolearn.core import ArraySpec, Interface
from robolearn.rl.calibrate import NoiseCalibration, calibrate_noise
from robolearn.rl.settings import NoiseConfig
from robolearn.rollout import Engine

CANDIDATES = (0.05, 0.08, 0.12, 0.18, 0.26)


@pytest.fixture(autouse=True)
def the_rule(monkeypatch: pytest.MonkeyPatch):
    """The rule is tested with numbers of its own: a half is to be kept."""
    assert 0 < module.KEEP < 1 and sorted(module.CANDIDATES) == list(module.CANDIDATES) and module.CANDIDATES[0] > 0
    monkeypatch.setattr(module, "KEEP", 0.5)
    monkeypatch.setattr(module, "CANDIDATES", CANDIDATES)


class Nerves:
    """World w succeeds where the action is at most its limit; an episode takes two decisions of two steps."""

    max_episode_steps, task, prompt, steps_together = 4, "nerves", "", False
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), control_hz=10.0)

    def __init__(self, rates: dict[float, float], worlds: int = 10, rewards: tuple[float, float] | None = None) -> None:
        self.num_envs = worlds
        self.rewards = rewards  # of a success and of a failure, in a world that reports none; it ends by itself
        # As many worlds bear σ as the rate says.
        self.limit = np.full(worlds, -1.0)
        for sigma, rate in sorted(rates.items()):
            self.limit[: round(rate * worlds)] = sigma
        self.seeds: list[int | None] = []
        self.moment = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.seeds.append(seed)
        self.moment = 0
        return {"proprio": np.zeros((self.num_envs, 1), np.float32)}, {}

    def step(self, actions: np.ndarray, active: np.ndarray) -> tuple:
        self.moment += 1
        over = active & (self.moment == 4)
        success = over & (actions[:, 0] <= self.limit + 1e-9)
        out = {"proprio": np.zeros((self.num_envs, 1), np.float32)}
        infos = {"final_obs": out, "_final_obs": over}
        if self.rewards is None:
            return out, success.astype(np.float32), success, over & ~success, infos | {"success": success}
        reward = np.where(over, np.where(success, *self.rewards), 0.0).astype(np.float32)
        return out, reward, over, np.zeros_like(over), infos


def calibrate(
    rates: dict[float, float],
    noise: NoiseConfig | None = None,
    nerves: dict[float, float] | None = None,
    rewards: tuple[float, float] | None = None,
) -> tuple[NoiseCalibration, Nerves]:
    """`nerves`: initial noise → the noise that it is as bad as; none otherwise. Begins where it is, unless told."""
    world, nerves, begun = Nerves(rates, rewards=rewards), nerves or {}, []
    noise = noise or NoiseConfig(initial=1.0)

    def act(observation: Any, initial: float, sigma: float, generator: torch.Generator) -> torch.Tensor:
        begun.append(initial)
        return torch.full((world.num_envs, 3, 1), max(sigma, nerves.get(initial, 0.0)), dtype=torch.float64)

    engine = Engine(world)  # type: ignore[arg-type]
    found = calibrate_noise(act, 2, engine, noise, seed=3)
    assert set(begun[len(found.starts) * 2 :]) <= {found.noise.initial}, "the exploration is that of the chosen one"
    assert found.env_steps == engine.env_steps
    return found, world


def centre(found: NoiseCalibration) -> float:
    return math.sqrt(found.noise.sigma_max * found.noise.sigma_min)


def test_the_noise_that_keeps_half_of_the_success_is_the_centre():
    found, world = calibrate({0.0: 1.0, 0.05: 1.0, 0.08: 0.8, 0.12: 0.5, 0.18: 0.4, 0.26: 0.1})
    assert found.success == (1.0, 1.0, 0.8, 0.5, 0.4)  # 0.26 is not tried: more noise will not bring it back
    assert found.sigma == (0.0, 0.05, 0.08, 0.12, 0.18)
    assert centre(found) == pytest.approx(0.12)  # where it is exactly a half
    assert found.noise.sigma_min / found.noise.sigma_max == pytest.approx(NoiseConfig().min_share)
    assert found.env_steps == 5 * 10 * 4
    assert len(world.seeds) == 5 and set(world.seeds) == {
        3 + 7919
    }  # the same starts for every candidate, not training's
    assert (
        found.reason
        == "success by initial noise 100% at 1; by noise 100% at 0.05, 80% at 0.08, 50% at 0.12, 40% at 0.18"
    )


def test_the_initial_noise_is_the_smallest_within_a_standard_error_of_the_best():
    noise = NoiseConfig()
    found, world = calibrate({0.0: 1.0, 0.05: 0.9, 0.12: 0.6, 0.18: 0.1}, noise, nerves={1.0: 0.12, 0.5: 0.05})
    assert (found.starts, found.start_success) == ((1.0, 0.5, 0.0), (0.6, 0.9, 1.0))
    assert found.noise.initial == 0.0 and found.success[0] == 1.0
    assert len(set(world.seeds)) == 1 and found.env_steps == (len(found.starts) + len(found.sigma) - 1) * 10 * 4
    # Ten worlds, 70% at best: one standard error is 14%.
    found, _ = calibrate({0.0: 0.7, 0.05: 0.6}, noise, nerves={0.0: 0.05})
    assert found.start_success == (0.7, 0.7, 0.6) and (found.noise.initial, found.success[0]) == (0.0, 0.6)
    found, _ = calibrate({0.0: 0.7, 0.05: 0.5}, noise, nerves={0.0: 0.05})
    assert found.start_success == (0.7, 0.7, 0.5) and (found.noise.initial, found.success[0]) == (0.5, 0.7)
    found, _ = calibrate({0.0: 0.7, 0.05: 0.5}, noise, nerves={0.0: 0.05, 0.5: 0.05})
    assert found.noise.initial == 1.0 and NoiseCalibration.from_json(found.to_json()) == found


def test_the_rule_is_relative_to_what_the_policy_can_do():
    # 80% without noise: 40% of the episodes are half of it.
    found, _ = calibrate({0.0: 0.8, **dict.fromkeys(CANDIDATES, 0.4)}, NoiseConfig(min_share=0.5, initial=1.0))
    assert found.noise.sigma_max == pytest.approx(max(CANDIDATES) / math.sqrt(0.5))
    assert centre(found) == pytest.approx(max(CANDIDATES))
    # 40% without noise: 20% of the episodes are half of it, 10% are less.
    found, _ = calibrate({0.0: 0.4, 0.05: 0.3, 0.08: 0.3, 0.12: 0.1, 0.18: 0.1})
    assert found.success == (0.4, 0.3, 0.3, 0.1)
    assert centre(found) == pytest.approx(0.10)  # 20% lie half-way between 30% at 0.08 and 10% at 0.12


def test_a_policy_that_mostly_fails_is_measured_like_any_other():
    found, _ = calibrate({0.0: 0.4, **dict.fromkeys(CANDIDATES, 0.4)})
    assert found.success == (0.4,) * 6 and centre(found) == pytest.approx(max(CANDIDATES))


def test_a_nervous_policy_gets_less_than_the_smallest_candidate():
    found, _ = calibrate({0.0: 1.0, 0.05: 0.1})
    assert found.sigma == (0.0, 0.05)
    assert centre(found) == pytest.approx(0.05 * 0.5 / 0.9)
    found, _ = calibrate({0.0: 1.0, 0.05: 0.0})
    assert centre(found) == pytest.approx(0.5 * min(CANDIDATES))  # but not less


def test_a_policy_that_never_succeeds_gets_the_smallest_noise_and_hears_why():
    found, world = calibrate(dict.fromkeys((0.0, *CANDIDATES), 0.0))
    assert centre(found) == pytest.approx(min(CANDIDATES))
    assert found.reason == "no success without noise, so the smallest candidate, 0.05"
    assert (found.sigma, found.success) == ((0.0,), (0.0,))
    assert found.env_steps == 10 * 4 and len(world.seeds) == 1  # nothing to compare with: no step is wasted
    assert calibrate(dict.fromkeys((0.0, *CANDIDATES), 0.0), NoiseConfig())[0].noise.initial == 1.0
    assert NoiseCalibration.from_json(found.to_json()) == found


def test_only_the_range_is_chosen():
    found, _ = calibrate(
        {0.0: 1.0, 0.26: 1.0}, NoiseConfig(min_share=0.25, initial=1.0, hold=0.1, hidden=8, steps="all")
    )
    assert found.noise.sigma_min / found.noise.sigma_max == pytest.approx(0.25)
    assert (found.noise.hold, found.noise.hidden, found.noise.steps) == (0.1, 8, "all")
    assert NoiseCalibration.from_json(found.to_json()) == found


def test_without_a_notion_of_success_the_returns_decide():
    """Hand-worked: −20 for what would be a success, −100 for a failure, so R(0) = −36 at 80%; a fall is no success."""
    found, _ = calibrate({0.0: 0.8, 0.05: 0.7, 0.08: 0.5, 0.12: 0.3}, rewards=(-20.0, -100.0))
    assert found.metric == "return" and found.success == pytest.approx((-36.0, -44.0, -60.0))
    # The level is R(0) − ½ |R(0)| = −54: between −44 at 0.05 and −60 at 0.08, at 10/16 of the way.
    assert centre(found) == pytest.approx(0.05 + 0.03 * 10 / 16)
    assert found.reason == "return by initial noise -36 at 1; by noise -44 at 0.05, -60 at 0.08"
    # Reward 5 for falling later, 1 for falling at once: the world ends by itself either way.
    found, _ = calibrate({0.0: 0.5, 0.05: 0.5}, rewards=(5.0, 1.0))
    assert found.success[:2] == (3.0, 3.0) and found.metric == "return"


def test_the_initial_noise_by_returns():
    noise = NoiseConfig()
    # Ten worlds, 4.2 at best with a deviation of 1.6: a standard error of 0.51.
    found, _ = calibrate({0.0: 0.8, 0.05: 0.7, 0.12: 0.5}, noise, nerves={0.0: 0.05, 0.5: 0.12}, rewards=(5.0, 1.0))
    assert found.start_success == pytest.approx((4.2, 3.0, 3.8)) and found.noise.initial == 0.0
    found, _ = calibrate({0.0: 0.8, 0.12: 0.5}, noise, nerves={0.0: 0.12, 0.5: 0.12}, rewards=(5.0, 1.0))
    assert found.noise.initial == 1.0
