"""SmolVLA, π0 and π0.5, LeRobot's flow policies over a vision-language model: their files, and their samplers.

    x ← x − v(x, t; pictures, words, state) / K,   t = 1, 1 − 1/K, …, 1/K        x (Tp, 32) begins as noise

The state and the actions are padded to `max_state_dim` and `max_action_dim`; of x, the components beyond the arm's are
dropped in the end. They have their part in between, so the noise has them, too. π0.5 reads the state as words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from robolearn.core import BadInput
from robolearn.core.installation import install_command
from robolearn.io.json_files import read_json

Words = Callable[[Tensor], Mapping[str, Tensor]]
"""A normalised state (B, Ds) → the tokens of the prompt (1 or B, L), and which of them count."""

WORDED = ("smolvla", "pi0", "pi05")
_STATE, _PICTURES = "observation.state", "observation.images."
_VLM = "smolvlm"  # of transformers


def check_vlm(config: Mapping[str, Any], tokenizer: str, what: str) -> str:
    """The folder with the tokenizer of a policy's model, of SmolVLA with its configuration, too: the one that the
    ``config.json`` names, and of π0 the `tokenizer` that its preprocessor names. Nothing is fetched, and nothing of the
    folder is run. Raises `BadInput`: it is not on this machine, it is another kind of model, or one with code of its
    own; and of `config`: no state, no pictures, or Aloha's own joints."""
    seen = config.get("input_features") or {}
    if _STATE not in seen or not any(name.startswith(_PICTURES) for name in seen):
        raise BadInput(f"{what}: input features", got=", ".join(seen) or "none", expected=f"{_STATE} and pictures")
    if config.get("adapt_to_pi_aloha"):
        raise BadInput(f"{what}: adapt_to_pi_aloha", got="true", expected="false: joints as they are")
    if find_spec("transformers") is None:
        hint = f"Install it: {install_command('smolvla' if config['type'] == 'smolvla' else 'pi')}"
        raise BadInput(what, got="no transformers in this environment", expected="it", hint=hint)
    field, name = "vlm_model_name", str(config.get("vlm_model_name") or "")
    if config["type"] != "smolvla":
        field, name = "tokenizer_name", tokenizer
    folder = Path(name) if name and Path(name).is_dir() else _cached(field, name, what)
    for file in sorted(folder.glob("*.json")):
        found = read_json(file, what=f"{what}: {file}")
        if isinstance(found, dict) and "auto_map" in found:
            raise BadInput(f"{what}: {file}", got="code of its own (auto_map)", expected="a model of transformers'")
    if config["type"] != "smolvla":
        return str(folder)
    kind = read_json(folder / "config.json", what=f"{what}: {folder / 'config.json'}").get("model_type")
    if kind != _VLM:
        raise BadInput(f"{what}: vlm_model_name {name}", got=f"a model of type {kind}", expected=_VLM)
    return str(folder)


def _cached(field: str, name: str, what: str) -> Path:
    """The folder in the Hub's cache of the repository `name`."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # not there; no name of a repository
        pass
    hint = "Its weights are not needed"
    if name.count("/") == 1 and not name.startswith((".", "/")):
        hint = f'{hint}: hf download {name} --include "*.json" "*.txt"'
    raise BadInput(
        f"{what}: {field}", got=f"{name or 'nothing'}, which is no folder and not in the Hub's cache",
        expected="the configuration and the tokenizer of that model", hint=hint,
    )  # fmt: skip


class FlowSampler:
    """The network of an opened SmolVLA or π0. Pictures are encoded apart from sampling: one encoding serves many
    samples.

    Attributes:
      cameras: LeRobot's features that are pictures, without empty ones.
      noise_shape: (Tp, components with the padding).
      token_count, token_width: n and D of a picture, whatever its size: the network resizes it.
    """

    STATE: ClassVar[str] = _STATE

    def __init__(self, net: Any) -> None:
        self._net, config = net, net.config
        self.cameras = [name for name in config.image_features if not is_empty(name)]
        self.noise_shape = (int(config.chunk_size), int(config.max_action_dim))
        self._components = int(config.action_feature.shape[0])
        self._smol = config.type == "smolvla"
        self._vlm = vlm = net.model.vlm_with_expert if self._smol else net.model.paligemma_with_expert
        self._embed = vlm.embed_image
        vlm.embed_image = self._embedded
        with torch.inference_mode():
            blank = self.tokens(self.cameras[0], torch.zeros(1, *config.image_features[self.cameras[0]].shape))
        self.token_count, self.token_width = blank.shape[1:]

    def tokens(self, name: str, pictures: Tensor) -> Tensor:
        """Preprocessed pictures (B, 3, H, W) of the camera `name` → (B, n, D)."""
        prepare = self._net.prepare_images if self._smol else self._net._preprocess_images
        resized, _ = prepare({name: pictures})
        return self._embed(resized[0]).float()

    def sample(self, state: Tensor, tokens: Sequence[Tensor], words: Words, noise: Tensor) -> Tensor:
        """(B, Ds) normalised, tokens (B, n, D) of each camera, and noise (B, *noise_shape) → (B, Tp, Da) normalised."""
        count, config = len(state), self._net.config
        images = list(tokens)
        masks = [torch.ones(count, dtype=torch.bool, device=state.device) for _ in images]
        # Nothing attends to an empty camera: whatever its tokens are.
        for _ in range(len(config.image_features) - len(images)):
            images.append(torch.zeros_like(images[0]))
            masks.append(torch.zeros_like(masks[0]))
        prompt = words(state)
        told = [prompt[name].to(state.device).expand(count, -1) for name in ("tokens", "attention_mask")]
        if config.type != "pi05":  # which has read the state in its prompt
            told.append(self._net.prepare_state({_STATE: state}))
        with torch.no_grad():
            chunk = self._net.model.sample_actions(images, masks, *told, noise=noise)
        return chunk[:, :, : self._components]

    def _embedded(self, image: Tensor) -> Tensor:
        """Tokens (B, n, D) as they are: LeRobot's own sampler asks for those of each picture."""
        if image.ndim != 3:
            return self._embed(image)
        return image.to(self._vlm.get_vlm_model().vision_model.dtype) if self._smol else image


def is_empty(name: str) -> bool:
    """True for a camera that LeRobot adds to a policy and no world has."""
    return name.startswith(f"{_PICTURES}empty_camera_")
