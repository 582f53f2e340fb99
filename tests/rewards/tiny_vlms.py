"""Tiny vision-language models of transformers' own classes, with random weights, saved as folders that it can load.

The real tokenizer, picture and video processors; only sizes are small. `said` makes one that answers a given text: its
layers pass the token through unchanged, and the output weights of each token point to the one that comes next.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from scipy.special import erf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from policies.networks.libraries import import_vision
from robolearn.core import ArraySpec, Interface, Window

HIDDEN, EDGE, PATCHED = 32, 32, 28
SURE = 25.0  # logit of a taught token; others have a few
CAMERA = "images.front"
INTERFACE = Interface({CAMERA: ArraySpec((40, 56, 3), "uint8")}, ArraySpec((2,)), 20.0)
TASK, OTHER = "lift the cube", "the arm lifts the cube on the table and puts it down"
QWEN = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
INTERN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>")
WORDS = [" True", "ANSWER: 4", "ANSWER: 3", "-", "1", "2", "35"] * 20 + ["the arm lifts the cube on the table"] * 5
TEMPLATE = (
    "{%% set n = namespace(v=0) %%}{%% for m in messages %%}<|im_start|>{{ m.role }}\n{%% for c in m.content %%}"
    "{%% if c.type == 'image' %%}{%% set n.v = n.v + 1 %%}{%% if add_vision_id %%}Picture {{ n.v }}: {%% endif %%}%s"
    "{%% elif c.type == 'video' %%}%s{%% else %%}{{ c.text }}{%% endif %%}{%% endfor %%}<|im_end|>\n{%% endfor %%}"
    "{%% if add_generation_prompt %%}<|im_start|>assistant\n{%% endif %%}"
)


def window(pictures: int, seed: int = 0, steps: int | None = None) -> Window:
    """An episode of random pictures, by default with a last one after the last step."""
    frames = np.random.default_rng(seed).integers(0, 256, (pictures, 40, 56, 3), dtype=np.uint8)
    return Window({CAMERA: frames}, np.zeros((pictures - 1 if steps is None else steps, 2), np.float32))


def tokenizer(special: tuple[str, ...], answers: tuple[str, ...] = (), **named: str) -> Any:
    """A byte-level BPE of a few words; each of `answers` is one token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(WORDS, trainer)
    made.add_special_tokens(list(special))
    if answers:
        made.add_tokens(list(answers))
    return import_vision("transformers").PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=named
    )


def qwen(folder: Path, *, answers: tuple[str, ...] = (), seed: int = 0, tied: bool = False, files: str = "1GB") -> Any:
    """A Qwen3-VL with its processor in `folder`; the model is returned.

    Args:
      answers: texts that are one token each.
      tied: the output weights are the embedding.
      files: largest file of weights.
    """
    tf = import_vision("transformers")
    words = tokenizer(QWEN, answers)
    template = TEMPLATE % ("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")
    size = {"shortest_edge": EDGE * EDGE, "longest_edge": 16 * EDGE * EDGE}
    processor = tf.Qwen3VLProcessor(
        tf.Qwen2VLImageProcessor(patch_size=16, size=size), words,
        tf.Qwen3VLVideoProcessor(size=size), chat_template=template,
    )  # fmt: skip
    ids = {
        name: words.convert_tokens_to_ids(token)
        for name, token in zip(
            ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"), QWEN[3:], strict=True
        )
    }
    config = tf.Qwen3VLConfig(
        text_config=dict(initializer_range=0.2, vocab_size=len(words), hidden_size=HIDDEN, intermediate_size=48,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
                         pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id),
        vision_config=dict(initializer_range=0.2, depth=2, hidden_size=16, intermediate_size=24, num_heads=2,
                           out_hidden_size=HIDDEN,
                           num_position_embeddings=16, deepstack_visual_indexes=[0, 1]),
        tie_word_embeddings=tied, **ids,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = tf.Qwen3VLForConditionalGeneration(config).eval()
    processor.save_pretrained(folder)
    model.save_pretrained(folder, max_shard_size=files)
    return model


def loaded(name: str, folder: Path) -> Any:
    """The model in `folder` as the class `name` of transformers reads it."""
    return getattr(import_vision("transformers"), name).from_pretrained(folder).eval()


def robometer(folder: Path, base: Path, *, lerobot: bool = False, bins: int = 10) -> None:
    """Robometer's weights on the tiny Qwen3-VL of `base`: as its authors store them, or as LeRobot does."""
    model = loaded("Qwen3VLForConditionalGeneration", base)
    torch.manual_seed(3)
    words = len(load_tokenizer(base)) + 5
    model.resize_token_embeddings(words)
    model.get_input_embeddings().weight.data.normal_(0.0, 0.5)
    tensors = {key: value.clone() for key, value in model.state_dict().items()}
    for name, outputs in (("progress_head", bins), ("success_head", 1), ("preference_head", 1)):
        sizes = {"0.weight": (HIDDEN // 2, HIDDEN), "0.bias": (HIDDEN // 2,), "1.weight": (HIDDEN // 2,),
                 "1.bias": (HIDDEN // 2,), "4.weight": (outputs, HIDDEN // 2), "4.bias": (outputs,)}  # fmt: skip
        tensors |= {f"{name}.{key}": torch.randn(size) for key, size in sizes.items()}
    tensors["frame_pool_attn.weight"] = torch.randn(1, HIDDEN)
    folder.mkdir()
    if lerobot:
        tensors = {key if ("head." in key and "lm_" not in key) or "pool" in key else f"model.{key}": value
                   for key, value in tensors.items()}  # fmt: skip
        config = {"type": "robometer", "base_model_id": str(base), "vlm_config": model.config.to_dict()}
    else:
        config = model.config.to_dict()
        for path in base.iterdir():
            if path.name not in ("config.json", "model.safetensors"):
                (folder / path.name).write_bytes(path.read_bytes())
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in `folder`."""
    return import_vision("transformers").AutoTokenizer.from_pretrained(folder)


def head_by_hand(stored: dict[str, torch.Tensor], name: str, hidden: np.ndarray) -> np.ndarray:
    """(n, outputs) of Linear, LayerNorm, GELU, Linear with the stored weights, by numpy in double."""
    w = {key.removeprefix(f"{name}."): value.double().numpy() for key, value in stored.items() if key.startswith(name)}
    x = hidden.astype(np.float64) @ w["0.weight"].T + w["0.bias"]
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w["1.weight"] + w["1.bias"]
    x = x * 0.5 * (1.0 + erf(x / np.sqrt(2.0)))
    return x @ w["4.weight"].T + w["4.bias"]


def intern(folder: Path, *, answers: tuple[str, ...] = (), seed: int = 0) -> Any:
    """An InternVL with its processor in `folder`, a token to a picture; the model is returned."""
    tf = import_vision("transformers")
    words = tokenizer(INTERN, answers, start_image_token="<img>", end_image_token="</img>",
                      context_image_token="<IMG_CONTEXT>", video_token="<video>")  # fmt: skip
    size = {"height": PATCHED, "width": PATCHED}
    processor = tf.InternVLProcessor(
        tf.GotOcr2ImageProcessor(size=size), words, tf.InternVLVideoProcessor(size=size), image_seq_length=1,
        chat_template=TEMPLATE % ("<IMG_CONTEXT>", "<video>"),
    )  # fmt: skip
    config = tf.InternVLConfig(
        text_config=dict(model_type="qwen2", initializer_range=0.2, vocab_size=len(words), hidden_size=HIDDEN,
                         intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id),
        vision_config=dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                           image_size=[PATCHED, PATCHED], patch_size=[14, 14], layer_scale_init_value=1.0),
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"), image_seq_length=1, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = tf.InternVLForConditionalGeneration(config).eval()
    processor.save_pretrained(folder)
    model.save_pretrained(folder)
    return model


def teach(folder: Path, model: Any, *answer: dict[str, float], keep: float = 0.02) -> None:
    """Let the `model` in `folder` answer one token after the other, each drawn from texts with these probabilities.

    Layers are nearly passed over (`keep` of their outputs is left, so that pictures change a little), and the output
    weights of a token are its logit times the direction of the token before it, and a little of their own.
    """
    words, text = load_tokenizer(folder), model.model.language_model
    with torch.no_grad():
        for layer in text.layers:
            layer.self_attn.o_proj.weight.mul_(keep)
            layer.mlp.down_proj.weight.mul_(keep)
        embedded = text.embed_tokens.weight
        embedded.normal_(0.0, 1.0, generator=torch.Generator().manual_seed(5))
        model.lm_head.weight.zero_()
        before = words.encode("assistant\n", add_special_tokens=False)[-1]
        for likely in (*answer, {"<|im_end|>": 1.0}):
            direction = embedded[before] / embedded[before].square().mean().sqrt()
            for said, p in likely.items():
                (token,) = words.encode(said, add_special_tokens=False)
                model.lm_head.weight[token] += (SURE + np.log(p)) / HIDDEN * direction + 0.1 * torch.randn(HIDDEN)
            (before,) = words.encode(max(likely, key=lambda said: likely[said]), add_special_tokens=False)
    model.save_pretrained(folder)
