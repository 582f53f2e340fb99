"""Rollouts at the ends of episodes, and the rule that chooses the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from robolearn.rl.noise import NoiseConfig
from robolearn.rl.rollout import Running, collect

import robolearn.rl.calibrate as module
from robolearn.core import ArraySpec, Interface
from robolearn.rl.calibrate import Calibration, calibrate_noise

CANDIDATES = (0.05, 0.08, 0.12, 0.18, 0.26)
LENGTHS, TERMINATES = (3, 4, 100), (True, False, False)


class Diary:
    """Three worlds whose observation is (world, episode, step): episodes of 3, terminated; of 4, truncated; endless.

    The arrays of observations are the same ones all the time, as a world may well do.
    """

    num_envs, max_episode_steps, task, prompt = 3, 4, "diary", ""
    interface = Interface({"proprio": ArraySpec((3,))}, ArraySpec((1,)), control_hz=10.0)

    def __init__(self, early: int = -1) -> None:
        self.early = early  # a world that is solved by the first step of each episode
        self.page = np.array([[w, 0, 0] for w in range(3)], dtype=np.float32)
        self.final = np.zeros((3, 3), dtype=np.float32)
        self.flags = np.zeros((3, 3), dtype=bool)
        self.seen: list[np.ndarray] = []

    def step_chunk(self, chunks: np.ndarray, active: np.ndarray | None = None) -> tuple:
        self.seen.append(chunks.copy())
        self.final[:] = -1  # rubbish where nothing ended
        terminated, truncated, success = self.flags
        self.flags[:] = False
        steps, reward = np.zeros(3, np.int64), np.zeros(3, np.float32)
        for w in range(3):
            for _ in range(chunks.shape[1]):
                self.page[w, 2] += 1
                steps[w] += 1
                reward[w] += 1
                success[w] |= w == self.early and self.page[w, 2] == 1
                if self.page[w, 2] == LENGTHS[w]:
                    terminated[w], truncated[w] = TERMINATES[w], not TERMINATES[w]
                    success[w] |= TERMINATES[w]
                    self.final[w] = self.page[w]
                    self.page[w, 1:] = self.page[w, 1] + 1, 0
                    break
        infos = {"success": success, "steps": steps, "final_obs": {"proprio": self.final}}
        return {"proprio": self.page}, reward, terminated, truncated, infos


def play(decisions: int = 4, early: int = -1) -> tuple[Any, Diary]:
    world = Diary(early)
    running = Running(3)
    ends: list[np.ndarray] = []

    def scale(reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        ends.append(ended.copy())
        return reward * 10

    rollout, after = collect(
        world,  # type: ignore[arg-type]
        {"proprio": world.page},
        running,
        decisions=decisions,
        execute=2,
        chunk_shape=(3, 1),
        sampler=lambda o: 5.0 * o["proprio"][:, None, :].repeat(1, 2, 1),
        to_tensors=lambda o: {"proprio": torch.tensor(o["proprio"])},
        to_action=lambda chunk: chunk.numpy(),
        scale=scale,
    )
    assert after["proprio"] is world.page and running.elapsed.tolist() == world.page[:, 2].tolist()
    np.testing.assert_array_equal(np.stack(ends), rollout.ended.numpy())
    return rollout, world


def test_what_follows_a_decision_is_the_final_observation_where_an_episode_ended():
    rollout, _ = play()
    seen = rollout.observation["proprio"].reshape(4, 3, 3)
    after = rollout.next_observation["proprio"].reshape(4, 3, 3)
    # World 0, two steps a decision: 0→2, 2→3 and terminated, then the next episode from 0.
    assert seen[:, 0, 1:].tolist() == [[0, 0], [0, 2], [1, 0], [1, 2]]
    assert after[:, 0, 1:].tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    # World 1: 0→2, 2→4 and truncated.
    assert seen[:, 1, 1:].tolist() == [[0, 0], [0, 2], [1, 0], [1, 2]]
    assert after[:, 1, 1:].tolist() == [[0, 2], [0, 4], [1, 2], [1, 4]]
    assert after[:, 2, 2].tolist() == [2, 4, 6, 8]
    assert rollout.terminated.tolist() == [[False] * 3, [True, False, False]] * 2
    assert rollout.ended.tolist() == [[False] * 3, [True, True, False]] * 2


def test_the_time_that_is_left_is_that_of_the_episode_it_belongs_to():
    rollout, world = play()
    limit = world.max_episode_steps
    seen = rollout.observation["proprio"][:, 2]  # steps of the episode so far
    after = rollout.next_observation["proprio"][:, 2]
    torch.testing.assert_close(rollout.left, (1 - seen / limit).clamp(min=0))
    torch.testing.assert_close(rollout.next_left, (1 - after / limit).clamp(min=0))
    truncated = (rollout.ended & ~rollout.terminated).flatten()
    assert truncated.any() and (rollout.next_left[truncated] == 0).all(), "nothing is left when the time is up"


def test_a_rollout_counts_what_was_done():
    rollout, world = play()
    assert rollout.env_steps == (3 + 4 + 4) * 2
    assert rollout.episodes == 4 and rollout.success == 2
    assert rollout.reward[:, 0].tolist() == [20, 10, 20, 10]
    assert rollout.chain.shape == (12, 2, 3)
    # The executed part of the chunk, cut to the range of actions; the chain keeps what was drawn.
    assert all(chunk.shape == (3, 2, 1) and np.abs(chunk).max() <= 1 for chunk in world.seen)
    assert rollout.chain.max() == 5 * 6  # world 2 at step 6


def test_a_success_in_the_middle_of_an_episode_counts_once_when_it_ends():
    rollout, _ = play(early=1)  # its episodes end, truncated, a decision later
    assert (rollout.success, rollout.episodes) == (2 + 2, 4)
    running = Running(3)
    running.solved[:], running.elapsed[:] = True, 7
    running.begin(np.array([False, True, False]))
    assert running.solved.tolist() == [True, False, True] and running.elapsed.tolist() == [7, 0, 7]


@pytest.fixture(autouse=True)
def the_rule(monkeypatch: pytest.MonkeyPatch):
    """The rule is tested with numbers of its own: a half is to be kept."""
    assert 0 < module.KEEP < 1 and sorted(module.CANDIDATES) == list(module.CANDIDATES) and module.CANDIDATES[0] > 0
    monkeypatch.setattr(module, "KEEP", 0.5)
    monkeypatch.setattr(module, "CANDIDATES", CANDIDATES)


# --- calibration -------------------------------------------------------------------------------------------


class Nerves:
    """World w succeeds where the action is at most its limit; an episode takes two decisions of two steps."""

    max_episode_steps, task, prompt = 4, "nerves", ""
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), control_hz=10.0)

    def __init__(self, rates: dict[float, float], worlds: int = 10) -> None:
        self.num_envs = worlds
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

    def step_chunk(self, chunks: np.ndarray, active: np.ndarray) -> tuple:
        self.moment += 1
        assert chunks.shape[1] == 2
        over = active & (self.moment == 2)
        success = over & (chunks[:, 0, 0] <= self.limit + 1e-9)
        infos = {"success": success, "steps": 2 * active}
        out = {"proprio": np.zeros((self.num_envs, 1), np.float32)}
        return out, success.astype(np.float32), success, over & ~success, infos


def calibrate(
    rates: dict[float, float], noise: NoiseConfig | None = None, nerves: dict[float, float] | None = None
) -> tuple[Calibration, Nerves]:
    """`nerves`: start → the noise that it is as bad as; none otherwise. Begins where it is, unless told."""
    world, nerves, begun = Nerves(rates), nerves or {}, []
    noise = noise or NoiseConfig(start=1.0)

    def act(observation: Any, start: float, sigma: float, generator: torch.Generator) -> torch.Tensor:
        begun.append(start)
        return torch.full((world.num_envs, 3, 1), max(sigma, nerves.get(start, 0.0)), dtype=torch.float64)

    found = calibrate_noise(act, 2, world, noise, seed=3)  # type: ignore[arg-type]
    assert set(begun[len(found.starts) * 2 :]) <= {found.noise.start}, "the exploration is that of the chosen start"
    return found, world


def centre(found: Calibration) -> float:
    return math.sqrt(found.noise.sigma_max * found.noise.sigma_min)


def test_the_noise_that_keeps_half_of_the_success_is_the_centre():
    found, world = calibrate({0.0: 1.0, 0.05: 1.0, 0.08: 0.8, 0.12: 0.5, 0.18: 0.4, 0.26: 0.1})
    assert found.success == (1.0, 1.0, 0.8, 0.5, 0.4)  # 0.26 is not tried: more noise will not bring it back
    assert found.sigma == (0.0, 0.05, 0.08, 0.12, 0.18)
    assert centre(found) == pytest.approx(0.12)  # where it is exactly a half
    assert found.noise.sigma_min / found.noise.sigma_max == pytest.approx(NoiseConfig().min_share)
    assert found.env_steps == 5 * 10 * 4
    assert len(world.seeds) == 5 and len(set(world.seeds)) == 1  # the same starts for every candidate
    assert found.reason == "success by start 100% at 1; by noise 100% at 0.05, 80% at 0.08, 50% at 0.12, 40% at 0.18"


def test_the_start_is_the_smallest_within_a_standard_error_of_the_best():
    noise = NoiseConfig()
    found, world = calibrate({0.0: 1.0, 0.05: 0.9, 0.12: 0.6, 0.18: 0.1}, noise, nerves={1.0: 0.12, 0.5: 0.05})
    assert (found.starts, found.start_success) == ((1.0, 0.5, 0.0), (0.6, 0.9, 1.0))
    assert found.noise.start == 0.0 and found.success[0] == 1.0
    assert len(set(world.seeds)) == 1 and found.env_steps == (len(found.starts) + len(found.sigma) - 1) * 10 * 4
    # Ten worlds, 70% at best: one standard error is 14%.
    found, _ = calibrate({0.0: 0.7, 0.05: 0.6}, noise, nerves={0.0: 0.05})
    assert found.start_success == (0.7, 0.7, 0.6) and (found.noise.start, found.success[0]) == (0.0, 0.6)
    found, _ = calibrate({0.0: 0.7, 0.05: 0.5}, noise, nerves={0.0: 0.05})
    assert found.start_success == (0.7, 0.7, 0.5) and (found.noise.start, found.success[0]) == (0.5, 0.7)
    found, _ = calibrate({0.0: 0.7, 0.05: 0.5}, noise, nerves={0.0: 0.05, 0.5: 0.05})
    assert found.noise.start == 1.0 and Calibration.from_json(found.to_json()) == found


def test_the_rule_is_relative_to_what_the_policy_can_do():
    # 80% without noise: 40% of the episodes are half of it.
    found, _ = calibrate({0.0: 0.8, **dict.fromkeys(CANDIDATES, 0.4)}, NoiseConfig(min_share=0.5, start=1.0))
    assert found.noise.sigma_max == pytest.approx(max(CANDIDATES) / math.sqrt(0.5))
    assert centre(found) == pytest.approx(max(CANDIDATES))
    # 40% without noise: 20% of the episodes are half of it, 10% are less.
    found, _ = calibrate({0.0: 0.4, 0.05: 0.3, 0.08: 0.3, 0.12: 0.1, 0.18: 0.1})
    assert found.success == (0.4, 0.3, 0.3, 0.1)
    assert centre(found) == pytest.approx(0.10)  # 20% lie half-way between 30% at 0.08 and 10% at 0.12


def test_a_policy_that_mostly_fails_does_not_show_what_noise_costs():
    found, _ = calibrate({0.0: 0.4, **dict.fromkeys(CANDIDATES, 0.4)})
    assert found.success == (0.4,) * 6 and centre(found) == pytest.approx(0.12), "the middle candidate"
    found, _ = calibrate({0.0: 0.5, **dict.fromkeys(CANDIDATES, 0.5)})
    assert centre(found) == pytest.approx(max(CANDIDATES))


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
    assert calibrate(dict.fromkeys((0.0, *CANDIDATES), 0.0), NoiseConfig())[0].noise.start == 1.0
    assert Calibration.from_json(found.to_json()) == found


def test_only_the_range_is_chosen():
    found, _ = calibrate({0.0: 1.0, 0.26: 1.0}, NoiseConfig(min_share=0.25, start=1.0, hold=0.1, hidden=8, steps="all"))
    assert found.noise.sigma_min / found.noise.sigma_max == pytest.approx(0.25)
    assert (found.noise.hold, found.noise.hidden, found.noise.steps) == (0.1, 8, "all")
    assert Calibration.from_json(found.to_json()) == found
