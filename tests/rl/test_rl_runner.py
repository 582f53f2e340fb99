"""The runner: budgets, schedules, what is exported, what is refused; and a policy that learns."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.kinds.regression import RegressionPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import RegressionConfig
from policies.storage.checkpoint import load_policy
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite
from robolearn.eval import evaluate
from robolearn.rl.algorithms import OnPolicyConfig, algorithms
from robolearn.rl.calibrate import CANDIDATES, INITIAL
from robolearn.rl.runner import Runner
from robolearn.rl.settings import NoiseConfig

Make = Callable[..., Any]
ALGOS = tuple(algorithms(OnPolicyConfig))
AT_ONCE = tuple(algo for algo in ALGOS if algo != "srpo")  # which needs a success before it learns
WIDE = NoiseConfig(sigma_min=0.3, sigma_max=0.6)
TRIED = len(CANDIDATES) + len(INITIAL)  # by calibration


def to_the_end(runner: Runner) -> list[dict[str, float]]:
    rows = []
    while len(rows) < runner.iterations:
        rows.append(runner.iterate(len(rows)))
    return rows


# --- schedules ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_schedules_follow_the_budget_and_nothing_else(point: Make, kit: Any, tmp_path: Path):
    quiet, asked = (kit.runner(point(8)) for _ in range(2))
    for i in range(4):
        quiet.iterate(i)
        asked.iterate(i)
        asked.state()
        asked.export(tmp_path / str(i))
        asked.algorithm.actor.evaluate({"proprio": torch.zeros(2, 2)}, torch.zeros(2, 2, 2))
    kit.assert_same(kit.tensors(quiet), kit.tensors(asked))


@pytest.mark.long
@pytest.mark.parametrize("algo", AT_ONCE)
def test_noise_and_target_fall_as_the_budget_is_spent(point: Make, kit: Any, algo: str):
    made = kit.runner(point(8), algo=algo, env_steps=900, target_kl=0.04, noise=kit.NOISE)
    step, targets = made.algorithm.policy_step, []
    improve = step.improve
    step.improve = lambda *args: (targets.append(args[-1]), improve(*args))[1]
    spent, expected_targets = 0, []
    while spent + 80 <= 900:
        row = made.iterate(len(targets))
        progress = spent / 900
        fall = max(0.0, (progress - 0.35) / 0.65)
        largest = 0.155 + 0.045 * 0.5 * (1 + math.cos(math.pi * fall))
        assert row["sigma"] == pytest.approx(largest, rel=1e-5)
        # target = t (1/2 + (1 + cos π p)/4)
        expected_targets.append(0.04 * (0.5 + 0.25 * (1 + math.cos(math.pi * progress))))
        spent = made.env_steps
        if len(targets) < len(expected_targets):  # groups that went alike teach nothing
            expected_targets.pop()
            break
    assert len(targets) >= 2 and targets == pytest.approx(expected_targets)
    critic = getattr(made.algorithm, "baseline", None)
    assert critic is None or all(group["lr"] == 1e-3 for group in critic.optimizer.adam.param_groups)


# --- budgets -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("env_steps", [1500, 1999])
@pytest.mark.parametrize("noise", ["NOISE", "CALIBRATED"])
@pytest.mark.parametrize("algo", ALGOS)
def test_the_budget_is_kept_and_used_to_one_iteration(point: Make, kit: Any, algo: str, noise: str, env_steps: int):
    world = point(8)
    made = kit.runner(world, algo=algo, env_steps=env_steps, noise=getattr(kit, noise))
    rows = to_the_end(made)
    assert made.env_steps == world.executed == rows[-1]["env_steps"] <= env_steps
    assert (made.calibration is not None) == (noise == "CALIBRATED")
    each = 80 if algo not in ("grpo", "srpo") else 8 * 4
    assert env_steps < made.env_steps + each, "not one iteration is given away"
    if made.calibration is not None:  # what the calibration did not take is learned from
        assert made.calibration.env_steps < TRIED * 8 * 4
        assert rows[0]["env_steps"] <= made.calibration.env_steps + each
    assert made.iterations == len(rows)


@pytest.mark.parametrize(("noise", "least"), [("NOISE", 3 * 80), ("CALIBRATED", 3 * 80 * 4 // 3)])
def test_a_budget_too_small_says_which_would_do(point: Make, kit: Any, noise: str, least: int):
    settings: dict[str, Any] = {"noise": getattr(kit, noise), "critic_warmup": 2}
    with pytest.raises(BadInput, match=f"got {least - 1}, expected at least {least}"):
        kit.runner(point(8), env_steps=least - 1, **settings)
    assert kit.runner(point(8), env_steps=least, **settings).iterations >= 3


def test_the_starts_of_calibration_are_not_those_of_training_or_of_evaluation(point: Make, kit: Any):
    world = point(8)
    made = kit.runner(world, seed=5, noise=kit.CALIBRATED)
    made.iterate(0)
    *calibration, training = world.seeds
    assert set(calibration) == {5 + 7919} and training == 5
    assert not {1000, 1005} & set(world.seeds)


# --- what comes out ----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("algo", AT_ONCE)
def test_what_is_exported_is_the_average(point: Make, kit: Any, tmp_path: Path, algo: str):
    made = kit.runner(point(8), algo=algo, actor_lr=1e-2)
    kit.run(made, 0, 3)
    made.export(tmp_path / "policy")
    policy = load_policy(tmp_path / "policy")
    for key, value in policy.net.state_dict().items():
        assert torch.equal(value, made.algorithm.average.module.state_dict()[key])
    name = "field.mlp.last.bias"
    assert not torch.equal(policy.net.state_dict()[name], made.algorithm.net.state_dict()[name])
    last = kit.runner(point(8), algo=algo, actor_lr=1e-2, average=0.0)
    kit.run(last, 0, 2)
    assert torch.equal(last.algorithm.average.module.state_dict()[name], last.algorithm.net.state_dict()[name])


def test_a_policy_straight_from_imitation_is_trained(make_policy: Make, point: Make, kit: Any):
    """Its network is an average of weights, which nothing differentiates."""
    world = point(8)
    policy = make_policy(world.interface, horizon=2, execute=2)
    policy.net.requires_grad_(False)
    made = kit.runner(world, policy)
    before = policy.net.field.mlp.last.bias.clone()
    kit.run(made, 0, 2)
    assert not torch.equal(policy.net.field.mlp.last.bias, before)


def test_the_average_is_that_of_the_iterations_by_hand(point: Make, kit: Any):
    made = kit.runner(point(8), actor_lr=1e-2, average=0.25)
    name = "field.mlp.last.bias"
    expected = made.algorithm.net.state_dict()[name].clone()
    for i, beta in enumerate((2 / 11, 0.25, 0.25)):  # min(β, (1 + n)/(10 + n))
        made.iterate(i)
        expected = beta * expected + (1 - beta) * made.algorithm.net.state_dict()[name]
    torch.testing.assert_close(made.algorithm.average.module.state_dict()[name], expected)


@pytest.mark.parametrize("family", ["flow", "diffusion"])
def test_training_and_export_have_the_initial_noise_that_was_asked_for(
    make_policy: Make, point: Make, kit: Any, tmp_path: Path, family: str
):
    world = point(8)
    predicts = {"prediction": "sample"} if family == "diffusion" else {}  # untrained, it answers within ±1
    policy = make_policy(world.interface, family=family, horizon=2, execute=2, **predicts)
    made = kit.runner(world, policy, noise=replace(kit.NOISE, initial=0.0))
    chains = []
    update = made.algorithm.update
    made.algorithm.update = lambda batch, *rest: (chains.append(batch.aux["chain"]), update(batch, *rest))[1]
    made.iterate(0)
    assert (chains[0][:, 0] == 0).all() and chains[0][:, 1].any()
    made.export(tmp_path / "policy")
    tuned = load_policy(tmp_path / "policy")
    assert tuned.net.config.initial_noise_std == 0.0
    seen = {"proprio": np.full((3, 2), 0.5, np.float32)}
    first, second = tuned.act(seen), tuned.act(seen)
    assert np.array_equal(first, second)  # nothing is left to chance
    np.testing.assert_allclose(first[0], first[1], atol=1e-6)  # rows of a matrix product may differ in the last bit
    with_noise = tuned.with_initial_noise(1.0).act(seen)
    assert not np.array_equal(with_noise[0], with_noise[1])


def test_the_chosen_initial_noise_is_trained_and_exported(point: Make, kit: Any, tmp_path: Path):
    made = kit.runner(point(8), noise=kit.CALIBRATED)
    made.iterate(0)
    chosen = made.calibration.noise.initial
    assert chosen in INITIAL and made.algorithm.net.config.initial_noise_std == chosen
    made.export(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").net.config.initial_noise_std == chosen


def test_cameras_by_the_same_code(make_policy: Make, point: Make, kit: Any):
    world = point(4, pixels=True)
    policy = make_policy(world.interface, horizon=2, execute=2, gain=20.0)
    made = kit.runner(world, policy, env_steps=200)
    before = copy.deepcopy(made.algorithm.net.encoder.state_dict())
    rows = kit.run(made, 0, 2)
    assert all(np.isfinite(row["policy_loss"]) for row in rows)
    assert any(not torch.equal(before[key], value) for key, value in made.algorithm.net.encoder.state_dict().items())


def test_worlds_without_a_notion_of_success_or_a_time_limit(point: Make, kit: Any):
    made = kit.runner(point(8, mute=True), noise=kit.CALIBRATED)
    rows = kit.run(made, 0, 3)
    assert all(math.isnan(row["success"]) and row["episode_return"] >= 0 for row in rows)
    for row in rows:  # a solved episode has a return of 1, any other 0
        assert row["rewarded"] == pytest.approx(row["episode_return"] * row["episodes"])
    assert made.calibration.metric == "return"
    endless = kit.runner(point(8, limit=0), env_steps=100_000)
    assert endless.algorithm.infinite and made.algorithm.infinite
    assert not kit.runner(point(8)).algorithm.infinite
    assert np.isfinite(kit.run(endless, 0, 2)[-1]["policy_loss"])


@pytest.mark.long
@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("how", [{"chunks": False}, {"together": True}], ids=["step-only", "together"])
def test_an_env_needs_step_alone(point: Make, kit: Any, algo: str, how: dict[str, bool]):
    """With the same result as by the fast path, where worlds may rest."""
    made = kit.runner(point(8, **how), algo=algo, noise=kit.CALIBRATED)
    rows = kit.run(made, 0, 3)
    assert all(np.isfinite(row["return"]) for row in rows)
    if "chunks" in how:
        assert not hasattr(made.env, "step_chunk")
        fast = kit.runner(point(8), algo=algo, noise=kit.CALIBRATED)
        np.testing.assert_equal(rows, kit.run(fast, 0, 3))
        kit.assert_same(kit.tensors(made), kit.tensors(fast))


# --- bad input ---------------------------------------------------------------------------------------------


def test_policies_that_cannot_be_fine_tuned(make_policy: Make, point: Make, kit: Any):
    world = point(2)
    with pytest.raises(BadInput, match=r"got eta = 1\.0, expected eta = 0"):
        kit.runner(world, make_policy(world.interface, family="diffusion", eta=1.0))
    for interface in (
        Interface(world.interface.observation, ArraySpec((2,)), control_hz=10.0),
        Interface(world.interface.observation, ArraySpec((1,)), control_hz=20.0),
        Interface({"proprio": ArraySpec((3,))}, ArraySpec((1,)), control_hz=10.0),
        Interface({"objects": ArraySpec((2,))}, ArraySpec((1,)), control_hz=10.0),
    ):
        with pytest.raises(BadInput, match="policy in point"):
            kit.runner(world, make_policy(interface))
    with pytest.raises(BadInput, match="got To = 2 observed steps, expected To = 1"):
        kit.runner(world, make_policy(world.interface, observe=2))
    with pytest.raises(BadInput, match="the kind 'regression'; available: flow, diffusion"):
        net = RegressionPolicy(RegressionConfig(), world.interface)
        kit.runner(world, ChunkPolicy(net, Normalizer(world.interface), world.interface))


@pytest.mark.parametrize("algo", ALGOS)
def test_settings_that_make_no_sense(kit: Any, algo: str):
    config, settings = algorithms(OnPolicyConfig)[algo], kit.SETTINGS[algo]
    wrong: list[dict[str, Any]] = [
        {"epochs": 0},
        {"num_envs": 0},
        {"target_kl": 0.0},
        {"minibatch": 1},
        {"regulariser": "l2"},
        {"actor_lr": 0.0},
        {"actor_lr": float("nan")},
        {"gamma": 1.5},
        {"entropy": float("inf")},
        {"regularisation": -1.0},
        {"clip": 0.0},
        {"threads": 0},
    ]
    if algo in ("grpo", "srpo"):
        wrong += [{"group": 1}, {"group": 3}, {"dual_clip": 1.0}]
    else:
        wrong += [{"chunks_per_rollout": 0}, {"critic_epochs": 0}, {"lam": -0.1}, {"critic_warmup": -1}]
        wrong += [{"critic_lr": 0.0}]
    if algo == "dppo":
        wrong += [{"gamma_denoising": 1.1}, {"clip_first": 0.0}]
    for one in wrong:
        (name,) = one
        flag = "--worlds" if name == "num_envs" else f"--{name.replace('_', '-')}"
        with pytest.raises(BadInput, match=flag):
            config(**({"num_envs": 8} | settings | one))  # type: ignore[arg-type]


def test_a_noise_range_or_a_single_chunk(kit: Any):
    with pytest.raises(BadInput, match="range of the noise"):
        NoiseConfig(sigma_min=-0.1, sigma_max=-0.2)
    with pytest.raises(BadInput, match="initial-noise"):
        NoiseConfig(initial=1.5)
    with pytest.raises(BadInput, match="got 1, expected at least 2"):
        algorithms(OnPolicyConfig)["reinflow"](num_envs=1, **kit.SETTINGS["reinflow"] | {"chunks_per_rollout": 1})


def test_a_gradient_that_is_none_stops_the_run(point: Make, kit: Any):
    made = kit.runner(point(8), actor_lr=1e20, target_kl=1e9)
    with pytest.raises(NonFinite, match="smaller --actor-lr"):
        kit.run(made, 0, 4)


# --- learning ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("algo", "policy", "noise", "env_steps"),
    [
        # A policy that knows nothing yet wants more noise than one that would lose its skill by it.
        ("reinflow", {"kind": "rectified"}, WIDE, 48_000),
        ("reinflow", {"kind": "shortcut"}, WIDE, 48_000),
        ("reinflow", {"kind": "rectified"}, replace(WIDE, steps="all"), 30_000),
        ("dppo", {"family": "diffusion", "prediction": "sample"}, replace(WIDE, steps="all"), 40_000),
        ("grpo", {"kind": "rectified"}, WIDE, 40_000),
    ],
    ids=["reinflow-last", "reinflow-shortcut", "reinflow-all", "dppo", "grpo"],
)
def test_it_learns(
    make_policy: Make, point: Make, kit: Any, algo: str, policy: dict, noise: NoiseConfig, env_steps: int
):
    torch.set_num_threads(1)
    world = point(128)
    begun = make_policy(world.interface, width=64, steps=2, horizon=1, execute=1, **policy)
    before = evaluate(point(100), begun, 400, seed=1).success
    critic = {"chunks_per_rollout": 8, "critic_epochs": 2, "critic_warmup": 1}
    settings = {"minibatch": 256, "actor_lr": 1e-3, "clip": 0.2, "target_kl": 0.04, "epochs": 4, "noise": noise}
    settings |= {"group": 8} if algo == "grpo" else critic
    settings |= {"clip_first": 0.1} if algo == "dppo" else {}
    made = kit.runner(world, begun, algo, env_steps=env_steps, **settings)
    to_the_end(made)
    after = evaluate(point(100), made.algorithm.policy(), 400, seed=1).success
    assert before.high < 0.5
    assert after.low > 0.9
