"""Tiny π0 and π0.5 that LeRobot makes and saves: networks of its own code, smaller than it has names for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from robolearn.core import Interface

sys.path.insert(0, str(Path(__file__).parent))
from worded_looks import PICTURE

LETTERS = ["<pad>", "<unk>", "<bos>", "<eos>", "\n", *map(chr, range(32, 127))]
WIDTH = 16


def _small(config: Any) -> Any:
    """Fewer words, and pictures by a network of one layer whose tokens are as wide as those of words."""
    for part in (config, getattr(config, "text_config", config)):
        part.vocab_size = len(LETTERS)
        part.pad_token_id = 0
    if hasattr(config, "vision_config"):
        sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 16}
        for name, value in (sizes | {"projection_dim": WIDTH, "intermediate_size": 32}).items():
            setattr(config.vision_config, name, value)
    return config


@contextmanager
def tiny() -> Iterator[None]:
    """Within, LeRobot's networks are of 16 units: its configuration names only those of 300 million and 2 billion."""
    with ExitStack() as stack:
        for found in map(module, ("pi0", "pi05")):
            for name, value in made_smaller(found).items():
                stack.enter_context(patch.object(found, name, value))
        yield


def made_smaller(found: Any) -> dict[str, Any]:
    """Attribute of one of these modules of LeRobot's → what stands there in its place."""
    networks = ("PaliGemmaForConditionalGenerationWithPiGemma", "PiGemmaForCausalLM")
    smaller = {name: partial(_made, getattr(found, name)) for name in networks}
    sizes = found.GemmaConfig(width=WIDTH, depth=2, mlp_dim=32, num_heads=2, num_kv_heads=1, head_dim=8)
    return smaller | {"get_gemma_config": partial(_sizes, sizes)}


def _made(network: Any, config: Any) -> Any:
    return network(_small(config))


def _sizes(sizes: Any, variant: str) -> Any:
    return sizes


def module(kind: str) -> Any:
    return import_module(f"lerobot.policies.{kind}.modeling_{kind}")


def save_tokenizer(folder: Path) -> Path:
    """A token for each letter."""
    words = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    return folder


def save_pi(folder: Path, kind: str, world: Interface, tokenizer: Path, **settings: Any) -> Path:
    """A policy with random weights for `world` without its objects, with its processors; within `tiny`."""
    torch.manual_seed(0)
    proprio, action = world.observation["proprio"], world.action
    cameras = settings.pop("cameras", ("front", "wrist"))
    picture = settings.pop("picture", PICTURE)
    pictures = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *picture)) for name in cameras}
    config = make_policy_config(kind, **{
        "input_features": {"observation.state": PolicyFeature(FeatureType.STATE, proprio.shape), **pictures},
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, action.shape)},
        "max_state_dim": proprio.size + 3, "max_action_dim": action.size + 2, "chunk_size": 8, "n_action_steps": 5,
        "num_inference_steps": 3, "image_resolution": (32, 32), "tokenizer_max_length": 120, "device": "cpu",
        "push_to_hub": False, **settings,
    })  # fmt: skip
    rng = np.random.default_rng(1)
    stats = {
        name: {
            "mean": torch.tensor(rng.normal(size=size) / 4, dtype=torch.float32),
            "std": torch.tensor(rng.uniform(0.2, 0.5, size), dtype=torch.float32),
            "min": torch.full((size,), -1.0),
            "max": torch.full((size,), 1.0),
            "q01": torch.full((size,), -0.9),
            "q99": torch.full((size,), 0.9),
        }
        for name, size in (("observation.state", proprio.size), ("action", action.size))
    }
    made = get_policy_class(kind)(config)
    for value in made.parameters():
        torch.nn.init.normal_(value, std=0.3)
    made.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder)
    file = folder / "policy_preprocessor.json"
    stored = json.loads(file.read_text())
    for step in stored["steps"]:
        if step["registry_name"] == "tokenizer_processor":
            step["config"]["tokenizer_name"] = str(tokenizer)
    file.write_text(json.dumps(stored))
    stated = {key: value for key, value in world.to_json().items() if key != "observation"}
    (folder / "robolearn.json").write_text(json.dumps(stated))
    return folder
