"""Denoising actors, of flows and of diffusion: sampler and likelihood are one law; where gradients go.

A ratio that is 1 proves little when sampler and likelihood share a mistake, so the sampler's own standard-normal
draws are made again from its seed and compared with the residuals that the likelihood implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.settings import NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.actors.denoising import explore

Make = Callable[..., ChunkPolicy]
STATE = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
PIXELS = Interface({"images.front": ArraySpec((16, 16, 3), "uint8")}, ArraySpec((2,)), control_hz=20.0)
BATCH, HORIZON = 6, 3
MODES = ("last", "all")
KINDS = ("rectified", "shortcut", "diffusion")
CASES = [(kind, steps, noised) for kind in KINDS for steps in (1, 2, 3, 4) for noised in MODES]
# Worked out by hand: a shortcut model knows steps 2^-j at multiples of themselves only.
GRIDS = {
    ("rectified", 3): [0, 1 / 3, 2 / 3, 1],
    ("shortcut", 3): [0, 1 / 2, 3 / 4, 1],
    **{(kind, k): [i / k for i in range(k + 1)] for kind in ("rectified", "shortcut") for k in (1, 2, 4)},
    **{("diffusion", k): [i / k for i in range(k + 1)] for k in (1, 2, 3, 4)},  # the denoising steps' own clock
}


def build(
    make: Make, kind: str, steps: int, noised: Any, low: float = 0.05, high: float = 0.2, **settings: Any
) -> DenoisingActor:
    """With a velocity (or a prediction) and a noise that depend strongly on everything."""
    which = {"family": "diffusion", "train_steps": 10} if kind == "diffusion" else {"kind": kind}
    gain = 5.0 if kind == "diffusion" else 20.0  # its first steps divide by √ᾱ, which is near 0
    policy = make(STATE, **({"gain": gain} | settings), **which, steps=steps, horizon=HORIZON, execute=HORIZON)
    actor = DenoisingActor(policy.net, NoiseConfig(sigma_min=low, sigma_max=high, steps=noised))
    torch.nn.init.normal_(actor.noise.net[-1].weight)  # type: ignore[arg-type]
    return actor


def see(batch: int = BATCH) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        "proprio": torch.randn(batch, 3, generator=generator),
        "objects": torch.randn(batch, 2, generator=generator),
    }


def draw(actor: DenoisingActor, seed: int = 11) -> Tensor:
    with torch.no_grad():
        return actor.sample(see(), torch.Generator().manual_seed(seed))


def residual_error(actor: DenoisingActor, chain: Tensor, seed: int = 11) -> float:
    """max |(x_{k+1} − μ_k)/σ_k − ε_k| over noised steps, with the draws ε_k that the sampler must have made."""
    generator = torch.Generator().manual_seed(seed)
    dim = HORIZON * 2
    x0 = actor.net.config.initial_noise_std * torch.randn(BATCH, dim, generator=generator)
    torch.testing.assert_close(chain[:, 0], x0, rtol=0, atol=0)
    drawn = torch.stack([torch.randn(BATCH, dim, generator=generator) for _ in range(chain.shape[1] - 1)], 1)
    with torch.no_grad():
        stats = actor.evaluate(see(), chain)
    return ((chain[:, 1:] - stats.mean) / stats.log_sigma.exp() - drawn).abs().max().item()


@pytest.mark.parametrize(("kind", "steps", "noised"), CASES)
def test_the_likelihood_implies_the_draws_that_the_sampler_made(make_policy: Make, kind: str, steps: int, noised: str):
    actor = build(make_policy, kind, steps, noised)
    chain = draw(actor)
    assert chain.shape == (BATCH, (steps if noised == "all" else 1) + 1, HORIZON * 2)
    assert residual_error(actor, chain) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_of_a_transformer_implies_the_draws_too(make_policy: Make, kind: str):
    network = NetworkConfig(kind="transformer", width=16, depth=1, heads=2, embedding=8)
    actor = build(make_policy, kind, 3, "all", gain=1.0, network=network)
    assert residual_error(actor, draw(actor)) < 1e-4


@pytest.mark.parametrize("initial", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_chains_begin_with_the_policy_s_own_initial_noise(make_policy: Make, kind: str, initial: float):
    actor = build(make_policy, kind, 2, "all", initial_noise_std=initial)
    assert residual_error(actor, draw(actor)) < 1e-4


@pytest.mark.parametrize(("kind", "steps", "noised"), [case for case in CASES if case[0] != "diffusion"])
@pytest.mark.parametrize("wrong", ["shifted", "stretched"])
def test_a_wrong_time_grid_shows_in_the_residuals(
    make_policy: Make, monkeypatch: pytest.MonkeyPatch, kind: str, steps: int, noised: str, wrong: str
):
    actor = build(make_policy, kind, steps, noised)
    chain = draw(actor)
    right = actor.net.time_grid()
    # The error of the public code: times from one grid in the sampler, from another one in the likelihood.
    grid = right + 0.5 / steps if wrong == "shifted" else right * (steps + 1) / steps
    monkeypatch.setattr(actor.net, "time_grid", lambda: grid)
    assert residual_error(actor, chain) > 0.05


@pytest.mark.parametrize(("kind", "steps", "noised"), CASES)
def test_without_noise_the_sampler_is_the_policy_itself(make_policy: Make, kind: str, steps: int, noised: str):
    actor = build(make_policy, kind, steps, noised, 1e-7, 1e-7)
    chain = draw(actor)
    x0 = chain[:, 0].reshape(BATCH, HORIZON, 2)
    with torch.no_grad():
        expected = actor.net.sample(actor.net.encode(see()), x0)
        calibrating = explore(actor.net, NoiseConfig(steps=noised), see(), 1.0, 0.0, torch.Generator().manual_seed(11))
    torch.testing.assert_close(chain[:, -1].reshape(x0.shape).clamp(-1, 1), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(calibrating, expected, rtol=0, atol=1e-5)


def ddim(actor: DenoisingActor, x: Tensor, k: int, cond: Tensor) -> Tensor:
    """(1, D) the mean of step k by a scheduler of diffusers' own."""
    scheduler = DDIMScheduler(
        num_train_timesteps=10,
        beta_schedule="squaredcos_cap_v2",
        prediction_type="epsilon",
        clip_sample=True,
        timestep_spacing="trailing",
    )
    scheduler.set_timesteps(actor.net.config.steps)
    t, chunk = int(scheduler.timesteps[k]), x.reshape(1, HORIZON, 2)
    noise = actor.net.field(chunk, actor.net.time(torch.tensor([t / 10])), cond)
    step: Any = scheduler.step(noise, t, chunk, eta=0.0, use_clipped_model_output=True)  # type: ignore[arg-type]
    return step.prev_sample.reshape(1, -1)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "steps", "noised"), CASES)
def test_the_likelihood_against_torch_and_a_loop(make_policy: Make, kind: str, steps: int, noised: str):
    actor = build(make_policy, kind, steps, noised)
    observation, chain = see(), draw(actor)
    grid, first = GRIDS[kind, steps], 0 if noised == "all" else steps - 1
    with torch.no_grad():
        stats = actor.evaluate(observation, chain)
        assert stats.mean.shape == stats.log_sigma.shape == (BATCH, steps - first, HORIZON * 2)
        assert stats.log_prob.shape == (BATCH, steps - first)
        for b in range(BATCH):
            cond = actor.net.encode({key: value[b : b + 1] for key, value in observation.items()})
            total, entropy = torch.zeros(()), torch.zeros(())
            x = chain[b : b + 1, 0]
            for k in range(steps):
                tau, d = torch.tensor([grid[k]]), torch.tensor([grid[k + 1] - grid[k]])
                mean = ddim(actor, x, k, cond) if kind == "diffusion" else x + d * actor.net.velocity(x, tau, cond, d)
                if k < first:
                    x = mean  # before the noised step the path is deterministic
                    continue
                m = k - first
                x = chain[b : b + 1, m + 1]
                sigma = actor.noise(tau, cond).exp()
                normal = torch.distributions.Normal(mean, sigma)
                log_prob = normal.log_prob(x).sum()
                entropy = entropy + normal.entropy().mean() / (steps - first)
                torch.testing.assert_close(stats.mean[b : b + 1, m], mean, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(stats.log_sigma[b : b + 1, m], sigma.log(), rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(stats.log_prob[b, m], log_prob, rtol=1e-4, atol=1e-3)
                total = total + log_prob
            terms = (steps - first) * HORIZON * 2
            torch.testing.assert_close(stats.joint()[b], total / math.sqrt(terms), rtol=1e-4, atol=2e-4)
            torch.testing.assert_close(stats.entropy[b], entropy, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_in_the_last_of_one_step_is_noise_in_all(make_policy: Make, kind: str):
    last, every = (build(make_policy, kind, 1, noised) for noised in ("last", "all"))
    for a, b in zip(last.parameters(), every.parameters(), strict=True):
        assert torch.equal(a, b)
    chain = draw(last)
    assert torch.equal(chain, draw(every))
    found = [actor.evaluate(see(), chain) for actor in (last, every)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    for actor, stats in zip((last, every), found, strict=True):
        stats.joint().sum().backward()
        assert actor.noise.net[0].weight.grad is not None
    for a, b in zip(last.parameters(), every.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None and b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last.reference_mean(see(), chain), every.reference_mean(see(), chain))
    kinds = [NoiseConfig(steps="last"), NoiseConfig(steps="all")]
    chunks = [explore(last.net, noise, see(), 1.0, 0.3, torch.Generator().manual_seed(2)) for noise in kinds]
    assert torch.equal(*chunks)


@pytest.mark.parametrize("noised", MODES)
def test_the_gradient_goes_through_the_whole_path(make_policy: Make, noised: str):
    """Against a numerical derivative along a random direction."""
    actor = build(make_policy, "rectified", 4, noised).double()
    observation = {key: value.double() for key, value in see().items()}
    chain = draw(build(make_policy, "rectified", 4, noised)).double()
    weights = list(actor.net.parameters())
    gradient = torch.autograd.grad(actor.evaluate(observation, chain).joint().mean(), weights)
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in weights]
    slope = sum(((g * d).sum() for g, d in zip(gradient, direction, strict=True)), torch.zeros(()))
    h, ends = 1e-6, []
    for sign in (1, -2):  # to +h, then from there to −h
        with torch.no_grad():
            for p, d in zip(weights, direction, strict=True):
                p.add_(sign * h * d)
            ends.append(actor.evaluate(observation, chain).joint().mean())
    assert slope.item() == pytest.approx(((ends[0] - ends[1]) / (2 * h)).item(), rel=1e-4)
    assert abs(slope.item()) > 0.1


@pytest.mark.parametrize("noised", MODES)
def test_every_denoising_step_has_a_share_in_the_gradient(
    make_policy: Make, monkeypatch: pytest.MonkeyPatch, noised: str
):
    actor = build(make_policy, "rectified", 4, noised)
    chain = draw(actor)
    velocities: list[Tensor] = []
    once = actor.net.guided

    def watched(*args: Any) -> Tensor:
        velocities.append(once(*args))
        velocities[-1].retain_grad()
        return velocities[-1]

    monkeypatch.setattr(actor.net, "guided", watched)
    actor.evaluate(see(), chain).joint().sum().backward()
    gradients = [v.grad for v in velocities if v.grad is not None]
    assert len(gradients) == len(velocities)
    assert sum(map(len, gradients)) == 4 * BATCH  # every step once: one by one, or side by side
    assert all((g.flatten(1).abs().sum(1) > 0).all() for g in gradients)


def test_noise_of_one_size_has_the_size_that_was_asked_for(make_policy: Make):
    net = make_policy(STATE, gain=0.0, steps=4).net
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn((BATCH, *net.noise_shape), generator=generator) for _ in range(5)]
    # No velocity: x_4 = s x_0 + σ Σ ε_k over the noised steps
    for noised, noise in (("all", sum(draws[1:])), ("last", draws[1])):
        for initial in (1.0, 0.25):
            chunk = explore(net, NoiseConfig(steps=noised), see(), initial, 0.5, torch.Generator().manual_seed(0))
            torch.testing.assert_close(chunk, (initial * draws[0] + 0.5 * noise).clamp(-1, 1))


@pytest.mark.parametrize("noised", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_calibration_measures_the_noise_that_training_has(make_policy: Make, kind: str, noised: str):
    actor = build(make_policy, kind, 3, noised, 0.1, 0.1)
    with torch.no_grad():
        chunk = explore(actor.net, NoiseConfig(steps=noised), see(), 1.0, 0.1, torch.Generator().manual_seed(11))
    torch.testing.assert_close(chunk.flatten(1), draw(actor)[:, -1].clamp(-1, 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("noised", MODES)
def test_the_entropy_teaches_the_noise_alone(make_policy: Make, noised: Any):
    policy = make_policy(PIXELS, gain=20.0, horizon=HORIZON, execute=HORIZON)
    actor = DenoisingActor(policy.net, NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps=noised))
    torch.nn.init.normal_(actor.noise.net[-1].weight)  # type: ignore[arg-type]
    observation = {"images.front": torch.rand(2, 3, 16, 16)}
    chain = actor.sample(observation, torch.Generator().manual_seed(0)).detach()
    actor.evaluate(observation, chain).entropy.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in actor.net.parameters())  # the camera's CNN included
    assert all(p.grad is not None for p in actor.noise.parameters())


def test_the_last_mean_of_ddim_is_clamped_and_has_no_gradient_there(make_policy: Make):
    """As its docstring says, and DPPO does; the flow's is free (`--clip-means` clamps it)."""
    cond_of = {kind: build(make_policy, kind, 3, "last") for kind in ("diffusion", "rectified")}
    for kind, actor in cond_of.items():
        x = (3.0 * torch.randn(BATCH, HORIZON, 2, generator=torch.Generator().manual_seed(0))).requires_grad_()
        mean = actor.net.denoise(x, 2, actor.net.encode(see()))
        (slope,) = torch.autograd.grad(mean.sum(), x)
        cut = mean.abs() == 1.0
        assert (mean.abs().max() <= 1.0 and cut.any()) == (kind == "diffusion")
        if kind == "diffusion":
            for b, t, d in cut.nonzero().tolist():
                (one,) = torch.autograd.grad(
                    actor.net.denoise(x, 2, actor.net.encode(see()))[b, t, d], list(actor.net.field.parameters())[-1:]
                )
                assert not one.any()
        assert slope.abs().sum() > 0
