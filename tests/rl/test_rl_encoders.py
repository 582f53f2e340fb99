"""Actors that see: the likelihood is that of the sampler for every encoder, and a frozen backbone stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.networks.encoder_settings import EncoderConfig
from policies.networks.libraries import import_vision
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.registry import fresh_net
from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.rl.actors import DenoisingActor, NoiseConfig

pytestmark = pytest.mark.long

BATCH, HORIZON, EDGE = 6, 3, 42
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((EDGE, EDGE, 3), "uint8")}, ArraySpec((2,)), control_hz=20.0
)
ENCODERS: dict[str, dict[str, Any]] = {
    "cnn": {},
    "crop": {"random_crop": 36, "random_shift": 2, "colour_jitter": 0.2},
    "resnet18": {"kind": "resnet18"},
    "efficientnet": {"kind": "efficientnet_lite0"},
    "frozen": {"kind": "efficientnet_lite0", "freeze": True, "share": True},
    "dinov2": {"kind": "transformers:{}"},
}


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With dropout, which an actor must not have."""
    transformers = import_vision("transformers")
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14,
        hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5, drop_path_rate=0.5,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("dinov2")
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return folder


def policy(
    family: str, encoder: EncoderConfig, interface: Interface = INTERFACE, horizon: int = HORIZON, gain: float = 20.0
) -> ChunkPolicy:
    torch.manual_seed(0)
    network = NetworkConfig(width=32, depth=2, image_features=8, encoder=encoder)
    common: dict[str, Any] = {"network": network, "horizon": horizon, "execute": horizon, "steps": 2}
    config = DiffusionConfig(**common, train_steps=10) if family == "diffusion" else FlowConfig(**common, kind=family)
    net: Any = fresh_net(config, interface)
    with torch.no_grad():
        net.field.mlp.last.weight.mul_(20.0 if family != "diffusion" else 5.0)
        for camera in net.encoder.cameras.values():
            camera.head.weight.mul_(gain)  # what is seen counts
    return ChunkPolicy(net, Normalizer(interface), interface)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("family", ["rectified", "shortcut", "diffusion"])
def test_the_likelihood_implies_the_draws_that_the_sampler_made(name: str, family: str, dinov2: Path) -> None:
    settings = ENCODERS[name]
    encoder = EncoderConfig(**settings | ({"kind": settings["kind"].format(dinov2)} if "kind" in settings else {}))
    made = policy(family, encoder)
    actor = DenoisingActor(made.net, NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps="all"))
    torch.nn.init.normal_(actor.noise.net[-1].weight)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    seen = made.normalizer.observation(
        {
            "proprio": torch.from_numpy(rng.normal(size=(BATCH, 2)).astype(np.float32)),
            "images.front": torch.from_numpy(rng.integers(0, 256, (BATCH, EDGE, EDGE, 3), dtype=np.uint8)),
        }
    )
    actor.eval()
    with torch.no_grad():
        chain = actor.sample(seen, torch.Generator().manual_seed(11))
    generator, dim = torch.Generator().manual_seed(11), HORIZON * 2
    torch.testing.assert_close(chain[:, 0], torch.randn(BATCH, dim, generator=generator), rtol=0, atol=0)
    drawn = torch.stack([torch.randn(BATCH, dim, generator=generator) for _ in range(2)], 1)
    actor.train()  # as updates may
    for rows in (slice(0, BATCH), slice(2, 5)):  # a minibatch says the same of its rows
        stats = actor.evaluate({key: value[rows] for key, value in seen.items()}, chain[rows])
        residual = (chain[rows, 1:] - stats.mean) / stats.log_sigma.exp() - drawn[rows]
        assert residual.abs().max() < 2e-3
    # It is the picture that they depend on: with others the likelihood is another.
    with torch.no_grad():
        shuffled = seen | {"images.front": seen["images.front"].roll(1, 0)}
        stats = actor.evaluate(shuffled, chain)
    residual = (chain[:, 1:] - stats.mean) / stats.log_sigma.exp() - drawn
    assert residual.abs().max() > 0.02


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("algo", ["reinflow", "dppo"])
def test_fine_tuning_leaves_a_frozen_backbone_as_it_is(
    point: Callable[..., Any], kit: Any, algo: str, freeze: bool
) -> None:
    world = point(4, pixels=True)
    encoder = EncoderConfig(kind="efficientnet_lite0", freeze=freeze, resize=40)
    family = "diffusion" if algo == "dppo" else "rectified"
    made = kit.runner(world, policy(family, encoder, world.interface, 2, gain=1.0), algo=algo, env_steps=200)
    before = {key: value.clone() for key, value in made.algorithm.net.encoder.state_dict().items()}
    rows = kit.run(made, 0, 2)
    assert all(np.isfinite(row["policy_loss"]) for row in rows)
    changed: dict[str, Tensor] = {
        key: value
        for key, value in made.algorithm.net.encoder.state_dict().items()
        if not torch.equal(before[key], value)
    }
    assert any("head" in key for key in changed)
    assert any("backbone" in key for key in changed) != freeze
    averaged = made.algorithm.average.module.encoder.state_dict()
    assert not freeze or all(torch.equal(averaged[key], before[key]) for key in before if "backbone" in key)
