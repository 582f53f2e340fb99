"""A person's chunk → the noise that makes it → the chunk again, and an actor that this noise teaches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import DiffusionConfig, NetworkConfig
from robolearn.core import BadInput
from robolearn.data.replay import PlayedEpisode, ReplayBatch, ReplayBuffer
from robolearn.rl.algorithms.dsrl import ERROR, NOISE, Dsrl, backwards, invert, plans
from robolearn.rl.off_policy_settings import DsrlConfig
from robolearn.rl.offline_runner import OfflineRunner

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows

M = 1.5


def diffusion() -> ChunkPolicy:
    torch.manual_seed(0)
    config = DiffusionConfig(horizon=2, execute=2, steps=5, network=NetworkConfig(width=16, depth=2))
    return ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)


def trained(policy: ChunkPolicy, steps: int = 300) -> ChunkPolicy:
    """On actions 0.3 x₁ ± 0.25."""
    draw, adam = torch.Generator().manual_seed(0), torch.optim.Adam(policy.net.parameters(), 3e-3)
    for _ in range(steps):
        seen = torch.randn(128, 2, generator=draw)
        action = 0.3 * seen[:, :1, None] + 0.25 * torch.randn(128, policy.net.config.horizon, 1, generator=draw)
        adam.zero_grad()
        policy.net.loss({"proprio": seen}, action.clamp(-1, 1), None, draw)[0].backward()
        adam.step()
    return policy.eval()


def steered(policy: ChunkPolicy | None = None, **settings: Any) -> Dsrl:
    chosen = SMALL | {"steer_weight": 1.0, "magnitude": M} | settings
    return Dsrl(policy or base(), DsrlConfig(**chosen), seed=0)  # type: ignore[arg-type]


def halving() -> Any:
    """A sampler of two steps x ← x/2 + 1:  a = x_0/4 + 1.5."""
    return SimpleNamespace(config=SimpleNamespace(steps=2), denoise=lambda x, k, cond: x / 2 + 1)


def test_a_step_backwards_comes_half_as_near_with_each_round_where_the_step_halves() -> None:
    """Of 1.75: x = 1.75 + 1.75 − 1.875 = 1.625, 1.5625, 1.53125 (1.5 in the end). Of that: 1.2968…, 1.1797, 1.1211."""
    found = backwards(halving(), torch.full((1, 1, 1), 1.75), torch.zeros(1, 0))
    x = y = 1.53125
    for _ in range(3):
        y = y + x - (y / 2 + 1)
    assert float(found) == pytest.approx(y) and y == pytest.approx(1.12109375)


@pytest.mark.long
def test_descent_ends_at_the_noise_that_makes_the_chunk_or_at_the_bound() -> None:
    """a = x_0/4 + 1.5: 1.75 is made of 1, and 2.5 of 4, which is beyond 1.5."""
    chunk = torch.tensor([1.75, 2.5, 1.2]).view(3, 1, 1)
    found = invert(halving(), chunk, torch.ones(3, 1, dtype=torch.bool), torch.zeros(3, 0), M)
    torch.testing.assert_close(found.flatten(), torch.tensor([1.0, 1.5, -1.2]), atol=2e-2, rtol=0.0)
    assert float(found[1]) == M


@pytest.mark.long
@pytest.mark.parametrize(
    "make", [base, lambda: base(kind="shortcut"), diffusion], ids=["flow", "shortcut", "diffusion"]
)
def test_a_chunk_becomes_noise_and_the_noise_the_chunk(make: Callable[[], ChunkPolicy]) -> None:
    """Judged by the sampler itself, on a trained policy; a flow of its own noise finds this noise again."""
    algorithm = steered(trained(make()))
    before = {key: value.clone() for key, value in algorithm.base.state_dict().items()}
    draw = torch.Generator().manual_seed(7)
    seen, w = {"proprio": torch.randn(200, 2, generator=draw)}, torch.rand(200, 2, generator=draw) * 2 - 1
    with torch.no_grad():
        chunk = algorithm.policy.chunk(seen, M * w).view(200, 2, 1)
    found, error = algorithm.inverted(seen, chunk, torch.ones(200, 2, dtype=torch.bool))
    with torch.no_grad():
        again = algorithm.policy.chunk(seen, M * found).view(200, 2, 1)
    missed = (again - chunk).square().mean((1, 2)).sqrt()
    torch.testing.assert_close(error, missed, atol=1e-6, rtol=1e-4)
    assert float(missed.median()) < 2e-3 and float(missed.max()) < 0.06 and float(found.abs().max()) <= 1.0
    if make is not diffusion:
        assert float(missed.max()) < 2e-3 and float((found - w).abs().quantile(0.95)) < 0.02
    assert all(torch.equal(value, before[key]) for key, value in algorithm.base.state_dict().items())


@pytest.mark.long
def test_what_the_policy_makes_of_no_noise_stays_within_the_magnitude_and_misses() -> None:
    algorithm = steered(trained(base()))
    seen, far = {"proprio": torch.tensor([[-2.0, 0.0]]).expand(9, 2)}, torch.full((9, 2, 1), 0.9)
    w, error = algorithm.inverted(seen, far, torch.ones(9, 2, dtype=torch.bool))
    assert float(error.min()) > 0.3 and float(w.abs().max()) <= 1.0 and float(w.mean()) > 0.9


@pytest.mark.long
def test_what_is_not_executed_or_was_not_commanded_need_not_be_met() -> None:
    """Of four steps two are executed, and of the second window one was commanded; the others hold what cannot be."""
    policy = trained(base(horizon=4, execute=2))
    algorithm = steered(policy)
    seen = {"proprio": torch.zeros(2, 2)}
    with torch.no_grad():
        action = algorithm.policy.chunk(seen, torch.full((2, 4), 0.7)).view(2, 2, 1)
    plan = torch.cat((action, torch.full((2, 2, 1), -1.0)), 1)
    known = torch.tensor([[True, True, True, True], [True, False, False, False]])
    plan[1, 1:] = 1.0
    w, error = algorithm.inverted(seen, plan, known)
    with torch.no_grad():
        made = algorithm.policy.chunk(seen, M * w).view(2, 2, 1)
    assert float(error.max()) < 5e-3
    torch.testing.assert_close(made[0], action[0], atol=1e-2, rtol=0.0)
    torch.testing.assert_close(made[1, 0], action[1, 0], atol=1e-2, rtol=0.0)


def test_the_loss_is_the_mean_distance_of_the_mode_to_noise_that_is_near_enough() -> None:
    """Two components; a person's windows 0 and 2, of which 2 is too far, and 3 is the policy's own."""
    algorithm = steered(steer_weight=3.0, steer_error=0.1)
    mode = torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.9, 0.9], [1.0, 1.0]])
    algorithm.policy.actor.mode = lambda features: mode  # type: ignore[method-assign, assignment]
    noise = torch.tensor([[0.1, 0.2], [0.0, 1.0], [-0.9, -0.9], [-1.0, -1.0]])
    kept = {NOISE: noise, ERROR: torch.tensor([[0.1], [0.02], [0.4], [0.0]])}
    batch = windows(4)
    person = torch.tensor([True, True, True, False])
    batch = replace(batch, observation=batch.observation | kept, intervention=person)
    loss, metrics = algorithm._steer(torch.zeros(4, 2), batch)
    one, two = (0.4**2 + 0.2**2) / 2, (0.0 + 1.0) / 2
    assert float(metrics["steer"]) == pytest.approx((one + two) / 2)
    assert float(loss) == pytest.approx(3.0 * (one + two) / 2)
    assert float(metrics["steer_left_out"]) == pytest.approx(1 / 3)
    assert float(metrics["steer_error"]) == pytest.approx((0.1 + 0.02 + 0.4) / 3)
    nobody = replace(batch, intervention=torch.zeros(4, dtype=torch.bool))
    assert all(float(value) == 0.0 for value in algorithm._steer(torch.zeros(4, 2), nobody)[1].values())


def test_the_actor_s_loss_has_it_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """α log π − Q^w + λ L: by what is handed to soft actor-critic as a value."""
    met = []
    algorithm = steered(noise_steps=1)
    algorithm._steer = lambda features, batch: (torch.tensor(0.25), {})  # type: ignore[method-assign]
    monkeypatch.setattr("robolearn.rl.algorithms.dsrl.evaluate", lambda net, f, w: torch.full((2, len(f), 1), 2.0))
    algorithm._distil = lambda features, batch: torch.zeros(())  # type: ignore[method-assign]
    algorithm.soft.improve = lambda f, value, g: met.append(value(torch.zeros(8, 2))) or {}  # type: ignore
    algorithm.improve(torch.zeros(8, 2), windows())
    torch.testing.assert_close(met[0], torch.full((8,), 1.75))


def test_plans_end_where_their_author_does() -> None:
    action = np.arange(5, dtype=np.float32)[:, None] / 10
    person = np.array([True, True, False, True, True])
    episode = PlayedEpisode({}, action, np.zeros(5, np.float32), person, True, True)
    found, known = plans(episode, np.array([0, 1, 3]), 3)
    assert known.tolist() == [[True, True, False], [True, False, False], [True, True, False]]
    np.testing.assert_allclose(found[..., 0], [[0.0, 0.1, 0.0], [0.1, 0.0, 0.0], [0.3, 0.4, 0.0]])


def shown(person: Any = True, action: float = 0.4, steps: int = 6, seed: int = 0) -> PlayedEpisode:
    draw = np.random.default_rng(seed)
    seen = {"proprio": draw.standard_normal((steps + 1, 2)).astype(np.float32)}
    reward = np.zeros(steps, np.float32)
    reward[-1] = 1.0
    author = np.broadcast_to(np.asarray(person), steps).copy()
    return PlayedEpisode(seen, np.full((steps, 1), action, np.float32), reward, author, True, True)


def drawn(algorithm: Dsrl, *episodes: PlayedEpisode) -> ReplayBatch:
    """All windows of `episodes`, from a buffer as the runners have it."""
    buffer = ReplayBuffer(algorithm.kept, algorithm.chunk, 1000, plan=algorithm.plan)
    for episode in episodes:
        buffer.add(algorithm.keep(episode))
    return buffer.gather(torch.arange(len(buffer)), 0.9, torch.Generator().manual_seed(0))


@pytest.mark.long
def test_a_replay_holds_the_noise_of_a_person_s_frames_alone() -> None:
    algorithm = steered(trained(base()))
    episode = shown([False, False, True, True, True, True])
    batch = drawn(algorithm, episode)
    person = batch.intervention
    assert person.sum() > 1 and (~person).any()
    assert not batch.observation[NOISE][~person].any() and batch.observation[NOISE][person].any(1).all()
    with torch.no_grad():
        made = algorithm.policy.chunk(batch.observation, M * batch.observation[NOISE])
    missed = (made - 0.4)[:, :1].abs()  # of the first step, which was executed in all of them
    near = person & (batch.observation[ERROR][:, 0] < 1e-2)
    assert near.any() and float(missed[near].max()) < 2e-2


def test_without_its_weight_nothing_is_kept_and_older_runs_have_the_same_settings() -> None:
    algorithm = steered(steer_weight=0.0)
    assert algorithm.kept == algorithm.base.interface
    episode = shown()
    assert algorithm.keep(episode) is episode
    stored = DsrlConfig().stored()
    assert "steer_weight" not in stored and "steer_error" not in stored
    assert DsrlConfig(steer_weight=0.5).stored()["steer_weight"] == 0.5


@pytest.mark.long
def test_the_actor_comes_to_do_what_the_person_did() -> None:
    """Critics say nothing (all values are 0). With the weight what is decided goes to what was shown."""

    def missed(weight: float) -> float:
        algorithm = steered(trained(base()), steer_weight=weight, lr=3e-3)
        algorithm.critic.values = lambda features, actions: torch.zeros(4, len(actions), 1)  # type: ignore
        batch = drawn(algorithm, *(shown(action=0.2, seed=seed) for seed in range(6)))
        for _ in range(150):
            algorithm.improve(algorithm.policy.encode(batch.observation), batch)
        with torch.no_grad():
            decided = algorithm.policy.decide(batch.observation, torch.empty(0)).view(-1, 2)
        near = batch.observation[ERROR][:, 0] < 0.05 if weight else torch.ones(len(decided), dtype=torch.bool)
        assert near.float().mean() > 0.5
        return float((decided - 0.2)[near].abs().mean())

    assert missed(10.0) < 0.07 and missed(0.0) > 0.12


@pytest.mark.long
def test_a_resumed_run_goes_on_bit_for_bit(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robolearn.rl.offline_runner.BLOCK", 8)
    episodes = [shown(seed=0), shown([False, False, True, True, False, False], seed=1)]
    config = DsrlConfig(**SMALL | {"batch": 16}, steer_weight=1.0)  # type: ignore[arg-type]
    whole, again = (OfflineRunner(base(), config, 1000, 0, episodes) for _ in range(2))
    kit.assert_goes_on(whole, again, 1, 2)
    assert f"experience/demonstrations/rows/observation/{NOISE}" in whole.state()[0]


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"steer_weight": -0.1}, {"steer_error": 0.0}):
        with pytest.raises(BadInput, match=f"--{next(iter(wrong)).replace('_', '-')}"):
            DsrlConfig(**wrong)
