"""The trainer: ratios of 1 before the first update, nothing processed twice, budgets, exact continuation, learning."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import robolearn.rl.reinflow as module
import torch
from robolearn.rl.noise import NoiseConfig
from robolearn.rl.reinflow import ReinFlowConfig, ReinFlowTrainer
from robolearn.rl.stochastic_flow import ChainStats, StochasticFlow

from policies.checkpoint import load_policy
from policies.diffusion import DiffusionPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import DiffusionConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite
from robolearn.eval import evaluate

WIDE = NoiseConfig(sigma_min=0.3, sigma_max=0.6)
NOISE = NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps="last", hold=0.35)
TRIED = len(module.CANDIDATES) + len(module.STARTS)  # by calibration
EVERYWHERE = replace(NOISE, steps="all")
CALIBRATED = NoiseConfig(sigma_max=0.0, steps="last", min_share=0.5, hold=0.35)
SETTINGS: dict[str, Any] = {
    "env_steps": 2000,
    "decisions": 5,
    "gamma": 0.99,
    "lam": 0.9,
    "actor_lr": 5e-4,
    "critic_lr": 1e-3,
    "epochs": 3,
    "critic_epochs": 2,
    "minibatch": 16,
    "clip": 0.1,
    "target_kl": 0.02,
    "entropy": 0.0,
    "regulariser": "none",
    "regularisation": 0.0,
    "critic_warmup": 0,
    "max_grad_norm": 1.0,
    "average": 0.8,
    "noise": NOISE,
}  # all of them: the tests do not move with the defaults
Make = Callable[..., Any]


def trainer(make_policy: Make, world: Any, policy: ChunkPolicy | None = None, **settings: Any) -> ReinFlowTrainer:
    shape = {"horizon": 2, "execute": 2, "gain": 20.0}
    return ReinFlowTrainer(
        policy or make_policy(world.interface, **shape), world, ReinFlowConfig(**(SETTINGS | settings))
    )


def run(made: ReinFlowTrainer, first: int, last: int) -> list[dict[str, float]]:
    rows = [made.iterate(i) for i in range(first, last)]
    return [{key: value for key, value in row.items() if not key.startswith("wall")} for row in rows]


def tensors(made: ReinFlowTrainer) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in made.state()[0].items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [key for key in a if not torch.equal(a[key], b[key])]
    assert not different


# --- the errors of the public code -------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [NOISE, EVERYWHERE], ids=["last", "all"])
@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_every_ratio_is_1_before_the_first_update(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch, kind: str, steps: int, noise: NoiseConfig
):
    world = point(8)
    policy = make_policy(world.interface, gain=20.0, horizon=2, execute=2, kind=kind, steps=steps)
    made = trainer(make_policy, world, policy, epochs=2, minibatch=40, target_kl=1e9, noise=noise)
    seen: list[torch.Tensor] = []
    surrogate = module.clipped_surrogate
    monkeypatch.setattr(
        module, "clipped_surrogate", lambda r, a, c: (seen.append(r.detach().clone()), surrogate(r, a, c))[1]
    )
    made.iterate(0)
    shares = made.config.threads
    assert [len(ratio) for ratio in seen] == [40 // shares] * (2 * shares)
    assert all(ratio.abs().max() < 1e-4 for ratio in seen[:shares])
    assert max(ratio.abs().max() for ratio in seen[shares:]) > 1e-3  # and it moves once the weights have


@pytest.mark.parametrize("noise", [NOISE, EVERYWHERE], ids=["last", "all"])
def test_nothing_is_processed_twice(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch, noise: NoiseConfig
):
    # 40 = 16 + 16 + 8
    made = trainer(make_policy, point(8), epochs=3, critic_epochs=2, minibatch=16, target_kl=1e9, noise=noise)
    learned: list[torch.Tensor] = []
    criticised: list[int] = []
    once = StochasticFlow.evaluate

    def counting(self: StochasticFlow, observation: Any, chain: torch.Tensor) -> ChainStats:
        if torch.is_grad_enabled():
            learned.append(chain.clone())
        return once(self, observation, chain)

    monkeypatch.setattr(StochasticFlow, "evaluate", counting)
    made.critic.register_forward_hook(
        lambda m, i, out: criticised.append(len(out)) if torch.is_grad_enabled() else None
    )
    before = made.env.executed  # type: ignore[attr-defined]
    made.iterate(0)
    assert (sum(map(len, learned)), sum(criticised)) == (5 * 8 * 3, 5 * 8 * 2)
    shares = made.config.threads
    assert (len(learned), len(criticised)) == (3 * 3 * shares, 2 * 3 * shares)
    assert all(chain.shape[1] == (2 if noise is NOISE else 5) for chain in learned)
    # Every chain three times, once in an epoch.
    rows = torch.cat(learned).flatten(1)
    assert torch.unique(rows, dim=0, return_counts=True)[1].tolist() == [3] * 40
    assert torch.unique(rows[:40], dim=0).shape[0] == 40
    assert made.env_steps == made.env.executed - before <= 5 * 8 * 2  # type: ignore[attr-defined]


def test_the_advantages_bootstrap_from_final_observations(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch
):
    """With V(o) = elapsed share of the episode: 0 only at a start, so a reset observation would show."""
    seen: list[tuple[torch.Tensor, ...]] = []
    gae = module.gae
    monkeypatch.setattr(ReinFlowTrainer, "_values", lambda self, observation, left: observation["proprio"][:, 1])
    monkeypatch.setattr(module, "gae", lambda *args: (seen.append(args[:5]), gae(*args))[1])
    made = trainer(make_policy, point(16))
    made.iterate(0)
    _, value, after, terminated, ended = seen[0]
    truncated = ended & ~terminated
    assert truncated.any() and terminated.any()
    assert (after > value).all()
    assert (after[truncated] == 1.0).all()
    assert (value[1:][ended[:-1]] == 0.0).all()


@pytest.mark.parametrize("regulariser", ["kl", "w2"])
def test_the_distance_to_the_demonstrations_begins_at_0_and_is_held(make_policy: Make, point: Make, regulariser: str):
    free, held = (
        trainer(make_policy, point(8), regulariser=regulariser, regularisation=weight, actor_lr=2e-3, target_kl=1e9)
        for weight in (0.0, 100.0)
    )
    first = trainer(make_policy, point(8), regulariser=regulariser, epochs=1, minibatch=40).iterate(0)
    assert first["distance_to_bc"] == pytest.approx(0.0, abs=1e-9)
    loose, tight = (run(made, 0, 5)[-1]["distance_to_bc"] for made in (free, held))
    assert loose > 2 * tight > 0


def test_the_schedules_are_functions_of_the_iteration_alone(make_policy: Make, point: Make, tmp_path: Path):
    quiet, asked = (trainer(make_policy, point(8)) for _ in range(2))
    for i in range(4):
        quiet.iterate(i)
        asked.iterate(i)
        asked.state()
        asked.export(tmp_path / str(i))
        asked.actor.evaluate({"proprio": torch.zeros(2, 2)}, torch.zeros(2, 2, 2))
    assert_same(tensors(quiet), tensors(asked))
    # target = t (1/2 + (1 + cos π i/n)/4), here a quarter of the way
    made = trainer(make_policy, point(8), env_steps=8 * 80, target_kl=0.04)
    assert made.iterations == 8
    made._begin()
    asked_for: list[float | None] = []
    learn = made._learn
    made._learn = lambda rollout, target: (asked_for.append(target), learn(rollout, target))[1]  # type: ignore
    made.iterate(2)
    assert asked_for == [pytest.approx(0.02 + 0.01 * (1 + np.cos(np.pi / 4)))]
    for _ in range(2):
        assert [made._target_kl(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([0.04, 0.03, 0.02])
    assert all(group["lr"] == 1e-3 for group in made.critic_optimizer.param_groups)


# --- the rest of the algorithm -----------------------------------------------------------------------------


def test_the_critic_learns_alone_at_first(make_policy: Make, point: Make):
    made = trainer(make_policy, point(8), critic_warmup=2)
    flow, critic = copy.deepcopy(made.net.state_dict()), copy.deepcopy(made.critic.state_dict())
    run(made, 0, 2)
    assert all(torch.equal(flow[key], value) for key, value in made.net.state_dict().items())
    assert any(not torch.equal(critic[key], value) for key, value in made.critic.state_dict().items())
    made.iterate(2)
    assert any(not torch.equal(flow[key], value) for key, value in made.net.state_dict().items())


def count_actor_steps(made: ReinFlowTrainer, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """What every following actor step returns."""
    seen: list[dict[str, float]] = []
    once = made._actor_step

    def watched(*args: Any) -> dict[str, float]:
        seen.append(once(*args))
        return seen[-1]

    monkeypatch.setattr(made, "_actor_step", watched)
    return seen


@pytest.mark.parametrize(("kl", "steps"), [(0.0, 8), (3.99 * 0.02, 8), (4.01 * 0.02, 1)])
def test_the_epochs_end_at_4_times_the_target(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch, kl: float, steps: int
):
    monkeypatch.setattr(module, "approximate_kl", lambda log_ratio: torch.tensor(kl))
    made = trainer(make_policy, point(8), target_kl=0.02, epochs=4, minibatch=20)
    seen = count_actor_steps(made, monkeypatch)
    made.iterate(0)
    assert len(seen) == steps


def test_the_actor_stops_for_a_real_kl(make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch):
    counts = []
    for target in (1e-9, 1e9):
        made = trainer(make_policy, point(8), target_kl=target, epochs=4, minibatch=20)
        seen = count_actor_steps(made, monkeypatch)
        made.iterate(0)
        counts.append(len(seen))
    assert counts[1] == 8 and counts[0] <= 2


def test_metrics_are_means_over_the_steps_that_there_were(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch
):
    made = trainer(make_policy, point(8), target_kl=1e-9, epochs=4, minibatch=20, regulariser="w2")
    seen = count_actor_steps(made, monkeypatch)
    row = made.iterate(0)
    assert 0 < len(seen) < 8
    for key in ("policy_loss", "entropy", "distance_to_bc"):
        assert row[key] == pytest.approx(sum(step[key] for step in seen) / len(seen))


@pytest.mark.parametrize("target_kl", [1e-9, 1e9], ids=["stopped", "all-epochs"])
def test_the_kl_is_that_of_the_whole_batch_after_the_epochs(make_policy: Make, point: Make, target_kl: float):
    made = trainer(make_policy, point(8), target_kl=target_kl, actor_lr=2e-3, epochs=4, minibatch=20)
    learn = made._learn
    log_prob: list[torch.Tensor] = []

    def watched(rollout: Any, target: float | None) -> dict[str, float]:
        observation = made.policy.normalizer.observation(rollout.observation)
        log_prob.append(made.actor.evaluate(observation, rollout.chain).log_prob.detach())
        row = learn(rollout, target)
        log_prob.append(made.actor.evaluate(observation, rollout.chain).log_prob.detach())
        return row

    made._learn = watched  # type: ignore[method-assign]
    row = made.iterate(0)
    moved = log_prob[1] - log_prob[0]
    assert len(moved) == 5 * 8 and moved.abs().max() > 0
    assert row["kl"] == pytest.approx((moved.exp() - 1 - moved).mean().item(), rel=1e-4, abs=1e-8)
    assert row["clip_fraction"] == pytest.approx(((moved.exp() - 1).abs() > 0.1).float().mean().item())


# --- the step size follows the KL divergence ---------------------------------------------------------------


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
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch, before: float, kl: float, after: float
):
    monkeypatch.setattr(module, "LR_RANGE", (1e-5, 2e-3))
    made = trainer(make_policy, point(2), actor_lr=before)
    made._adapt_lr(kl, 0.02)
    assert [group["lr"] for group in made.actor_optimizer.param_groups] == [pytest.approx(after)]
    assert [group["lr"] for group in made.critic_optimizer.param_groups] == [1e-3]


@pytest.mark.parametrize(("kl", "factor"), [(3 * 0.02, 1 / 1.5), (0.02, 1.0), (0.1 * 0.02, 1.5)])
def test_every_iteration_of_the_actor_adapts_the_step_size_once(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch, kl: float, factor: float
):
    monkeypatch.setattr(module, "approximate_kl", lambda log_ratio: torch.tensor(kl))
    made = trainer(make_policy, point(8), target_kl=0.02, actor_lr=3e-4, critic_warmup=2, env_steps=100 * 80)
    rows = run(made, 0, 5)
    assert all("actor_lr" not in row and "kl" not in row for row in rows[:2])  # the critic alone
    assert [row["actor_lr"] for row in rows[2:]] == pytest.approx([3e-4, 3e-4 * factor, 3e-4 * factor**2])


@pytest.mark.parametrize("noise", [NOISE, EVERYWHERE], ids=["last", "all"])
@pytest.mark.parametrize("actor_lr", [1e-5, 2e-3], ids=["from-below", "from-above"])
def test_the_kl_comes_to_its_target_from_any_step_size(
    make_policy: Make, point: Make, actor_lr: float, noise: NoiseConfig
):
    target = 8e-3
    made = trainer(
        make_policy, point(32), actor_lr=actor_lr, target_kl=target, minibatch=80, env_steps=30 * 320, noise=noise
    )
    rows = run(made, 0, 24)
    first, last = rows[0]["kl"], float(np.median([row["kl"] for row in rows[-8:]]))
    assert first < target / 4 if actor_lr == 1e-5 else rows[0]["step_kept"] < 1
    assert all(row["kl"] <= 4 * target for row in rows)
    assert target / 4 < last < 2 * target


def test_what_is_exported_is_the_average(make_policy: Make, point: Make, tmp_path: Path):
    made = trainer(make_policy, point(8), actor_lr=1e-2)
    run(made, 0, 3)
    made.export(tmp_path / "policy")
    policy = load_policy(tmp_path / "policy")
    for key, value in policy.net.state_dict().items():
        assert torch.equal(value, made.average.module.state_dict()[key])
    name = "field.mlp.last.bias"
    assert not torch.equal(policy.net.state_dict()[name], made.net.state_dict()[name])
    last = trainer(make_policy, point(8), actor_lr=1e-2, average=0.0)
    run(last, 0, 2)
    assert torch.equal(last.average.module.state_dict()[name], last.net.state_dict()[name])


def test_cameras_by_the_same_code(make_policy: Make, point: Make):
    world = point(4, pixels=True)
    made = trainer(make_policy, world, env_steps=200)
    before = copy.deepcopy(made.net.encoder.state_dict())
    rows = run(made, 0, 2)
    assert all(np.isfinite(row["policy_loss"]) for row in rows)
    assert any(not torch.equal(before[key], value) for key, value in made.net.encoder.state_dict().items())


# --- budgets and bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_steps", [1500, 1999])
@pytest.mark.parametrize("noise", [NOISE, CALIBRATED], ids=["given", "calibrated"])
def test_the_budget_is_kept(make_policy: Make, point: Make, env_steps: int, noise: NoiseConfig):
    world = point(8)
    made = trainer(make_policy, world, env_steps=env_steps, noise=noise)
    rows = run(made, 0, made.iterations)
    assert made.env_steps == world.executed == rows[-1]["env_steps"] <= env_steps
    assert (made.calibration is not None) == (noise.sigma_max == 0)
    most = made.iterations * 5 * 8 * 2 + (TRIED * 8 * 4 if made.calibration else 0)
    assert most <= env_steps < most + 80  # and not one iteration is given away


@pytest.mark.parametrize(("noise", "least"), [(NOISE, 3 * 80), (CALIBRATED, 3 * 80 + TRIED * 8 * 4)])
def test_a_budget_too_small_says_which_would_do(make_policy: Make, point: Make, noise: NoiseConfig, least: int):
    with pytest.raises(BadInput, match=f"got {least - 1}, expected at least {least}"):
        trainer(make_policy, point(8), env_steps=least - 1, noise=noise, critic_warmup=2)
    assert trainer(make_policy, point(8), env_steps=least, noise=noise, critic_warmup=2).iterations == 3


def test_bad_input(make_policy: Make, point: Make):
    world = point(2)
    net = DiffusionPolicy(DiffusionConfig(network=NetworkConfig(width=8, depth=1)), world.interface)
    with pytest.raises(BadInput, match="got DiffusionPolicy, expected a flow policy"):
        trainer(make_policy, world, ChunkPolicy(net, Normalizer(world.interface), world.interface))
    for interface in (
        Interface(world.interface.observation, ArraySpec((2,)), control_hz=10.0),
        Interface(world.interface.observation, ArraySpec((1,)), control_hz=20.0),
        Interface({"proprio": ArraySpec((3,))}, ArraySpec((1,)), control_hz=10.0),
        Interface({"objects": ArraySpec((2,))}, ArraySpec((1,)), control_hz=10.0),
    ):
        with pytest.raises(BadInput, match="policy in point"):
            trainer(make_policy, world, make_policy(interface))
    with pytest.raises(BadInput, match="got To = 2, expected To = 1"):
        trainer(make_policy, world, make_policy(world.interface, observe=2, execute=1))
    with pytest.raises(BadInput, match="got 1, expected at least 2"):
        trainer(make_policy, point(1), decisions=1)
    for wrong in (
        {"decisions": 0},
        {"epochs": 0},
        {"critic_epochs": 0},
        {"target_kl": 0.0},
        {"minibatch": 1},
        {"regulariser": "l2"},
        {"actor_lr": 0.0},
        {"actor_lr": float("nan")},
        {"gamma": 1.5},
        {"lam": -0.1},
        {"entropy": float("inf")},
        {"regularisation": -1.0},
        {"clip": 0.0},
        {"seed": -1},
    ):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            ReinFlowConfig(**wrong)
    with pytest.raises(BadInput, match="range of the noise"):
        trainer(make_policy, world, noise=NoiseConfig(sigma_min=-0.1, sigma_max=-0.2))


def test_a_gradient_that_is_none_stops_the_run(make_policy: Make, point: Make):
    made = trainer(make_policy, point(8), actor_lr=1e20, target_kl=1e9)
    with pytest.raises(NonFinite, match="smaller --actor-lr"):
        run(made, 0, 4)


# --- continuation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgetful", [False, True], ids=["snapshot", "no-snapshot"])
@pytest.mark.parametrize("noise", [NOISE, CALIBRATED], ids=["given", "calibrated"])
def test_a_resumed_trainer_goes_on_bit_for_bit(make_policy: Make, point: Make, forgetful: bool, noise: NoiseConfig):
    settings = {"noise": noise, "regulariser": "kl", "regularisation": 0.1, "critic_warmup": 1, "target_kl": 1.0}
    whole = trainer(make_policy, point(8, forgetful=forgetful), **settings)
    run(whole, 0, 3)
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    lr = whole.actor_optimizer.param_groups[0]["lr"]
    assert lr == pytest.approx(5e-4 * 1.5**2)  # it has moved, so a resumed trainer must know it
    expected = run(whole, 3, 6)
    again = trainer(make_policy, point(8, forgetful=forgetful), **settings)
    again.load_state(state, meta)
    assert again.actor_optimizer.param_groups[0]["lr"] == lr
    np.testing.assert_equal(run(again, 3, 6), expected)
    assert_same(tensors(whole), tensors(again))
    assert again.calibration == whole.calibration


def test_worlds_that_cannot_tell_their_state_have_time_for_two_episodes(make_policy: Make, point: Make):
    tells, forgets = (
        trainer(make_policy, point(8, limit=100, forgetful=forgetful), decisions=15) for forgetful in (False, True)
    )
    assert tells.iterations_between_states(5) == 5
    assert forgets.iterations_between_states(5) == 7  # 200 steps, 15 decisions of 2 each
    assert forgets.iterations_between_states(20) == 20


def test_a_state_forgets_the_returns_of_episodes_that_it_ends(make_policy: Make, point: Make):
    made = trainer(make_policy, point(8, forgetful=True))
    made.iterate(0)
    made.scale._running[:] = 3.0
    made.running.elapsed[:], made.running.solved[:] = 3, True
    tensors, _ = made.state()
    assert tensors["scale"][3:].tolist() == [0.0] * 8
    assert not made.scale._running.any() and not made.running.elapsed.any() and not made.running.solved.any()


def test_a_resumed_trainer_goes_on_bit_for_bit_in_the_real_world(make_policy: Make):
    from sim.registry import make_env

    def begin() -> ReinFlowTrainer:
        world = make_env("lift", 4, threads=1, reward="dense")
        return trainer(make_policy, world, make_policy(world.interface), decisions=7, env_steps=1000)

    whole, quiet, again = begin(), begin(), begin()
    run(whole, 0, 4)  # 112 steps: over the end of the first episodes
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    expected = run(whole, 4, 6)
    again.load_state(state, meta)
    np.testing.assert_equal(run(again, 4, 6), expected)
    run(quiet, 0, 6)
    final = tensors(whole)
    assert_same(final, tensors(again))
    assert_same(final, tensors(quiet))  # asking for the state changes nothing
    assert not torch.equal(final["actor/flow.field.mlp.last.bias"], final["actor/reference.field.mlp.last.bias"])


# --- learning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "noise", "env_steps"),
    [
        # A policy that knows nothing yet wants more noise than one that would lose its skill by it.
        ("rectified", WIDE, 48_000),
        ("shortcut", WIDE, 48_000),
        ("rectified", replace(WIDE, steps="all"), 30_000),
    ],
    ids=["rectified-last", "shortcut-last", "rectified-all"],
)
def test_it_learns(make_policy: Make, point: Make, kind: str, noise: NoiseConfig, env_steps: int):
    torch.set_num_threads(1)
    world = point(128)
    policy = make_policy(world.interface, width=64, kind=kind, steps=2, horizon=1, execute=1)
    before = evaluate(point(100), policy, 400, seed=1).success
    made = trainer(
        make_policy,
        world,
        policy,
        env_steps=env_steps,
        decisions=8,
        minibatch=256,
        actor_lr=1e-3,
        clip=0.2,
        target_kl=0.04,
        epochs=4,
        critic_epochs=2,
        critic_warmup=1,
        noise=noise,
    )
    run(made, 0, made.iterations)
    tuned = ChunkPolicy(made.average.module, policy.normalizer, policy.interface)
    after = evaluate(point(100), tuned, 400, seed=1).success
    assert before.high < 0.5
    assert after.low > 0.9
