"""Small policies that LeRobot makes, saves and reads, and made-up observations for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from robolearn.core import Interface

STATE, OBJECTS, ACTION = "observation.state", "observation.environment_state", "action"
CAMERAS = "observation.images."


def save(
    folder: Path, kind: str, world: Interface, camera: int = 0, scale: float = 1.0,
    cameras: Sequence[str] = ("front",), **settings: Any,
) -> Path:  # fmt: skip
    """A policy of LeRobot's with random weights for `world`, with its processors, as its training saves them.

    Its actions are about as large as `scale`. `camera`: pixels of a side of its pictures, of `cameras`; 0: none.
    """
    torch.manual_seed(0)
    proprio, objects, action = world.observation["proprio"], world.observation["objects"], world.action
    features = {
        STATE: PolicyFeature(FeatureType.STATE, proprio.shape),
        OBJECTS: PolicyFeature(FeatureType.ENV, objects.shape),
    }
    if camera:
        picture = PolicyFeature(FeatureType.VISUAL, (3, camera, camera))
        features |= {f"{CAMERAS}{name}": picture for name in cameras}
    shared: dict[str, Any] = {
        "input_features": features,
        "output_features": {ACTION: PolicyFeature(FeatureType.ACTION, action.shape)},
        "pretrained_backbone_weights": None,
        "device": "cpu",
        "push_to_hub": False,
    }
    if kind == "act":
        small = {"dim_model": 32, "n_heads": 2, "dim_feedforward": 64, "n_encoder_layers": 1, "latent_dim": 8}
        config: Any = ACTConfig(**{**shared, **small, "chunk_size": 8, "n_action_steps": 5, **settings})
    else:
        small = {"down_dims": (16, 32), "diffusion_step_embed_dim": 16, "n_groups": 4, "num_train_timesteps": 4}
        identity = {"normalization_mapping": {name: NormalizationMode.MIN_MAX for name in ("STATE", "ENV", "ACTION")}}
        if camera:
            identity["normalization_mapping"]["VISUAL"] = NormalizationMode.MEAN_STD
        config = DiffusionConfig(**{**shared, **small, **identity, "horizon": 8, "n_action_steps": 5, **settings})
    rng = np.random.default_rng(1)
    stats = {
        name: {
            "mean": torch.tensor(rng.normal(size=size), dtype=torch.float32),
            "std": torch.tensor(rng.uniform(0.5, 2.0, size), dtype=torch.float32),
            "min": torch.full((size,), -1.0),
            "max": torch.full((size,), 1.0),
        }
        for name, size in ((STATE, proprio.size), (OBJECTS, objects.size), (ACTION, action.size))
    }
    stats[ACTION] = {name: scale * value for name, value in stats[ACTION].items()}
    for i, name in enumerate(cameras):
        stats[f"{CAMERAS}{name}"] = {"mean": torch.full((3, 1, 1), 0.5 - 0.1 * i), "std": torch.full((3, 1, 1), 0.2)}
    policy = get_policy_class(kind)(config)
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder)
    return folder


def theirs(folder: Path, kind: str) -> tuple[Any, Any, Any]:
    policy = get_policy_class(kind).from_pretrained(folder)
    return policy, *make_pre_post_processors(policy.config, str(folder))


def looks(world: Interface, steps: int, worlds: int = 1) -> list[dict[str, np.ndarray]]:
    """Made-up observations, one after the other."""
    rng = np.random.default_rng(5)
    return [
        {key: rng.normal(size=(worlds, *world.observation[key].shape)).astype(np.float32) for key in world.observation}
        for _ in range(steps)
    ]
