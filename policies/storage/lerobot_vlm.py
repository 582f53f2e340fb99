"""SmolVLA, LeRobot's flow policy over a vision-language model: what has to lie beside its weights, and its sampler.

    x ← x − v(x, t; pictures, words, state) / K,   t = 1, 1 − 1/K, …, 1/K        x (Tp, 32) begins as noise

The state and the actions are padded to `max_state_dim` and `max_action_dim`; of x, the components beyond the arm's are
dropped in the end. They have their part in between, so the noise has them, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from robolearn.core import BadInput
from robolearn.core.installation import install_command
from robolearn.io.json_files import read_json

WORDED = ("smolvla",)
_STATE, _PICTURES = "observation.state", "observation.images."
_VLM = "smolvlm"  # of transformers


def check_vlm(config: Mapping[str, Any], what: str) -> str:
    """The folder with the configuration and the tokenizer of the model that the ``config.json`` names. Nothing is
    fetched, and nothing of the folder is run. Raises `BadInput`: it is not on this machine, it is another kind of
    model, or one with code of its own; and of `config`: no state, no pictures, or Aloha's own joints."""
    seen = config.get("input_features") or {}
    if _STATE not in seen or not any(name.startswith(_PICTURES) for name in seen):
        raise BadInput(f"{what}: input features", got=", ".join(seen) or "none", expected=f"{_STATE} and pictures")
    if config.get("adapt_to_pi_aloha"):
        raise BadInput(f"{what}: adapt_to_pi_aloha", got="true", expected="false: joints as they are")
    if find_spec("transformers") is None:
        hint = f"Install it: {install_command('smolvla')}"
        raise BadInput(what, got="no transformers in this environment", expected="it", hint=hint)
    name = str(config.get("vlm_model_name") or "")
    folder = Path(name) if name and Path(name).is_dir() else _cached(name, what)
    for file in sorted(folder.glob("*.json")):
        found = read_json(file, what=f"{what}: {file}")
        if isinstance(found, dict) and "auto_map" in found:
            raise BadInput(f"{what}: {file}", got="code of its own (auto_map)", expected="a model of transformers'")
    kind = read_json(folder / "config.json", what=f"{what}: {folder / 'config.json'}").get("model_type")
    if kind != _VLM:
        raise BadInput(f"{what}: vlm_model_name {name}", got=f"a model of type {kind}", expected=_VLM)
    return str(folder)


def _cached(name: str, what: str) -> Path:
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
        f"{what}: vlm_model_name", got=f"{name or 'nothing'}, which is no folder and not in the Hub's cache",
        expected="the configuration and the tokenizer of that model", hint=hint,
    )  # fmt: skip


class FlowSampler:
    """The network of an opened SmolVLA. Pictures are encoded apart from sampling: one encoding serves many samples.

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
        vlm = net.model.vlm_with_expert
        self._embed, self._vlm = vlm.embed_image, vlm
        vlm.embed_image = self._embedded
        with torch.inference_mode():
            blank = self.tokens(self.cameras[0], torch.zeros(1, *config.image_features[self.cameras[0]].shape))
        self.token_count, self.token_width = blank.shape[1:]

    def tokens(self, name: str, pictures: Tensor) -> Tensor:
        """Preprocessed pictures (B, 3, H, W) of the camera `name` → (B, n, D)."""
        resized, _ = self._net.prepare_images({name: pictures})
        return self._embed(resized[0]).float()

    def sample(self, state: Tensor, tokens: Sequence[Tensor], words: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """(B, Ds) normalised, tokens (B, n, D) of each camera, and noise (B, *noise_shape) → (B, Tp, Da) normalised."""
        count, config = len(state), self._net.config
        images = list(tokens)
        masks = [torch.ones(count, dtype=torch.bool, device=state.device) for _ in images]
        # Nothing attends to an empty camera: whatever its tokens are.
        for _ in range(len(config.image_features) - len(images)):
            images.append(torch.zeros_like(images[0]))
            masks.append(torch.zeros_like(masks[0]))
        told = (words[name].to(state.device).expand(count, -1) for name in ("tokens", "attention_mask"))
        padded = self._net.prepare_state({_STATE: state})
        with torch.no_grad():
            chunk = self._net.model.sample_actions(images, masks, *told, padded, noise=noise)
        return chunk[:, :, : self._components]

    def _embedded(self, image: Tensor) -> Tensor:
        """Tokens (B, n, D) as they are: LeRobot's own sampler asks for those of each picture."""
        return image.to(self._vlm.get_vlm_model().vision_model.dtype) if image.ndim == 3 else self._embed(image)


def is_empty(name: str) -> bool:
    """True for a camera that LeRobot adds to a policy and no world has."""
    return name.startswith(f"{_PICTURES}empty_camera_")
