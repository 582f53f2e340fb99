"""ReBRAC: its two penalties by hand, and a line on which it goes the better way, or as it was shown."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBatch, ReplayBuffer
from robolearn.rl.algorithms.rebrac import ReBrac
from robolearn.rl.student_settings import ReBracConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, optimal, seen, wandering

EVERYWHERE = {"proprio": torch.tensor([seen(place) for place in range(PLACES)])}
LINE = {"width": 32, "depth": 2, "critics": 2, "subset": 2, "gamma": GAMMA, "lr": 3e-3, "tau": 0.05}


def ahead(batch: ReplayBatch, algorithm: ReBrac) -> ReplayBatch:
    """`batch` with plans of twice a chunk, all of it commanded."""
    rows, components = len(batch), batch.action.shape[2]
    generator = torch.Generator().manual_seed(1)
    plan = 2 * torch.rand(rows, algorithm.plan, components, generator=generator) - 1
    return replace(batch, plan=plan, planned=torch.ones(rows, algorithm.plan, dtype=torch.bool))


def test_targets_pay_for_the_distance_of_the_next_chunk() -> None:
    """y = R + d (Q' − β₂ mean (a' − â')²), with Q' = 2 and a' = ¼; an action that nobody took costs nothing."""
    algorithm = ReBrac(base(), ReBracConfig(**SMALL, critic_bc=0.5), seed=0)
    batch = ahead(windows(4), algorithm)
    steps = algorithm.chunk
    known = batch.planned.clone()
    known[1, steps:] = False
    known[2, -1] = False
    batch = replace(batch, planned=known)
    algorithm.policy.propose = lambda seen, x0: torch.full((4, 1, algorithm.size), 0.25)  # type: ignore[method-assign]
    algorithm.critic.pessimistic = lambda features, actions, order: torch.full((4, 1), 2.0)  # type: ignore[method-assign]
    met: list[torch.Tensor] = []
    algorithm.critic.fit = lambda features, actions, target, penalty: met.append(target) or {}  # type: ignore
    algorithm.update(batch)
    expected = []
    for row in range(4):
        apart = 0.0
        for step in range(steps, 2 * steps):
            for c in range(batch.plan.shape[2]):
                apart += float(known[row, step]) * (0.25 - float(batch.plan[row, step, c])) ** 2
        cost = 0.5 * apart / (steps * batch.plan.shape[2])
        expected.append(float(batch.reward[row] + batch.discount[row] * (2.0 - cost)))
    assert met[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert not known[1, steps:].any() and float(met[0][1]) == pytest.approx(
        float(batch.reward[1] + 2.0 * batch.discount[1])
    )


def test_the_actor_climbs_values_that_are_scaled_to_one_and_imitates() -> None:
    """Q = 40 Σ a, whatever is seen: the loss is β₁ L_imitation − mean Q / mean |Q|."""
    algorithm = ReBrac(base(), ReBracConfig(**SMALL, actor_bc=3.0), seed=0)
    batch = ahead(windows(4), algorithm)
    moved = torch.tensor([[0.5] * algorithm.size, [-0.25] * algorithm.size] * 2, requires_grad=True)
    algorithm._moved = lambda batch: moved  # type: ignore[method-assign]
    algorithm.student.loss = lambda *_: torch.tensor(0.7)  # type: ignore[method-assign]
    met: list[torch.Tensor] = []
    algorithm.student.step = lambda loss: met.append(loss) or loss.detach()  # type: ignore[method-assign]
    import robolearn.rl.algorithms.rebrac as page

    kept, page.evaluate = page.evaluate, lambda net, features, actions: 40.0 * actions.sum(-1)[None]  # type: ignore
    try:
        algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    finally:
        page.evaluate = kept
    # Q: 20, −10, 20, −10 of a size each: mean 5, mean |Q| 15
    assert met[0].item() == pytest.approx(3.0 * 0.7 - 5.0 / 15.0, abs=1e-6)
    met[0].backward()
    assert (moved.grad < 0).all(), "a larger action has a smaller loss"  # type: ignore[operator]


def test_the_actor_climbs_the_mean_of_the_critics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two members, 40 Σ a and −20 Σ a, where Σ a is 1 and −½: mean Q 2.5, mean |Q| 22.5; their minimum has −20."""
    algorithm = ReBrac(base(), ReBracConfig(**SMALL, actor_bc=3.0), seed=0)
    batch = ahead(windows(4), algorithm)
    moved = torch.tensor([[0.5] * algorithm.size, [-0.25] * algorithm.size] * 2)
    algorithm._moved = lambda batch: moved  # type: ignore[method-assign]
    algorithm.student.loss = lambda *_: torch.tensor(0.7)  # type: ignore[method-assign]
    met: list[torch.Tensor] = []
    algorithm.student.step = lambda loss: met.append(loss) or loss  # type: ignore[method-assign]
    scale = torch.tensor([40.0, -20.0])[:, None, None]
    monkeypatch.setattr("robolearn.rl.algorithms.rebrac.evaluate", lambda net, seen, actions: scale * actions.sum(-1))
    algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    assert met[0].item() == pytest.approx(3.0 * 0.7 - 2.5 / 22.5, abs=1e-6)


def test_a_gradient_of_the_values_reaches_the_policy() -> None:
    algorithm = ReBrac(base(), ReBracConfig(**SMALL, actor_bc=0.0), seed=0)
    before = [p.detach().clone() for p in algorithm.student.net.parameters()]
    critics = [p.detach().clone() for p in algorithm.critic.net.parameters()]
    batch = ahead(windows(8), algorithm)
    algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    assert any(not torch.equal(a, b) for a, b in zip(before, algorithm.student.net.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(critics, algorithm.critic.net.parameters(), strict=True))


def learned(config: ReBracConfig, updates: int) -> ReBrac:
    algorithm = ReBrac(base(horizon=1), config, seed=0)
    buffer = ReplayBuffer(INTERFACE, 1, 5000, plan=algorithm.plan)
    for episode in wandering(150, 0):
        buffer.add(episode)
    order = torch.Generator().manual_seed(0)
    for _ in range(updates):
        algorithm.update(buffer.sample(64, GAMMA, order))
    return algorithm


@pytest.mark.long
def test_it_goes_the_better_way_of_random_steps_unless_it_is_held_to_them() -> None:
    """Half of what was recorded went left."""
    free = learned(ReBracConfig(**LINE, actor_bc=0.1, critic_bc=0.0, imitate_lr=3e-3, imitate_average=0.98), 1200)
    held = learned(ReBracConfig(**LINE, actor_bc=1e4, critic_bc=0.0, imitate_lr=3e-3, imitate_average=0.98), 1200)
    many = {"proprio": EVERYWHERE["proprio"].repeat(40, 1).numpy()}
    assert (free.act(many, explore=False) > 0).mean() > 0.95
    assert 0.25 < (held.act(many, explore=False) > 0).mean() < 0.75
    _, q = optimal()
    features = free.policy.encode(EVERYWHERE)
    with torch.no_grad():
        right = free.critic.values(features, torch.full((5, 1, 1), 0.7)).mean(0)[:, 0]
    torch.testing.assert_close(right, torch.tensor(q[:, 1], dtype=torch.float32), atol=0.15, rtol=0.0)


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"actor_bc": -1.0}, {"critic_bc": -0.1}, {"cross_q": True}):
        with pytest.raises(BadInput):
            ReBracConfig(**wrong)  # type: ignore[arg-type]
