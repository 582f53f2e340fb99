"""On-policy updates: ratios of 1 before the first, nothing processed twice, bootstraps, and how far a policy moves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import robolearn.rl.algorithms.dppo
import robolearn.rl.algorithms.grpo
import robolearn.rl.algorithms.on_policy as on_policy
import robolearn.rl.algorithms.reinflow
import robolearn.rl.critic as baseline
import robolearn.rl.policy_step as policy_step
from robolearn.rl.actors import ChainStats, DenoisingActor
from robolearn.rl.returns import clipped_surrogate
from robolearn.rl.runner import Runner

Make = Callable[..., Any]
PAGES = {
    "reinflow": robolearn.rl.algorithms.reinflow,
    "dppo": robolearn.rl.algorithms.dppo,
    "grpo": robolearn.rl.algorithms.grpo,
}
both = pytest.mark.parametrize("noise", ["NOISE", "EVERYWHERE"])

# --- the errors of the public code -------------------------------------------------------------------------


@pytest.mark.long
@both
@pytest.mark.parametrize("kind", ["rectified", "shortcut", "diffusion"])
@pytest.mark.parametrize("algo", PAGES)
def test_every_ratio_is_1_before_the_first_update(
    make_policy: Make, point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, algo: str, kind: str, noise: str
):
    """One ratio per chunk, or of each noised denoising step; x_0 smaller than 1 or not."""
    world = point(8, limit=8)
    shape = {"family": "diffusion", "prediction": "sample"} if kind == "diffusion" else {"kind": kind}
    wide = replace(getattr(kit, noise), sigma_min=0.3, sigma_max=0.6)  # or all episodes of a group go alike
    for steps in (1, 3):
        policy = make_policy(world.interface, gain=3.0, horizon=2, execute=2, steps=steps, **shape)
        settings = {"epochs": 2, "minibatch": 1000, "target_kl": 1e9, "actor_lr": 2e-3, "noise": wide, "threads": 2}
        made = kit.runner(world, policy, algo, **settings)
        seen: list[torch.Tensor] = []

        def watched(r: torch.Tensor, *rest: Any, seen: list[torch.Tensor] = seen) -> torch.Tensor:
            seen.append(r.detach().clone())
            return clipped_surrogate(r, *rest)

        monkeypatch.setattr(PAGES[algo], "clipped_surrogate", watched)
        rows = made.iterate(0)
        shares = made.config.threads
        assert len(seen) == 2 * shares, rows  # one step an epoch
        noised = steps if noise == "EVERYWHERE" else 1
        assert all(ratio.shape[1:] == ((noised,) if algo == "dppo" else ()) for ratio in seen)
        if algo != "grpo":
            assert sum(map(len, seen[:shares])) == 5 * 8
        assert all(ratio.abs().max() < 1e-4 for ratio in seen[:shares])
        assert max(ratio.abs().max() for ratio in seen[shares:]) > 1e-3  # and it moves once the weights have


@both
def test_nothing_is_processed_twice(point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, noise: str):
    # 40 = 16 + 16 + 8
    settings = {"epochs": 3, "critic_epochs": 2, "minibatch": 16, "target_kl": 1e9, "threads": 2}
    made = kit.runner(point(8), noise=getattr(kit, noise), **settings)
    learned: list[torch.Tensor] = []
    criticised: list[int] = []
    once = DenoisingActor.evaluate

    def counting(self: DenoisingActor, observation: Any, chain: torch.Tensor) -> ChainStats:
        if torch.is_grad_enabled():
            learned.append(chain.clone())
        return once(self, observation, chain)

    monkeypatch.setattr(DenoisingActor, "evaluate", counting)
    made.algorithm.critic.register_forward_hook(
        lambda m, i, out: criticised.append(len(out)) if torch.is_grad_enabled() else None
    )
    made.iterate(0)
    assert (sum(map(len, learned)), sum(criticised)) == (5 * 8 * 3, 5 * 8 * 2)
    shares = made.config.threads
    assert (len(learned), len(criticised)) == (3 * 3 * shares, 2 * 3 * shares)
    assert all(chain.shape[1] == (2 if noise == "NOISE" else 5) for chain in learned)
    # Every chain three times, once in an epoch.
    rows = torch.cat(learned).flatten(1)
    assert torch.unique(rows, dim=0, return_counts=True)[1].tolist() == [3] * 40
    assert torch.unique(rows[:40], dim=0).shape[0] == 40
    assert made.env_steps == made.env.executed <= 5 * 8 * 2


@pytest.mark.parametrize("together", [False, True], ids=["may-rest", "together"])
@pytest.mark.parametrize("time_limit", ["finite", "infinite"])
def test_the_advantages_bootstrap_from_final_observations(
    point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, time_limit: str, together: bool
):
    """With a critic whose network answers the elapsed share: 0 only at a start, so a reset observation would show."""
    seen: list[tuple[torch.Tensor, ...]] = []
    gae = baseline.gae
    monkeypatch.setattr(baseline, "gae", lambda *args, **rest: (seen.append(args[:5]), gae(*args, **rest))[1])
    made = kit.runner(point(16, together=together), time_limit=time_limit)

    class Elapsed(torch.nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return features[:, 1:2]  # position, elapsed share, time

    monkeypatch.setattr(made.algorithm.critic, "net", Elapsed())
    monkeypatch.setattr(made.algorithm.baseline, "fit", lambda batch, target: {})
    made.iterate(0)
    _, value, after, terminated, ended = seen[0]
    truncated = ended & ~terminated
    assert truncated.any() and terminated.any() and not ended.all()
    # Where nothing counts after the time limit, nothing is left of the value there; else it looks beyond.
    assert (after[truncated] == (0.0 if time_limit == "finite" else 1.0)).all()
    going = ~ended if time_limit == "finite" else torch.ones_like(ended)
    assert (after[going] > value[going]).all()
    assert (value[1:][ended[:-1]] == 0.0).all()


def test_the_critic_s_value_is_0_when_the_time_is_up_and_depends_on_it(point: Make, kit: Any):
    made = kit.runner(point(8))
    torch.nn.init.normal_(made.algorithm.critic.net[-1].weight)
    torch.nn.init.constant_(made.algorithm.critic.net[-1].bias, 3.0)
    seen = {"proprio": torch.zeros(3, 2)}
    none, half, whole = made.algorithm.baseline.values(seen, torch.tensor([0.0, 0.5, 1.0])).tolist()
    assert none == 0.0 and abs(half) > 0.1 and abs(half - whole) > 1e-3
    endless = kit.runner(point(8), time_limit="infinite").algorithm
    torch.nn.init.normal_(endless.critic.net[-1].weight)
    values = endless.baseline.values(seen, torch.tensor([0.0, 0.5, 1.0]))
    assert values[0] != 0 and torch.allclose(values, values[:1])


# --- the terms of the loss ---------------------------------------------------------------------------------


@pytest.mark.long
def test_the_critic_is_fitted_on_what_was_seen_not_on_what_came_next(point: Make, kit: Any):
    made = kit.runner(point(32), critic_epochs=60, critic_lr=3e-3)
    batches: list[Any] = []
    update = made.algorithm.update
    made.algorithm.update = lambda batch, *rest: batches.append(batch) or update(batch, *rest)
    kit.run(made, 0, 1)
    noise = torch.Generator().manual_seed(0)
    after = {key: torch.randn(value.shape, generator=noise) for key, value in batches[0].observation.items()}
    one = torch.ones(len(batches[0]))
    batch = replace(batches[0], next_observation=after, time_remaining=one, next_time_remaining=one)
    target = 2.0 * batch.observation["proprio"][..., 0].reshape(len(batch))
    made.algorithm.baseline.fit(batch, target)
    found = made.algorithm.baseline.values(batch.observation, one)
    assert torch.corrcoef(torch.stack([found, target]))[0, 1] > 0.95


@pytest.mark.long
@pytest.mark.parametrize("regulariser", ["kl", "w2"])
def test_the_distance_to_the_demonstrations_begins_at_0_and_is_held(point: Make, kit: Any, regulariser: str):
    free, held = (
        kit.runner(point(8), regulariser=regulariser, regularisation=weight, actor_lr=2e-3, target_kl=1e9)
        for weight in (0.0, 100.0)
    )
    first = kit.runner(point(8), regulariser=regulariser, epochs=1, minibatch=40).iterate(0)
    assert first["distance_to_bc"] == pytest.approx(0.0, abs=1e-9)
    loose, tight = (kit.run(made, 0, 5)[-1]["distance_to_bc"] for made in (free, held))
    assert loose > 2 * tight > 0


@pytest.mark.long
def test_the_entropy_term_raises_the_noise(point: Make, kit: Any):
    entropies = []
    for weight in (0.0, 1.0):
        made = kit.runner(point(8), entropy=weight, actor_lr=2e-3, target_kl=1e9, epochs=10)
        first, *_, last = kit.run(made, 0, 4)
        entropies.append(last["entropy"] - first["entropy"])
    assert entropies[1] > max(entropies[0], 0.0) + 0.1


def test_a_gradient_is_no_longer_than_allowed(point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch):
    made = kit.runner(point(8), max_grad_norm=1e-3, epochs=1)
    norms: dict[str, list[float]] = {"actor": [], "critic": []}
    for name, optimizer in (
        ("actor", made.algorithm.policy_step.optimizer),
        ("critic", made.algorithm.baseline.optimizer),
    ):
        step = optimizer.adam.step

        def measured(name: str = name, optimizer: Any = optimizer, step: Any = step) -> None:
            grads = [p.grad.flatten() for p in optimizer.parameters if p.grad is not None]
            norms[name].append(torch.cat(grads).norm().item())
            step()

        monkeypatch.setattr(optimizer.adam, "step", measured)
    made.iterate(0)
    for found in norms.values():
        assert found and max(found) <= 1e-3 * 1.001 and max(found) > 0.9e-3


def test_the_critic_learns_alone_at_first(point: Make, kit: Any):
    made = kit.runner(point(8), critic_warmup=2)
    flow, critic = copy.deepcopy(made.algorithm.net.state_dict()), copy.deepcopy(made.algorithm.critic.state_dict())
    kit.run(made, 0, 2)
    assert all(torch.equal(flow[key], value) for key, value in made.algorithm.net.state_dict().items())
    assert any(not torch.equal(critic[key], value) for key, value in made.algorithm.critic.state_dict().items())
    made.iterate(2)
    assert any(not torch.equal(flow[key], value) for key, value in made.algorithm.net.state_dict().items())


# --- how far an iteration goes -----------------------------------------------------------------------------


def count_actor_steps(made: Runner, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """What every following actor step returns."""
    seen: list[dict[str, float]] = []
    optimizer = made.algorithm.policy_step.optimizer  # type: ignore[attr-defined]
    once = optimizer.step

    def watched(*args: Any) -> dict[str, float]:
        seen.append(once(*args))
        return seen[-1]

    monkeypatch.setattr(optimizer, "step", watched)
    return seen


def pretend(monkeypatch: pytest.MonkeyPatch, kl: float) -> None:
    """Every divergence is `kl`."""
    monkeypatch.setattr(on_policy, "kl_nats", lambda old, new: torch.full((len(new.mean),), kl))


@pytest.mark.parametrize(("kl", "steps"), [(0.0, 8), (3.99 * 0.02, 8), (4.01 * 0.02, 1)])
def test_the_epochs_end_at_4_times_the_target(
    point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, kl: float, steps: int
):
    pretend(monkeypatch, kl)
    made = kit.runner(point(8), target_kl=0.02, epochs=4, minibatch=20)
    seen = count_actor_steps(made, monkeypatch)
    made.iterate(0)
    assert len(seen) == steps


def test_the_actor_stops_for_a_real_kl(point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch):
    counts = []
    for target in (1e-9, 1e9):
        made = kit.runner(point(8), target_kl=target, epochs=4, minibatch=20)
        seen = count_actor_steps(made, monkeypatch)
        made.iterate(0)
        counts.append(len(seen))
    assert counts[1] == 8 and counts[0] <= 2


def test_metrics_are_means_over_the_steps_that_there_were(point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch):
    made = kit.runner(point(8), target_kl=1e-9, epochs=4, minibatch=20, regulariser="w2")
    seen = count_actor_steps(made, monkeypatch)
    row = made.iterate(0)
    assert 0 < len(seen) < 8
    for key in ("policy_loss", "entropy", "distance_to_bc"):
        assert row[key] == pytest.approx(sum(step[key] for step in seen) / len(seen))


@both
@pytest.mark.parametrize("target_kl", [1e-9, 1e9], ids=["stopped", "all-epochs"])
def test_the_kl_is_that_of_the_whole_batch_after_the_epochs(point: Make, kit: Any, target_kl: float, noise: str):
    made = kit.runner(point(8), target_kl=target_kl, actor_lr=2e-3, epochs=4, minibatch=20, noise=getattr(kit, noise))
    algorithm, found = made.algorithm, []
    improve = algorithm._improve

    def watched(batch: Any, *rest: Any) -> dict[str, float]:
        seen, chain = algorithm._normalise(batch.observation), batch.aux["chain"]
        with torch.no_grad():
            found.append(algorithm.actor.evaluate(seen, chain))
            row = improve(batch, *rest)
            found.append(algorithm.actor.evaluate(seen, chain))
        return row

    def with_gradients(*args: Any) -> dict[str, float]:
        with torch.enable_grad():
            return improve_(*args)

    improve_, improve = improve, with_gradients
    algorithm._improve = watched
    row = made.iterate(0)
    old, new = found
    normals = [torch.distributions.Normal(stats.mean, stats.log_sigma.exp()) for stats in found]
    nats = torch.distributions.kl_divergence(*normals).sum((1, 2))  # the old policy first
    assert len(nats) == 5 * 8 and nats.max() > 0
    assert row["kl"] == pytest.approx(nats.mean().item(), rel=1e-3, abs=1e-8)
    terms = old.mean[0].numel()
    moved = (new.log_prob - old.log_prob).sum(1) / terms**0.5
    assert row["clip_fraction"] == pytest.approx(((moved.exp() - 1).abs() > 0.1).float().mean().item())


@pytest.mark.parametrize(
    ("before", "kl", "after"),
    [
        (3e-4, 0.0, 4.5e-4),  # too timid: faster
        (3e-4, 0.0099, 4.5e-4),
        (3e-4, 0.0101, 3e-4),  # between half and double: as it is
        (3e-4, 0.0199, 3e-4),
        (3e-4, 0.0399, 3e-4),
        (3e-4, 0.0401, 2e-4),  # too bold: slower
        (3e-4, 50.0, 2e-4),
        (1.2e-5, 1.0, 1e-5),  # never below
        (1e-5, 1.0, 1e-5),
        (1.8e-3, 0.0, 2e-3),  # nor above
        (2e-3, 0.0, 2e-3),
    ],
)
def test_the_rule_of_the_step_size_by_hand(
    point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, before: float, kl: float, after: float
):
    monkeypatch.setattr(policy_step, "LR_RANGE", (1e-5, 2e-3))
    algorithm = kit.runner(point(2), actor_lr=before).algorithm
    algorithm.policy_step._adapt(kl, 0.02)
    assert algorithm.policy_step.lr == pytest.approx(after)
    assert [group["lr"] for group in algorithm.baseline.optimizer.adam.param_groups] == [1e-3]


@pytest.mark.long
@pytest.mark.parametrize(("kl", "factor"), [(3 * 0.02, 1 / 1.5), (0.02, 1.0), (0.1 * 0.02, 1.5)])
def test_every_iteration_of_the_actor_adapts_the_step_size_once(
    point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, kl: float, factor: float
):
    pretend(monkeypatch, kl)
    made = kit.runner(point(8), target_kl=0.02, actor_lr=3e-4, critic_warmup=2, env_steps=100 * 80)
    rows = kit.run(made, 0, 5)
    assert all("actor_lr" not in row and "kl" not in row for row in rows[:2])  # the critic alone
    assert [row["actor_lr"] for row in rows[2:]] == pytest.approx([3e-4, 3e-4 * factor, 3e-4 * factor**2])


@pytest.mark.long
@both
@pytest.mark.parametrize("actor_lr", [1e-5, 2e-3], ids=["from-below", "from-above"])
def test_the_kl_comes_to_its_target_from_any_step_size(point: Make, kit: Any, actor_lr: float, noise: str):
    target = 0.016
    settings: dict[str, Any] = {"minibatch": 80, "env_steps": 30 * 320, "noise": getattr(kit, noise)}
    made = kit.runner(point(32), actor_lr=actor_lr, target_kl=target, **settings)
    rows = kit.run(made, 0, 24)
    target *= len(made.algorithm.actor.noised)  # it is that of one step
    first, last = rows[0]["kl"], float(np.median([row["kl"] for row in rows[-8:]]))
    assert first < target / 4 if actor_lr == 1e-5 else rows[0]["step_kept"] < 1
    assert all(row["kl"] <= 4 * target for row in rows)
    assert target / 4 < last < 2 * target
