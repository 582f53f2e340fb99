"""Diffusion policies: the bimodal toy, and the sampler against diffusers' own DDPM step."""

from __future__ import annotations

import pytest
import torch

from policies.kinds.diffusion import DiffusionPolicy
from policies.settings import DiffusionConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)


def make(**settings) -> DiffusionPolicy:
    torch.manual_seed(0)
    shape = {"horizon": 1, "execute": 1, "network": NetworkConfig(width=64)}
    return DiffusionPolicy(DiffusionConfig(**(shape | settings)), INTERFACE)


@pytest.mark.long
@pytest.mark.parametrize(("prediction", "eta"), [("epsilon", 0.0), ("v_prediction", 1.0), ("sample", 0.0)])
def test_both_modes_are_kept(prediction, eta):
    policy, generator = make(prediction=prediction, eta=eta), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, fused=True)
    for _ in range(500):
        side = torch.randint(2, (256, 1, 1), generator=generator) * 2.0 - 1.0
        action = side * 0.6 + 0.03 * torch.randn(256, 1, 2, generator=generator)
        loss, _ = policy.loss({"proprio": torch.zeros(256, 3)}, action, None, generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x1 = policy.sample(torch.zeros(400, 3), torch.randn(400, *policy.noise_shape, generator=generator))[:, 0]
    near = [float(((x1 - s * 0.6).norm(dim=1) < 0.2).float().mean()) for s in (1, -1)]
    assert min(near) > 0.3
    assert sum(near) > 0.8


def test_eta_one_is_ddpm():
    policy = make(eta=1.0, steps=20, train_steps=20, schedule="linear")
    cond, noise = torch.randn(4, 3), torch.randn(4, 21, 1, 2)
    ddpm, x = policy.forward_process, noise[:, 0]
    ddpm.set_timesteps(20)
    with torch.no_grad():
        for k, t in enumerate(ddpm.timesteps.tolist()):
            prediction = policy.predict(x, torch.full((4,), t), cond)
            # DDPM's mean from diffusers; its variance times our noise
            torch.manual_seed(k)
            drawn = torch.randn(4, 1, 2)
            torch.manual_seed(k)
            x = ddpm.step(prediction, t, x, return_dict=False)[0]
            noise[:, k + 1] = drawn
        ours = policy.sample(cond, noise)
    torch.testing.assert_close(ours, x.clamp(-1, 1), atol=1e-4, rtol=1e-4)


def test_padded_steps_do_not_count():
    policy = make(horizon=4, execute=4)
    action, is_pad = torch.rand(2, 4, 2), torch.tensor([[False, True, True, True], [False] * 4])
    loss, _ = policy.loss({"proprio": torch.ones(2, 3)}, action, is_pad, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(0)
    t, noise = torch.randint(100, (2,), generator=g), torch.randn(2, 4, 2, generator=g)
    alpha = policy.scheduler.alphas_cumprod[t][:, None, None]
    noisy = alpha.sqrt() * action + (1 - alpha).sqrt() * noise
    error = (policy.predict(noisy, t, torch.ones(2, 3)) - noise) ** 2
    torch.testing.assert_close(loss, (error[0, :1].sum() + error[1].sum()) / 10)


@pytest.mark.parametrize("settings", [{"steps": 101}, {"eta": 2.0}, {"prediction": "x"}, {"schedule": "x"}])
def test_bad_settings(settings):
    with pytest.raises(BadInput):
        DiffusionConfig(**settings)
