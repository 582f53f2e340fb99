"""A tiny SmolVLA that LeRobot makes and saves, over a tiny SmolVLM2 that transformers and tokenizers make."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

from robolearn.core import Interface

sys.path.insert(0, str(Path(__file__).parent))
from worded_looks import PICTURE

SPECIAL = {"image_token": "<image>", "fake_image_token": "<fake>", "global_image_token": "<global>",
           "end_of_utterance_token": "<end>"}  # fmt: skip


def save_vlm(folder: Path, weights: bool = False) -> Path:
    """The configuration, the tokenizer (a token for each letter) and the processor; with its `weights` if asked."""
    letters = ["<unk>", "<pad>", *SPECIAL.values(), "\n", *map(chr, range(32, 127))]
    words = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", extra_special_tokens=SPECIAL,
        additional_special_tokens=list(SPECIAL.values()),
    )  # fmt: skip
    SmolVLMProcessor(SmolVLMImageProcessor(), tokenizer, SmolVLMVideoProcessor(), image_seq_len=4).save_pretrained(
        folder
    )
    text = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": len(letters), "pad_token_id": 1,
            "initializer_range": 0.5}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 32, "patch_size": 8, "initializer_range": 0.5}  # fmt: skip
    config = SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, image_token_id=2, pad_token_id=1)
    if weights:
        torch.manual_seed(3)
        SmolVLMForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    else:
        config.save_pretrained(folder)
    return folder


def save_smolvla(
    folder: Path,
    world: Interface,
    vlm: Path,
    cameras: Sequence[str] = ("front", "wrist"),
    picture: tuple[int, int] = PICTURE,
    scale: float = 1.0,
    **settings: Any,
) -> Path:
    """A policy with random weights for `world` without its objects, with its processors, as its training saves them,
    and with what its data set says of its actions, which are about as large as `scale`."""
    torch.manual_seed(0)
    proprio, action = world.observation["proprio"], world.action
    pictures = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *picture)) for name in cameras}
    config = SmolVLAConfig(**{
        "input_features": {"observation.state": PolicyFeature(FeatureType.STATE, proprio.shape), **pictures},
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, action.shape)},
        "vlm_model_name": str(vlm), "load_vlm_weights": False, "num_vlm_layers": 2,
        "resize_imgs_with_padding": (32, 32),
        "max_state_dim": proprio.size + 3, "max_action_dim": action.size + 2, "chunk_size": 8, "n_action_steps": 5,
        "num_steps": 3, "device": "cpu", "push_to_hub": False, **settings,
    })  # fmt: skip
    rng = np.random.default_rng(1)
    stats = {
        name: {
            "mean": torch.tensor(rng.normal(size=size) / 4, dtype=torch.float32),
            "std": torch.tensor(rng.uniform(0.2, 0.5, size), dtype=torch.float32),
            "min": torch.full((size,), -1.0),
            "max": torch.full((size,), 1.0),
        }
        for name, size in (("observation.state", proprio.size), ("action", action.size))
    }
    stats["action"] = {name: scale * value for name, value in stats["action"].items()}
    get_policy_class("smolvla")(config).save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder)
    stated = {key: value for key, value in world.to_json().items() if key != "observation"}
    (folder / "robolearn.json").write_text(json.dumps(stated))
    return folder
