"""Flow policies: the grid, the losses against their formulas, and a bimodal toy that must keep both modes."""

from __future__ import annotations

import pytest
import torch

from policies.kinds.flow import FlowPolicy
from policies.networks.ema import Ema
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)
SMALL = NetworkConfig(width=64, depth=3)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(seed: int = 0, **settings) -> FlowPolicy:
    torch.manual_seed(seed)
    return FlowPolicy(FlowConfig(**({"network": SMALL} | settings)), INTERFACE)


def bimodal(n: int, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The same observation, actions near (0.6, 0.6) or (−0.6, −0.6)."""
    side = torch.randint(2, (n, 1, 1), generator=generator) * 2.0 - 1.0
    return {"proprio": torch.zeros(n, 3)}, side * 0.6 + 0.03 * torch.randn(n, 1, 2, generator=generator)


def train_toy(policy, steps: int) -> None:
    generator, ema = seeded(1), Ema(policy, 0.99)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, fused=True)
    for _ in range(steps):
        loss, _ = policy.loss(*bimodal(256, generator), None, generator, ema.module)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(policy)
    policy.load_state_dict(ema.module.state_dict())


def modes(x1: torch.Tensor) -> tuple[float, float]:
    """Share of the samples within 0.2 of the positive and of the negative mode."""
    return tuple(float(((x1[:, 0] - side * 0.6).norm(dim=1) < 0.2).float().mean()) for side in (1, -1))


@pytest.mark.long
@pytest.mark.parametrize("network", [NetworkConfig(width=128), NetworkConfig(kind="unet1d", channels=(16, 32))])
def test_rectified_flow_keeps_both_modes(network):
    policy = make(steps=10, horizon=1, execute=1, network=network)
    train_toy(policy, 250)
    with torch.no_grad():
        x1 = policy.sample(policy.encode({"proprio": torch.zeros(500, 3)}), torch.randn(500, 1, 2, generator=seeded(2)))
    plus, minus = modes(x1)
    assert min(plus, minus) > 0.35
    assert plus + minus > 0.85


@pytest.mark.long
def test_shortcut_hits_modes_in_one_step_where_rectified_flow_cannot():
    policy, plain = (
        make(kind=kind, steps=1, horizon=1, execute=1, network=NetworkConfig(width=128))
        for kind in ("shortcut", "rectified")
    )
    train_toy(policy, 800)
    train_toy(plain, 150)
    cond, x0 = torch.zeros(500, 3), torch.randn(500, 1, 2, generator=seeded(2))
    with torch.no_grad():
        one, many = policy.sample(cond, x0), policy.sample(cond, x0, steps=16)
        averaged = plain.sample(cond, x0)
    assert sum(modes(averaged)) < 0.2  # one Euler step of a rectified flow gives the mean of the modes
    assert sum(modes(one)) > 0.6
    assert min(modes(one)) > 0.25
    assert sum(modes(many)) > 0.8
    assert (one - many).norm(dim=2).median() < 0.2


@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7, 8, 16])
def test_time_grid(kind, steps):
    grid = make(kind=kind, steps=steps).time_grid()
    assert len(grid) == steps + 1
    assert (grid[0], grid[-1]) == (0.0, 1.0)
    sizes = grid.diff()
    assert (sizes > 0).all()
    if kind == "rectified":
        torch.testing.assert_close(grid, torch.arange(steps + 1) / steps)
    else:  # powers of two, at multiples of themselves
        assert (torch.log2(sizes) % 1 == 0).all()
        assert (grid[:-1] % sizes == 0).all()


@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
def test_sampler_walks_the_grid(kind):
    policy = make(kind=kind, steps=3)
    grid, cond, x = policy.time_grid(), torch.randn(5, 3), torch.randn(5, 4, 2)
    x1 = policy.sample(cond, x)
    before = x.clone()
    for k in range(3):
        tau, d = grid[k].expand(5), (grid[k + 1] - grid[k]).expand(5)
        x = x + d[:, None, None] * policy.velocity(x, tau, cond, d)
    torch.testing.assert_close(x1, x.clamp(-1, 1))
    assert torch.equal(policy.sample(cond, before), x1)  # the noise was not touched
    flat = policy.velocity(before.flatten(1), tau, cond, d)
    torch.testing.assert_close(flat, policy.velocity(before, tau, cond, d).flatten(1))


def test_rectified_loss_by_hand():
    policy = make(horizon=3, execute=3)
    action, is_pad = torch.rand(2, 3, 2), torch.tensor([[False, True, True], [False, False, False]])
    loss, _ = policy.loss({"proprio": torch.ones(2, 3)}, action, is_pad, seeded(5))
    g = seeded(5)
    x0, tau = torch.randn(2, 3, 2, generator=g), torch.rand(2, generator=g)
    x = tau[:, None, None] * action + (1 - tau[:, None, None]) * x0
    error = (policy.velocity(x, tau, torch.ones(2, 3)) - (action - x0)) ** 2
    wanted = (error[0, :1].sum() + error[1].sum()) / (4 * 2)  # four steps that count, two components
    torch.testing.assert_close(loss, wanted)
    unmasked = make(horizon=3, execute=3, mask_padding=False)
    loss_all, _ = unmasked.loss({"proprio": torch.ones(2, 3)}, action, is_pad, seeded(5))
    torch.testing.assert_close(loss_all, error.mean())


def test_shortcut_target_is_the_mean_of_two_half_steps():
    policy = make(kind="shortcut", levels=3)
    x, cond = torch.randn(2, 4, 2), torch.randn(2, 3)
    tau, d = torch.tensor([0.5, 0.125]), torch.tensor([0.5, 0.125])
    target = policy.two_half_steps(x, tau, d, cond)
    # the first: d/2 = 1/4; the second: 1/8 is the smallest trained step, so its halves ask the field (d = 0)
    for row, size in ((0, 0.25), (1, 0.0)):
        one, half, c = slice(row, row + 1), d[row] / 2, cond[row : row + 1]
        first = policy.velocity(x[one], tau[one], c, torch.tensor([size]))
        second = policy.velocity(x[one] + half * first, tau[one] + half, c, torch.tensor([size]))
        torch.testing.assert_close(target[one], (first + second) / 2)


def test_shortcut_steps_are_multiples_within_the_unit_interval():
    policy = make(kind="shortcut", levels=3)
    d, tau = policy.shortcut_steps(2000, seeded(0), torch.zeros(1))
    assert set(d.tolist()) == {1.0, 0.5, 0.25, 0.125}
    assert (tau % d == 0).all()
    assert (tau + d <= 1).all()
    assert set(tau[d == 0.25].tolist()) == {0.0, 0.25, 0.5, 0.75}


def test_shortcut_loss_takes_a_quarter_for_consistency_and_does_not_train_the_target():
    policy, teacher = make(kind="shortcut"), make(1, kind="shortcut")
    loss, parts = policy.loss({"proprio": torch.ones(8, 3)}, torch.rand(8, 4, 2), None, seeded(0), teacher)
    loss.backward()
    assert all(p.grad is None for p in teacher.parameters())
    torch.testing.assert_close(loss.detach(), 0.25 * parts["loss_consistency"] + 0.75 * parts["loss_flow"])


@pytest.mark.parametrize("sampling", ["uniform", "beta", "logit_normal"])
def test_training_times(sampling):
    tau = make(time_sampling=sampling).training_times(20000, seeded(0), torch.zeros(1))
    assert tau.min() >= 0 and tau.max() <= 1
    # Beta(1.5, 1) has the mean 0.6, so τ = 0.999 (1 − 0.6)
    assert float(tau.mean()) == pytest.approx({"uniform": 0.5, "beta": 0.3996, "logit_normal": 0.5}[sampling], abs=0.01)


def test_losses_and_samples_repeat_with_their_generator():
    policy = make(kind="shortcut")
    batch = ({"proprio": torch.ones(8, 3)}, torch.rand(8, 4, 2), torch.zeros(8, 4, dtype=torch.bool))
    assert torch.equal(policy.loss(*batch, seeded(3))[0], policy.loss(*batch, seeded(3))[0])
    assert not torch.equal(policy.loss(*batch, seeded(3))[0], policy.loss(*batch, seeded(4))[0])


@pytest.mark.parametrize("horizon", [1, 3, 4, 10])
def test_unet_takes_any_horizon(horizon):
    network = NetworkConfig(kind="unet1d", channels=(8, 16, 32))
    policy = make(horizon=horizon, execute=1, network=network)
    x = torch.randn(2, horizon, 2)
    assert policy.velocity(x, torch.rand(2), torch.randn(2, 3)).shape == x.shape


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "straight"},
        {"steps": 0},
        {"execute": 5},
        {"observe": 0},
        {"time_sampling": "cosine"},
        {"kind": "shortcut", "steps": 32},
        {"kind": "shortcut", "consistency": 0.0},
    ],
)
def test_bad_settings(settings):
    with pytest.raises(BadInput):
        FlowConfig(**settings)
