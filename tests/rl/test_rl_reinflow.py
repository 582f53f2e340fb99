"""The trainer: ratios of 1 before the first update, nothing processed twice, budgets, exact continuation, learning."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import robolearn.rl.reinflow as module
from policies.checkpoint import load_policy
from policies.diffusion import DiffusionPolicy
from policies.diffusion_config import DiffusionConfig
from policies.networks.field import NetworkConfig
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.eval import evaluate
from robolearn.rl.noise import NoiseConfig
from robolearn.rl.reinflow import ReinFlowConfig, ReinFlowTrainer
from robolearn.rl.stochastic_flow import ChainStats, StochasticFlow

NOISE = NoiseConfig(sigma_min=0.05, sigma_max=0.2)
Make = Callable[..., Any]


def trainer(make_policy: Make, world: Any, policy: ChunkPolicy | None = None, **settings: Any) -> ReinFlowTrainer:
    base = {"env_steps": 2000, "decisions": 5, "minibatch": 16, "critic_warmup": 0, "noise": NOISE}
    shape = {"horizon": 2, "execute": 2, "gain": 20.0}
    return ReinFlowTrainer(policy or make_policy(world.interface, **shape), world, ReinFlowConfig(**(base | settings)))


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


@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_every_ratio_is_1_before_the_first_update(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch, kind: str, steps: int
):
    world = point(8)
    policy = make_policy(world.interface, gain=20.0, horizon=2, execute=2, kind=kind, steps=steps)
    made = trainer(make_policy, world, policy, epochs=2, minibatch=40, target_kl=1e9)
    seen: list[torch.Tensor] = []
    surrogate = module.clipped_surrogate
    monkeypatch.setattr(
        module, "clipped_surrogate", lambda r, a, c: (seen.append(r.detach().clone()), surrogate(r, a, c))[1]
    )
    made.iterate(0)
    assert [len(ratio) for ratio in seen] == [40, 40]
    assert seen[0].abs().max() < 1e-4
    assert seen[1].abs().max() > 1e-3  # and it moves once the weights have


def test_nothing_is_processed_twice(make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch):
    made = trainer(make_policy, point(8), epochs=3, minibatch=16, target_kl=1e9)  # 40 = 16 + 16 + 8
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
    assert sum(map(len, learned)) == sum(criticised) == 5 * 8 * 3
    assert len(learned) == 3 * 3
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
    monkeypatch.setattr(module, "values", lambda critic, normalise, observation: observation["proprio"][:, 1])
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
        trainer(make_policy, point(8), regulariser=regulariser, regularisation=weight, actor_lr=3e-3, actor_lr_end=3e-3)
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
        asked.actor.evaluate({"proprio": torch.zeros(2, 2)}, torch.zeros(2, 5, 2))
    assert_same(tensors(quiet), tensors(asked))
    # lr = end + (begin − end)(1 + cos π i/n)/2, here a quarter of the way
    made = trainer(make_policy, point(8), env_steps=8 * 80, actor_lr=1e-3, actor_lr_end=5e-4)
    assert made.iterations == 8
    made._begin()
    made.iterate(2)
    assert made.actor_optimizer.param_groups[0]["lr"] == pytest.approx(5e-4 + 2.5e-4 * (1 + np.cos(np.pi / 4)))
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


def test_the_actor_stops_at_the_target_kl(make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch):
    counts = []
    for target in (0.0, 1e9):
        made = trainer(make_policy, point(8), target_kl=target, epochs=4, minibatch=20)
        steps: list[int] = []
        once = made._actor_step
        monkeypatch.setattr(made, "_actor_step", lambda *a, once=once, steps=steps: (steps.append(1), once(*a))[1])
        made.iterate(0)
        counts.append(len(steps))
    assert counts[1] == 8 and counts[0] <= 2


def test_metrics_are_means_over_the_steps_that_there_were(
    make_policy: Make, point: Make, monkeypatch: pytest.MonkeyPatch
):
    made = trainer(make_policy, point(8), target_kl=0.0, epochs=4, minibatch=20)
    seen: list[float] = []
    once = made._actor_step

    def watched(*args: Any) -> dict[str, float]:
        step = once(*args)
        seen.append(step["kl"])
        return step

    monkeypatch.setattr(made, "_actor_step", watched)
    row = made.iterate(0)
    assert len(seen) < 8 and row["kl"] == pytest.approx(sum(seen) / len(seen))


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
@pytest.mark.parametrize("noise", [NOISE, NoiseConfig()], ids=["given", "calibrated"])
def test_the_budget_is_kept(make_policy: Make, point: Make, env_steps: int, noise: NoiseConfig):
    world = point(8)
    made = trainer(make_policy, world, env_steps=env_steps, noise=noise)
    rows = run(made, 0, made.iterations)
    assert made.env_steps == world.executed == rows[-1]["env_steps"] <= env_steps
    assert (made.calibration is not None) == (noise.sigma_max == 0)
    most = made.iterations * 5 * 8 * 2 + (6 * 8 * 4 if made.calibration else 0)
    assert most <= env_steps < most + 80  # and not one iteration is given away


@pytest.mark.parametrize(("noise", "least"), [(NOISE, 3 * 80), (NoiseConfig(), 3 * 80 + 6 * 8 * 4)])
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
    for wrong in (
        {"decisions": 0},
        {"epochs": 0},
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


# --- continuation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgetful", [False, True], ids=["snapshot", "no-snapshot"])
@pytest.mark.parametrize("noise", [NOISE, NoiseConfig()], ids=["given", "calibrated"])
def test_a_resumed_trainer_goes_on_bit_for_bit(make_policy: Make, point: Make, forgetful: bool, noise: NoiseConfig):
    settings = {"noise": noise, "regulariser": "kl", "regularisation": 0.1, "critic_warmup": 1}
    whole = trainer(make_policy, point(8, forgetful=forgetful), **settings)
    run(whole, 0, 3)
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    expected = run(whole, 3, 6)
    again = trainer(make_policy, point(8, forgetful=forgetful), **settings)
    again.load_state(state, meta)
    np.testing.assert_equal(run(again, 3, 6), expected)
    assert_same(tensors(whole), tensors(again))
    assert again.calibration == whole.calibration


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


@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
def test_it_learns(make_policy: Make, point: Make, kind: str):
    torch.set_num_threads(1)
    world = point(128)
    policy = make_policy(world.interface, width=64, kind=kind, steps=2, horizon=1, execute=1)
    before = evaluate(point(100), policy, 400, seed=1).success
    made = trainer(
        make_policy,
        world,
        policy,
        env_steps=120_000,
        decisions=16,
        minibatch=512,
        actor_lr=3e-3,
        actor_lr_end=1e-3,
        critic_warmup=1,
        noise=NoiseConfig(),
    )
    run(made, 0, made.iterations)
    tuned = ChunkPolicy(made.average.module, policy.normalizer, policy.interface)
    after = evaluate(point(100), tuned, 400, seed=1).success
    assert before.high < 0.5
    assert after.low > 0.9
